"""Positions of each value of a module, with its uses: `*-buffer-assignment-values.txt`.

    <1 fusion.2{0} (phi) @0>
     positions:
      fusion.2 {0}
      get-tuple-element.4
     uses:
      copy.1, operand 0
     from instruction: %fusion.2 = (f32[8]{0}, s32[]) fusion(%p.1), kind=kLoop, calls=%body

From `HloValue::ToString` (`xla/service/hlo_value.cc`). It includes the get-tuple-elements that
compact HLO text omits. Old releases wrote the same text at the end of `*-buffer-assignment.txt`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from hlo_lint.dumps.artefacts.records import (
    COUNT,
    DIGITS,
    INDEX,
    NAME,
    Artefact,
    Index,
    index_from,
    lines_of,
    parse_error,
)
from hlo_lint.text.source import ParseError, Span

SHORT = rf"<{COUNT} {NAME}(?:{INDEX})?(?: \(phi\))?(?: @{DIGITS})?>"
"""`HloValue::ToShortString`: number, name, index and memory space. The index is printed if the
defining instruction is a tuple."""

_head = re.compile(SHORT).fullmatch
_is_total = re.compile(rf"Total bytes used: {DIGITS} \([^()]*\)").fullmatch
_position = re.compile(rf"  {NAME}(?: {INDEX})?").fullmatch
_use = re.compile(rf"  {NAME}, operand {COUNT}(?: {INDEX})?").fullmatch
_FROM = " from instruction:"
"""A blank follows, except in jax 0.4.20 and earlier."""


@dataclass(frozen=True, slots=True)
class HloPosition:
    """A part of an instruction's result."""

    instruction: str
    index: Index


@dataclass(frozen=True, slots=True)
class HloUse:
    """An operand that reads a value."""

    instruction: str
    operand: int
    index: Index
    """The part of the operand."""
    span: Span


class HloValue(NamedTuple):
    """A value: its definition, its other positions, its uses."""

    id: int
    defined_at: HloPosition
    positions: tuple[HloPosition, ...]
    """All its positions, including the defining position."""
    uses: tuple[HloUse, ...]
    span: Span


@dataclass(frozen=True, kw_only=True)
class BufferValues(Artefact):
    """All values with memory."""

    values: tuple[HloValue, ...]

    @cached_property
    def by_position(self) -> dict[HloPosition, tuple[HloValue, ...]]:
        """The values that may be at a position; several if XLA could not decide."""
        values: dict[HloPosition, tuple[HloValue, ...]] = {}
        for value in self.values:
            for position in dict.fromkeys((value.defined_at, *value.positions)):
                values[position] = (*values.get(position, ()), value)
        return values

    def at(self, instruction: str, index: Index = ()) -> tuple[HloValue, ...]:
        """The values in a part of an instruction's result."""
        return self.by_position.get(HloPosition(instruction, index), ())


def read_buffer_values(text: str, path: Path | None = None) -> BufferValues:
    """Read the file; unknown lines are in `problems`."""
    return read_values_from(text, 0, None, path)


class _OpenValue:
    """A value whose lines are still being read."""

    def __init__(self, match: re.Match[str], start: int) -> None:
        self.head = match.groups()
        self.start = start
        self.end = start + len(match[0])
        self.positions: list[HloPosition] = []
        self.uses: list[HloUse] = []

    def closed(self) -> HloValue:
        number, name, index = self.head
        return HloValue(
            int(number),
            HloPosition(name, index_from(index or "")),
            tuple(self.positions),
            tuple(self.uses),
            Span(self.start, self.end),
        )


def read_values_from(text: str, start: int, end: int | None, path: Path | None) -> BufferValues:
    """Read a part of a text: old releases have other sections before and after it."""
    values: list[_OpenValue] = []
    problems: list[ParseError] = []
    value: _OpenValue | None = None  # the last, unless its instruction was read, too
    section = ""
    for offset, line in lines_of(text, start, end):
        if line.startswith(_FROM):
            if value is None:
                problems.append(parse_error("a value before its instruction", line, offset))
                continue
            head = _glued_head(line)
            start = value.end = offset + len(line) - (0 if head is None else len(head[0]))
            value, section = None, ""
            if head is not None:
                value = _OpenValue(head, start)
                values.append(value)
        elif line.startswith("  "):
            wanted = _take_place(value, section, line, offset)
            if wanted:
                problems.append(parse_error(wanted, line, offset))
        elif line in (" positions:", " uses:") and value is not None:
            section = line
            value.end = offset + len(line)
        elif (head := _head(line)) is not None:
            # Older releases print no instruction at the end of the previous value.
            value, section = _OpenValue(head, offset), ""
            values.append(value)
        elif line not in ("", "Used values:") and not _is_total(line):
            problems.append(parse_error("a value, its positions or its uses", line, offset))
    closed = tuple(value.closed() for value in values)
    return BufferValues(path=path, text=text, problems=tuple(problems), values=closed)


def _take_place(value: _OpenValue | None, section: str, line: str, offset: int) -> str:
    """Read a position or a use into its value; return the expectation if it is neither."""
    if value is None or not section:
        return "a value, its positions or its uses"
    if section == " positions:":
        match = _position(line)
        if match is None:
            return "a position"
        value.positions.append(HloPosition(match[1], index_from(match[2] or "")))
    elif line != "  (none)":
        match = _use(line)
        if match is None:
            return "a use"
        place = Span(offset + 2, offset + len(line))
        value.uses.append(HloUse(match[1], int(match[2]), index_from(match[3] or ""), place))
    value.end = offset + len(line)
    return ""


def _glued_head(line: str) -> re.Match[str] | None:
    """The next value, which old releases print on the line of the previous value's instruction."""
    if not line.endswith(">"):
        return None
    offset = line.rfind("<")
    return _head(line[offset:]) if offset > len(_FROM) else None
