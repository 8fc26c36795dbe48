"""The change of a pass as lines before and after, which the page shows when it is clicked."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TypedDict

from hlo_lint.analysis.diff.difference import Change, ComputationDifference, diff
from hlo_lint.analysis.pass_stats import Effect, PassStats
from hlo_lint.dumps.selection import modules_of
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.report.diff import difference_summary, heading
from hlo_lint.report.html.excerpt import Row, row_of, with_gaps

MAX_COMPARED = 1_000_000
"""Instructions of all the modules that are compared for a page, which takes about 15 seconds."""
MAX_ROWS = 30_000
"""Lines of all differences of a page."""
MAX_ROWS_OF_PASS = 300
NEAR = 50
"""Instructions above one that is gone among which there is looked for one that stayed."""

RowPair = tuple[Instruction | None, Instruction | None]
"""An instruction before and after; None on the side that does not have it."""


class ComputationRows(TypedDict):
    """The lines of one computation that differ."""

    title: str
    """`entry %main`, `computation %fused: added, 4 instructions`."""
    notes: list[str]
    """The differences of its header."""
    rows: list[Row]


class PassDifference(TypedDict):
    """The difference between the dump before a pass and the one after it."""

    before: str
    """The name of the file."""
    after: str
    summary: str
    """`1 removed, 2 added in 1 computation`"""
    notes: list[str]
    """The differences of the module's header."""
    computations: list[ComputationRows]
    left_out: int
    """Lines that differ and are not shown."""


class DifferenceBudget:
    """The room that is left on a page for differences, and for computing them."""

    def __init__(self) -> None:
        self.instructions = MAX_COMPARED
        self.rows = MAX_ROWS
        self.left_out = 0
        """Passes whose difference was not looked at."""

    def difference(self, before: PassStats, after: PassStats) -> PassDifference | None:
        """The difference of two dumps; None if nothing but names differs, or there is no room."""
        if after.effect is not Effect.CHANGED:
            return None
        if self.rows <= 0 or after.instructions + before.instructions > self.instructions:
            self.left_out += 1
            return None
        self.instructions -= after.instructions + before.instructions
        one, other = modules_of(before.dump)[0], modules_of(after.dump)[0]
        difference = diff(one, other)
        computations, room = [], min(MAX_ROWS_OF_PASS, self.rows)
        left_out = sum(difference.counts.values())
        for computation in difference.computations:
            rows = [row_of(*pair, None, one, other) for pair in islice(_pairs(computation), room)]
            room, left_out, self.rows = (
                room - len(rows),
                left_out - len(rows),
                self.rows - len(rows),
            )
            if rows or computation.itself:
                computations.append(_computation(computation, rows))
        return PassDifference(
            before=before.dump.path.name,
            after=after.dump.path.name,
            summary=difference_summary(difference),
            notes=list(map(_said, difference.header)),
            computations=computations,
            left_out=left_out,
        )


def _computation(difference: ComputationDifference, rows: list[Row]) -> ComputationRows:
    return ComputationRows(
        title=heading(difference),
        notes=list(map(_said, difference.itself)),
        rows=list(with_gaps(rows)),
    )


def _said(change: Change) -> str:
    return f"{change.what}: {change.before or 'none'} -> {change.after or 'none'}"


def _pairs(difference: ComputationDifference) -> Iterator[RowPair]:
    """The differences in the order of the second computation; what is gone, where it stood."""
    before, after = difference.before, difference.after
    if before is None or after is None:
        for instruction in after or before or ():
            yield (instruction, None) if after is None else (None, instruction)
        return
    places: list[tuple[int, int, int, RowPair]] = [
        (changed.after.number, 1, 0, (changed.before, changed.after))
        for changed in difference.changed
    ]
    places += [(other.number, 1, 0, (one, other)) for one, other in difference.moved]
    places += [(other.number, 1, 0, (None, other)) for other in difference.added]
    places += [(_place(gone, after), 2, gone.number, (gone, None)) for gone in difference.removed]
    for *_, pair in sorted(places, key=lambda place: place[:3]):
        yield pair


def _place(gone: Instruction, after: Computation) -> int:
    """The place after which an instruction stood, by the nearest one above that stayed."""
    above = gone.computation
    for number in range(gone.number - 1, max(-1, gone.number - NEAR), -1):
        stayed = after.instruction(above.at(number).name)
        if stayed is not None:
            return stayed.number
    return -1
