"""The statements of a computation during parsing, and the resulting computation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from hlo_lint.hlo.ir import Computation, Inline
from hlo_lint.hlo.ir.computation import Irregularities
from hlo_lint.hlo.ir.computation_text import ComputationText
from hlo_lint.hlo.records import InstructionRecord, name_of, opcode_of
from hlo_lint.text.source import ParseError, Span

NAMELESS = "\0"
"""The prefix of a placeholder name, until all names of the computation are known."""


class StatementPlace(NamedTuple):
    """The place of a statement, or of several lines with a statement each."""

    start: int
    end: int
    lines: int = 0
    """The number of lines; 0 for a statement that was read by itself."""


class ParsedBody:
    """The statements of a computation that were read so far."""

    __slots__ = ("inline", "nested", "parse_errors", "places", "rows")

    def __init__(self) -> None:
        self.rows: list[InstructionRecord] = []
        self.places: list[StatementPlace] = []
        self.parse_errors: list[ParseError] = []
        self.nested: set[int] = set()
        """Rows that are nested in the operands of another."""
        self.inline: list[tuple[int, int, Computation]] = []
        """Inline computations in attributes, with the row's number and the beginning of each."""

    def add(
        self,
        row: InstructionRecord,
        begin: int,
        end: int,
        inline: Sequence[tuple[int, Computation]],
    ) -> None:
        """Add a statement, with its inline computations and their beginnings."""
        self.inline += [(len(self.rows), offset, computation) for offset, computation in inline]
        self.rows.append(row)
        self.places.append(StatementPlace(begin, end))

    def forget(self, number: int, places: int) -> None:
        """Drop the rows of a statement that was not read to its end."""
        del self.rows[number:], self.places[places:]
        self.nested = {row for row in self.nested if row < number}
        self.inline = [call for call in self.inline if call[0] < number]

    def computation(
        self, text: str, part: tuple[int, int], name: str, is_entry: bool, signature: str, tail: str
    ) -> Computation:
        """The computation in this part of the text."""
        if self.nested:
            self._name_rows()
        start = part[0]
        rows = tuple(self.rows)
        irregular = Irregularities(
            partial(_spans, tuple(self.places), start),
            tuple(
                ParseError(message, begin - start, end - start)
                for message, begin, end in self.parse_errors
            ),
            frozenset(self.nested),
            self._inline(start),
        )
        held = ComputationText(text, rows, part)
        return Computation(held, name, is_entry, signature, rows, tail, irregular)

    def _inline(self, start: int) -> dict[int, tuple[Inline, ...]]:
        by_row: dict[int, list[Inline]] = {}
        for row, offset, computation in self.inline:
            by_row.setdefault(row, []).append(Inline(offset - start, computation))
        return {row: tuple(calls) for row, calls in by_row.items()}

    def _name_rows(self) -> None:
        """Give nameless instructions XLA's names for them."""
        names = {name_of(row) for row in self.rows if name_of(row)[:1] != NAMELESS}
        numbers: dict[str, int] = {}
        given = {
            name_of(row): _anonymous_name(opcode_of(row), names, numbers)
            for row in self.rows
            if name_of(row)[:1] == NAMELESS
        }

        def named(reference: str) -> str:
            return given.get(reference, reference)

        self.rows = [
            (root, named(name), shape, opcode, operands, tail, tuple(map(named, reads)))
            for root, name, shape, opcode, operands, tail, reads in self.rows
        ]


def _anonymous_name(opcode: str, names: set[str], numbers: dict[str, int]) -> str:
    """XLA's name for a nameless instruction: `negate.anon`, `negate.anon.1`.

    Args:
        names: all names of the computation so far; the new name is added.
        numbers: the last suffix for each base name; updated.
    """
    base = name = f"{opcode}.anon"
    while name in names:
        numbers[base] = numbers.get(base, 0) + 1
        name = f"{base}.{numbers[base]}"
    names.add(name)
    return name


def _spans(places: tuple[StatementPlace, ...], start: int, text: str) -> tuple[Span, ...]:
    """The spans of the instructions at some places, in the text that begins at `start`."""
    spans: list[Span] = []
    for begin, end, lines in places:
        if not lines:
            spans.append(Span(begin - start, end - start))
            continue
        offset = begin - start
        for line in text[offset : end - start].split("\n"):
            if statement := line.strip():
                first = offset + line.index(statement)
                spans.append(Span(first, first + len(statement)))
            offset += len(line) + 1
    return tuple(spans)
