"""Decisions by file size, before any reading: worker processes, possible duplicates."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

from hlo_lint.analysis.grouping import by_key
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.directory import Dump

PARALLEL_MIN_BYTES: Final = 16 << 20
"""The bytes of dumps from which processes save more time than they take to start."""
_BYTES_PER_JOB: Final = 8 << 20
"""The bytes of dumps that pay for another process, measured on 16 processors."""
_FILE_COST: Final = 1 << 15
"""The cost of opening a file, as the bytes that are checked in the same time."""

CACHE_MIN_BYTES: Final = 1 << 16
"""The bytes of dumps from which a cache lookup costs less than a check."""
_CACHE_MIN_FILES: Final = 16
"""The number of compilations from which a cache lookup pays off, however small they are."""


def cost_of(compilation: Compilation) -> int:
    """The cost of checking a compilation, in bytes of a large compilation."""
    return compilation.size + _FILE_COST * len(compilation.dumps)


def is_worth_caching(dump: Dump) -> bool:
    """True if the dumps are large or numerous enough for a cache."""
    few = len(dump.compilations) < _CACHE_MIN_FILES
    return not few or sum(compilation.size for compilation in dump) >= CACHE_MIN_BYTES


def automatic_jobs(dump: Dump) -> int:
    """The number of worker processes that pay off for an input.

    A single module gets a single process: reading it takes half of the time, and another process,
    which copies the memory that it touches, gains no more than it costs. So the largest module
    bounds the gain.
    """
    if _processors() < 2:
        return 1
    costs = list(map(cost_of, dump))
    total = sum(costs)
    if total < PARALLEL_MIN_BYTES:
        return 1
    return max(1, min(_processors(), total // _BYTES_PER_JOB, -(-total // max(costs))))


def is_checked_in_parts(dump: Dump, *, is_shared: bool) -> bool:
    """True if compilations are checked separately: the work is shared, or some may be equal."""
    # Texts that were given in memory or edited cannot be read by other processes.
    if any(file.is_read for compilation in dump for file in compilation.dumps):
        return False
    return is_shared or bool(groups_of_equal_size(dump.compilations))


def groups_of_equal_size(compilations: Sequence[Compilation]) -> list[list[int]]:
    """Positions of compilations with equal sizes and names of files, as the ranks of a run write.

    Compilations in no group differ from all others.
    """

    def names_at(position: int) -> Hashable:
        compilation = compilations[position]
        return compilation.lone, *(path.name for path in compilation.files)

    # Most names differ: no size of such files is asked.
    return [
        group
        for alike in _groups(range(len(compilations)), names_at)
        for group in _groups(alike, lambda position: compilations[position].size)
    ]


def _groups(positions: Iterable[int], key: Callable[[int], Hashable]) -> list[list[int]]:
    """The positions with equal keys, several in each group."""
    groups = by_key((key(position), position) for position in positions)
    return [group for group in groups.values() if len(group) > 1]


def _processors() -> int:
    """The number of processors that this process may use, which a container may limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
