"""The first pass after which a module computes something else.

The dumps of one compilation become programs (`lowering`). Those of equal graphs need not run; of
the others the first is compared with the last, and where these differ the step is found by
bisection. Where the interface changes (other parameters, another custom call that cannot be run) a
new stretch begins, and the step between is not compared.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Final

from hlo_lint.analysis.diff.bisection import aligned_steps
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.engine.values.inputs import value
from hlo_lint.engine.values.lowering.graph import Nodes, NotLowered
from hlo_lint.engine.values.lowering.lower import Lowering
from hlo_lint.engine.values.lowering.program import Program
from hlo_lint.engine.values.lowering.shards import ProgramShardings, layout_of
from hlo_lint.engine.values.programs import (
    Comparison,
    DrawInput,
    Inputs,
    Runs,
    StepOutcome,
    incomparable,
)
from hlo_lint.engine.values.replay import Culprit, culprit
from hlo_lint.text.errors import DumpError
from hlo_lint.text.phrases import counted
from hlo_lint.xla.cpu import XlaCpu
from hlo_lint.xla.limits import Deadline, NoTimeLeft

SEEDS: Final = (0, 1)
"""One seed of small numbers of both signs, one of positive numbers."""

MIN_SHARE: Final = 4
"""Steps for which another child is worth its start."""

StepProgress = Callable[[str], None]


@dataclass
class ValidatedStep:
    """One dump with what became of it."""

    dump: PassDump
    program: Program | None
    comparison: Comparison
    """The verdict against the dump before it."""
    before: ValidatedStep | None = None
    """The step before it that became a program."""
    is_judged: bool = True
    """False for the first dump of a run, which is compared with nothing."""

    @property
    def label(self) -> str:
        """The pass and its pipeline, or the name of the file."""
        name = self.dump.name
        return name.label if name is not None else self.dump.path.name


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
    result, ran = Validation(title), xla.texts_run
    deadline = xla.limits.deadline
    runs, nodes, replicated = (
        Runs(xla, edges, at_edges=True, draw=draw),
        Nodes(deadline),
        _replicated(dumps, deadline),
    )
    first, layout = _partitioned(dumps, deadline)
    texts: dict[tuple[tuple[int, ...], bool, int], ValidatedStep] = {}
    for number, dump in enumerate(dumps):
        progress(dump.path.name)
        last = result.steps[-1].program if result.steps else None
        devices = 1 if last is None or layout is not None else last.devices
        key = dump.text_identity, number >= first, devices
        same = texts.get(key)
        if same is None:
            texts[key] = _lowered(dump, nodes, replicated, deadline, layout, *key[1:])
            result.steps.append(texts[key])
        else:  # as a third of them
            result.steps.append(ValidatedStep(dump, same.program, same.comparison))
        result.steps[0].is_judged = False
    stretches = [_Stretch(steps, result, seeds, progress) for steps in _stretches(result)]
    if all_steps:
        _compare_all(stretches, runs, jobs)
    for stretch in stretches:
        if not all_steps:
            stretch.bisect(runs)
        stretch.add_refusals(runs)
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
        Runs(xla, edges, at_edges=True),
        Nodes(deadline),
        _replicated(ours.dumps, deadline),
    )
    verdicts: dict[tuple[int, int], Comparison] = {}
    for aligned in aligned_steps(ours, theirs):
        if aligned.before is None or aligned.after is None:
            continue
        progress(aligned.title)
        one, other = (
            _lowered(step, nodes, replicated, deadline) for step in (aligned.before, aligned.after)
        )
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


def _replicated(dumps: Sequence[PassDump], deadline: Deadline) -> frozenset[int]:
    """The parameters that all devices share, by the first dump that shards any."""
    for dump in dumps:
        if deadline.left <= 0:
            break
        try:
            entry = dump.module.entry
        except (DumpError, OSError):
            continue
        shardings = {
            parameter.parameter_number or 0: parameter.attributes["sharding"]
            for parameter in (entry.parameters if entry is not None else ())
            if "sharding=" in parameter.attributes_text and "sharding" in parameter.attributes
        }
        if shardings:
            return frozenset(
                number for number, text in shardings.items() if text.startswith("{replicated")
            )
    return frozenset()


def _partitioned(
    dumps: Sequence[PassDump], deadline: Deadline
) -> tuple[int, ProgramShardings | None]:
    """The first dump whose module has the parts of arrays, and how the one before spreads them."""
    for number, dump in enumerate(dumps):
        if deadline.left <= 0:
            break
        try:
            entry = dump.module.entry
            ran = dump.name.after if dump.name is not None else ""
            if entry is None or not (_is_part(entry.name) or ran in _PARTITIONERS):
                continue
            layout = layout_of(dumps[number - 1].module) if number else None
        except (DumpError, NotLowered, OSError, ValueError):
            break
        return number, layout
    return len(dumps), None


_is_part: Final = re.compile(r"_spmd(\.\d+)?$").search
"""The partitioner gives the entry computation a new name."""
_PARTITIONERS: Final = frozenset({"spmd-partitioning", "tpu-spmd-partitioning"})
"""Passes that do, where a text has another name."""


def _lowered(
    dump: PassDump,
    nodes: Nodes,
    replicated: frozenset[int],
    deadline: Deadline,
    layout: ProgramShardings | None = None,
    is_partitioned: bool = False,
    devices: int = 1,
) -> ValidatedStep:
    try:
        deadline.check()
        modules = dump.file.modules
        if len(modules) != 1:
            raise NotLowered(f"it holds {len(modules)} modules")
        try:
            lowering = Lowering(
                modules[0], nodes, replicated, layout, is_partitioned, devices=devices
            )
            program = lowering.program()
        except NotLowered:
            if layout is None:
                raise
            program = Lowering(modules[0], nodes, replicated).program()
    except NoTimeLeft as error:
        return ValidatedStep(dump, None, Comparison(StepOutcome.NOT_RUN, str(error)))
    except (DumpError, NotLowered, OSError) as error:
        return ValidatedStep(dump, None, Comparison(StepOutcome.NOT_LOWERED, str(error)))
    return ValidatedStep(dump, program, Comparison(StepOutcome.SAME_GRAPH))


def _stretches(result: Validation) -> list[list[ValidatedStep]]:
    """The steps whose programs run on the same inputs; the first of each equal graph only."""
    stretches: list[list[ValidatedStep]] = []
    last: ValidatedStep | None = None
    for step in result.steps:
        if step.program is None:
            continue
        step.before = last
        if last is None or last.program is None:
            stretches.append([step])
        elif last.program.graph is not step.program.graph:
            reason = incomparable(last.program, step.program)
            if reason:
                step.comparison = Comparison(StepOutcome.NOT_COMPARABLE, reason)
                stretches.append([step])
            else:
                stretches[-1].append(step)
        last = step
    return stretches


@dataclass
class _Stretch:
    """Steps whose programs run on the same inputs."""

    steps: list[ValidatedStep]
    result: Validation
    seeds: Sequence[int]
    progress: StepProgress

    def __post_init__(self) -> None:
        assert self.steps[0].program is not None
        self.inputs = self.steps[0].program.inputs
        """All steps run on what is in range for the first one."""

    def _failure(self, step: ValidatedStep, runs: Runs) -> bool:
        """True if the program of a step does not run, which becomes the verdict on it."""
        assert step.program is not None
        self.progress(step.label)
        failure = runs.failure(step.program, self.inputs, self.seeds[0])
        if failure is not None:
            step.comparison = Comparison(StepOutcome.NOT_RUN, str(failure))
        return failure is not None

    def _verdict(self, one: ValidatedStep, other: ValidatedStep, runs: Runs) -> Comparison:
        self.progress(other.label)
        assert one.program is not None
        assert other.program is not None
        return runs.compare(one.program, other.program, self.inputs, self.seeds)

    def add_change(self, one: ValidatedStep, other: ValidatedStep, runs: Runs) -> None:
        """Add the change that a step makes, if it makes one."""
        if other.comparison.outcome is StepOutcome.CHANGED:
            self.result.changes.append(_change(one, other, self.inputs, runs))

    def add_refusals(self, runs: Runs) -> None:
        """Add each step whose module XLA refuses, where that of the step before runs."""
        for before, step in pairwise(self.steps):
            if step.comparison.outcome is not StepOutcome.NOT_RUN:
                continue
            refused = _find_refused(step.comparison.reason)
            if refused is None or self._failure(before, runs):
                continue
            assert step.program is not None
            made = (i for (_, at), i in step.program.origins.items() if at == int(refused[1]))
            step.comparison = Comparison(StepOutcome.NOT_RUN, refused[2])
            culprit = next((Culprit(instruction, None) for instruction in made), None)
            self.result.changes.append(
                ValueChange(before.dump, step.dump, step.comparison, culprit)
            )

    def compare(self, number: int, runs: Runs) -> ValidatedStep | None:
        """Compare a step with the nearest one before it that runs, which is returned."""
        step = self.steps[number]
        if self._failure(step, runs):
            return None
        earlier = reversed(self.steps[:number])
        before = next((one for one in earlier if not self._failure(one, runs)), None)
        if before is not None:
            step.comparison = self._verdict(before, step, runs)
        return before

    def bisect(self, runs: Runs) -> None:
        """Find the first change: the first step is compared with the last one, then halves."""
        ends = (self.steps[0], self.steps[-1])
        running: list[ValidatedStep] = []
        for step in self.steps:
            is_tried = len(self.steps) > 1 and (step in ends or not running)
            if not (is_tried and self._failure(step, runs)):
                running.append(step)
        while len(running) > 1:
            first, last = running[0], running[-1]
            whole = self._verdict(first, last, runs)
            if whole.is_equal or len(running) == 2:
                for step in running[1:-1]:
                    step.comparison = Comparison(StepOutcome.BETWEEN)
                last.comparison = whole
                self.add_change(first, last, runs)
                return
            low, high = 0, len(running) - 1
            while high - low > 1:
                middle = (low + high) // 2
                half = self._verdict(first, running[middle], runs)
                if half.outcome is StepOutcome.NOT_RUN:
                    running.pop(middle).comparison = half
                    high -= 1
                elif half.is_equal:
                    low = middle
                else:
                    high = middle
            one, other = running[low], running[high]
            other.comparison = self._verdict(one, other, runs)
            for step in running[1:high]:
                step.comparison = Comparison(StepOutcome.BETWEEN)
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
    # Each child imports jax and keeps results of its own: its share are some neighbours.
    count = max(1, min(jobs, len(steps) // MIN_SHARE))
    ends = [len(steps) * number // count for number in range(count + 1)]

    def compare(runs: Runs, start: int, end: int) -> list[ValidatedStep | None]:
        return [stretch.compare(number, runs) for stretch, number in steps[start:end]]

    with ExitStack() as stack:
        siblings = [stack.enter_context(runs.xla.sibling()) for _ in range(count - 1)]
        pool = [runs, *(Runs(xla, runs.edges, draw=runs.draw) for xla in siblings)]
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
