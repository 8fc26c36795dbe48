"""Agreement between the collectives of processes that run a program together, from their dumps.

Collectives wait for each other. If two processes schedule them in different orders, or if a process
lacks a collective, all of them hang. The processes compile independently, so any difference between
them (timings of the autotuner, flags, versions) may change the schedule.

    for module in compare_ranks(rank_folders(["dumps"])): print(module.name, module.divergences)
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from glob import glob, has_magic
from itertools import zip_longest
from pathlib import Path
from typing import Final

from hlo_lint.analysis.diff.bisection import bisect
from hlo_lint.analysis.scheduled_collectives import (
    MAX_COLLECTIVES,
    Collective,
    scheduled_collectives,
)
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.directory import open_dump
from hlo_lint.dumps.names import DumpName, parse_name
from hlo_lint.dumps.selection import FIRST, compiled_names, one_file
from hlo_lint.hlo.ir import Module
from hlo_lint.text.errors import DumpError, os_errors_as
from hlo_lint.text.files import is_proto
from hlo_lint.text.source import whole_number

_natural = re.compile(r"(\d+)")
_MAX_FINGERPRINT: Final = 12
"""The number of hexadecimal digits shown; a run has few variants."""


@dataclass(frozen=True, slots=True)
class Rank:
    """A process or a device: the folder of its dumps, or its only file."""

    name: str
    path: Path
    process: int | None = None
    """Its number among the processes that wrote to a folder, each with its own timestamps."""


@dataclass(frozen=True)
class Variant:
    """A module that some ranks compiled to the same text."""

    path: Path
    """The text on the first of these ranks."""
    fingerprint: str
    ranks: tuple[str, ...]
    is_final: bool
    """False if the compilation left no final module."""

    @cached_property
    def module(self) -> Module:
        """The module. Raises DumpError if the dump cannot be read."""
        return one_file(self.path).module

    @cached_property
    def collectives(self) -> list[Collective]:
        """Its collectives, in the order of the schedule."""
        return scheduled_collectives(self.module)

    @property
    def is_cut(self) -> bool:
        """True if it runs more collectives than are compared."""
        return self.unrolled is None and len(self.collectives) >= MAX_COLLECTIVES

    @cached_property
    def unrolled(self) -> list[Collective] | None:
        """The collectives, with loops unrolled; None if the numbers of iterations are unknown."""
        try:
            return scheduled_collectives(self.module, unrolled=True)
        except LookupError:
            return None


@dataclass(frozen=True, slots=True)
class Cause:
    """The passes after which the compilations of two ranks differ."""

    first_pass: str | None
    """The first pass after which the modules differ as `bisect` compares them, if any."""
    first_text: str | None
    """The first pass after which the texts differ, if only in names, channels or the order of an
    unscheduled module."""
    notes: tuple[str, ...]
    """Flags that differ, and passes that only one side ran. A is ours, B is theirs."""


@dataclass(frozen=True)
class Divergence:
    """The first collective in which two variants of a module differ."""

    ours: Variant
    """The variant of most ranks."""
    theirs: Variant
    position: int
    """The number of equal collectives before it."""
    collectives: tuple[Collective | None, Collective | None]
    """Ours and theirs; None for a variant without further collectives."""

    @cached_property
    def cause(self) -> Cause | None:
        """The pass that introduced the difference; None if only final modules were dumped."""
        ours, theirs = (_compilation_of(variant.path) for variant in (self.ours, self.theirs))
        if ours is None or theirs is None or not ours.steps or not theirs.steps:
            return None
        bisection = bisect(ours, theirs)
        title = None if bisection.first is None else bisection.first.title
        return Cause(title, _first_other_text(ours, theirs), bisection.notes)


@dataclass(frozen=True)
class RankedModule:
    """A module on all ranks."""

    name: str
    variants: tuple[Variant, ...]
    """The variants that it was compiled to; the variant of most ranks first."""
    missing: tuple[str, ...]
    """Ranks that did not compile it."""

    @cached_property
    def names(self) -> frozenset[str]:
        """Its names on all ranks: `jit_f`, `module_0001.jit_f`."""
        files = (parse_name(variant.path.name) for variant in self.variants)
        return frozenset(name for file in files if file for name in compiled_names(file))

    @cached_property
    def _compared(self) -> tuple[Variant, ...]:
        # An unfinished compilation is only compared with other unfinished compilations.
        is_final = any(variant.is_final for variant in self.variants)
        return tuple(variant for variant in self.variants if variant.is_final == is_final)

    @cached_property
    def divergences(self) -> tuple[Divergence, ...]:
        """A divergence for each variant whose collectives differ from the first variant's."""
        first, *others = self._compared
        return tuple(filter(None, (_divergence(first, variant) for variant in others)))

    @cached_property
    def other_programs(self) -> tuple[Variant, ...]:
        """The variants of another program than the first variant's, if a compilation did not end.

        Where processes share the results of the autotuner, they wait there for each other.
        """
        first, *others = self.variants
        if first.is_final and all(variant.is_final for variant in others):
            return ()
        return tuple(variant for variant in others if _differ_at_first(first, variant))

    @property
    def is_cut(self) -> bool:
        """True if a variant runs more collectives than are compared."""
        return len(self._compared) > 1 and any(variant.is_cut for variant in self._compared)


def rank_folders(paths: Sequence[str | Path]) -> list[Rank]:
    """The ranks under paths: folders, patterns of folders, files, or a single folder of folders.

    Raises:
        DumpError: if a path does not exist, or if there are fewer than two ranks.
    """
    folders: list[Path] = []
    for path in paths:
        if Path(path).exists():
            folders.append(Path(path))
        elif has_magic(str(path)) and (matched := glob(str(path))):
            folders += map(Path, sorted(matched, key=_in_natural_order))
        else:
            raise DumpError(f"{path}: no such file or directory")
    if len(folders) == 1 and folders[0].is_dir():
        (folder,) = folders
        # Each process compiles a module number once.
        names = {name.key for path in folder.iterdir() if (name := _compiled(path.name))}
        processes = max(Counter(key[1:] for key in names).values(), default=0)
        if processes > 1:
            return [Rank(f"process {number}", folder, number) for number in range(processes)]
        inside = [] if processes else [path for path in folder.iterdir() if path.is_dir()]
        # A process that died early leaves no HLO; folders of artefacts have none either.
        if sum(bool(_last_texts(Rank("", path))) for path in inside) > 1:
            folders = sorted(inside, key=lambda path: _in_natural_order(path.name))
    unique = list(dict.fromkeys(folders))
    if len(unique) < 2:
        raise DumpError("ranks are compared with each other: give two folders at least")
    common = Path(os.path.commonpath([path.absolute().parent for path in unique]))
    return [Rank(str(path.absolute().relative_to(common)), path) for path in unique]


def compare_ranks(ranks: Iterable[Rank]) -> list[RankedModule]:
    """The modules of all ranks, each with its variants.

    Only the last text of each compilation is read, and equal texts are parsed once.

    Raises:
        DumpError: if a file or a folder cannot be read, or holds no HLO.
    """
    names: list[str] = []
    contents: dict[str, dict[str, tuple[Path, bool, list[str]]]] = {}
    for rank in ranks:
        names.append(rank.name)
        for title, (path, is_final) in _last_texts(rank).items():
            by_content = contents.setdefault(title, {})
            digest = _digest(path)
            by_content.setdefault(digest, (path, is_final, []))[2].append(rank.name)
    modules = []
    for title, by_content in contents.items():
        variants = [
            Variant(path, digest[:_MAX_FINGERPRINT], tuple(on), is_final)
            for digest, (path, is_final, on) in by_content.items()
        ]
        variants.sort(key=lambda variant: -len(variant.ranks))
        there = {rank for variant in variants for rank in variant.ranks}
        missing = tuple(name for name in names if name not in there)
        modules.append(RankedModule(title, tuple(variants), missing))
    return modules


def _divergence(ours: Variant, theirs: Variant) -> Divergence | None:
    left, right = ours.unrolled, theirs.unrolled
    if left is None or right is None:
        left, right = ours.collectives, theirs.collectives
    position = _first_other(left, right)
    if position is None:
        position = _first_moved(left, right)
    if position is None:
        return None
    first = next(iter(left[position:]), None), next(iter(right[position:]), None)
    return Divergence(ours, theirs, position, first)


def _first_other(ours: Sequence[Collective], theirs: Sequence[Collective]) -> int | None:
    """The position of the first collectives that do not wait for each other."""
    # Processes may number their channels differently, as long as equal numbers stay equal.
    numbers: dict[str | None, str | None] = {}
    taken: dict[str | None, str | None] = {}
    for position, (left, right) in enumerate(zip_longest(ours, theirs)):
        if left is None or right is None or left.signature != right.signature:
            return position
        if None not in (left.channel, right.channel) and (
            numbers.setdefault(left.channel, right.channel) != right.channel
            or taken.setdefault(right.channel, left.channel) != left.channel
        ):
            return position
    return None


def _first_moved(ours: Sequence[Collective], theirs: Sequence[Collective]) -> int | None:
    """The position of the first collective that is reordered.

    Collectives of equal signature wait for each other in any order, so reordered collectives
    exchange wrong values. They are matched by name, or by channel if a compiler numbered the names
    differently, or by their origin in the program.
    """
    keys: tuple[Callable[[Collective], object], ...] = (
        lambda collective: (collective.origin, collective.instruction.name),
        lambda collective: (collective.origin, collective.channel),
        lambda collective: collective.origin,
    )
    for key in keys:
        left, right = (list(map(key, sequence)) for sequence in (ours, theirs))
        if Counter(left) == Counter(right):
            pairs = enumerate(zip(left, right, strict=True))
            return next((position for position, (a, b) in pairs if a != b), None)
    return None


def _compiled(file: str) -> DumpName | None:
    """The parsed name of a compilation's text; artefacts have their own timestamps."""
    name = parse_name(file)
    is_text = name is not None and (name.is_final or name.step is not None)
    return name if is_text else None


def _last_texts(rank: Rank) -> dict[str, tuple[Path, bool]]:
    """The last text of each compilation of a rank; True if it is the final module.

    The numbers of modules may differ between processes, so a module is identified by its name and
    its number among the modules of that name.
    """
    if rank.path.is_file():
        return {"": (rank.path, True)}
    compilations: dict[tuple[str, str, int, str], list[tuple[DumpName, Path]]] = {}
    loose: dict[str, tuple[Path, bool]] = {}
    for path in _files(rank.path):
        name = _compiled(path.name)
        if name is not None:
            # A process may write several modules of the same name: they are counted.
            key = str(path.parent), *name.key
            compilations.setdefault(key, []).append((name, path))
        elif parse_name(path.name) is None and path.suffix == ".hlo":
            loose[str(path.relative_to(rank.path))] = path, True
    counts: Counter[str] = Counter()
    last: dict[str, tuple[Path, bool]] = {}
    written: Counter[tuple[int, str]] = Counter()
    for key in sorted(compilations):
        process = written[key[2:]]
        written[key[2:]] += 1
        if rank.process not in (None, process):
            continue
        dumps = compilations[key]
        name, path = max(dumps, key=lambda dump: (dump[0].is_final, dump[0].step or 0))
        counts[name.module] += 1
        number = counts[name.module]
        title = name.module if number == 1 else f"{name.module} ({number})"
        last[title] = path, name.is_final
    return {**last, **loose}


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in names:
            if name.endswith((".txt", ".hlo")) or is_proto(name):
                yield Path(parent, name)


def _digest(path: Path) -> str:
    with os_errors_as(f"{path}"):
        return hashlib.sha256(path.read_bytes()).hexdigest()


def _compilation_of(path: Path) -> Compilation | None:
    """The compilation that ends in a text; None for a file name that is not from a compiler."""
    if parse_name(path.name) is None:
        return None
    compilations = open_dump(path.parent)
    return next((run for run in compilations if path in [dump.path for dump in run.dumps]), None)


def _differ_at_first(first: Variant, second: Variant) -> bool:
    """True if two variants differ before the first pass."""
    ours, theirs = _compilation_of(first.path), _compilation_of(second.path)
    # The last texts alone do not tell another program from another compilation of the same.
    if ours is None or theirs is None or not (ours.begins and theirs.begins):
        return False
    apart = bisect(ours, theirs).first
    return apart is not None and apart.title == FIRST


def _first_other_text(first: Compilation, second: Compilation) -> str | None:
    """The first pass of both runs after which the texts differ."""
    theirs = {(dump.name.pipeline, dump.step): dump for dump in second.steps}
    for dump in first.steps:
        name, beside = dump.name, theirs.get((dump.name.pipeline, dump.step))
        if beside is None or beside.name.after != name.after:
            continue
        if _digest(dump.path) != _digest(beside.path):
            return f"{name.after} of {name.pipeline}"
    return None


def _in_natural_order(name: str) -> list[tuple[int, str]]:
    """A key that puts `rank2` before `rank10`.

    >>> sorted(["rank10", "rank2"], key=_in_natural_order)
    ['rank2', 'rank10']
    """
    return [(whole_number(part) or 0, part) for part in _natural.split(name)]
