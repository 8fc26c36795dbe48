"""The passes that can reach the code of each source file of XLA, read out of a release's library.

A release's shared library has the symbols of its functions, and strings with the names of source
files, which its checks print. A function is of the files that it names. The name of a pass is the
string that its `name()` returns. Calls are followed from the functions of each pass downwards;
virtual calls are not.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

_Numbers: TypeAlias = npt.NDArray[np.int64]

_FUNCTION, _CODE, _LOADED, _ALLOCATED = 2, 4, 1, 2
"""STT_FUNC; SHF_EXECINSTR; SHT_PROGBITS; SHF_ALLOC."""
_SYMBOL = np.dtype(
    [
        *(("name", "<u4"), ("info", "u1"), ("other", "u1")),
        *(("section", "<u2"), ("value", "<u8"), ("size", "<u8")),
    ]
)
_FILE = re.compile(rb"(?<=\0)((?:[\w+.-]+/)+[\w+-]+\.(?:cc|h))(?=\0)")
_NAME = re.compile(rb"_ZNK(\w+?)4nameEv(?=\0)")
_LOAD = re.compile(rb"\x48\x8d[\x05\x15](....)", re.S)
_LENGTH = re.compile(rb"[\xb8\xba](....)", re.S)
_RUNS = ("7RunImplE", "3RunEP", "17ExpandInstructionE", "14RunOnComputationE")
"""Members that an HLO pass has, and other classes with a name have not."""


class _Section(NamedTuple):
    address: int
    data: npt.NDArray[np.uint8]

    def at(self, address: int, count: int) -> bytes:
        start = address - self.address
        return bytes(self.data[start : start + count]) if start >= 0 else b""


class Library:
    """The functions, the strings and the calls of a library for x86-64."""

    def __init__(self, path: Path) -> None:
        data = np.memmap(path, dtype=np.uint8, mode="r")
        head = bytes(data[:64])
        (table,), (count,) = struct.unpack_from("<Q", head, 40), struct.unpack_from("<H", head, 60)
        self.code: list[_Section] = []
        self.constants: list[_Section] = []
        rows = [
            struct.unpack("<IIQQQQIIQQ", bytes(data[table + 64 * n : table + 64 * n + 64]))
            for n in range(count)
        ]
        for _, kind, flags, address, offset, size, link, *_ in rows:
            part: Any = data[offset : offset + size]
            if kind == _LOADED and flags & _ALLOCATED and not flags & 1:
                chosen = self.code if flags & _CODE else self.constants
                chosen.append(_Section(address, part))
            elif kind == 2:  # SHT_SYMTAB
                symbols = np.frombuffer(part, dtype=_SYMBOL)
                start, length = rows[link][4:6]
                self._names = bytes(data[start : start + length])
        self.symbols = symbols[((symbols["info"] & 15) == _FUNCTION) & (symbols["value"] > 0)]
        self.starts: _Numbers = np.unique(self.symbols["value"].astype(np.int64))

    def name(self, offset: int) -> str:
        """A name of the table of names."""
        return self._names[offset : self._names.index(b"\0", offset)].decode()

    def functions(self) -> dict[str, int]:
        """The functions by mangled name: their number in `starts`."""
        numbers = np.searchsorted(self.starts, self.symbols["value"].astype(np.int64))
        names = map(self.name, self.symbols["name"].tolist())
        return dict(zip(names, numbers.tolist(), strict=True))

    def passes(self) -> dict[str, str]:
        """The name that the `name()` of each class returns, by mangled class."""
        offsets = {match.start(): match[1].decode() for match in _NAME.finditer(self._names)}
        named = np.isin(self.symbols["name"], np.fromiter(offsets, dtype=np.uint32))
        passes = {}
        for row in self.symbols[named]:
            start = int(row["value"])
            body = next(filter(None, (part.at(start, 40) for part in self.code)), b"")
            load, length = _LOAD.search(body), _LENGTH.search(body)
            if load and length:
                place = start + load.end() + struct.unpack("<i", load[1])[0]
                size = min(struct.unpack("<I", length[1])[0], 80)
                texts = (part.at(place, size) for part in self.constants)
                text = next(filter(None, texts), b"").decode("latin1")
                if re.fullmatch(r"[\w.-]+", text):
                    passes[offsets[int(row["name"])]] = text
        return passes

    def references(self) -> tuple[dict[int, set[str]], dict[int, list[int]]]:
        """The source files that each function names, and the functions that it calls or takes."""
        strings = {
            part.address + match.start(1): match[1].decode()
            for part in self.constants
            for match in _FILE.finditer(part.data.tobytes())
        }
        files: dict[int, set[str]] = defaultdict(set)
        pairs: list[_Numbers] = []
        places = np.array(sorted(strings), dtype=np.int64)
        for part in self.code:
            text = part.data
            loads = np.flatnonzero(
                (text[1:-6] == 0x8D)
                & ((text[:-7] == 0x48) | (text[:-7] == 0x4C))
                & ((text[2:-5] & 0xC7) == 5)
            )
            targets = part.address + loads + 7 + _displacements(text, loads + 3)
            is_file = np.isin(targets, places)
            users = self._function_of(part.address + loads[is_file])
            for user, target in zip(users.tolist(), targets[is_file].tolist(), strict=True):
                files[user].add(strings[target])
            calls = np.flatnonzero((text[:-5] == 0xE8) | (text[:-5] == 0xE9))
            called = part.address + calls + 5 + _displacements(text, calls + 1)
            for places_of, to in ((loads, targets), (calls, called)):
                numbers = np.minimum(np.searchsorted(self.starts, to), len(self.starts) - 1)
                hits = self.starts[numbers] == to
                source = self._function_of(part.address + places_of[hits])
                pairs.append(np.unique(source * len(self.starts) + numbers[hits]))
        edges: dict[int, list[int]] = defaultdict(list)
        for pair in np.unique(np.concatenate(pairs)).tolist():
            edges[pair // len(self.starts)].append(pair % len(self.starts))
        return files, edges

    def _function_of(self, addresses: _Numbers) -> _Numbers:
        return np.asarray(np.searchsorted(self.starts, addresses, side="right") - 1)


def _displacements(text: npt.NDArray[np.uint8], places: _Numbers) -> _Numbers:
    total = np.zeros(len(places), dtype=np.uint32)
    for byte in range(4):
        total |= text[places + byte].astype(np.uint32) << np.uint32(8 * byte)
    return total.view(np.int32).astype(np.int64)


class PassesOfFile(NamedTuple):
    """The passes of a source file."""

    own: set[str]
    """Those with functions in the file."""
    callers: set[str]
    """The others whose functions call functions of the file."""


def passes_by_file(path: Path) -> Mapping[str, PassesOfFile]:
    """The passes of each source file that a library names."""
    library = Library(path)
    functions, passes = library.functions(), library.passes()
    files, edges = library.references()
    names = sorted(functions)
    by_file: dict[str, PassesOfFile] = defaultdict(lambda: PassesOfFile(set(), set()))
    for mangled, title in passes.items():
        members = list(_members(mangled, names))
        if any(run in name for name in members for run in _RUNS):
            own = [functions[name] for name in members]
            for file in {file for function in own for file in files.get(function, ())}:
                if file.endswith(".cc"):
                    by_file[file].own.add(title)
            for function in _reached(own, edges):
                for file in files.get(function, ()):
                    by_file[file].callers.add(title)
    return by_file


def _members(mangled: str, names: list[str]) -> Iterator[str]:
    """The functions of a class, and the lambdas in them."""
    for prefix in ("_ZN", "_ZNK", "_ZZN", "_ZZNK"):
        number = bisect_left(names, prefix + mangled)
        while number < len(names) and names[number].startswith(prefix + mangled):
            yield names[number]
            number += 1


def _reached(starts: list[int], edges: Mapping[int, list[int]]) -> set[int]:
    seen, left = set(starts), starts[:]
    while left:
        for called in edges.get(left.pop(), ()):
            if called not in seen:
                seen.add(called)
                left.append(called)
    return seen
