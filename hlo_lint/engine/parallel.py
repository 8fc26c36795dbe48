"""Checks the pipelines of a dump in several processes; what comes out is what one process gives."""

from __future__ import annotations

import gc
import multiprocessing
import sys
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from hlo_lint.dumps.directory import Dump
from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.engine.jobs import size_of
from hlo_lint.engine.reporter import Result
from hlo_lint.engine.runner import Checker, Progress
from hlo_lint.engine.stages import StageOf
from hlo_lint.rules.base import Rule
from hlo_lint.text.errors import DumpError

Said = frozenset[tuple[str, tuple[str, str, str]]]


@dataclass(frozen=True)
class _Task:
    """What every process knows."""

    pipelines: Sequence[Pipeline]
    rules: Sequence[Rule]
    before: str | None
    stage_of: StageOf | None
    cured: bool
    notes_files: bool


@dataclass(frozen=True)
class _Part:
    """What one pipeline gave."""

    result: Result
    logs: tuple[int, ...]
    """Which of its dumps are the autotuner's logs."""
    unread: frozenset[Path]
    said: Said


_task: _Task | None = None
"""Of this process, where it is one that checks."""


def check_in_parallel(
    checker: Checker, dump: Dump, jobs: int, progress: Progress = lambda _: None
) -> Result:
    """What `checker.check_dump` gives, made by so many processes.

    Modules that the autotuner made are checked when those before them have been: what those say is
    not said again.

    Raises:
        DumpError: where a process dies, as it does where memory is short.
    """
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
                said = {at: _said_before(at, parts) for at in wave}
                running = {pool.submit(_check, at, said[at]): at for at in largest}
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


def _check(at: int, said: Said) -> _Part:
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
    checker.reporter.of_modules |= said
    checker.check_pipeline(pipeline)
    logs = tuple(pipeline.dumps.index(log) for log in checker.logs)
    pipeline.release_text()
    checker.result.fixes.clear()  # they hold the dumps, and nobody mends here
    return _Part(
        checker.result,
        logs,
        frozenset(checker.reporter.unread),
        frozenset(checker.reporter.of_modules - said),
    )


def _begin(task: _Task) -> None:
    global _task
    _task = task
    gc.disable()  # as in `cli.main`


def _add(whole: Checker, part: _Part, pipeline: Pipeline) -> None:
    """Adds what a pipeline gave, but what has been told of an artefact that two of them share."""
    again = {str(path) for path in part.unread & whole.reporter.unread}
    found = part.result.diagnostics
    part.result.diagnostics = [each for each in found if each.path not in again]
    whole.result.add(part.result)
    whole.logs += [pipeline.dumps[at] for at in part.logs]
    whole.reporter.unread |= part.unread


def _said_before(at: int, parts: dict[int, _Part]) -> Said:
    earlier: Iterable[Said] = (part.said for other, part in parts.items() if other < at)
    return frozenset().union(*earlier)


def _start_method() -> str:
    """To fork is quick, and safe where nothing else runs in this process."""
    alone = threading.active_count() == 1 and "jaxlib" not in sys.modules
    return "fork" if alone and sys.platform == "linux" else "spawn"


def _is_read(pipeline: Pipeline) -> bool:
    """True if it holds texts that came from elsewhere, or were changed: those stay here."""
    return any(dump.is_read for dump in pipeline.dumps)
