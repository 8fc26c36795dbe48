"""The steps of the runtime in order, `*.thunk_sequence.txt`, and the instruction of each step,
`*.thunk_metadata.txt`.

    002: kAsyncStart   [prev=001 (1)  | next=020 (14)] stream=computation_stream[0], async_id=2
        004: kDynamicSliceFusion [source | sink] params=1, results=1
            003: kCopy [source | sink] kCopy
    020: kWhile        [prev=017 (3)  | next=048 (1) ]
    condition:
        021: kCustomKernel [source | sink] loop_compare_fusion grid: [1, 1, 1] …
      body:

From `ThunkSequence::ToString` (`xla/backends/gpu/runtime/thunk.cc`). `prev` and `next` are the
nearest thunks that touch the same memory; `source` and `sink` say that there is none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from hlo_lint.dumps.artefacts.records import COUNT, Artefact, lines_of, parse_error
from hlo_lint.dumps.artefacts.text_proto import Message, outer_fields
from hlo_lint.text.source import ParseError, Span

_thunk = re.compile(
    rf"( *){COUNT}: (k\w+) +\[(?:prev={COUNT} \({COUNT}\)|source) *"
    rf"\| (?:next={COUNT} \({COUNT}\)|sink) *\](?: |$)",
    re.A,
).match
_label = re.compile(r"( *)(condition|body|branch_[0-9]{1,9}|true_branch|false_branch): *").fullmatch
_begins = re.compile(r" *[0-9]{1,18}: k\w", re.A).match
_DIMENSIONS = rf"{COUNT}, {COUNT}, {COUNT}"
_launch = re.compile(
    rf"(\S+) grid: \[{_DIMENSIONS}\] threads: \[{_DIMENSIONS}\] *shared_memory: {COUNT} bytes *"
).fullmatch
_old_launch = re.compile(
    rf"kernel=([^\s,]+),.* launch dimensions=blocks: \{{{_DIMENSIONS}\}}, "
    rf"threads/block: \{{{_DIMENSIONS}\}}.*"
).fullmatch
_OWNERS = {"condition": "kWhile", "body": "kWhile"}


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The nearest thunk that touches the same memory."""

    id: int
    distance: int
    """Number of thunks of the same sequence from one to the other."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel and how it is started."""

    kernel: str
    """Its name as the device knows it: `.` and `-` of an instruction's name are `_`."""
    grid: tuple[int, int, int]
    threads: tuple[int, int, int]
    shared_memory: int | None
    """In bytes; None where it is not printed."""


@dataclass(frozen=True, slots=True)
class Thunk:
    """One step of the runtime."""

    id: int
    """As `thunk_metadata` has it; command buffers are all 0."""
    kind: str
    """`kWhile`, `kAsyncStart`, `kCustomKernel`: XLA's own names."""
    prev: Neighbour | None
    next: Neighbour | None
    description: str
    parent: int | None
    """The place in `ThunkSequence.thunks` of the thunk that it is a part of."""
    region: str
    """The part of its parent: `condition`, `body`, `branch_0`, `true_branch`; else empty."""
    depth: int
    span: Span

    @property
    def launch(self) -> Launch | None:
        """The kernel that it starts, if it starts one."""
        match = _launch(self.description) or _old_launch(self.description)
        if match is None:
            return None
        name, *numbers = match.groups()
        x, y, z, tx, ty, tz, *shared = map(int, numbers)
        return Launch(name, (x, y, z), (tx, ty, tz), shared[0] if shared else None)


@dataclass(frozen=True, kw_only=True)
class ThunkSequence(Artefact):
    """The steps in the order of the file: a thunk stands before its parts."""

    thunks: tuple[Thunk, ...]


class _OpenThunk:
    """A thunk into which others may follow."""

    def __init__(self, place: int, indent: int, kind: str) -> None:
        self.place, self.indent, self.kind = place, indent, kind
        self.region = ""


def read_thunk_sequence(text: str, path: Path | None = None) -> ThunkSequence:
    """Reads the file; a line of another form is a trouble."""
    thunks: list[Thunk] = []
    problems: list[ParseError] = []
    stack: list[_OpenThunk] = []

    def add(line: str, start: int) -> bool:
        """Reads a thunk, and the first of its parts where it stands on the same line."""
        at = 0
        while (match := _thunk(line, at)) is not None:
            spaces, number, kind, before, before_by, after, after_by = match.groups()
            indent = len(spaces)
            while stack and stack[-1].indent >= indent:
                stack.pop()
            nested = _begins(line, match.end()) is not None
            end = match.end() if nested else len(line)
            thunks.append(
                Thunk(
                    int(number),
                    kind,
                    None if before is None else Neighbour(int(before), int(before_by)),
                    None if after is None else Neighbour(int(after), int(after_by)),
                    line[match.end() : end].strip(),
                    stack[-1].place if stack else None,
                    stack[-1].region if stack else "",
                    len(stack),
                    Span(start + at + indent, start + end),
                )
            )
            stack.append(_OpenThunk(len(thunks) - 1, indent, kind))
            if not nested:
                return True
            at = end
        return False

    for start, line in lines_of(text):
        if not line or add(line, start):
            continue
        label = _label(line)
        if label is None or not _enter(stack, label[2], len(label[1])):
            problems.append(parse_error("a thunk", line, start))
    return ThunkSequence(path=path, text=text, problems=tuple(problems), thunks=tuple(thunks))


def _enter(stack: list[_OpenThunk], region: str, indent: int) -> bool:
    """Enter a region of the nearest open thunk that has such a region; True if there is one.

    `condition:` stands at the left edge however deep its loop is; the others stand two columns
    right of their thunk.
    """
    kind = _OWNERS.get(region, "kConditional")
    while stack:
        top = stack[-1]
        if top.kind == kind and (region == "condition" or top.indent + 2 <= indent):
            top.region = region
            return True
        stack.pop()
    return False


@dataclass(frozen=True, slots=True)
class ThunkInfo:
    """The instruction of a thunk."""

    id: int
    kind: str
    profile_annotation: str
    """The instruction's name; empty for what no instruction asked for."""
    span: Span


@dataclass(frozen=True, kw_only=True)
class ThunkMetadata(Artefact):
    """The instruction of each thunk."""

    thunks: tuple[ThunkInfo, ...]


def read_thunk_metadata(text: str, path: Path | None = None) -> ThunkMetadata:
    """Reads the text form of `ThunkMetadataListProto`."""
    problems: list[ParseError] = []
    thunks = []
    for field in outer_fields(text, problems):
        if field.name != "thunk_metadata" or not isinstance(field.value, Message):
            problems.append(ParseError(f"expected thunk_metadata, found {field.name}", *field.span))
            continue
        info = field.value.message("thunk_info")
        thunks.append(
            ThunkInfo(
                info.number("thunk_id"),
                field.value.text("thunk_kind"),
                info.text("profile_annotation"),
                field.span,
            )
        )
    return ThunkMetadata(path=path, text=text, problems=tuple(problems), thunks=tuple(thunks))
