"""The passes of a module, with the life of each finding."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TypedDict

from hlo_lint.analysis.pass_stats import Effect, PassStats, passes
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.selection import in_order
from hlo_lint.engine.findings import Diagnostic
from hlo_lint.report.html.pass_diff import MAX_PASSES, Budget, PassDifference
from hlo_lint.text.errors import DumpError
from hlo_lint.text.phrases import listed

MAX_OPCODES = 8
"""Maximum opcodes named for a pass, added ones first."""


Differences = list[PassDifference | None]
"""An entry for each pass of a timeline."""


class ReportedPass(TypedDict):
    """A dump of the timeline, named by the pass before it."""

    step: int | None
    pipeline: str
    name: str
    changed: str
    """`first`, `yes`, `names`, `no`."""
    what: str
    """The change in the number of each opcode: `+3 copy, -1 reshape`."""
    instructions: int
    bytes: int
    microseconds: int | None
    left_out: int
    """Number of unchanged dumps before it that the timeline omits."""


class FindingSpan(TypedDict):
    """The life of a finding; passes are numbers in the timeline."""

    finding: int
    """Its number on the page."""
    first: int | None
    """The first dump that has it; None if unknown."""
    born: bool
    """True if the pass of `first` introduced it; else it may be older."""
    last: int | None
    """The first dump without it; None if the last dump has it."""
    point: bool
    """True if the rule checks a single dump."""


class PassTimeline(TypedDict):
    """A module's passes in the order of the run."""

    passes: list[ReportedPass]
    lives: list[FindingSpan]
    trouble: str
    """The reason for which `passes` is empty; empty otherwise."""


def timeline(
    compilation: Compilation, findings: Mapping[int, Diagnostic], budget: Budget
) -> tuple[PassTimeline, Differences]:
    """The timeline of a module with its findings, by number on the page, and changed lines by pass.

    Omits dumps that equal their predecessor, unless a finding begins or ends there.
    """
    if not compilation.steps:
        return _no_timeline(""), []
    if budget.passes <= 0:
        return _no_timeline(f"left out: the page holds {MAX_PASSES} passes"), []
    try:
        steps = list(passes(compilation))
    except DumpError as error:
        return _no_timeline(str(error)), []
    place = {str(step.dump.path): index for index, step in enumerate(steps)}
    lives = [_life(number, finding, place, len(steps)) for number, finding in findings.items()]
    marked = {index for life in lives for index in (life["first"], life["last"])}
    kept = [
        index
        for index, step in enumerate(steps)
        if step.effect is not Effect.NOTHING or index in marked or index == len(steps) - 1
    ]
    budget.passes -= len(kept)
    renumbered = {index: number for number, index in enumerate(kept)}
    for life in lives:
        life["first"] = None if life["first"] is None else renumbered[life["first"]]
        life["last"] = None if life["last"] is None else renumbered[life["last"]]
    differences = [
        budget.difference(steps[index - 1], steps[index]) if index else None for index in kept
    ]
    held = PassTimeline(
        passes=[_pass(steps[index], index - last - 1) for last, index in pairwise([-1, *kept])],
        lives=[life for life in lives if life["first"] is not None],
        trouble="",
    )
    return held, differences


def _no_timeline(trouble: str) -> PassTimeline:
    return PassTimeline(passes=[], lives=[], trouble=trouble)


def _life(number: int, finding: Diagnostic, place: Mapping[str, int], count: int) -> FindingSpan:
    born, died = finding.introduced_by, finding.resolved_by
    first = place.get(born.path if born is not None else finding.path)
    last = place.get(died.path) if died is not None else None
    point = finding.seen_in is None
    if finding.seen_in is not None and born is None and first is not None:
        # Introduced by an unknown pass: count the dumps that have it back from the last.
        end = count if last is None else last
        first = max(0, min(first, end - finding.seen_in))
    return FindingSpan(finding=number, first=first, born=born is not None, last=last, point=point)


def _pass(step: PassStats, left_out: int) -> ReportedPass:
    counts = [f"+{count} {opcode}" for opcode, count in step.added.items()]
    counts += [f"−{count} {opcode}" for opcode, count in step.removed.items()]
    return ReportedPass(
        step=step.number,
        pipeline=step.pipeline,
        name=step.name,
        changed=step.effect.name.lower() if step.effect is Effect.FIRST else step.effect.value,
        what=listed(counts, MAX_OPCODES),
        instructions=step.instructions,
        bytes=step.bytes,
        microseconds=step.microseconds,
        left_out=left_out,
    )


def before_and_after(
    compilation: Compilation, path: str
) -> tuple[PassDump | None, PassDump | None]:
    """The dump with the path and its predecessor in the run, predecessor first."""
    dumps = in_order(compilation)
    for before, dump in zip([None, *dumps], dumps, strict=False):
        if str(dump.path) == path:
            return before, dump
    return None, next((dump for dump in compilation.dumps if str(dump.path) == path), None)
