"""The passes of a module, and where in them each of its findings was born and died."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypedDict

from hlo_lint.analysis.pass_stats import Effect, PassStats, passes
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.dumps.selection import in_order
from hlo_lint.engine.findings import Diagnostic
from hlo_lint.report.html.pass_diff import DifferenceBudget, PassDifference
from hlo_lint.text.errors import DumpError
from hlo_lint.text.phrases import listed

MAX_OPCODES = 8
"""Maximum opcodes of a pass that are named: first those that it added, then those it removed."""


Differences = list[PassDifference | None]
"""One for each pass of a timeline."""


class ReportedPass(TypedDict):
    """One dump of the timeline: the pass that it follows."""

    step: int | None
    pipeline: str
    name: str
    changed: str
    """`first`, `yes`, `names`, `no`."""
    what: str
    """The opcodes of which there are more, or fewer: `+3 copy, -1 reshape`."""
    instructions: int
    bytes: int
    microseconds: int | None
    left_out: int
    """The number of unchanged dumps before it, which are not in the timeline."""


class FindingSpan(TypedDict):
    """The stretch of a finding, by numbers of passes in the timeline."""

    finding: int
    """Its number on the page."""
    first: int | None
    """The first that has it; None where that is not known."""
    born: bool
    """True if the first one's pass introduced it; else it may be older."""
    last: int | None
    """The first that has it no more; None where it stays to the end."""
    point: bool
    """True if only one dump was read, so that nothing is known of the others."""


class PassTimeline(TypedDict):
    """A module's passes in the order of the run."""

    passes: list[ReportedPass]
    lives: list[FindingSpan]
    trouble: str
    """The reason that there are no passes; empty if there are some."""


def timeline(
    pipeline: Pipeline, findings: Mapping[int, Diagnostic], budget: DifferenceBudget
) -> tuple[PassTimeline, Differences]:
    """The changes of each pass, with the histories of findings by their numbers on the page; and
    the difference of each pass of the timeline, where there is one.

    Dumps that repeat the one before are left out where no finding came or went with them.
    """
    try:
        steps = list(passes(pipeline))
    except DumpError as error:
        return no_timeline(str(error)), []
    place = {str(step.dump.path): at for at, step in enumerate(steps)}
    lives = [_life(number, finding, place, len(steps)) for number, finding in findings.items()]
    kept = list(_kept(steps, lives))
    again = {at: number for number, at in enumerate(kept)}
    for life in lives:
        life["first"] = None if life["first"] is None else again[life["first"]]
        life["last"] = None if life["last"] is None else again[life["last"]]
    differences = [budget.difference(steps[at - 1], steps[at]) if at else None for at in kept]
    held = PassTimeline(
        passes=[_pass(steps[at], at - before - 1) for before, at in pairwise([-1, *kept])],
        lives=[life for life in lives if life["first"] is not None],
        trouble="",
    )
    return held, differences


def no_timeline(trouble: str) -> PassTimeline:
    """A timeline without passes, and the reason."""
    return PassTimeline(passes=[], lives=[], trouble=trouble)


def _life(number: int, finding: Diagnostic, place: Mapping[str, int], count: int) -> FindingSpan:
    born, died = finding.introduced_by, finding.resolved_by
    first = place.get(born.path if born is not None else finding.path)
    last = place.get(died.path) if died is not None else None
    point = finding.seen_in is None
    if finding.seen_in is not None and born is None and first is not None:
        # No pass is known to have introduced it: the dumps that have it are counted back.
        end = count if last is None else last
        first = max(0, min(first, end - finding.seen_in))
    return FindingSpan(finding=number, first=first, born=born is not None, last=last, point=point)


def _kept(steps: Sequence[PassStats], lives: Iterable[FindingSpan]) -> Iterable[int]:
    marked = {at for life in lives for at in (life["first"], life["last"]) if at is not None}
    for at, step in enumerate(steps):
        if step.effect is not Effect.NOTHING or at in marked or at == len(steps) - 1:
            yield at


def _pass(step: PassStats, left_out: int) -> ReportedPass:
    counts = [f"+{count} {opcode}" for opcode, count in step.added.items()]
    counts += [f"−{count} {opcode}" for opcode, count in step.removed.items()]
    what = listed(counts, MAX_OPCODES)
    return ReportedPass(
        step=step.number,
        pipeline=step.pipeline,
        name=step.name,
        changed=step.effect.name.lower() if step.effect is Effect.FIRST else step.effect.value,
        what=what,
        instructions=step.instructions,
        bytes=step.bytes,
        microseconds=step.microseconds,
        left_out=left_out,
    )


def before_and_after(pipeline: Pipeline, path: str) -> tuple[PassDump | None, PassDump | None]:
    """The dump of that path, and the one before it in the order of the run."""
    before: PassDump | None = None
    for dump in in_order(pipeline):
        if str(dump.path) == path:
            return before, dump
        before = dump
    return None, next((dump for dump in pipeline.dumps if str(dump.path) == path), None)
