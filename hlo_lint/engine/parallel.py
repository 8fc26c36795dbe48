"""Checks the pipelines of a dump in several processes; the result is that of one process."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hlo_lint.dumps.directory import Dump
from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.engine.reporter import Result
from hlo_lint.engine.runner import Checker, Progress
from hlo_lint.engine.stages import StageOf
from hlo_lint.rules.base import Rule
from hlo_lint.text.errors import DumpError

PARALLEL_MIN_BYTES = 16 << 20
"""Bytes of dumps from which processes save more time than they take to start."""

Reported = frozenset[tuple[str, tuple[str, str, str]]]
"""Findings in the modules of a run, by rule, message, opcode and shape."""


@dataclass(frozen=True)
class _Task:
    """The arguments of every process."""

    pipelines: Sequence[Pipeline]
    rules: Sequence[Rule]
    before: str | None
    stage_of: StageOf | None
    cured: bool
    notes_files: bool


@dataclass(frozen=True)
class _Part:
    """The outcome of one pipeline."""

    result: Result
    logs: tuple[int, ...]
    """The positions of its dumps that are logs of the autotuner."""
    unread: frozenset[Path]
    reported: Reported


_task: _Task | None = None
"""The arguments of this process, if it is a worker."""


def automatic_jobs(dump: Dump) -> int:
    """The number of worker processes that an input is worth."""
    max_jobs = min(_processors(), len(dump.pipelines))
    size = 0
    for pipeline in dump if max_jobs > 1 else ():
        size += size_of(pipeline)
        if size >= PARALLEL_MIN_BYTES:
            return max_jobs
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
    """The number of processors that this process may use: a container may allow it few."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_in_parallel(
    checker: Checker, dump: Dump, jobs: int, progress: Progress = lambda _: None
) -> Result:
    """The result of `checker.check_dump`, computed by that many processes.

    Modules that the autotuner made are checked after the others: a defect that the whole module has
    is not reported again of its copies.

    Raises:
        DumpError: where a process dies, as it does where memory is short.
    """
    # Imported here: they are slow to import, and most inputs are too small for workers.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    if jobs < 2 or len(dump.pipelines) < 2 or any(map(_is_read, dump)):
        return checker.check_dump(dump, progress)
    task = _Task(
        dump.pipelines,
        checker.rules,
        checker.reporter.before,
        checker.stage_of,
        checker.reporter.cured,
        checker.notes_files,
    )
    helpers = [at for at, pipeline in enumerate(dump) if pipeline.is_helper]
    others = [at for at, pipeline in enumerate(dump) if not pipeline.is_helper]
    parts: dict[int, _Part] = {}
    with ProcessPoolExecutor(
        min(jobs, len(dump.pipelines)),
        multiprocessing.get_context(_start_method()),
        initializer=_begin,
        initargs=(task,),
    ) as pool:
        try:
            for wave in (others, helpers):
                largest = sorted(wave, key=lambda at: -size_of(dump.pipelines[at]))
                # Every task gets its arguments before any of the wave is done: the result must not
                # depend on which process is faster.
                earlier = {at: _reported_before(at, parts) for at in wave}
                running = {pool.submit(_check, at, earlier[at]): at for at in largest}
                for done in as_completed(running):
                    at = running[done]
                    parts[at] = done.result()
                    progress(len(dump.pipelines[at].dumps))
        except BrokenProcessPool as error:
            raise DumpError(
                "a process that was checking has died, of too little memory perhaps: try --jobs 1"
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    for at, pipeline in enumerate(dump):
        _add(checker, parts[at], pipeline)
    return checker.finish(dump)


def _check(at: int, earlier: Reported) -> _Part:
    """One pipeline, in a process of its own."""
    assert _task is not None
    pipeline = _task.pipelines[at]
    checker = Checker(
        _task.rules,
        before=_task.before,
        stage_of=_task.stage_of,
        cured=_task.cured,
        notes_files=_task.notes_files,
    )
    checker.reporter.of_modules |= earlier
    checker.check_pipeline(pipeline)
    logs = tuple(pipeline.dumps.index(log) for log in checker.logs)
    pipeline.release_text()
    checker.result.fixes.clear()  # fixes keep dumps alive and workers never apply them
    return _Part(
        checker.result,
        logs,
        frozenset(checker.reporter.unread),
        frozenset(checker.reporter.of_modules - earlier),
    )


def _begin(task: _Task) -> None:
    global _task
    _task = task
    gc.disable()  # as in `cli.main`


def _add(whole: Checker, part: _Part, pipeline: Pipeline) -> None:
    """Add the outcome of a pipeline; parse errors of an artefact that two share are added once."""
    shared = {str(path) for path in part.unread & whole.reporter.unread}
    part.result.diagnostics = [
        diagnostic for diagnostic in part.result.diagnostics if diagnostic.path not in shared
    ]
    whole.result.add(part.result)
    whole.logs += [pipeline.dumps[at] for at in part.logs]
    whole.reporter.unread |= part.unread


def _reported_before(at: int, parts: dict[int, _Part]) -> Reported:
    earlier: Iterable[Reported] = (part.reported for other, part in parts.items() if other < at)
    return frozenset().union(*earlier)


def _start_method() -> str:
    """`fork`, the quicker one, where no other thread, such as those of jax, may hold a lock."""
    alone = threading.active_count() == 1 and "jaxlib" not in sys.modules
    return "fork" if alone and sys.platform == "linux" else "spawn"


def _is_read(pipeline: Pipeline) -> bool:
    """True if it holds texts that came from elsewhere, or were changed: those stay here."""
    return any(dump.is_read for dump in pipeline.dumps)
