"""The dumps of several processes that run one program together: do their collectives agree?

Collectives wait for each other. Where two processes schedule them in another order, or one runs a
collective that another does not, all of them hang. The processes compile on their own, so whatever
differs between them (timings of the autotuner, flags, versions) may change the schedule.

    for module in compare_ranks(rank_folders(["dumps"])): print(module.name, module.divergences)
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from glob import glob, has_magic
from itertools import zip_longest
from pathlib import Path
from typing import Final

from hlo_lint.analysis.async_ops import Calls, sequential_calls
from hlo_lint.analysis.diff.bisection import bisect
from hlo_lint.dumps.directory import open_dump
from hlo_lint.dumps.names import DumpName, parse_name
from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.dumps.selection import one_file
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.text.errors import DumpError
from hlo_lint.text.files import is_proto
from hlo_lint.text.source import whole_number

_COLLECTIVES: Final = frozenset(
    "all-gather all-reduce all-to-all collective-broadcast collective-permute collective-reduce "
    "ragged-all-to-all recv reduce-scatter send".split()
)
_COMPARED: Final = ("channel_id", "replica_groups", "source_target_pairs", "use_global_device_ids")
_PAIRS: Final = "_xla_send_recv_source_target_pairs"
_natural = re.compile(r"(\d+)")
_MAX_FINGERPRINT: Final = 12
"""Hexadecimal digits that are shown; a run has a few variants at most."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One process, or one device: the folder of its dumps, or its only file."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective in the order of the schedule."""

    instruction: Instruction
    opcode: str
    """Without `-start`: a collective waits for the same others, asynchronous or not."""
    shapes: str
    """The types of its operands, layouts included."""
    attributes: tuple[str, ...]
    """Channel, groups and pairs, as spelled."""

    @property
    def signature(self) -> tuple[object, ...]:
        """The opcode, shapes and attributes that other ranks must have at the same position."""
        return self.opcode, self.shapes, self.attributes

    def __str__(self) -> str:
        return " ".join((f"%{self.instruction.name}:", self.opcode, self.shapes, *self.attributes))


@dataclass(frozen=True)
class Variant:
    """A module that some of the ranks compiled to the same characters."""

    path: Path
    """The text on the first of these ranks."""
    fingerprint: str
    ranks: tuple[str, ...]
    is_final: bool
    """False if the compilation left no final module."""

    @cached_property
    def module(self) -> Module:
        """The module; a dump that cannot be read raises DumpError."""
        return one_file(self.path).module

    @cached_property
    def collectives(self) -> tuple[Collective, ...]:
        """Its collectives, in the order of the schedule."""
        return tuple(scheduled_collectives(self.module))


@dataclass(frozen=True, slots=True)
class Cause:
    """The passes after which the compilations of two ranks differ."""

    first_pass: str | None
    """The first pass after which the modules differ as `bisect` compares them; None where they
    never do."""
    first_text: str | None
    """The first pass after which the texts differ: in names, in channels, in the order of an
    unscheduled module at least."""
    notes: tuple[str, ...]
    """Flags that differ, passes that one of them did not run. A is ours, B is theirs."""


@dataclass(frozen=True)
class Divergence:
    """The first collective that two variants of a module do not have in common."""

    ours: Variant
    """The variant that most ranks have."""
    theirs: Variant
    position: int
    """Number of equal collectives before it."""
    collectives: tuple[Collective | None, Collective | None]
    """Ours and theirs; None where one has no more."""

    @cached_property
    def cause(self) -> Cause | None:
        """The pass that made the difference; None where nothing but the ends is dumped."""
        one, other = (_pipeline_of(variant.path) for variant in (self.ours, self.theirs))
        if one is None or other is None or not one.steps or not other.steps:
            return None
        bisection = bisect(one, other)
        title = None if bisection.first is None else bisection.first.title
        return Cause(title, _first_other_text(one, other), bisection.notes)


@dataclass(frozen=True)
class RankedModule:
    """One module on all ranks."""

    name: str
    variants: tuple[Variant, ...]
    """The variants that it was compiled to; that of most ranks first."""
    missing: tuple[str, ...]
    """Ranks that did not compile it."""

    @cached_property
    def divergences(self) -> tuple[Divergence, ...]:
        """One for each variant whose collectives are not those of the first."""
        # An unfinished compilation is compared only with other unfinished ones.
        first = next((variant for variant in self.variants if variant.is_final), self.variants[0])
        compared = (
            _divergence(first, variant)
            for variant in self.variants
            if variant is not first and variant.is_final == first.is_final
        )
        return tuple(divergence for divergence in compared if divergence is not None)


def rank_folders(paths: Sequence[str | Path]) -> list[Rank]:
    """The ranks under paths: folders, patterns of folders, files, or one folder of folders.

    Raises:
        DumpError: where a path is not there, or where there are not two ranks.
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
        inside = [path_ for path_ in folders[0].iterdir() if path_.is_dir()]
        folders = sorted(inside, key=lambda folder: _in_natural_order(folder.name))
    unique = list(dict.fromkeys(folders))
    if len(unique) < 2:
        raise DumpError("ranks are compared with each other: give two folders at least")
    return [Rank(name, path) for name, path in zip(_short_names(unique), unique, strict=True)]


def compare_ranks(ranks: Iterable[Rank]) -> list[RankedModule]:
    """The modules of all ranks, each with what it was compiled to.

    Only the last text of each compilation is read, and equal texts are taken apart once.

    Raises:
        DumpError: where a file or a folder cannot be read, or holds no HLO.
    """
    names: list[str] = []
    contents: dict[str, dict[str, tuple[Path, bool, list[str]]]] = {}
    for rank in ranks:
        names.append(rank.name)
        for title, (path, is_final) in _last_texts(rank.path).items():
            by_content = contents.setdefault(title, {})
            digest = _digest(path)
            by_content.setdefault(digest, (path, is_final, []))[2].append(rank.name)
    modules = []
    for title, by_content in contents.items():
        variants = sorted(
            (
                Variant(path, digest[:_MAX_FINGERPRINT], tuple(on), is_final)
                for digest, (path, is_final, on) in by_content.items()
            ),
            key=lambda variant: -len(variant.ranks),
        )
        there = {rank for variant in variants for rank in variant.ranks}
        missing = tuple(name for name in names if name not in there)
        modules.append(RankedModule(title, tuple(variants), missing))
    return modules


def scheduled_collectives(module: Module) -> Iterator[Collective]:
    """The collectives of a module in the order of the text, those of called computations inside.

    A loop's collectives count once, and those of each branch of a conditional.
    """
    if module.entry is not None:
        yield from _collectives(module.entry, module, sequential_calls(module), frozenset())


def _collectives(
    computation: Computation, module: Module, calls: Calls, callers: frozenset[str]
) -> Iterator[Collective]:
    if computation.name in callers:
        return  # a computation that calls itself
    for instruction in computation.instructions:
        opcode = instruction.opcode.removesuffix("-start")
        if opcode in _COLLECTIVES:
            yield _collective(instruction, opcode)
            continue
        callees = calls.callees(instruction)
        if opcode == "fusion":  # of one collective on XLA:GPU, of asynchronous ones on XLA:TPU
            body = module.callee(instruction)
            callees = () if body is None else (body,)
        for callee in callees:
            yield from _collectives(callee, module, calls, callers | {computation.name})


def _collective(instruction: Instruction, opcode: str) -> Collective:
    attributes = instruction.attributes
    spelled = [f"{name}={attributes[name]}" for name in _COMPARED if name in attributes]
    pairs = attributes.get("frontend_attributes", "")
    # A send of a pipelined permute has its pairs in a frontend attribute, not in an attribute.
    if _PAIRS in pairs:
        spelled.append(_PAIRS + pairs.partition(_PAIRS)[2].partition("}}")[0] + "}}")
    shapes = ", ".join(str(operand.shape) for operand in instruction.operands)
    return Collective(instruction, opcode, f"({shapes})", tuple(spelled))


def _divergence(ours: Variant, theirs: Variant) -> Divergence | None:
    pairs = zip_longest(ours.collectives, theirs.collectives)
    for position, (one, other) in enumerate(pairs):
        if one is None or other is None or one.signature != other.signature:
            return Divergence(ours, theirs, position, (one, other))
    return None


def _last_texts(rank: Path) -> dict[str, tuple[Path, bool]]:
    """The last text of each compilation of a rank; True if it is what the compiler ended with.

    The numbers of modules may differ between processes, so a module is known by its name, and by
    how many of that name were compiled before it.
    """
    if rank.is_file():
        return {"": (rank, True)}
    compilations: dict[tuple[str, str, int, str], list[tuple[DumpName, Path]]] = {}
    loose: dict[str, tuple[Path, bool]] = {}
    for path in _files(rank):
        name = parse_name(path.name)
        if name is not None and (name.is_final or name.step is not None):
            # One process may write several modules of one name: the count of each name tells them
            # apart.
            key = str(path.parent), *name.key
            compilations.setdefault(key, []).append((name, path))
        elif name is None and path.suffix == ".hlo":
            loose[str(path.relative_to(rank))] = path, True
    counts: dict[str, int] = {}
    last: dict[str, tuple[Path, bool]] = {}
    for key in sorted(compilations):
        dumps = compilations[key]
        name, path = max(dumps, key=lambda dump: (dump[0].is_final, dump[0].step or 0))
        number = counts[name.module] = counts.get(name.module, 0) + 1
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
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DumpError(f"{path}: {error.strerror or error}") from error


def _pipeline_of(path: Path) -> Pipeline | None:
    """The compilation that a text is the end of; None for a file that no compiler named."""
    name = parse_name(path.name)
    if name is None:
        return None
    for pipeline in open_dump(path.parent):
        if any(dump.path == path for dump in pipeline.dumps):
            return pipeline
    return None


def _first_other_text(one: Pipeline, other: Pipeline) -> str | None:
    """The first pass of both runs after which the texts differ."""
    theirs = {(dump.name.pipeline, dump.step): dump for dump in other.steps}
    for dump in one.steps:
        name, beside = dump.name, theirs.get((dump.name.pipeline, dump.step))
        if beside is None or beside.name.after != name.after:
            continue
        if _digest(dump.path) != _digest(beside.path):
            return f"{name.after} of {name.pipeline}"
    return None


def _short_names(paths: Sequence[Path]) -> list[str]:
    """The paths without the parents that all have."""
    parents = [path.absolute().parent for path in paths]
    common = Path(os.path.commonpath(parents))
    return [str(path.absolute().relative_to(common)) for path in paths]


def _in_natural_order(name: str) -> list[tuple[int, str]]:
    """A key that puts `rank2` before `rank10`.

    >>> sorted(["rank10", "rank2"], key=_in_natural_order)
    ['rank2', 'rank10']
    """
    return [(whole_number(part) or 0, part) for part in _natural.split(name)]
