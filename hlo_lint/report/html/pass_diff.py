"""The lines that a pass changed, shown when the pass is clicked."""

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

MAX_PASSES = 20_000
"""Maximum passes of all timelines together."""
MAX_COMPARED = 1_000_000
"""Maximum instructions compared for a page, which takes about 15 seconds."""
MAX_ROWS = 30_000
"""Maximum lines of all differences of a page."""
MAX_ROWS_OF_PASS = 300
NEAR = 50
"""Instructions above a removed instruction that are searched for one with a partner."""

RowPair = tuple[Instruction | None, Instruction | None]
"""An instruction before and after; None on the side that lacks it."""


class ComputationRows(TypedDict):
    """The changed lines of a computation."""

    title: str
    """`entry %main`, `computation %fused: added, 4 instructions`."""
    notes: list[str]
    """The differences of its header."""
    rows: list[Row]


class PassDifference(TypedDict):
    """The difference between the dumps before and after a pass."""

    before: str
    """The name of the file."""
    after: str
    summary: str
    """`1 removed, 2 added in 1 computation`"""
    notes: list[str]
    """The differences of the module's header."""
    computations: list[ComputationRows]
    left_out: int
    """Number of changed lines that are not shown."""


class Budget:
    """The passes, comparisons and lines that a page may still have."""

    def __init__(self) -> None:
        self.passes = MAX_PASSES
        self.instructions = MAX_COMPARED
        self.rows = MAX_ROWS
        self.left_out = 0
        """Number of passes that were not compared."""

    def difference(self, before: PassStats, after: PassStats) -> PassDifference | None:
        """The difference of two dumps; None if only names differ or the budget is spent."""
        if after.effect is not Effect.CHANGED:
            return None
        if self.rows <= 0 or after.instructions + before.instructions > self.instructions:
            self.left_out += 1
            return None
        self.instructions -= after.instructions + before.instructions
        modules = modules_of(before.dump)[0], modules_of(after.dump)[0]
        difference = diff(*modules)
        computations, room = [], min(MAX_ROWS_OF_PASS, self.rows)
        left_out = sum(difference.counts.values())
        for computation in difference.computations:
            rows = [row_of(*pair, None, *modules) for pair in islice(_pairs(computation), room)]
            room -= len(rows)
            left_out -= len(rows)
            self.rows -= len(rows)
            if rows or computation.itself:
                computations.append(
                    ComputationRows(
                        title=heading(computation),
                        notes=list(map(_said, computation.itself)),
                        rows=list(with_gaps(rows)),
                    )
                )
        return PassDifference(
            before=before.dump.path.name,
            after=after.dump.path.name,
            summary=difference_summary(difference),
            notes=list(map(_said, difference.header)),
            computations=computations,
            left_out=left_out,
        )


def _said(change: Change) -> str:
    return f"{change.what}: {change.before or 'none'} -> {change.after or 'none'}"


def _pairs(difference: ComputationDifference) -> Iterator[RowPair]:
    """Changed instructions in the order of `after`, removed ones at their old place."""
    before, after = difference.before, difference.after
    if before is None or after is None:
        for instruction in after or before or ():
            yield (instruction, None) if after is None else (None, instruction)
        return
    places: list[tuple[int, int, int, RowPair]] = [
        (changed.after.number, 1, 0, (changed.before, changed.after))
        for changed in difference.changed
    ]
    places += [(new.number, 1, 0, (old, new)) for old, new in difference.moved]
    places += [(new.number, 1, 0, (None, new)) for new in difference.added]
    places += [(_place(old, after), 2, old.number, (old, None)) for old in difference.removed]
    for *_, pair in sorted(places, key=lambda place: place[:3]):
        yield pair


def _place(removed: Instruction, after: Computation) -> int:
    """The number of the nearest instruction above that the pass kept, or -1."""
    above = removed.computation
    for number in range(removed.number - 1, max(-1, removed.number - NEAR), -1):
        stayed = after.instruction(above.at(number).name)
        if stayed is not None:
            return stayed.number
    return -1
