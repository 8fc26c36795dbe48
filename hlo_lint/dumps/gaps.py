"""Gaps of a folder: passes that it does not show, dumps that are of another run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.directory import Skipped
from hlo_lint.dumps.names import numbered_twice
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.phases import BEFORE_LAYOUTS
from hlo_lint.text.phrases import NOT_LOOKED_AT, counted, listed
from hlo_lint.text.stored import on_disk

NO_PASSES = f"{NOT_LOOKED_AT}what each pass did; XLA_FLAGS=--xla_dump_hlo_pass_re=.* dumps it"
EARLIER = "an earlier run left it in this folder"
_BETWEEN_RUNS = 1_000_000_000
"""The least nanoseconds between the files of two runs; files of a copy have no such gap."""


def left_over(dumps: list[PassDump]) -> list[Skipped]:
    """Remove the dumps of a module that an earlier run left, and return them with the reason: they
    are older than the first dump of the last run.

    Required are two dumps with the same number, a second or more between the runs, and steps of the
    last run that count from 0 without a gap: in a copy, times are meaningless.
    """
    names = [dump.name for dump in dumps if dump.name]
    if numbered_twice(names) is None or on_disk(dumps[0].path) != dumps[0].path:
        return []
    times = {dump: dump.path.stat().st_mtime_ns for dump in dumps}
    starts = (d for d in dumps if d.name is not None and d.name.rest.startswith(BEFORE_LAYOUTS[0]))
    begun = max(map(times.__getitem__, starts), default=0)
    kept = [dump for dump in dumps if times[dump] >= begun]
    steps = {dump.name.step for dump in kept if dump.name and dump.name.step is not None}
    rest = [dump.name for dump in kept if dump.name]
    earlier = [dump for dump in dumps if times[dump] < begun]
    last = max((times[dump] for dump in earlier), default=begun)
    if begun - last < _BETWEEN_RUNS:
        return []
    if not steps or numbered_twice(rest) or steps != set(range(len(steps))):
        return []
    dumps[:] = kept
    return [Skipped(str(dump.path), EARLIER) for dump in earlier]


def gaps(folder: Path, compilations: Sequence[Compilation]) -> list[Skipped]:
    """The passes of a folder that were not checked, and modules that may not have been emitted."""
    reasons = []
    cached = [
        compilation
        for compilation in compilations
        if compilation.final and not compilation.begins and not compilation.steps
    ]
    options = cached[0].options if cached else None
    if options is not None and "xla_dump_hlo_pass_re" in options.values:
        reasons.append(
            f"{NOT_LOOKED_AT}what each pass did in {counted(len(cached), 'module')}: a persistent "
            "cache answered, and no pass ran; JAX_ENABLE_COMPILATION_CACHE=false forces a compile"
        )
    elif not any(compilation.steps for compilation in compilations):
        reasons.append(NO_PASSES)
    optimized = [
        compilation.title for compilation in compilations if compilation.stops_before_emission
    ]
    if optimized:
        reasons.append(
            f"{NOT_LOOKED_AT}the emission of {listed(optimized, 3)}, which left no PTX or thunks; "
            "`hlo-lint check --ask-xla` asks the compiler"
        )
    return [Skipped(str(folder), reason) for reason in reasons]
