"""Positions and uses of each value of a module: `*-buffer-assignment-values.txt`.

    <1 fusion.2{0} (phi) @0>
     positions:
      fusion.2 {0}
      get-tuple-element.4
     uses:
      copy.1, operand 0
     from instruction: %fusion.2 = (f32[8]{0}, s32[]) fusion(%p.1), kind=kLoop, calls=%body

From `HloValue::ToString` (`xla/service/hlo_value.cc`). It names the get-tuple-elements that compact
HLO text leaves out. Old releases wrote the same text at the end of `*-buffer-assignment.txt`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hlo_lint.dumps.artefacts.records import (
    COUNT,
    INDEX,
    NAME,
    Artefact,
    Index,
    index_from,
    lines_of,
    parse_error,
)
from hlo_lint.text.source import ParseError, Span

SHORT = rf"<{COUNT} {NAME}(?:{INDEX})?( \(phi\))?(?: @{COUNT})?>"
"""`HloValue::ToShortString`: the index is printed where the defining instruction is a tuple."""

_head = re.compile(SHORT).fullmatch
_total = re.compile(rf"Total bytes used: {COUNT} \(([^()]*)\)").fullmatch
_position = re.compile(rf"  {NAME}(?: {INDEX})?").fullmatch
_use = re.compile(rf"  {NAME}, operand {COUNT}(?: {INDEX})?").fullmatch
_FROM = " from instruction:"
"""A blank follows; jax 0.4.20 and before print none."""


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
    """Part of the operand."""
    span: Span


@dataclass(frozen=True, slots=True)
class HloValue:
    """One value: its definition, its other positions, its uses."""

    id: int
    defined_at: HloPosition
    is_phi: bool
    """True if it merges values: one that a loop carries, or a conditional returns."""
    color: int
    positions: tuple[HloPosition, ...]
    """Everywhere it is, the position that defines it included."""
    uses: tuple[HloUse, ...]
    instruction_text: str
    """The defining instruction as HLO, with every shape and name."""
    span: Span


@dataclass(frozen=True, kw_only=True)
class BufferValues(Artefact):
    """Every value that has memory."""

    total_bytes: int | None
    """The bytes of all allocations; None where the line is missing."""
    values: tuple[HloValue, ...]

    @cached_property
    def by_position(self) -> dict[HloPosition, tuple[HloValue, ...]]:
        """The values that may stand at a position; several where XLA could not tell."""
        values: dict[HloPosition, tuple[HloValue, ...]] = {}
        for value in self.values:
            for position in dict.fromkeys((value.defined_at, *value.positions)):
                values[position] = (*values.get(position, ()), value)
        return values

    def at(self, instruction: str, index: Index = ()) -> tuple[HloValue, ...]:
        """The values in a part of an instruction's result."""
        return self.by_position.get(HloPosition(instruction, index), ())


def read_buffer_values(text: str, path: Path | None = None) -> BufferValues:
    """Reads the file; a line of another form is a trouble."""
    return read_values_from(text, 0, None, path)


class _OpenValue:
    """A value whose lines are still coming."""

    def __init__(self, match: re.Match[str], start: int) -> None:
        self.head = match.groups()
        self.start = start
        self.end = start + len(match[0])
        self.positions: list[HloPosition] = []
        self.uses: list[HloUse] = []
        self.instruction_text = ""

    def closed(self) -> HloValue:
        number, name, index, phi, color = self.head
        return HloValue(
            int(number),
            HloPosition(name, index_from(index or "")),
            phi is not None,
            int(color or 0),
            tuple(self.positions),
            tuple(self.uses),
            self.instruction_text,
            Span(self.start, self.end),
        )


def read_values_from(text: str, start: int, end: int | None, path: Path | None) -> BufferValues:
    """Reads a part of a text: old releases have other things before and after it."""
    values: list[HloValue] = []
    problems: list[ParseError] = []
    total: int | None = None
    value: _OpenValue | None = None
    section = ""
    for at, line in lines_of(text, start, end):
        if line.startswith(_FROM):
            if value is None:
                problems.append(parse_error("a value before its instruction", line, at))
                continue
            value.end = at + len(line)
            head = _glued_head(line)
            cut = len(line) if head is None else len(line) - len(head[0])
            value.instruction_text = line[len(_FROM) : cut].removeprefix(" ")
            value.end = at + cut
            values.append(value.closed())
            value = None if head is None else _OpenValue(head, at + cut)
            section = ""
        elif line.startswith("  "):
            wanted = _take_place(value, section, line, at)
            if wanted:
                problems.append(parse_error(wanted, line, at))
        elif line in (" positions:", " uses:") and value is not None:
            section = line
            value.end = at + len(line)
        elif (head := _head(line)) is not None:
            if value is not None:
                values.append(value.closed())  # its instruction is missing: written before it was
            value = _OpenValue(head, at)
            section = ""
        elif (match := _total(line)) is not None:
            total = int(match[1])
        elif line not in ("", "Used values:"):
            problems.append(parse_error("a value, its positions or its uses", line, at))
    if value is not None:
        values.append(value.closed())
    return BufferValues(
        path=path,
        text=text,
        problems=tuple(problems),
        total_bytes=total,
        values=tuple(values),
    )


def _take_place(value: _OpenValue | None, section: str, line: str, at: int) -> str:
    """Read a position or a use into its value; return what was expected if it is neither."""
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
        place = Span(at + 2, at + len(line))
        value.uses.append(HloUse(match[1], int(match[2]), index_from(match[3] or ""), place))
    value.end = at + len(line)
    return ""


def _glued_head(line: str) -> re.Match[str] | None:
    """The next value, which old releases print on the line of the last one's instruction."""
    if not line.endswith(">"):
        return None
    at = line.rfind("<")
    return _head(line[at:]) if at > len(_FROM) else None
