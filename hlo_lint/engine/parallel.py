"""Checks the pipelines of a dump each on its own: from the cache, in this process, or in several.

The result is that of `Checker.check_dump`.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from hlo_lint.dumps.directory import Dump, Skipped
from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.engine.findings import Diagnostic
from hlo_lint.engine.reporter import Result
from hlo_lint.engine.runner import Checker, Progress
from hlo_lint.engine.stages import StageOf
from hlo_lint.engine.suppressions.comments import CheckedFile
from hlo_lint.rules.base import Rule
from hlo_lint.text.errors import DumpError

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

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


class Part(NamedTuple):
    """The outcome of one pipeline, as a cache keeps it."""

    diagnostics: tuple[Diagnostic, ...]
    skipped: tuple[Skipped, ...]
    files: int
    modules: int
    checked: tuple[CheckedFile, ...]
    logs: tuple[int, ...]
    """The positions of its dumps that are logs of the autotuner."""
    unread: frozenset[Path]
    """Artefacts whose parse errors are among the diagnostics."""
    reported: Reported


class PartCache(Protocol):
    """Parts of earlier runs over the same files."""

    def get(self, pipelines: Sequence[Pipeline], earlier: Sequence[Reported]) -> list[Part | None]:
        """The part of each pipeline, where there is one."""

    def put(self, pipeline: Pipeline, part: Part) -> None:
        """Keep a part."""


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


def check_in_parts(
    checker: Checker,
    dump: Dump,
    jobs: int = 1,
    progress: Progress = lambda _: None,
    cache: PartCache | None = None,
) -> Result:
    """The result of `checker.check_dump`, by that many processes and by a cache.

    Modules that the autotuner made are checked after the others: a defect that the whole module has
    is not reported again of its copies.

    Raises:
        DumpError: where a process dies, as it does where memory is short.
    """
    if any(map(_is_read, dump)) or (cache is None and (jobs < 2 or len(dump.pipelines) < 2)):
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
    parts: dict[int, Part] = {}
    with _Workers(task, jobs) as workers:
        for wave in (others, helpers):
            # Every task gets its arguments before any of the wave is done: the result must not
            # depend on which process is faster.
            earlier = {at: _reported_before(at, parts) for at in wave}
            missing = dict(earlier)
            if cache is not None:
                kept = cache.get([dump.pipelines[at] for at in wave], list(earlier.values()))
                for at, part in zip(wave, kept, strict=True):
                    if part is not None:
                        parts[at] = part
                        progress(len(dump.pipelines[at].dumps))
                        del missing[at]
            for at, part in workers.parts(missing, progress):
                parts[at] = part
                if cache is not None:
                    cache.put(dump.pipelines[at], part)
    for at, pipeline in enumerate(dump):
        _add(checker, parts[at], pipeline)
    return checker.finish(dump)


class _Workers:
    """The processes that check pipelines: this one, or several that start with the first work."""

    def __init__(self, task: _Task, jobs: int) -> None:
        self._task = task
        self._jobs = jobs
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=kind is None, cancel_futures=True)

    def parts(self, work: Mapping[int, Reported], progress: Progress) -> Iterator[tuple[int, Part]]:
        """The part of each pipeline, by its position, in any order."""
        pipelines = self._task.pipelines
        if self._jobs < 2 or len(work) < 2:
            for at, earlier in work.items():
                yield at, _part(self._task, at, earlier, progress)
            return
        from concurrent.futures import as_completed
        from concurrent.futures.process import BrokenProcessPool

        pool = self._started()
        largest = sorted(work, key=lambda at: -size_of(pipelines[at]))
        try:
            running = {pool.submit(_check, at, work[at]): at for at in largest}
            for done in as_completed(running):
                at = running[done]
                progress(len(pipelines[at].dumps))
                yield at, done.result()
        except BrokenProcessPool as error:
            raise DumpError(
                "a process that was checking has died, of too little memory perhaps: try --jobs 1"
            ) from error

    def _started(self) -> ProcessPoolExecutor:
        # Imported here: they are slow to import, and most inputs are too small for workers.
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                min(self._jobs, len(self._task.pipelines)),
                multiprocessing.get_context(_start_method()),
                initializer=_begin,
                initargs=(self._task,),
            )
        return self._pool


def _check(at: int, earlier: Reported) -> Part:
    """One pipeline, in a process of its own."""
    assert _task is not None
    return _part(_task, at, earlier)


def _part(task: _Task, at: int, earlier: Reported, progress: Progress = lambda _: None) -> Part:
    pipeline = task.pipelines[at]
    checker = Checker(
        task.rules,
        before=task.before,
        stage_of=task.stage_of,
        cured=task.cured,
        notes_files=task.notes_files,
    )
    checker.reporter.of_modules |= earlier
    checker.check_pipeline(pipeline, progress)
    logs = tuple(pipeline.dumps.index(log) for log in checker.logs)
    pipeline.release_text()
    result = checker.result
    return Part(
        tuple(result.diagnostics),
        tuple(result.skipped),
        result.files,
        result.modules,
        tuple(result.checked),
        logs,
        frozenset(checker.reporter.unread),
        frozenset(checker.reporter.of_modules - earlier),
    )


def _begin(task: _Task) -> None:
    global _task
    _task = task
    gc.disable()  # as in `cli.main`


def _add(whole: Checker, part: Part, pipeline: Pipeline) -> None:
    """Add the outcome of a pipeline; parse errors of an artefact that two share are added once."""
    shared = {str(path) for path in part.unread & whole.reporter.unread}
    result = whole.result
    result.diagnostics += (each for each in part.diagnostics if each.path not in shared)
    result.skipped += part.skipped
    result.files += part.files
    result.modules += part.modules
    result.checked += part.checked
    whole.logs += [pipeline.dumps[at] for at in part.logs]
    whole.reporter.unread |= part.unread


def _reported_before(at: int, parts: dict[int, Part]) -> Reported:
    earlier: Iterable[Reported] = (part.reported for other, part in parts.items() if other < at)
    return frozenset().union(*earlier)


def _start_method() -> str:
    """`fork`, the quicker one, where no other thread, such as those of jax, may hold a lock."""
    alone = threading.active_count() == 1 and "jaxlib" not in sys.modules
    return "fork" if alone and sys.platform == "linux" else "spawn"


def _is_read(pipeline: Pipeline) -> bool:
    """True if it holds texts that came from elsewhere, or were changed: those stay here."""
    return any(dump.is_read for dump in pipeline.dumps)
