"""Text to modules, losslessly: each file is cut into pieces, which are parsed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from hlo_lint.hlo.ir import Computation, HloFile, Module
from hlo_lint.hlo.parser.fast import MAX_TOGETHER, LineMemo, Placed, PrintedReader
from hlo_lint.hlo.records import SharedLines
from hlo_lint.text.patterns import late
from hlo_lint.text.source import ParseError, decode

if TYPE_CHECKING:
    from hlo_lint.hlo.parser.general import Scanner

_first_line_of_module = late(r"[ \t]*HloModule\b").match
_part_starts = late(r"\n(?:// -----[ \t]*\r?$|[ \t]*HloModule\b)", re.M).finditer
"""Line breaks before parts: `^` would be tried at each character."""
_begins_module = re.compile(r"HloModule(?![\w.\-])", re.A).match
_module_name = re.compile(r"HloModule %?([A-Za-z_][\w.\-]*)(?=[,:]|\Z)", re.A).match
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_table = late(rf"(?:{'|'.join(_TABLES)})[ \t]*\r?\n(?:[ \t]*\d+ [^\n]*(?:\n|$))*").match


class Memo(LineMemo):
    """A cache of earlier reads, shared by the files of a directory, whole files included."""

    __slots__ = ("files",)

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[tuple[int, int], tuple[Module, ...]] = {}
        """By length and hash. The first text of a length is not hashed, and has the hash 0: most
        lengths are unique, and a comparison of texts is as fast as a hash."""

    def clear(self) -> None:
        """Clear the cache: later reads are independent of earlier reads."""
        self.lines = SharedLines()  # living computations keep the old lines
        for held in (self.latest, self.shared, self.files):
            held.clear()


def parse_file(data: bytes | str, path: Path | None = None, memo: Memo | None = None) -> HloFile:
    """All modules of a file; unreadable parts are in their `problems`."""
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
            start += module.size
    return file


def _is_text_of(modules: tuple[Module, ...], text: str) -> bool:
    """True if a text, of the right length, is the text of these modules."""
    offset = 0
    for piece in chain.from_iterable([module.pieces for module in modules]):
        own = piece if isinstance(piece, str) else piece.text
        if not text.startswith(own, offset):
            return False
        offset += len(own)
    return True


def _split(text: str) -> list[str]:
    """A part for each module: `// -----` and a second `HloModule` begin a new part."""
    if "\nHloModule" not in text and "// -----" not in text:
        return [text]
    cuts = []
    seen_module = _first_line_of_module(text) is not None
    for start in _part_starts(text):
        is_module = not start[0].startswith("\n//")
        if seen_module or not is_module:
            cuts.append(start.start() + 1)
        seen_module = is_module
    parts = [text[begin:end] for begin, end in pairwise([0, *cuts, len(text)])]
    from hlo_lint.hlo.parser.general import Scanner

    # A part of only comments and white space is not a module: it is merged with the previous.
    merged: list[list[str]] = []
    is_void = False
    for part in parts:
        was_void, is_void = is_void, Scanner(part).skip(0) >= len(part)
        if merged and (is_void or was_void):
            merged[-1].append(part)
            is_void = is_void and was_void
        else:
            merged.append([part])
    return ["".join(group) for group in merged]


def _modules(text: str, memo: Memo | None) -> tuple[Module, ...]:
    reader = _ModuleReader(text, memo)
    if reader.at >= len(text):
        return (reader.module(),)  # XLA printed all of it: there is no second module
    from hlo_lint.hlo.parser.embedded import only_hlo

    if (hlo := only_hlo(text)) is not None:
        modules, start = _modules(hlo, None), 0
        for module in modules:
            end = start + len(module.text)
            module.pieces, start = (text[start:end],), end
        return modules
    parts = _split(text)
    if len(parts) > 1:
        modules = tuple([_ModuleReader(part, memo).module() for part in parts])
        if any(module.header or module.computations for module in modules):
            return modules  # a log has separators, too, but no HLO between them
    return (reader.module(),)


class _ModuleReader:
    """Reads a module, from the first character of a text to the last."""

    def __init__(self, text: str, memo: Memo | None) -> None:
        """Read the part that XLA printed; `module` reads the rest."""
        self.text = text
        self.memo = memo
        self.name = self.header = ""
        self.tables: list[str] = []
        self.computations: list[Placed] = []
        """Without inline computations."""
        self.parse_errors: list[ParseError] = []
        self.printed = PrintedReader(text, memo)
        self.at = self._read_printed_head()
        """The first unread character; 0 if the header is not as XLA prints it."""
        if self.at:
            self.at = self.printed.read(self.at, self.computations)

    def _read_printed_head(self) -> int:
        text = self.text
        end = text.find("\n\n") if text.startswith("HloModule") else 0
        end = len(text) if end < 0 else end
        header = text[:end]
        name = _module_name(header)
        if name is None or "\n" in header or "\r" in header or "//" in header:
            return 0
        if header.count('"') % 2 or (end == len(text) and " ENTRY " in header):
            return 0  # a string continues below, or the whole module is one line
        tables = []
        while text.startswith(_TABLES, end + 2):
            begin = end + 2
            end = text.find("\n\n", begin)
            end = len(text) if end < 0 else end
            tables.append(text[begin:end].strip("\n"))
        if text.startswith((" ", "\t"), end + 2):
            return 0  # an indented table
        self.name, self.header, self.tables = name[1], header, tables
        return min(end + 2, len(text))

    def module(self) -> Module:
        """The whole module."""
        if not self.at or self.at < len(self.text):
            self._read_rest()
        computations = self._all_computations()
        return Module(
            self.name,
            self.header,
            tuple(self.tables),
            self._pieces(),
            tuple([computation for _, computation in computations]),
            tuple([start for start, _ in computations]),
            tuple(self.parse_errors),
        )

    def _read_rest(self) -> None:
        """Read the rest with the general parser, a computation at a time."""
        from hlo_lint.hlo.parser.general import Scanner

        text, scanner = self.text, Scanner(self.text)
        # A text this long is not written by hand: XLA printed it, and a comment was added.
        is_printed = self.at > 0 or len(text) > MAX_TOGETHER
        self.parse_errors = scanner.parse_errors
        if not self.at:
            self.at = self._read_head(scanner)
        while self.at < len(text):
            if is_printed:
                self.at = self.printed.read(self.at, self.computations)
            enough = self.at + 1 if is_printed else len(text)
            read, self.at = scanner.computations(self.at, min(enough, len(text)))
            self.computations += read
        if not self.computations and not self.header:
            self.parse_errors = [_not_hlo(text, scanner.skip(0))]

    def _read_head(self, scanner: Scanner) -> int:
        """Read header, tables and statements without a computation; return the end."""
        text = self.text
        offset = scanner.skip(0)
        if text.startswith("<", offset):
            return len(text)  # a page of HTML, whose scripts have braces
        if _begins_module(text, offset):
            self.name, end = scanner.header(offset)
            self.header = text[offset:end]
            offset = scanner.skip(end)
        while table := _table(text, offset):
            self.tables.append(table[0].strip("\n"))
            offset = scanner.skip(table.end())
        bare = None if self.header else type(scanner)(text).statements(offset)
        if bare is not None:
            end, computation = bare
            self.name = computation.name
            self.computations.append((offset, computation))
            offset = end
        return offset

    def _all_computations(self) -> list[Placed]:
        computations = self.computations
        if any(computation.inline for _, computation in computations):
            computations = [*chain.from_iterable(_with_inline(*place) for place in computations)]
            _name_inline(computations, {computation for _, computation in self.computations})
        if self.memo is not None:
            seen: set[Computation] = set()
            for number, (start, computation) in enumerate(computations):
                if computation in seen:  # the memo shares it, but it occurs twice in the text
                    computations[number] = start, computation.copy()
                seen.add(computation)
        return computations

    def _pieces(self) -> tuple[str | Computation, ...]:
        """The text, cut so that texts with the same memo share their computations."""
        if self.memo is None:
            return (self.text,)
        pieces: list[str | Computation] = []
        offset = 0
        for start, computation in self.computations:
            pieces += (self.text[offset:start], computation)
            offset = start + computation.size
        return (*pieces, self.text[offset:])


def _with_inline(start: int, computation: Computation) -> Iterator[Placed]:
    """A computation after its inline computations, as in XLA's modules."""
    for call in chain.from_iterable(computation.inline.values()):
        yield from _with_inline(start + call.start, call.computation)
    yield start, computation


def _name_inline(computations: list[Placed], outer: set[Computation]) -> None:
    """Give nameless computations XLA's names: `_`, `_.1` …"""
    from hlo_lint.hlo.parser.general import free_names

    free = free_names("_", {computation.name for computation in outer})
    for _, computation in computations:
        if computation not in outer:
            computation.name = next(free)


def _not_hlo(text: str, begin: int) -> ParseError:
    head = text[begin : begin + _SNIFFED]
    message = "this is not HLO: it has neither HloModule nor a computation"
    if "H\0l\0o\0M\0o\0d\0u\0l\0e" in text:  # what `>` of PowerShell writes
        message = "this is UTF-16; HLO is read as UTF-8: convert it with iconv -f utf-16 -t utf-8"
    elif other := next((_FORMATS[form] for form in _FORMATS if re.match(form, head)), ""):
        message = f"this is {other}, not HLO, which `{_GIVES_HLO}` gives"
    return ParseError(message, begin, max(begin, text.find("\n", begin)))


_SNIFFED = 1 << 14
_GIVES_HLO = 'jax.jit(f).lower(…).as_text(dialect="hlo")'
_FORMATS = {
    r"(?s).*?ML\udcefR": "MLIR as bytecode, as jax.export keeps it",
    r"(?s).*?\b(?:stablehlo|mhlo|vhlo|sdy)\.": "StableHLO",
    r"\{ ?lambda\b|let\b": "a jaxpr",
}
"""Other formats that jax prints, by the beginning of their texts."""
