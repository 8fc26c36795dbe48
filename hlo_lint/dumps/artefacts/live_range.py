"""The live range of each value: `*-live-range.txt`.

    HloLiveRange (max 3):
      InstructionSequence:
        0:y.1
        1:x.1
        2:triton_cc.1
      BufferLiveRange:
        triton_cc.1{}:2-3
      Live ranges at 2 (peak):
        triton_cc.1{}: 2097152 bytes (cumulative: 2097152 bytes)
      Stack trace breakdown for peak usage: 2 097 152 bytes
        main.1 (100.0%, total: 2 097 152 bytes, current: 0 bytes, remaining: 2 097 152 bytes)
          └── jit(f)/triton_cc (100.0%, total: 2 097 152 bytes, current: …)

From `HloLiveRange::ToString` (`xla/hlo/utils/hlo_live_range.cc`). The sequence runs through called
computations and names the get-tuple-elements that compact HLO text leaves out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
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

_BYTES = r"([0-9][0-9 ]{0,30}) bytes"
_head = re.compile(rf"HloLiveRange \(max {COUNT}\):").fullmatch
_instruction = re.compile(rf"    {COUNT}:{NAME}").fullmatch
_range = re.compile(rf"    {NAME}{INDEX}:{COUNT}-{COUNT}").fullmatch
_peak = re.compile(rf"  Live ranges at {COUNT} \(peak\):").fullmatch
_alive = re.compile(
    rf"    {NAME}(?:{INDEX})?: {COUNT} bytes(?: \(cumulative: {COUNT} bytes\))?"
).fullmatch
_breakdown = re.compile(rf"  Stack trace breakdown for peak usage: {_BYTES}").fullmatch
_frame = re.compile(
    rf"    ((?:  (?:│   |    )*[├└]── )?)(.*) \(([0-9]{{1,3}}(?:\.[0-9]{{1,3}})?)%, "
    rf"total: {_BYTES}, current: {_BYTES}, remaining: {_BYTES}\)"
).fullmatch
_NOT_AVAILABLE = "HloLiveRange not available (finalized or constructed from proto)"


@dataclass(frozen=True, slots=True)
class ScheduledInstruction:
    """An instruction and its place in the schedule."""

    time: int
    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class ValueRange:
    """From the time at which a value is defined to the last at which it is needed, inclusive."""

    instruction: str
    index: Index
    start: int
    end: int
    span: Span


@dataclass(frozen=True, slots=True)
class AliveAtPeak:
    """A value that is alive when the most memory is."""

    instruction: str
    index: Index
    size: int
    cumulative: int | None
    """Its bytes and those of all values above it; old releases do not print it."""
    span: Span


@dataclass(frozen=True, slots=True)
class PeakFrame:
    """A place in the program, and its share of the memory that is alive at the peak."""

    depth: int
    name: str
    """A computation, or a part of an `op_name`."""
    percent: float
    total: int
    current: int
    """Its own bytes, without those below it."""
    remaining: int
    span: Span


@dataclass(frozen=True, kw_only=True)
class LiveRange(Artefact):
    """The schedule, and how long each value lives in it."""

    is_available: bool
    """False where XLA says that it has none: the assignment came out of a cache."""
    length: int | None
    """The time after the last instruction."""
    sequence: tuple[ScheduledInstruction, ...]
    ranges: tuple[ValueRange, ...]
    peak_time: int | None
    peak: tuple[AliveAtPeak, ...]
    """The values that are alive then, the largest first."""
    peak_bytes: int | None
    """None in old releases."""
    peak_frames: tuple[PeakFrame, ...]
    """The same memory by place in the program: a tree, outermost first."""

    @cached_property
    def times(self) -> dict[str, int]:
        """The time of each instruction."""
        return {instruction.name: instruction.time for instruction in self.sequence}


def read_live_range(text: str, path: Path | None = None) -> LiveRange:
    """Reads the file; a line of another form is a trouble."""
    return read_live_range_from(text, 0, None, path)


class _LiveRangeReader:
    def __init__(self) -> None:
        self.section = _SEQUENCE
        self.is_available = True
        self.length: int | None = None
        self.sequence: list[ScheduledInstruction] = []
        self.ranges: list[ValueRange] = []
        self.peak_time: int | None = None
        self.peak: list[AliveAtPeak] = []
        self.peak_bytes: int | None = None
        self.frames: list[PeakFrame] = []

    def heading(self, line: str) -> bool:
        """Enter the section that a line opens; False if it opens none."""
        if line == "  InstructionSequence:":
            self.section = _SEQUENCE
        elif line == "  BufferLiveRange:":
            self.section = _RANGES
        elif (match := _peak(line)) is not None:
            self.peak_time = int(match[1])
            self.section = _PEAK
        elif (match := _breakdown(line)) is not None:
            self.peak_bytes = _bytes(match[1])
            self.section = _FRAMES
        elif (match := _head(line)) is not None:
            self.length = int(match[1])
        elif line == _NOT_AVAILABLE:
            self.is_available = False
        else:
            return False
        return True

    def line(self, line: str, at: int) -> str:
        """Read a line of a section; what it should be if it is none, else empty text."""
        pattern, wanted, add = self.section
        match = pattern(line)
        if match is None:
            return wanted
        add(self, Span(at + 4, at + len(line)), *match.groups())
        return ""

    def instruction(self, place: Span, time: str, name: str) -> None:
        self.sequence.append(ScheduledInstruction(int(time), name, place))

    def range(self, place: Span, name: str, index: str, first: str, last: str) -> None:
        self.ranges.append(ValueRange(name, index_from(index), int(first), int(last), place))

    def alive(
        self, place: Span, name: str, index: str | None, size: str, cumulative: str | None
    ) -> None:
        total = None if cumulative is None else int(cumulative)
        self.peak.append(AliveAtPeak(name, index_from(index or ""), int(size), total, place))

    def frame(self, place: Span, branch: str, name: str, percent: str, *sizes: str) -> None:
        # The tree is drawn with four columns a level.
        depth = (len(branch) - 2) // 4 if branch else 0
        total, current, remaining = map(_bytes, sizes)
        place = Span(place.start + len(branch), place.end)
        self.frames.append(PeakFrame(depth, name, float(percent), total, current, remaining, place))


_Section = tuple[Callable[[str], re.Match[str] | None], str, Callable[..., None]]
"""A line of a section, the words for it, and what reads its groups."""
_SEQUENCE: _Section = _instruction, "an instruction with its turn", _LiveRangeReader.instruction
_RANGES: _Section = _range, "a value with its live range", _LiveRangeReader.range
_PEAK: _Section = _alive, "a value with its bytes", _LiveRangeReader.alive
_FRAMES: _Section = _frame, "a place with its bytes", _LiveRangeReader.frame


def read_live_range_from(text: str, start: int, end: int | None, path: Path | None) -> LiveRange:
    """Reads a part of a text: old releases have the buffer assignment before it."""
    reader = _LiveRangeReader()
    problems: list[ParseError] = []
    for at, line in lines_of(text, start, end):
        # What is in a section stands four columns in; headings two, or none.
        if line.startswith("    "):
            wanted = reader.line(line, at)
            if wanted:
                problems.append(parse_error(wanted, line, at))
        elif line and not reader.heading(line):
            problems.append(parse_error("a section of live ranges", line, at))
    return LiveRange(
        path=path,
        text=text,
        problems=tuple(problems),
        is_available=reader.is_available,
        length=reader.length,
        sequence=tuple(reader.sequence),
        ranges=tuple(reader.ranges),
        peak_time=reader.peak_time,
        peak=tuple(reader.peak),
        peak_bytes=reader.peak_bytes,
        peak_frames=tuple(reader.frames),
    )


def _bytes(spelled: str) -> int:
    """The number of a count with blanks between its thousands."""
    return int(spelled.replace(" ", ""))
