"""Fixes as sets of edits of a text."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from hlo_lint.text.phrases import short_repr
from hlo_lint.text.source import Lines, Position, Span, encode


class Safety(Enum):
    """The safety of a fix: its effect on values and cost."""

    SAFE = "safe"
    """It changes no value, bit for bit, and adds no cost."""
    UNSAFE = "unsafe"
    """A value or the cost may change."""


class Edit(NamedTuple):
    """A replacement for a stretch of a file."""

    span: Span
    """In characters of the file."""
    text: str

    def __repr__(self) -> str:
        return short_repr(self)


def first_difference(before: str, after: str) -> int:
    """The place of the first character that differs; the shorter length if none does."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((place for place, (old, new) in pairs if old != new), min(len(before), len(after)))


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text with edits in it, which are in its order and do not overlap.

    >>> edited("a = b", [Edit(Span(0, 1), "x"), Edit(Span(5, 5), "!")])
    'x = b!'
    """
    pieces, place = [], 0
    for edit in edits:
        pieces += [text[place : edit.span.start], edit.text]
        place = edit.span.end
    return "".join([*pieces, text[place:]])


class Region(NamedTuple):
    """A stretch of a file, in the units of other programs."""

    start: Position
    end: Position
    """Exclusive."""
    start_byte: int
    """The column in bytes of UTF-8, counted from 1."""
    end_byte: int
    """Exclusive."""

    def __repr__(self) -> str:
        return short_repr(self)

    @classmethod
    def of(cls, span: Span, lines: Lines) -> Region:
        """The region of a span of a text."""
        start, end = lines.position(span.start), lines.position(span.end)
        return cls(
            start,
            end,
            _bytes_before(span.start, start.column, lines.text) + 1,
            _bytes_before(span.end, end.column, lines.text) + 1,
        )


def _bytes_before(offset: int, column: int, text: str) -> int:
    """The number of bytes before a position in its line."""
    return column - 1 if text.isascii() else len(encode(text[offset - column + 1 : offset]))


class Fix(NamedTuple):
    """A change of the text that resolves a finding."""

    title: str
    """A verb first: "spell the move out as copy and bitcast"."""
    edits: tuple[Edit, ...]
    safety: Safety
    adds_bitcast: bool = False
    """True if layout-assignment would refuse the fixed text, because of a `bitcast`."""

    def __repr__(self) -> str:
        return short_repr(self)
