"""The memory of each value: `*-buffer-assignment.txt`.

    BufferAssignment:
    allocation 6: size 589840, page 0, preallocated-temp:
     value: <22 custom-call.1{0} @0> (size=262144,offset=262144): f32[16,128,32]{2,1,0}

From `BufferAllocation::ToString` and `BufferAssignment::ToString`
(`xla/service/buffer_assignment.cc`). Old releases wrote the values with their positions and uses,
and the live ranges, into the same file; live ranges are skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import starmap
from pathlib import Path
from typing import NamedTuple

from hlo_lint.dumps.artefacts.buffer_values import SHORT, BufferValues, read_values_from
from hlo_lint.dumps.artefacts.records import (
    COUNT,
    DIGITS,
    Artefact,
    Index,
    index_from,
    lines_of,
    parse_error,
)
from hlo_lint.text.source import ParseError, Span

_allocation = re.compile(
    rf"allocation {COUNT}: size {COUNT}(?:, color {COUNT})?(?:, page {DIGITS})?"
    rf"(?:, parameter {COUNT}, shape \|[^|]*\| at ShapeIndex \{{[0-9,]*\}})?"
    rf"(?:, output shape is \|[^|]*\|)?((?:, [a-z][a-z-]*)*):"
).fullmatch
_value = re.compile(rf" value: {SHORT} \(size={COUNT},offset={COUNT}\): (.+)").fullmatch
_is_reused = re.compile(rf"  value: {SHORT} \(color={DIGITS}\)").fullmatch
_REUSED = " reused by buffers of a different color:"
_values_begin = re.compile(r"^(?:\r?\n)*Total bytes used: |^Used values:", re.M).search
_live_ranges_begin = re.compile(r"^HloLiveRange ", re.M).search


class AllocationSlice(NamedTuple):
    """A range of bytes in an allocation.

    >>> AllocationSlice(6, 0, 64).overlaps(AllocationSlice(6, 32, 64))
    True
    """

    allocation: int
    offset: int
    size: int

    @property
    def end(self) -> int:
        """The byte after the last."""
        return self.offset + self.size

    def overlaps(self, second: AllocationSlice) -> bool:
        """True if both ranges share a byte."""
        return (
            self.allocation == second.allocation
            and self.offset < second.end
            and second.offset < self.end
            and min(self.size, second.size) > 0
        )

    def __str__(self) -> str:
        return f"allocation {self.allocation}, bytes {self.offset} to {self.end}"


@dataclass(frozen=True, slots=True)
class AssignedValue:
    """A value in its allocation."""

    id: int
    instruction: str
    """The instruction that defines it."""
    index: Index
    """The part of the instruction's result."""
    slice: AllocationSlice
    shape: str
    """As printed, with its layout; `parse_shape` reads it."""
    span: Span

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.slice.size

    @property
    def offset(self) -> int:
        """Its first byte in the allocation."""
        return self.slice.offset


@dataclass(frozen=True, slots=True)
class Allocation:
    """A piece of memory that the program allocates, with the values that share it over time."""

    index: int
    size: int
    color: int
    """The memory space, as a number: 0 is the device's own memory."""
    parameter: int | None
    """The parameter of the entry computation of which it holds a part, if any."""
    flags: tuple[str, ...]
    """`constant`, `thread-local`, `maybe-live-out`, `preallocated-temp`, and later flags."""
    values: tuple[AssignedValue, ...]
    span: Span
    """The line of the allocation."""


@dataclass(frozen=True, kw_only=True)
class BufferAssignment(Artefact):
    """All memory of a module."""

    allocations: tuple[Allocation, ...]
    buffer_values: BufferValues | None
    """Positions and uses: in the same file in old releases, else set by `with_values`."""

    def with_values(self, values: BufferValues) -> BufferAssignment:
        """The assignment with positions and uses, which extend `values_of`."""
        return replace(self, buffer_values=values)

    @cached_property
    def values(self) -> dict[int, AssignedValue]:
        """Each value by its number."""
        return {value.id: value for allocation in self.allocations for value in allocation.values}

    @cached_property
    def by_index(self) -> dict[int, Allocation]:
        """Each allocation by its number."""
        return {allocation.index: allocation for allocation in self.allocations}

    @cached_property
    def _by_definition(self) -> dict[tuple[str, Index], tuple[AssignedValue, ...]]:
        by_position: dict[tuple[str, Index], tuple[AssignedValue, ...]] = {}
        for value in self.values.values():
            position = value.instruction, value.index
            by_position[position] = (*by_position.get(position, ()), value)
        return by_position

    def values_of(self, instruction: str, index: Index = ()) -> tuple[AssignedValue, ...]:
        """The values in a part of an instruction's result, each with its memory.

        Without positions only the instructions that define a value are known: not
        get-tuple-elements, bitcasts or elements of tuples.
        """
        defined = self._by_definition.get((instruction, index), ())
        if self.buffer_values is None:
            return defined
        others = (self.values.get(value.id) for value in self.buffer_values.at(instruction, index))
        ids = {value.id for value in defined}
        return (*defined, *(value for value in others if value and value.id not in ids))


_OpenAllocation = tuple[re.Match[str], int, list[AssignedValue]]
"""The line of an allocation, its offset, and the values below it so far."""


def read_buffer_assignment(text: str, path: Path | None = None) -> BufferAssignment:
    """Read the file of a new or an old release; unknown lines are in `problems`."""
    end = len(text)
    values = None
    # Old releases print values and live ranges into the same file, so it is read from its end.
    if (match := _live_ranges_begin(text)) is not None:
        end = match.start()
    if (match := _values_begin(text, 0, end)) is not None:
        values = read_values_from(text, match.start(), end, path)
        end = match.start()
    allocations, problems = _allocations(text, end)
    problems += values.problems if values is not None else ()
    return BufferAssignment(
        path=path,
        text=text,
        problems=tuple(problems),
        allocations=allocations,
        buffer_values=values,
    )


def _allocations(text: str, end: int) -> tuple[tuple[Allocation, ...], list[ParseError]]:
    allocations: list[_OpenAllocation] = []
    problems: list[ParseError] = []
    reusing = False
    for start, line in lines_of(text, 0, end):
        if (match := _value(line)) is not None and allocations and not reusing:
            number, name, index, size, offset, shape = match.groups()
            line_of_allocation, _, values = allocations[-1]
            values.append(
                AssignedValue(
                    int(number),
                    name,
                    index_from(index or ""),
                    AllocationSlice(int(line_of_allocation[1]), int(offset), int(size)),
                    shape,
                    Span(start + 1, start + len(line)),
                )
            )
        elif (match := _allocation(line)) is not None:
            allocations.append((match, start, []))
            reusing = False
        # Lines of this list look like values without an offset: values of other memory spaces that
        # reuse the allocation. They are not needed.
        elif line == _REUSED and allocations:
            reusing = True
        elif reusing and _is_reused(line):
            continue
        elif line and line != "BufferAssignment:":
            wanted = "an allocation or a value" if allocations else "an allocation"
            problems.append(parse_error(wanted, line, start))
    return tuple(starmap(_allocated, allocations)), problems


def _allocated(line: re.Match[str], start: int, values: list[AssignedValue]) -> Allocation:
    index, size, color, parameter, flags = line.groups()
    return Allocation(
        int(index),
        int(size),
        int(color or 0),
        None if parameter is None else int(parameter),
        tuple(flags.split(", ")[1:]),
        tuple(values),
        Span(start, start + len(line[0])),
    )
