"""The first pass after which a module computes something else.

The dumps of one compilation become programs (`lowering`). Those of equal graphs need not run; of
the others the first is compared with the last, and where these differ the step is found by
bisection. Where the interface changes (other parameters, another custom call that cannot be run) a
new stretch begins, and the step between is not compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from hlo_lint.analysis.diff.bisection import aligned_steps
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.dumps.selection import in_order
from hlo_lint.engine.values.lowering.graph import Nodes, NotLowered
from hlo_lint.engine.values.lowering.lower import Lowering, Program
from hlo_lint.engine.values.programs import Comparison, Outcome, Runs, incomparable
from hlo_lint.engine.values.replay import Culprit, culprit
from hlo_lint.engine.values.xla_cpu import XlaCpu
from hlo_lint.hlo.ir import Module
from hlo_lint.text.errors import DumpError

SEEDS: Final = (0, 1)
"""One seed of small numbers of both signs, one of positive numbers."""

Progress = Callable[[str], None]


@dataclass
class Step:
    """One dump with what became of it."""

    dump: PassDump
    program: Program | None
    comparison: Comparison
    """The verdict against the dump before it."""
    before: Step | None = None
    """The step before it that became a program."""
    is_judged: bool = True
    """False for the first dump of a run, which is compared with nothing."""

    @property
    def label(self) -> str:
        """The pass and its pipeline, or the name of the file."""
        name = self.dump.name
        return name.label if name is not None else self.dump.path.name


@dataclass
class Change:
    """A step whose module computes something else than the one before."""

    before: PassDump
    after: PassDump
    comparison: Comparison
    culprit: Culprit | None
    """The first instruction whose value differs; None where the replay did not run."""


@dataclass
class Validation:
    """The verdict on one compilation."""

    title: str
    steps: list[Step] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    """The steps that changed the values, the first one first."""
    runs: int = 0
    """The number of programs that XLA:CPU ran."""
    notes: list[str] = field(default_factory=list)
    """The reasons why steps were not compared, and what was cut."""

    @property
    def counts(self) -> Counter[Outcome]:
        """The number of steps of each outcome."""
        return Counter(step.comparison.outcome for step in self._judged)

    @property
    def _judged(self) -> list[Step]:
        """The steps that were compared with another one, or could not be."""
        return [step for step in self.steps if step.is_judged]

    @property
    def compared(self) -> int:
        """The number of steps that were compared, by graph or by values."""
        missing = (Outcome.NOT_COMPARABLE, Outcome.NOT_RUN, Outcome.NOT_LOWERED)
        return sum(step.comparison.outcome not in missing for step in self._judged)


def validate_pipeline(
    pipeline: Pipeline,
    xla: XlaCpu,
    *,
    seeds: Sequence[int] = SEEDS,
    edges: bool = False,
    all_steps: bool = False,
    progress: Progress = lambda _: None,
) -> Validation:
    """Compare the dumps of one compilation in the order of the run.

    With `all_steps` each step is run, else only as many as bisection needs: a change that a later
    pass takes back is then not seen.
    """
    return validate_dumps(
        pipeline.title,
        in_order(pipeline),
        xla,
        seeds=seeds,
        edges=edges,
        all_steps=all_steps,
        progress=progress,
    )


def validate_dumps(
    title: str,
    dumps: Sequence[PassDump],
    xla: XlaCpu,
    *,
    seeds: Sequence[int] = SEEDS,
    edges: bool = False,
    all_steps: bool = False,
    progress: Progress = lambda _: None,
) -> Validation:
    """Compare dumps of one program, each with the one before it."""
    result = Validation(title)
    ran = xla.texts_run
    runs = Runs(xla, edges)
    nodes = Nodes()
    replicated = _replicated(dumps)
    for dump in dumps:
        progress(dump.path.name)
        result.steps.append(_lowered(dump, nodes, replicated))
        result.steps[0].is_judged = False
    stretches = _stretches(result)
    for stretch in stretches:
        _compare_stretch(stretch, result, runs, seeds, all_steps, progress)
    result.runs = xla.texts_run - ran
    result.notes = _notes(result)
    return result


def validate_pair(
    ours: Pipeline,
    theirs: Pipeline,
    xla: XlaCpu,
    *,
    seeds: Sequence[int] = SEEDS,
    edges: bool = False,
    progress: Progress = lambda _: None,
) -> Validation:
    """Compare two runs over one program after each step that both have, up to the first change."""
    result = Validation(f"{ours.title} and {theirs.title}")
    ran, runs, nodes = xla.texts_run, Runs(xla, edges), Nodes()
    replicated = _replicated(ours.dumps)
    verdicts: dict[tuple[int, int], Comparison] = {}
    for aligned in aligned_steps(ours, theirs):
        if aligned.before is None or aligned.after is None:
            continue
        progress(aligned.title)
        one, other = (_lowered(each, nodes, replicated) for each in (aligned.before, aligned.after))
        result.steps.append(one)
        if one.program is None or other.program is None:
            other.comparison = one.comparison if one.program is None else other.comparison
        else:
            key = one.program.graph.number, other.program.graph.number
            if key not in verdicts:
                module = one.dump.module
                verdicts[key] = runs.compare(one.program, other.program, module, seeds)
            other.comparison = verdicts[key]
        one.comparison = other.comparison
        if one.comparison.outcome is Outcome.CHANGED:
            result.changes.append(_change(one, other, runs, one.dump.module))
            break
    result.runs = xla.texts_run - ran
    result.notes = _notes(result)
    return result


def _replicated(dumps: Sequence[PassDump]) -> frozenset[int]:
    """The parameters that all devices share, by the first dump that shards any."""
    for dump in dumps:
        try:
            entry = dump.module.entry
        except (DumpError, OSError):
            continue
        shardings = {
            each.parameter_number or 0: each.attributes["sharding"]
            for each in (entry.parameters if entry is not None else ())
            if "sharding=" in each.attributes_text and "sharding" in each.attributes
        }
        if shardings:
            return frozenset(
                number for number, text in shardings.items() if text.startswith("{replicated")
            )
    return frozenset()


def _lowered(dump: PassDump, nodes: Nodes, replicated: frozenset[int]) -> Step:
    try:
        modules = dump.file.modules
        if len(modules) != 1:
            raise NotLowered(f"it holds {len(modules)} modules")
        program = Lowering(modules[0], nodes, replicated).program()
    except (DumpError, NotLowered, OSError) as error:
        return Step(dump, None, Comparison(Outcome.NOT_LOWERED, str(error)))
    return Step(dump, program, Comparison(Outcome.SAME_GRAPH))


def _stretches(result: Validation) -> list[list[Step]]:
    """The steps whose programs run on the same inputs; the first of each equal graph only."""
    stretches: list[list[Step]] = []
    last: Step | None = None
    for step in result.steps:
        if step.program is None:
            continue
        step.before = last
        if last is None or last.program is None:
            stretches.append([step])
        elif last.program.graph is not step.program.graph:
            reason = incomparable(last.program, step.program)
            if reason:
                step.comparison = Comparison(Outcome.NOT_COMPARABLE, reason)
                stretches.append([step])
            else:
                stretches[-1].append(step)
        last = step
    return stretches


def _compare_stretch(
    stretch: list[Step],
    result: Validation,
    runs: Runs,
    seeds: Sequence[int],
    all_steps: bool,
    progress: Progress,
) -> None:
    """Compare the steps of a stretch, all or by bisection."""
    module = stretch[0].dump.module

    def verdict(one: Step, other: Step) -> Comparison:
        progress(other.label)
        assert one.program is not None
        assert other.program is not None
        return runs.compare(one.program, other.program, module, seeds)

    running: list[Step] = []
    for step in stretch:
        assert step.program is not None
        is_end = step is stretch[0] or step is stretch[-1]
        failure = None
        if len(stretch) > 1 and (all_steps or is_end or not running):
            failure = runs.failure(step.program, module, seeds[0])
        if failure is None:
            running.append(step)
        else:
            step.comparison = Comparison(Outcome.NOT_RUN, str(failure))
    if all_steps:
        for one, other in pairwise(running):
            other.comparison = verdict(one, other)
            if other.comparison.outcome is Outcome.CHANGED:
                result.changes.append(_change(one, other, runs, module))
        return
    while len(running) > 1:
        first, last = running[0], running[-1]
        whole = verdict(first, last)
        if whole.outcome is not Outcome.CHANGED:
            for step in running[1:-1]:
                step.comparison = Comparison(Outcome.BETWEEN)
            last.comparison = whole
            return
        low, high = 0, len(running) - 1
        while high - low > 1:
            middle = (low + high) // 2
            half = verdict(first, running[middle])
            if half.outcome is Outcome.NOT_RUN:
                running.pop(middle).comparison = half
                high -= 1
            elif half.outcome is Outcome.CHANGED:
                high = middle
            else:
                low = middle
        one, other = running[low], running[high]
        other.comparison = verdict(one, other)
        for step in running[1:high]:
            step.comparison = Comparison(Outcome.BETWEEN)
        if other.comparison.outcome is Outcome.CHANGED:
            result.changes.append(_change(one, other, runs, module))
        running = running[high:]


def _change(one: Step, other: Step, runs: Runs, module: Module) -> Change:
    assert one.program is not None
    assert other.program is not None
    found = culprit(one.program, other.program, runs, module, other.comparison.seed)
    nearest = other.before
    if nearest is None or nearest.program is None or nearest.program.graph is not one.program.graph:
        nearest = one  # what lies between did not run
    return Change(nearest.dump, other.dump, other.comparison, found)


def _notes(result: Validation) -> list[str]:
    """The reasons why steps were not compared, each with the number of steps, and what was cut."""
    reasons = Counter(
        f"{step.comparison.outcome.value}: {step.comparison.reason}"
        for step in result.steps
        if step.comparison.reason
    )
    notes = [f"{reason} ({count} step{'s' * (count > 1)})" for reason, count in reasons.items()]
    cuts = sorted(
        {cut.what for step in result.steps if step.program is not None for cut in step.program.cuts}
    )
    if cuts:
        notes.append(f"not run, equal for equal operands: {', '.join(cuts)}")
    return notes
