"""Check compilations in local worker processes, or in this process."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.engine.executors import Executor, Work, WorkersLostError, packed, run_packed
from hlo_lint.engine.runner import Task

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

_task: Task | None = None
"""The task of this process, if it is a worker."""


class LocalExecutor(Executor):
    """Runs work in several processes, which start with the first large work."""

    is_local = True

    def __init__(self, jobs: int, task: Task) -> None:
        self.jobs = jobs
        self.task = task
        self._pool: ProcessPoolExecutor | None = None

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pool is None:
            return
        # Running work is discarded; Python has `terminate_workers` from 3.14 on.
        running = [] if error_type is None else [*(self._pool._processes or {}).values()]
        for process in running:
            process.terminate()
        self._pool.shutdown(wait=error_type is None, cancel_futures=True)

    def map(
        self, work: Work, batches: Sequence[Mapping[int, Compilation]]
    ) -> Iterator[tuple[int, Any]]:
        """The result for each compilation, by its position; workers start at once."""
        pool = self._started(len(batches))
        return _results([pool.submit(_run, work, packed(batch)) for batch in batches])

    def _started(self, batches: int) -> ProcessPoolExecutor:
        # Imported here: they are slow to import, and most inputs are too small for workers.
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        if self._pool is None:
            # `fork` is faster; another thread, such as one of jax, may hold a lock.
            is_safe = threading.active_count() == 1 and "jaxlib" not in sys.modules
            is_safe &= sys.platform == "linux"
            if is_safe:
                list(self.task.rules)  # imported once, for all processes that are forked
            self._pool = ProcessPoolExecutor(
                min(self.jobs, batches),
                multiprocessing.get_context("fork" if is_safe else "spawn"),
                initializer=_begin,
                initargs=(self.task,),
            )
        return self._pool


def _results(running: Sequence[Future[list[tuple[int, Any]]]]) -> Iterator[tuple[int, Any]]:
    from concurrent.futures import as_completed
    from concurrent.futures.process import BrokenProcessPool

    is_broken = False
    for done in as_completed(running):
        try:
            yield from done.result()
        except BrokenProcessPool:
            is_broken = True
    if is_broken:
        raise WorkersLostError("a worker process died, perhaps of too little memory: try --jobs 1")


def _begin(task: Task) -> None:
    global _task
    _task = task
    gc.disable()  # as in `__main__`
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, too, which ends this
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    import multiprocessing

    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)  # the parent was killed, so the results are not read


def _run(work: Work, batch: bytes) -> list[tuple[int, Any]]:
    assert _task is not None
    return run_packed(work, _task, batch)
