"""Text to modules, losslessly: each file is cut into pieces, and the pieces are read."""

from __future__ import annotations

import copy
import re
from itertools import chain, pairwise
from pathlib import Path

from hlo_lint.errors import HloSyntaxError
from hlo_lint.ir import Computation, HloFile, Module, Trouble
from hlo_lint.source import decode
from hlo_lint.syntax.dump_gear import LineMemo, read_computation
from hlo_lint.syntax.faithful_gear import SINGLE, Scanner

_module_start = re.compile(r"^(?:// -----|[ \t]*HloModule\b)", re.M)
_separator = re.compile(r"^// -----", re.M)
_module_name = re.compile(r"\s*HloModule\s+%?([^\s,:]+)")
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_table = re.compile(rf"(?:{'|'.join(_TABLES)})[ \t]*\r?\n(?:\d+ [^\n]*(?:\n|$))*")


class Memo(LineMemo):
    """What was read before, shared by the files of one directory: whole files, too."""

    __slots__ = ("files",)

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[bytes | str, tuple[Module, ...]] = {}


def parse_file(data: bytes | str, path: Path | None = None, memo: Memo | None = None) -> HloFile:
    """All modules of a file; what cannot be read is in their `problems`."""
    memo = Memo() if memo is None else memo
    known = memo.files.get(data)
    if known is None:
        text = decode(data) if isinstance(data, bytes) else data
        known = tuple(_module(part, memo) for part in _split(text))
        if len(known) > 1 and not any(module.header or module.computations for module in known):
            known = (_rough_module(text),)  # no HLO at all, though it has separators
        memo.files[data] = known
    start = 0
    modules = tuple(map(copy.copy, known))
    file = HloFile(modules, path)
    for module in modules:
        module.file = file
        module.start = start
        if len(modules) > 1:
            start += sum(map(len, module.pieces))
    return file


def check_strict(file: HloFile) -> None:
    """Refuse a file of which something could not be read.

    Raises:
        HloSyntaxError: at the first such place.
    """
    for module in file.modules:
        for problem in module.problems:
            raise HloSyntaxError(problem.message, problem.start, path=file.path, text=file.text)


def _split(text: str) -> list[str]:
    """One part for each module: `// -----` and a second `HloModule` begin a new one."""
    if "\nHloModule" not in text and "// -----" not in text:
        return [text]
    cuts = []
    seen_module = False
    for found in _module_start.finditer(text):
        if found[0].startswith("//"):
            cuts.append(found.start())
            seen_module = False
        else:
            if seen_module:
                cuts.append(found.start())
            seen_module = True
    bounds = [0, *(cut for cut in cuts if cut), len(text)]
    parts = [text[begin:end] for begin, end in pairwise(bounds)]
    # A part of nothing but comments and white space is no module: it goes with the one before.
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
    scanner = Scanner(part)
    return scanner.skip(0) >= len(part)


def _module(text: str, memo: Memo) -> Module:
    blocks = text.split("\n\n")
    header = blocks[0]
    if not header.startswith("HloModule ") or "\n" in header or "\r" in header or "//" in header:
        return _rough_module(text)
    builder = _Builder()
    builder.text(header)
    tables: list[str] = []
    rough: list[str] = []
    for block in blocks[1:]:
        body = block.strip("\n") if block[:1] == "\n" or block[-1:] == "\n" else block
        if not rough and body.startswith(_TABLES):
            tables.append(body)
            builder.text("\n\n" + block)
            continue
        computation = read_computation(body, memo) if body else None
        if computation is None:
            rough.append(block)
            continue
        if rough:
            builder.rough("\n\n" + "\n\n".join(rough))
            rough = []
        lead = len(block) - len(block.lstrip("\n"))
        builder.text("\n\n" + block[:lead])
        builder.computation(computation)
        builder.text(block[lead + len(body) :])
    if rough:
        builder.rough("\n\n" + "\n\n".join(rough))
    name = _module_name.match(header)
    return builder.module(name[1] if name else "", header, tuple(tables))


def _rough_module(text: str) -> Module:
    """A module whose header no printer wrote."""
    builder = _Builder()
    scanner = Scanner(text)
    begin = scanner.skip(0)
    header, name, end = "", "", 0
    if text.startswith("HloModule", begin):
        end = scanner.header(begin)
        header = text[begin:end]
        found = _module_name.match(header)
        name = found[1] if found else ""
    tables = []
    builder.text(text[:end])
    builder.troubles += scanner.troubles
    at = scanner.skip(end)
    while found := _table.match(text, at):
        tables.append(found[0])
        at = scanner.skip(found.end())
    builder.text(text[end:at])
    bare = None if header else scanner.statements(at)
    if bare is not None:
        builder.text(text[at : scanner.skip(at)])
        builder.computation(bare[1])
        name, at = SINGLE, bare[0]
    builder.rough(text[at:])
    if not builder.computations and not header:
        message = "this is no HLO: there is neither HloModule nor a computation"
        builder.troubles = [Trouble(message, begin, max(begin, text.find("\n", begin)))]
    return builder.module(name, header, tuple(tables))


class _Builder:
    """Collects the pieces of one module."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.computations: list[Computation] = []
        self.places: list[int] = []
        self.troubles: list[Trouble] = []
        self.within: dict[int, int] = {}
        self.length = 0

    def text(self, piece: str) -> None:
        if piece:
            self.pieces.append(piece)
            self.length += len(piece)

    def computation(self, computation: Computation) -> None:
        self._inner(computation, 0)
        self.places.append(len(self.pieces))
        self.computations.append(computation)
        self.text(computation.text)

    def _inner(self, computation: Computation, start: int) -> None:
        """Add what is written into its attributes, which stands before it, as in XLA's modules."""
        for each in chain.from_iterable(computation.inline.values()):
            self._inner(each.computation, start + each.start)
            self.within[len(self.computations)] = start + each.start
            self.places.append(len(self.pieces))
            self.computations.append(each.computation)

    def _name_inline(self) -> None:
        """Give computations that the text leaves nameless XLA's names: `_`, `_.1` …"""
        inner = [self.computations[number] for number in self.within]
        taken = {each.name for at, each in enumerate(self.computations) if at not in self.within}
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
        scanner = Scanner(text)
        base, end = self.length, 0
        for begin, stop, computation in scanner.computations(0):
            self.text(text[end:begin])
            self.computation(computation)
            end = stop
        self.text(text[end:])
        self.troubles += [
            Trouble(message, base + start, base + stop) for message, start, stop in scanner.troubles
        ]

    def module(self, name: str, header: str, tables: tuple[str, ...]) -> Module:
        if self.within:
            self._name_inline()
        return Module(
            name,
            header,
            tables,
            tuple(self.pieces),
            tuple(self.computations),
            tuple(self.places),
            tuple(self.troubles),
            self.within,
        )
