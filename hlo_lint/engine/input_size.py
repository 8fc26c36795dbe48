"""The size of an input: it decides if a cache and worker processes are worth their start."""

from __future__ import annotations

import os
from typing import Final

from hlo_lint.dumps.directory import Dump
from hlo_lint.dumps.pipeline import Pipeline

PARALLEL_MIN_BYTES: Final = 16 << 20
"""Bytes of dumps from which processes save more time than they take to start."""
_BYTES_PER_JOB: Final = 8 << 20
"""Bytes of dumps that one more process is worth: measured on 16 processors."""
_FILE_COST: Final = 1 << 15
"""Bytes that take as long to check as it takes to open one more file."""
CACHE_MIN_BYTES: Final = 1 << 16
"""Bytes of dumps from which a look into the cache costs less than a check."""
_CACHE_MIN_FILES: Final = 16
"""Pipelines from which it does, however small they are."""


def cost_of(pipeline: Pipeline) -> int:
    """The time to check it, as that of so many bytes of a large pipeline."""
    return pipeline.size + _FILE_COST * len(pipeline.dumps)


def is_worth_caching(dump: Dump) -> bool:
    """True if the dumps are large enough for a cache, or so many."""
    few = len(dump.pipelines) < _CACHE_MIN_FILES
    return not few or sum(pipeline.size for pipeline in dump) >= CACHE_MIN_BYTES


def automatic_jobs(dump: Dump) -> int:
    """The number of worker processes that an input is worth.

    One for a single module: to read it takes half of the time, and another process, which copies
    what it touches, gains no more than it costs. So the largest module bounds what others can gain.
    """
    if _processors() < 2:
        return 1
    costs = list(map(cost_of, dump))
    total = sum(costs)
    if total < PARALLEL_MIN_BYTES:
        return 1
    return max(1, min(_processors(), total // _BYTES_PER_JOB, -(-total // max(costs))))


def _processors() -> int:
    """The number of processors that this process may use: a container may allow it few."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
