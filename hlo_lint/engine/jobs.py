"""How many processes an input is worth."""

from __future__ import annotations

import os

from hlo_lint.dumps.directory import Dump
from hlo_lint.dumps.pipeline import Pipeline

WORTH = 16 << 20
"""Bytes of dumps from which processes save more time than it takes to start them."""


def automatic_jobs(dump: Dump) -> int:
    """How many processes are worth their start."""
    most = min(_processors(), len(dump.pipelines))
    size = 0
    for pipeline in dump if most > 1 else ():
        size += size_of(pipeline)
        if size >= WORTH:
            return most
    return 1


def size_of(pipeline: Pipeline) -> int:
    """Bytes of its texts; a file that cannot be read has none."""
    size = 0
    for dump in pipeline.dumps:
        try:
            size += dump.path.stat().st_size
        except OSError:
            continue
    return size


def _processors() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
