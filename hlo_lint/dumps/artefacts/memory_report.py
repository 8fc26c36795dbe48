"""The largest allocations with their largest values: `*-memory-usage-report.txt`.

    Memory Space: default (color=0)
    Total bytes: 868364 (848.0KiB)
      cumulative_size;       size;       offset; used_by_n_values; shapes_list
      ------------------------------------------------------------
       256.0KiB( 50%);   256.0KiB;            0;                1; f16[1,2,4,128,128]

From `BufferAssignment::MemoryUsageReport` (`xla/service/buffer_assignment.cc`). Its names of memory
spaces are not those of the compiler (host memory, 5, is called `cmem`): trust the number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hlo_lint.dumps.artefacts.records import COUNT, Artefact, lines_of, parse_error
from hlo_lint.text.source import ParseError, Span

_SIZE = r"([0-9]{1,18}(?:\.[0-9]{1,9})?(?:[KMGTPE]i)?B)"
_space = re.compile(rf"Memory Space: (.*) \(color={COUNT}\)").fullmatch
_total = re.compile(rf"Total bytes: {COUNT} \(([^()]*)\)").fullmatch
_row = re.compile(rf" *{_SIZE}\( *([0-9]{{1,3}})%\); *{_SIZE}; *{COUNT}; *{COUNT}; (.*)").fullmatch
_rest = re.compile(
    rf"  The rest {COUNT} values are less than ([0-9]{{1,3}})% of the total size and not shown\."
).fullmatch
_COLUMNS = "  cumulative_size;       size;       offset; used_by_n_values; shapes_list"
_rule = re.compile(r"  -{10,}").fullmatch


@dataclass(frozen=True, slots=True)
class ReportedSlice:
    """Values that share one place in an allocation."""

    cumulative: str
    """Its size and that of all slices above it, rounded: `256.0KiB`."""
    percent: int
    """The share that `cumulative` is of the allocation."""
    size: str
    """Rounded, as it is printed."""
    offset: int
    used_by: int
    """Number of values there, one after the other."""
    shapes: str
    """Their shapes without layouts, with a count where several are alike: `5×bf16[6,1024,512]`."""
    span: Span


@dataclass(frozen=True, slots=True)
class ReportedAllocation:
    """One allocation: its slices, the largest first."""

    slices: tuple[ReportedSlice, ...]
    not_shown: int
    """Number of values that are too small to be listed."""


@dataclass(frozen=True, slots=True)
class MemorySpace:
    """The allocations of one memory space, the largest first."""

    name: str
    color: int
    total_bytes: int | None
    allocations: tuple[ReportedAllocation, ...]
    span: Span
    """Its own line."""


@dataclass(frozen=True, kw_only=True)
class MemoryReport(Artefact):
    """The largest values of each memory space."""

    spaces: tuple[MemorySpace, ...]

    @cached_property
    def total_bytes(self) -> int:
        """The bytes of all memory spaces."""
        return sum(space.total_bytes or 0 for space in self.spaces)


class _OpenSpace:
    """A memory space whose allocations are still coming."""

    def __init__(self, name: str, color: int, span: Span) -> None:
        self.name, self.color, self.span = name, color, span
        self.total: int | None = None
        self.allocations: list[ReportedAllocation] = []
        self.slices: list[ReportedSlice] | None = None
        self.not_shown = 0

    def begin(self) -> None:
        """Ends the last allocation and begins the next."""
        if self.slices is not None:
            self.allocations.append(ReportedAllocation(tuple(self.slices), self.not_shown))
        self.slices, self.not_shown = [], 0

    def closed(self) -> MemorySpace:
        self.begin()
        return MemorySpace(self.name, self.color, self.total, tuple(self.allocations), self.span)


def read_memory_report(text: str, path: Path | None = None) -> MemoryReport:
    """Reads the file; a line of another form is a trouble."""
    spaces: list[MemorySpace] = []
    problems: list[ParseError] = []
    current: _OpenSpace | None = None
    for start, line in lines_of(text):
        if (match := _space(line)) is not None:
            if current is not None:
                spaces.append(current.closed())
            current = _OpenSpace(match[1], int(match[2]), Span(start, start + len(line)))
        elif current is None:
            if line:
                problems.append(parse_error("a memory space", line, start))
        elif not _take(current, line, start):
            problems.append(parse_error("a row of the report", line, start))
    if current is not None:
        spaces.append(current.closed())
    return MemoryReport(path=path, text=text, problems=tuple(problems), spaces=tuple(spaces))


def _take(space: _OpenSpace, line: str, start: int) -> bool:
    """Read a line into a memory space; False if it belongs to none."""
    if not line or _rule(line):
        return True
    if line == _COLUMNS:
        space.begin()
    elif (match := _row(line)) is not None and space.slices is not None:
        cumulative, percent, size, offset, used_by, shapes = match.groups()
        place = Span(start + len(line) - len(line.lstrip(" ")), start + len(line))
        space.slices.append(
            ReportedSlice(cumulative, int(percent), size, int(offset), int(used_by), shapes, place)
        )
    elif (match := _rest(line)) is not None:
        space.not_shown = int(match[1])
    elif (match := _total(line)) is not None:
        space.total = int(match[1])
    else:
        return False
    return True
