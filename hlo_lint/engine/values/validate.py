"""The first pass after which a module computes something else.

The first dump of a compilation and the last one become programs (`lowering`), which need not run
where they are one graph; where they differ the step is found by bisection, and only the dumps that
it looks at are lowered. Where the interface changes (other parameters, another custom call that
cannot be run) a new stretch begins, and the step between is not compared.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, pairwise
from operator import attrgetter
from typing import Final

from hlo_lint.analysis.diff.bisection import aligned_steps
from hlo_lint.analysis.stage import ANY_STAGE
from hlo_lint.analysis.verifier.scope import Violation
from hlo_lint.analysis.walks import reached
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.engine.values.comparable import incomparable
from hlo_lint.engine.values.inputs import value
from hlo_lint.engine.values.lowering.graph import Nodes
from hlo_lint.engine.values.programs import Comparison, DrawInput, Inputs, Runs, StepOutcome
from hlo_lint.engine.values.replay import Culprit, culprit
from hlo_lint.engine.values.steps import RunSteps, StepProgress, ValidatedStep, shared_parameters
from hlo_lint.engine.verifier import Verifier
from hlo_lint.hlo.ir import Instruction
from hlo_lint.text.errors import DumpError
from hlo_lint.text.phrases import counted
from hlo_lint.xla.cpu import XlaCpu
from hlo_lint.xla.limits import MEMORY, SECONDS

SEEDS: Final = (0, 1)
"""One seed of small numbers of both signs, one of positive numbers."""

MIN_SHARE: Final = 4
"""Steps for which another child is worth its start."""


@dataclass
class ValueChange:
    """A step whose module computes something else than the one before."""

    before: PassDump
    after: PassDump
    comparison: Comparison
    culprit: Culprit | None
    """The first instruction whose value differs, or that XLA refuses; None where none is known."""


@dataclass
class Validation:
    """The verdict on one compilation."""

    title: str
    steps: list[ValidatedStep] = field(default_factory=list)
    changes: list[ValueChange] = field(default_factory=list)
    """The steps that changed the values, the first one first."""
    runs: int = 0
    """The number of programs that XLA:CPU ran."""
    notes: list[str] = field(default_factory=list)
    """The reasons why steps were not compared, and what was cut."""

    @property
    def counts(self) -> Counter[StepOutcome]:
        """The number of steps of each outcome."""
        return Counter(step.comparison.outcome for step in self._judged)

    @property
    def _judged(self) -> list[ValidatedStep]:
        """The steps that were compared with another one, or could not be."""
        return [step for step in self.steps if step.is_judged]

    @property
    def compared(self) -> int:
        """The number of steps that were compared, by graph or by values."""
        missing = (StepOutcome.NOT_COMPARABLE, StepOutcome.NOT_RUN, StepOutcome.NOT_LOWERED)
        return sum(step.comparison.outcome not in missing for step in self._judged)

    def finish(self, runs: int) -> None:
        """Note the number of runs, why steps were not compared, and what was cut."""
        self.runs = runs
        reasons = Counter(
            f"{step.comparison.outcome.value}: {step.comparison.reason}"
            for step in self.steps
            if step.comparison.reason
        )
        self.notes = [f"{reason} ({counted(count, 'step')})" for reason, count in reasons.items()]
        programs = [step.program for step in self.steps if step.program is not None]
        if cuts := sorted({cut.what for program in programs for cut in program.cuts}):
            self.notes.append(f"not run, equal for equal operands: {', '.join(cuts)}")


def validate_dumps(
    title: str,
    dumps: Sequence[PassDump],
    xla: XlaCpu,
    *,
    seeds: Sequence[int] = SEEDS,
    edges: bool = False,
    all_steps: bool = False,
    jobs: int = 1,
    progress: StepProgress = lambda _: None,
    draw: DrawInput = value,
) -> Validation:
    """Compare dumps of one program in the order of the run, each with the one before it.

    With `all_steps` each step is run, `jobs` at a time, else only as many as bisection needs: a
    change that a later pass takes back is then not seen. `draw` gives the inputs.
    """
    ran, deadline = xla.texts_run, xla.limits.deadline
    run, runs = (
        RunSteps(dumps, deadline, progress),
        Runs(xla, edges, at_edges=True, wide_first=True, draw=draw),
    )
    result = Validation(title, run.steps)
    stretches = [_Stretch(steps, run, result, seeds) for steps in _stretches(run, all_steps)]
    if all_steps:
        _compare_all(stretches, runs, jobs)
    for stretch in stretches:
        if not all_steps:
            stretch.bisect(runs)
        stretch.add_refusals(runs)
    result.changes += _unsound(run, result.changes)
    result.finish(xla.texts_run - ran)
    return result


def validate_pair(
    ours: Pipeline,
    theirs: Pipeline,
    xla: XlaCpu,
    *,
    seeds: Sequence[int] = SEEDS,
    edges: bool = False,
    progress: StepProgress = lambda _: None,
) -> Validation:
    """Compare two runs over one program after each step that both have, up to the first change."""
    result, ran = Validation(f"{ours.title} and {theirs.title}"), xla.texts_run
    deadline = xla.limits.deadline
    runs, nodes, replicated = (
        Runs(xla, edges, at_edges=True, wide_first=True),
        Nodes(deadline),
        shared_parameters(ours.dumps, deadline),
    )
    verdicts: dict[tuple[int, int], Comparison] = {}
    for aligned in aligned_steps(ours, theirs):
        if aligned.before is None or aligned.after is None:
            continue
        progress(aligned.title)
        one, other = ValidatedStep(aligned.before), ValidatedStep(aligned.after)
        for step in (one, other):
            step.lower(nodes, replicated, deadline)
        result.steps.append(one)
        if one.program is None or other.program is None:
            other.comparison = one.comparison if one.program is None else other.comparison
        else:
            inputs = one.program.inputs
            key = one.program.graph.number, other.program.graph.number
            if key not in verdicts:
                verdicts[key] = runs.compare(one.program, other.program, inputs, seeds)
            other.comparison = verdicts[key]
            if other.comparison.outcome is StepOutcome.CHANGED:
                result.changes.append(_change(one, other, inputs, runs))
        one.comparison = other.comparison
        if result.changes:
            break
    result.finish(xla.texts_run - ran)
    return result


def _unsound(run: RunSteps, changes: Sequence[ValueChange]) -> Iterator[ValueChange]:
    """Each step that cannot be run, and that XLA's verifier refuses, unlike the one before it.

    What the verifier accepts is only not known here, and no defect of the pass.
    """
    reported = [change.after for change in changes]
    for before, step in pairwise(run.steps):
        outcome = step.comparison.outcome
        if outcome not in (StepOutcome.NOT_LOWERED, StepOutcome.NOT_RUN) or step.dump in reported:
            continue
        if any(limit in step.comparison.reason for limit in (SECONDS, MEMORY)):
            continue  # XLA takes it
        if run.lower(before) and (violation := _violation(before.dump, step.dump)):
            assert isinstance(violation.at, Instruction)
            refusal, culprit = Comparison(outcome, violation.message), Culprit(violation.at, None)
            yield ValueChange(before.dump, step.dump, refusal, culprit)


def _violation(before: PassDump, after: PassDump) -> Violation | None:
    """An error of XLA's verifier at an instruction, of a check that the dump before passes."""
    verifier = Verifier()
    try:
        known, found = (
            verifier.violations(dump.module, ANY_STAGE).by_check for dump in (before, after)
        )
    except (DumpError, OSError):
        return None
    errors = (one for check in found.keys() - known.keys() for one in found[check])
    return next((one for one in errors if not one.is_warning and _is_read(one.at)), None)


def _is_read(at: object) -> bool:
    """True for an instruction that the result of its computation needs: a pass may leave others."""
    if not isinstance(at, Instruction) or at.computation.root is None:
        return False
    return at in reached([at.computation.root], attrgetter("producers"))


def _stretches(run: RunSteps, all_steps: bool) -> list[list[ValidatedStep]]:
    """The steps whose programs run on the same inputs.

    With `all_steps` all are lowered, and only the first of each equal graph is in a stretch.
    """
    steps = run.steps
    lowered: list[ValidatedStep] = []
    for step, before in zip(steps, [None, *steps], strict=False):
        if (all_steps or not lowered) and run.lower(step, before):
            lowered.append(step)
    if not lowered:
        return []
    if not all_steps:
        (first,) = lowered
        end = next(step for step in reversed(steps) if run.lower(step, first))
        lowered, steps = [first, end], steps[first.number : end.number + 1]
    starts = {id(lowered[0])}
    pairs = [*pairwise(lowered)]
    while pairs:
        one, other = pairs.pop()
        assert one.program is not None
        assert other.program is not None
        reason = incomparable(one.program, other.program)
        middle = run.between(one, other) if reason else None
        if middle is not None:
            pairs += [(one, middle), (middle, other)]
        elif reason:
            other.comparison = Comparison(StepOutcome.NOT_COMPARABLE, reason)
            starts.add(id(other))
    stretches: list[list[ValidatedStep]] = []
    last: ValidatedStep | None = None
    for step in lowered if all_steps else steps:
        if id(step) in starts:
            stretches.append([step])
        elif all_steps and step.has_graph_of(last):
            step.comparison = Comparison(StepOutcome.SAME_GRAPH)
        else:
            stretches[-1].append(step)
        step.before, last = last, step
    return stretches


@dataclass
class _Stretch:
    """Steps whose programs run on the same inputs."""

    steps: list[ValidatedStep]
    run: RunSteps
    result: Validation
    seeds: Sequence[int]

    def __post_init__(self) -> None:
        assert self.steps[0].program is not None
        self.first = self.steps[0].program
        self.inputs = self.first.inputs
        """All steps run on what is in range for the first one."""

    def _is_ready(self, step: ValidatedStep) -> bool:
        """True if a step is a program that takes the inputs, which else becomes the verdict."""
        program = self.run.lower(step, self.steps[0])
        if program is None:
            return False
        reason = incomparable(self.first, program)
        if reason:
            step.comparison = Comparison(StepOutcome.NOT_COMPARABLE, reason)
        return not reason

    def _fails(self, step: ValidatedStep, runs: Runs) -> bool:
        """True if the program of a step does not run, which becomes the verdict on it."""
        if not self._is_ready(step):
            return True
        assert step.program is not None
        self.run.progress(step.label)
        failure = runs.failure(step.program, self.inputs, self.seeds[0])
        if failure is not None:
            step.comparison = Comparison(StepOutcome.NOT_RUN, str(failure))
        return failure is not None

    def _verdict(self, one: ValidatedStep, other: ValidatedStep, runs: Runs) -> Comparison:
        if not self._is_ready(other):
            return other.comparison
        self.run.progress(other.label)
        assert one.program is not None
        assert other.program is not None
        return runs.compare(one.program, other.program, self.inputs, self.seeds)

    def add_change(self, one: ValidatedStep, other: ValidatedStep, runs: Runs) -> None:
        """Add the change that a step makes, if it makes one."""
        if other.comparison.outcome is StepOutcome.CHANGED:
            self.result.changes.append(_change(one, other, self.inputs, runs))

    def add_refusals(self, runs: Runs) -> None:
        """Add each step that XLA refuses or that never ends, where the step before runs."""
        for before, step in pairwise(self.steps):
            if step.comparison.outcome is not StepOutcome.NOT_RUN or step.program is None:
                continue
            refused = _find_refused(step.comparison.reason)
            endless = step.program.endless
            if not (refused or endless) or self._fails(before, runs):
                continue
            made = [instruction for instruction, _ in endless]
            if refused:
                origins = step.program.origins.items()
                made = [made_by for (_, at), made_by in origins if at == int(refused[1])]
                step.comparison = Comparison(StepOutcome.NOT_RUN, refused[2])
            culprit = next((Culprit(instruction, None) for instruction in made), None)
            self.result.changes.append(
                ValueChange(before.dump, step.dump, step.comparison, culprit)
            )

    def compare(self, number: int, runs: Runs) -> ValidatedStep | None:
        """Compare a step with the nearest one before it that runs, which is returned."""
        step = self.steps[number]
        if self._fails(step, runs):
            return None
        earlier = reversed(self.steps[:number])
        before = next((one for one in earlier if not self._fails(one, runs)), None)
        if before is not None:
            step.comparison = self._verdict(before, step, runs)
        return before

    def bisect(self, runs: Runs) -> None:
        """Find the first change: the first step is compared with the last one, then halves."""
        ends = (self.steps[0], self.steps[-1])
        if ends[1].has_graph_of(ends[0]) and len(self.steps) > 1:
            ends[1].comparison = Comparison(StepOutcome.SAME_GRAPH)
            return
        running: list[ValidatedStep] = []
        for step in self.steps:
            is_tried = len(self.steps) > 1 and (step in ends or not running)
            if not (is_tried and self._fails(step, runs)):
                running.append(step)
        while len(running) > 1:
            first, last = running[0], running[-1]
            whole = self._verdict(first, last, runs)
            if whole.is_equal or len(running) == 2:
                last.comparison = whole
                self.add_change(first, last, runs)
                return
            low, high = 0, len(running) - 1
            while high - low > 1:
                middle = (low + high) // 2
                half = self._verdict(first, running[middle], runs)
                if half.outcome is StepOutcome.NOT_RUN or not self._is_ready(running[middle]):
                    running.pop(middle).comparison = half
                    high -= 1
                elif half.is_equal:
                    low = middle
                else:
                    high = middle
            one, other = running[low], running[high]
            other.comparison = self._verdict(one, other, runs)
            self.add_change(one, other, runs)
            running = running[high:]


_find_refused: Final = re.compile(r'error: loc\("n(\d+)"\): (.*)').search
"""StableHLO's verifier names the node. What it says of a module that ran before is the pass's."""


def _compare_all(stretches: Sequence[_Stretch], runs: Runs, jobs: int) -> None:
    """Run every step, and compare it with the one before it."""
    steps = [
        (stretch, number)
        for stretch in stretches
        if len(stretch.steps) > 1
        for number in range(len(stretch.steps))
    ]
    # A child takes its time to start, and keeps results of its own: its share are neighbours.
    count = max(1, min(jobs, len(steps) // MIN_SHARE))
    ends = [len(steps) * number // count for number in range(count + 1)]

    def compare(runs: Runs, start: int, end: int) -> list[ValidatedStep | None]:
        return [stretch.compare(number, runs) for stretch, number in steps[start:end]]

    with ExitStack() as stack:
        siblings = [stack.enter_context(runs.xla.sibling()) for _ in range(count - 1)]
        pool = [
            runs,
            *(Runs(xla, runs.edges, runs.at_edges, runs.draw, runs.wide_first) for xla in siblings),
        ]
        threads = stack.enter_context(ThreadPoolExecutor(count))
        befores = chain.from_iterable(threads.map(compare, pool, ends, ends[1:]))
        for (stretch, number), before in zip(steps, befores, strict=True):
            if before is not None:
                stretch.add_change(before, stretch.steps[number], runs)
        runs.xla.texts_run += sum(xla.texts_run for xla in siblings)


def _change(one: ValidatedStep, other: ValidatedStep, inputs: Inputs, runs: Runs) -> ValueChange:
    assert one.program is not None
    assert other.program is not None
    divergence = culprit(one.program, other.program, runs, inputs, other.comparison.seed)
    nearest = other.before
    if nearest is None or nearest.program is None or nearest.program.graph is not one.program.graph:
        nearest = one  # what lies between did not run
    return ValueChange(nearest.dump, other.dump, other.comparison, divergence)
