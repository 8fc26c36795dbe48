"""Text to modules, losslessly: each file is cut into pieces, and the pieces are read."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from itertools import chain, pairwise
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from hlo_lint.hlo.ir import Computation, HloFile, Module
from hlo_lint.hlo.parser.fast import (
    MAX_TOGETHER,
    LineMemo,
    known_blocks,
    read_again,
    read_alone,
    read_part,
)
from hlo_lint.text.patterns import late
from hlo_lint.text.source import ParseError, decode

if TYPE_CHECKING:
    from hlo_lint.hlo.parser.general import Scanner
    from hlo_lint.hlo.parser.plain import Stretch

_first_line_of_module = late(r"[ \t]*HloModule\b").match
_part_starts = late(r"\n(?:// -----[ \t]*\r?$|[ \t]*HloModule\b)", re.M).finditer
"""Line breaks before parts: `^` would be looked for at each character."""
_begins_module = re.compile(r"HloModule(?![\w.\-])", re.A).match
_module_name = re.compile(r"HloModule %?([A-Za-z_][\w.\-]*)(?=[,:]|\Z)", re.A).match
_is_written_by_hand = re.compile(r"\n(?:   |  //|\n )").search
"""A line that no printer writes: one that is indented by more than two blanks, say."""
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_table = late(rf"(?:{'|'.join(_TABLES)})[ \t]*\r?\n(?:[ \t]*\d+ [^\n]*(?:\n|$))*")


@cache
def _reader(name: str) -> ModuleType:
    """A reader that most runs never need; a second `import` would take its time."""
    return import_module(f"hlo_lint.hlo.parser.{name}")


def _scanner(text: str, stretch: Stretch | None = None) -> Scanner:
    """A reader of text that no printer wrote, of which a stretch may have been read."""
    scanner: Scanner = _reader("general").Scanner(text, stretch)
    return scanner


class Memo(LineMemo):
    """A cache of earlier reads, shared by the files of one directory, whole files included."""

    __slots__ = ("files",)

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[tuple[int, int], tuple[Module, ...]] = {}
        """By length and hash. The first text of a length is not hashed, and stands at 0: most are
        alone with theirs, and to compare a text with one other takes no longer."""

    def clear(self) -> None:
        """Forget everything: what is read from now on shares nothing with what was read before."""
        for held in (self.rows, self.computations, self.latest, self.shared, self.files):
            held.clear()


def parse_file(data: bytes | str, path: Path | None = None, memo: Memo | None = None) -> HloFile:
    """All modules of a file; what cannot be read is in their `problems`."""
    text = decode(data) if isinstance(data, bytes) else data
    if memo is None:
        modules = _modules(text, None)
    else:
        key = (len(text), 0)
        known_modules = memo.files.get(key)
        if known_modules is not None and not _is_text_of(known_modules, text):
            key = (len(text), hash(text))
            known_modules = memo.files.get(key)
            if known_modules is not None and not _is_text_of(known_modules, text):
                known_modules = None
        if known_modules is None:
            known_modules = memo.files[key] = _modules(text, memo)
        modules = tuple([module.share_for_file() for module in known_modules])
    start = 0
    file = HloFile(modules, path)
    for module in modules:
        module.file = file
        module.start = start
        if len(modules) > 1:
            start += sum(map(len, module.pieces))
    return file


def _is_text_of(modules: tuple[Module, ...], text: str) -> bool:
    """True if a text is that of these modules; its length is."""
    at = 0
    for piece in chain.from_iterable([module.pieces for module in modules]):
        if not text.startswith(piece, at):
            return False
        at += len(piece)
    return True


def _split(text: str) -> list[str]:
    """One part for each module: `// -----` and a second `HloModule` begin a new one."""
    if "\nHloModule" not in text and "// -----" not in text:
        return [text]
    cuts = []
    seen_module = _first_line_of_module(text) is not None
    for start in _part_starts(text):
        is_module = not start[0].startswith("\n//")
        if seen_module or not is_module:
            cuts.append(start.start() + 1)
        seen_module = is_module
    if not cuts:
        return [text]
    bounds = [0, *cuts, len(text)]
    parts = [text[begin:end] for begin, end in pairwise(bounds)]
    # A part of nothing but comments and white space is not a module: it goes with the one before.
    merged: list[list[str]] = []
    is_void = False
    for part in parts:
        was_void, is_void = is_void, _is_void(part)
        if merged and (is_void or was_void):
            merged[-1].append(part)
            is_void = is_void and was_void
        else:
            merged.append([part])
    return ["".join(group) for group in merged]


def _is_void(part: str) -> bool:
    return _scanner(part).skip(0) >= len(part)


def _modules(text: str, memo: Memo | None) -> tuple[Module, ...]:
    """All modules of a text."""
    try:
        return (_module(text, memo, may_be_several=True),)
    except _SeveralError:
        parts = _split(text)
    if len(parts) < 2:
        return (_module(text, memo),)
    modules = tuple(_module(part, memo) for part in parts)
    if not any(module.header or module.computations for module in modules):
        return (_rough_module(text, None, False),)  # no HLO at all, though with separators
    return modules


class _SeveralError(Exception):
    """The text may be that of several modules."""


def _refuse_several(text: str, at: int) -> None:
    """Raise if another module may begin after `at`, where one has begun before."""
    # One character is looked for ten times as fast as a word.
    for mark in ("HloModule", "// -----"):
        begin = text.find(mark[0], at)
        if begin >= 0 and text.find(mark, begin) >= 0:
            raise _SeveralError


def _module(text: str, memo: Memo | None, may_be_several: bool = False) -> Module:
    """Read one module.

    Raises:
        _SeveralError: the text `may_be_several` modules; lines that a dump has begin no other.
    """
    if not text.startswith("HloModule"):
        return _rough_module(text, memo, may_be_several)
    end = text.find("\n\n")
    header = text if end < 0 else text[:end]
    name = _module_name(header)
    if name is None or "\n" in header or "\r" in header or "//" in header or header.count('"') % 2:
        return _rough_module(text, memo, may_be_several)
    builder = _Builder(name[1], header)
    builder.text(header)
    at = len(header)
    while text.startswith(_TABLES, at + 2):
        end = text.find("\n\n", at + 2)
        end = len(text) if end < 0 else end
        builder.table(text[at + 2 : end])
        at = end
    if text.startswith((" ", "\t"), at + 2):
        return _rough_module(text, memo, may_be_several)  # a table that is indented
    if at == len(text):
        # A line that holds a whole module is not a header alone.
        is_whole = " ENTRY " in header
        return _rough_module(text, memo, may_be_several) if is_whole else builder.module()
    is_short = memo is None and not builder.tables and len(text) <= MAX_TOGETHER
    if is_short and _is_written_by_hand(text, at) and (plain := _reader("plain")).is_plain(text):
        if may_be_several:
            _refuse_several(text, at)
        stretch: Stretch = plain.read_stretch(text, plain.match_lead(text, at).end(), True)
        if module := stretch.module(text, name[1], header):
            return module
    if memo is None:
        builder.rest(text, at + 2, may_be_several, is_printed=True)
    else:
        builder.blocks(text, at + 2, memo, may_be_several)
    return builder.module()


def _body(block: str) -> str:
    return block.strip("\n") if block[:1] == "\n" or block[-1:] == "\n" else block


def _lead(block: str) -> int:
    return len(block) - len(block.lstrip("\n"))


def _rough_module(text: str, memo: Memo | None, may_be_several: bool) -> Module:
    """A module whose header no printer wrote."""
    stretch = None
    plain = _reader("plain")
    if len(text) <= MAX_TOGETHER and plain.is_plain(text):
        begin = plain.match_lead(text).end()
        if may_be_several:
            _refuse_several(text, begin + 1)
        name, end, at = plain.read_header(text, begin) or ("", begin, begin)
        stretch = plain.read_stretch(text, at, may_wrap=True)
        module: Module | None = stretch.module(text, name, text[begin:end])
        if module is not None:
            return module
    scanner = _scanner(text, stretch)
    begin = scanner.skip(0)
    if may_be_several:
        _refuse_several(text, begin + 1)
    name, end = scanner.header(begin) if _begins_module(text, begin) else ("", begin)
    builder = _Builder(name, text[begin:end])
    builder.parse_errors = scanner.parse_errors
    if text.startswith("<", begin):  # a page of HTML, whose scripts have braces
        builder.text(text)
        builder.parse_errors = [_not_hlo(text, begin)]
        return builder.module()
    at = scanner.skip(end)
    while table := _table.match(text, at):
        builder.tables.append(table[0])
        at = scanner.skip(table.end())
    bare = None if builder.header else scanner.statements(at)
    if bare is not None:
        builder.text(text[: scanner.skip(at)])
        builder.computation(bare[1])
        builder.name, at = bare[1].name, bare[0]
        builder.rough(text[at:])
    elif memo is not None and len(text) > MAX_TOGETHER and text.startswith("\n\n", at - 2):
        builder.text(text[: at - 2])
        builder.blocks(text, at, memo, may_be_several=False)
    else:
        # A scanner that has looked for statements without a computation is not as it was.
        unused = scanner if builder.header else None
        # Nobody writes so much by hand: a printer did, and somebody added a comment.
        builder.rest(text, at, False, is_printed=len(text) > MAX_TOGETHER, scanner=unused)
    if not builder.computations and not builder.header:
        builder.parse_errors = [_not_hlo(text, begin)]
    return builder.module()


def _not_hlo(text: str, begin: int) -> ParseError:
    message = "this is not HLO: it has neither HloModule nor a computation"
    if "H\0l\0o\0M\0o\0d\0u\0l\0e" in text:  # what `>` of PowerShell writes
        message = "this is UTF-16; HLO is read as UTF-8: convert it with iconv -f utf-16 -t utf-8"
    return ParseError(message, begin, max(begin, text.find("\n", begin)))


class _Builder:
    """Collects the pieces of one module."""

    def __init__(self, name: str, header: str) -> None:
        self.name = name
        self.header = header
        self.tables: list[str] = []
        self.pieces: list[str] = []
        self.computations: list[Computation] = []
        self.places: list[int] = []
        self.parse_errors: list[ParseError] = []
        self.within: dict[int, int] = {}
        self.offsets: tuple[int, ...] | None = None

    @property
    def length(self) -> int:
        """Number of characters so far."""
        return sum(map(len, self.pieces))

    def table(self, block: str) -> None:
        self.tables.append(block.strip("\n"))
        self.text("\n\n" + block)

    def text(self, piece: str) -> None:
        if piece:
            self.pieces.append(piece)

    def printed(self, before: str, computation: Computation) -> None:
        """Add a computation into which no other is written, and what stands before it."""
        pieces = self.pieces
        self.places.append(len(pieces) + 1)
        self.computations.append(computation)
        pieces += (before, computation.text)

    def rest(
        self,
        text: str,
        at: int,
        may_be_several: bool,
        is_printed: bool,
        scanner: Scanner | None = None,
    ) -> None:
        """Read the computations from `at` on; the whole text becomes the only piece.

        Where no printer wrote the text, each statement is looked at, to find what is wrong in it.
        """
        self.pieces = [text]
        computations: list[tuple[int, Computation]] = []
        if is_printed:
            at = read_alone(text, at, computations)
        if at < len(text):
            if may_be_several:
                _refuse_several(text, at)
            if scanner is None:
                scanner = _scanner(text)
                scanner.parse_errors = self.parse_errors
            while at < len(text):
                # With a memo, too, no more is read generally than what a dump would not spell so.
                read, at = scanner.computations(at, at + (1 if is_printed else MAX_TOGETHER))
                computations += [(begin, computation) for begin, _, computation in read]
                if is_printed:
                    at = read_alone(text, at, computations)
        offsets: list[int] = []
        for start, computation in computations:
            if computation.inline:
                self._add_inline(computation, 0)
                inner = range(len(offsets), len(self.computations))
                offsets += [start + self.within[number] for number in inner]
            self.computations.append(computation)
            offsets.append(start)
        self.places = [0] * len(offsets)
        self.offsets = tuple(offsets)

    def blocks(self, text: str, at: int, memo: Memo, may_be_several: bool) -> None:
        """Read the computations from `at` on, two line breaks apart; those known are not read."""
        blocks, computations = known_blocks(text, at, memo)
        bodies = [_body(block) for block in blocks]
        read_again(bodies, computations, memo)
        scanner = None
        place = taken = at - 2
        for block, body, computation in zip(blocks, bodies, computations, strict=True):
            begin = at if block is body else at + _lead(block)
            end = at + len(block)
            at = end + 2
            if computation is not None and place <= begin:
                self.printed(text[taken:begin], computation)
                place = taken = begin + len(body)
                continue
            if scanner is None and place < end:
                if may_be_several:
                    _refuse_several(text, begin)
                scanner = _scanner(text)
            # What is not as a dump spells it may end within a later block.
            is_part = place > begin
            place = max(place, begin)
            while place < end and scanner is not None:
                part = read_part(text, place, memo) if is_part else None
                if part is not None:
                    self.printed(text[taken:place], part)
                    place = taken = place + len(part.text)
                    continue
                read, place = scanner.computations(place, place + 1)
                for start, stop, item in read:
                    self.text(text[taken:start])
                    self.computation(item)
                    taken = stop
                is_part = True
        self.text(text[taken:])
        self.parse_errors += scanner.parse_errors if scanner is not None else ()

    def computation(self, computation: Computation) -> None:
        self._add_inline(computation, 0)
        self.places.append(len(self.pieces))
        self.computations.append(computation)
        self.text(computation.text)

    def _add_inline(self, computation: Computation, start: int) -> None:
        """Add what is written into its attributes, which stands before it, as in XLA's modules."""
        for call in chain.from_iterable(computation.inline.values()):
            self._add_inline(call.computation, start + call.start)
            self.within[len(self.computations)] = start + call.start
            self.places.append(len(self.pieces))
            self.computations.append(call.computation)

    def _name_inline(self) -> None:
        """Give computations that the text leaves nameless XLA's names: `_`, `_.1` …"""
        inner = [self.computations[number] for number in self.within]
        taken = {body.name for at, body in enumerate(self.computations) if at not in self.within}
        number = 0
        for computation in inner:
            name = "_" if not number else f"_.{number}"
            while name in taken:
                number += 1
                name = f"_.{number}"
            computation.name = name
            number += 1

    def rough(self, text: str) -> None:
        """Text that no printer wrote: read it faithfully."""
        if not text.strip("\n"):
            self.text(text)
            return
        scanner = _scanner(text)
        base, end = self.length, 0
        for begin, stop, computation in scanner.computations(0)[0]:
            self.text(text[end:begin])
            self.computation(computation)
            end = stop
        self.text(text[end:])
        self.parse_errors += [
            ParseError(message, base + start, base + stop)
            for message, start, stop in scanner.parse_errors
        ]

    def module(self) -> Module:
        if self.within:
            self._name_inline()
        if len(set(self.computations)) < len(self.computations):
            seen: set[Computation] = set()
            for number, computation in enumerate(self.computations):
                if computation in seen:  # a memo knows both as one, and they stand apart
                    self.computations[number] = computation.again()
                seen.add(computation)
        return Module(
            self.name,
            self.header,
            tuple(self.tables),
            tuple(self.pieces),
            tuple(self.computations),
            tuple(self.places),
            tuple(self.parse_errors),
            self.within,
            self.offsets,
        )
