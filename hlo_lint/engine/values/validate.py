"""Find the first pass that changes the values of a module.

The first and the last dump of a compilation become programs (`lowering`). They need not run if
their graphs are equal; otherwise the step is found by bisection, which lowers only the dumps that
it visits. Where the interface changes (parameters, custom calls that cannot be run) a new stretch
begins, and the step between two stretches is not compared.
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
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from hlo_lint.analysis.diff.bisection import aligned_steps
from hlo_lint.analysis.stage import ANY_STAGE
from hlo_lint.analysis.verifier.scope import Violation
from hlo_lint.analysis.walks import reached
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.engine.values.comparable import incomparable
from hlo_lint.engine.values.compare import OWN_BOUND, keep_bound
from hlo_lint.engine.values.hostile import work_of
from hlo_lint.engine.values.inputs import leaves_of
from hlo_lint.engine.values.lowering.program import Program
from hlo_lint.engine.values.programs import Comparison, GivenInputs, Inputs, Runs, StepOutcome
from hlo_lint.engine.values.replay import Culprit, culprit
from hlo_lint.engine.values.run import text_values
from hlo_lint.engine.values.steps import RunSteps, StepProgress, ValidatedStep
from hlo_lint.engine.verifier import Verifier
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.parser.literals import AnyArray
from hlo_lint.text.errors import DumpError, HloLintError
from hlo_lint.text.phrases import counted
from hlo_lint.xla.cpu import XlaCpu
from hlo_lint.xla.limits import MEMORY, SECONDS

SEEDS: Final = (0, 1)
"""A seed of small numbers of both signs, and a seed of positive numbers."""

MAX_WORK: Final = 1 << 39
"""The elements that the steps of a stretch compute together on one seed, where all are run."""
MIN_SHARE: Final = 4
"""The number of steps that makes another child worth its start."""


class ShownInput(NamedTuple):
    """The values of a parameter, or of an element of one, on a device."""

    name: str
    array: AnyArray
    is_given: bool
    """False for made-up values."""


@dataclass
class ValueChange:
    """A step that changed the values of the module."""

    before: PassDump
    after: PassDump
    comparison: Comparison
    culprit: Culprit | None
    """The first instruction whose value differs, or that XLA refuses; None if unknown."""
    inputs: tuple[ShownInput, ...] = ()
    """The inputs that show the difference, in the order of the parameters."""
    is_disputed: bool = False
    """True if XLA:CPU without its passes, given both texts, computes equal values."""


@dataclass
class Validation:
    """The verdict on a compilation."""

    title: str
    steps: list[ValidatedStep] = field(default_factory=list)
    changes: list[ValueChange] = field(default_factory=list)
    """The steps that changed the values, in the order of the run."""
    runs: int = 0
    """The number of programs that XLA:CPU ran."""
    notes: list[str] = field(default_factory=list)
    """The reasons why steps were not compared, and the operations that were not run."""

    @property
    def counts(self) -> Counter[StepOutcome]:
        """The number of steps of each outcome."""
        return Counter(step.comparison.outcome for step in self._judged)

    @property
    def _judged(self) -> list[ValidatedStep]:
        """All steps except the first dump, which has no predecessor to compare with."""
        return [step for step in self.steps if step.is_judged]

    @property
    def compared(self) -> int:
        """The number of steps that were compared, by graph or by values."""
        missing = (StepOutcome.NOT_COMPARABLE, StepOutcome.NOT_RUN, StepOutcome.NOT_LOWERED)
        return sum(step.comparison.outcome not in missing for step in self._judged)

    def finish(self, runs: int) -> None:
        """Note the number of runs, the reasons for missing comparisons, and the cut operations."""
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
    all_steps: bool = False,
    jobs: int = 1,
    progress: StepProgress = lambda _: None,
    given: GivenInputs = MappingProxyType({}),
) -> Validation:
    """Compare successive dumps of a program, in the order of the run.

    With `all_steps` each step is run, `jobs` at a time, unless a stretch of them computes more than
    `MAX_WORK`. Otherwise only the steps that bisection needs are run: it misses a change that a
    later pass takes back.

    `given` are inputs of a user, for the first run.
    """
    ran, deadline = xla.texts_run, xla.limits.deadline
    run, runs = RunSteps(dumps, deadline, progress), Runs(xla, given, wide_first=True)
    result = Validation(title, run.steps)
    stretches = [_Stretch(steps, run, result, seeds) for steps in _stretches(run, all_steps)]
    _compare_all([stretch for stretch in stretches if all_steps and stretch.is_small], runs, jobs)
    for stretch in stretches:
        if not (all_steps and stretch.is_small):
            stretch.bisect(runs)
        stretch.add_refusals(runs)
    result.changes += _unsound(run, result.changes)
    result.finish(xla.texts_run - ran)
    return result


def validate_runs(
    ours: Compilation, theirs: Compilation, xla: XlaCpu, **options: Any
) -> Validation:
    """Compare two runs of a program after each step that both have, up to the first change.

    `options` are those of `validate_dumps`.
    """
    ran, result = xla.texts_run, Validation(f"{ours.title} and {theirs.title}")
    for aligned in aligned_steps(ours, theirs):
        if aligned.before is not None and aligned.after is not None and not result.changes:
            sides = [aligned.before, aligned.after]
            part = validate_dumps(aligned.title, sides, xla, **options)
            result.steps += part.steps
            result.changes += part.changes
    result.finish(xla.texts_run - ran)
    return result


def _unsound(run: RunSteps, changes: Sequence[ValueChange]) -> Iterator[ValueChange]:
    """Each step that XLA's verifier refuses and that cannot be run, where its predecessor passed.

    A module that the verifier accepts is not a defect of the pass: lowering lacks something.
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
    """A verifier error at an instruction, of a check that the dump before passes."""
    verifier = Verifier()
    try:
        known, found = (
            verifier.violations(dump.module, ANY_STAGE).by_check for dump in (before, after)
        )
    except (DumpError, OSError):
        return None
    errors = (error for check in found.keys() - known.keys() for error in found[check])
    return next((error for error in errors if not error.is_warning and _is_read(error.at)), None)


def _is_read(place: object) -> bool:
    """True for a live instruction: a pass may leave dead ones behind."""
    if not isinstance(place, Instruction) or place.computation.root is None:
        return False
    return place in reached([place.computation.root], attrgetter("producers"))


def _stretches(run: RunSteps, all_steps: bool) -> list[list[ValidatedStep]]:
    """The steps in stretches whose programs run on the same inputs.

    With `all_steps` every step is lowered, and a stretch has only the first of equal graphs.
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
        left, right = pairs.pop()
        assert left.program is not None
        assert right.program is not None
        reason = incomparable(left.program, right.program)
        middle = run.between(left, right) if reason else None
        if middle is not None:
            pairs += [(left, middle), (middle, right)]
        elif reason:
            right.comparison = Comparison(StepOutcome.NOT_COMPARABLE, reason)
            starts.add(id(right))
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
        """The inputs of all steps, in range for the first step."""
        self.is_small = work_of(self.first) * len(self.steps) <= MAX_WORK

    def _is_ready(self, step: ValidatedStep) -> bool:
        """True if a step is a program that takes the inputs; if not, record the verdict."""
        program = self.run.lower(step, self.steps[0])
        if program is None:
            return False
        reason = incomparable(self.first, program)
        if reason:
            step.comparison = Comparison(StepOutcome.NOT_COMPARABLE, reason)
        return not reason

    def _fails(self, step: ValidatedStep, runs: Runs) -> bool:
        """True if the program of a step does not run; if so, record the verdict."""
        if not self._is_ready(step):
            return True
        assert step.program is not None
        self.run.progress(step.label)
        failure = runs.failure(step.program, self.inputs, self.seeds[0])
        if failure is not None:
            step.comparison = Comparison(StepOutcome.NOT_RUN, str(failure))
        return failure is not None

    def _verdict(self, before: ValidatedStep, after: ValidatedStep, runs: Runs) -> Comparison:
        if not self._is_ready(after):
            return after.comparison
        self.run.progress(after.label)
        assert before.program is not None
        assert after.program is not None
        between = self.run.steps[before.number + 1 : after.number + 1]
        rounds_freely = any(map(_rounds_freely, between))
        return runs.compare(before.program, after.program, self.inputs, self.seeds, rounds_freely)

    def add_change(self, before: ValidatedStep, after: ValidatedStep, runs: Runs) -> None:
        """Record a step that changed the values."""
        if after.comparison.outcome is StepOutcome.CHANGED:
            self.result.changes.append(_change(before, after, self.inputs, runs))

    def add_refusals(self, runs: Runs) -> None:
        """Record each step that XLA refuses or that never ends, where the step before runs."""
        for before, step in pairwise(self.steps):
            if step.comparison.outcome is not StepOutcome.NOT_RUN or step.program is None:
                continue
            refused = _find_refused(step.comparison.reason)
            endless = step.program.endless
            if not (refused or endless) or self._fails(before, runs):
                continue
            suspects = [instruction for instruction, _ in endless]
            if refused:
                origins = step.program.origins.items()
                number = int(refused[1])
                suspects = [source for (_, node), source in origins if node == number]
                step.comparison = Comparison(StepOutcome.NOT_RUN, refused[2])
            culprit = next((Culprit(instruction, None) for instruction in suspects), None)
            self.result.changes.append(
                ValueChange(before.dump, step.dump, step.comparison, culprit)
            )

    def compare(self, number: int, runs: Runs) -> ValidatedStep | None:
        """Compare a step with the nearest earlier step that runs, and return that step."""
        step = self.steps[number]
        if self._fails(step, runs):
            return None
        earlier = (other for other in reversed(self.steps[:number]) if not self._fails(other, runs))
        before = next(earlier, None)
        if before is not None:
            step.comparison = self._verdict(before, step, runs)
        return before

    def bisect(self, runs: Runs) -> None:
        """Find the first change by bisection between the first and the last step."""
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
            before, after = running[low], running[high]
            after.comparison = self._verdict(before, after, runs)
            self.add_change(before, after, runs)
            running = running[high:]


_find_rounding_pass: Final = re.compile(r"fp-conversion|float|precision|bf16|bfloat").search


def _rounds_freely(step: ValidatedStep) -> bool:
    """True for a pass that may drop a conversion to a narrower float and back."""
    name = step.dump.name
    return name is not None and bool(_find_rounding_pass(name.after))


_find_refused: Final = re.compile(r'error: loc\("n(\d+)"\): (.*)').search
"""StableHLO's verifier names the node. If the module before ran, the pass caused the error."""


def _compare_all(stretches: Sequence[_Stretch], runs: Runs, jobs: int) -> None:
    """Run every step, and compare it with its predecessor."""
    steps = [
        (stretch, number)
        for stretch in stretches
        if len(stretch.steps) > 1
        for number in range(len(stretch.steps))
    ]
    # A child is slow to start and caches its own results, so each gets neighbouring steps.
    count = max(1, min(jobs, len(steps) // MIN_SHARE))
    ends = [len(steps) * number // count for number in range(count + 1)]

    def compare(runs: Runs, start: int, end: int) -> list[ValidatedStep | None]:
        return [stretch.compare(number, runs) for stretch, number in steps[start:end]]

    with ExitStack() as stack:
        siblings = [stack.enter_context(runs.xla.sibling()) for _ in range(count - 1)]
        pool = [runs, *(Runs(xla, runs.given, runs.wide_first) for xla in siblings)]
        threads = stack.enter_context(ThreadPoolExecutor(count))
        befores = chain.from_iterable(threads.map(compare, pool, ends, ends[1:]))
        for (stretch, number), before in zip(steps, befores, strict=True):
            if before is not None:
                stretch.add_change(before, stretch.steps[number], runs)
        runs.xla.texts_run += sum(xla.texts_run for xla in siblings)


def _change(before: ValidatedStep, after: ValidatedStep, inputs: Inputs, runs: Runs) -> ValueChange:
    assert before.program is not None
    assert after.program is not None
    inputs = after.comparison.inputs or inputs
    divergence = (
        culprit(before.program, after.program, runs, inputs, after.comparison)
        if after.comparison.difference is not None
        else _loop(after.program)
    )
    nearest = after.before or before
    if not nearest.has_graph_of(before):
        nearest = before  # the steps between did not run
    arrays = tuple(_shown(before.dump, runs, inputs, after.comparison.seed))
    is_disputed = _is_disputed(nearest, after, arrays, runs)
    return ValueChange(nearest.dump, after.dump, after.comparison, divergence, arrays, is_disputed)


def _loop(program: Program) -> Culprit | None:
    """The loop of a program that does not end, if it has one alone."""
    sources = set(program.origins.values())
    loops = [source for source in sources if source.opcode == "while"]
    return Culprit(loops[0], None) if len(loops) == 1 else None


def _is_disputed(
    before: ValidatedStep, after: ValidatedStep, inputs: Sequence[ShownInput], runs: Runs
) -> bool:
    """True if XLA:CPU runs both texts without its passes, and they give equal values."""
    difference = after.comparison.difference
    if difference is None or not difference.error > OWN_BOUND.of_largest * abs(difference.before):
        return False  # rounding in their own types may hide it
    arrays = [shown.array for shown in inputs]
    try:
        ours, theirs = (
            text_values(step.dump.module, arrays, runs.xla, with_passes=False)
            for step in (before, after)
        )
    except (HloLintError, ValueError):
        return False  # of several devices, of another release, with kernels
    return keep_bound(ours, theirs, OWN_BOUND)


def _shown(dump: PassDump, runs: Runs, inputs: Inputs, seed: int) -> Iterator[ShownInput]:
    names = [name for name, _ in leaves_of(dump.module)]
    for input_, array in zip(inputs, runs.inputs(inputs, seed), strict=True):
        name = names[input_.leaf] if input_.leaf < len(names) else f"{input_.leaf}"
        name += f" on device {input_.device}" if input_.device else ""
        yield ShownInput(name, array, runs.given_for(input_, seed) is not None)
