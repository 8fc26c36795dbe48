"""Check compilations on the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from threading import Event, Thread
from typing import Any, Final

from distributed import Client, Future, KilledWorker, as_completed

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.engine.executors import Executor, Work, WorkersLostError, packed, run_packed
from hlo_lint.engine.runner import Task
from hlo_lint.text.errors import DumpError

TIMEOUT_SECONDS: Final = 10
"""The time in which a cluster has to answer, and may be without a worker."""


class DaskExecutor(Executor):
    """A client of a Dask scheduler, whose workers see the files under the same paths."""

    is_local = False

    def __init__(self, address: str, task: Task) -> None:
        self._name = f"dask://{address}"
        try:
            self._client = Client(f"tcp://{address}", timeout=TIMEOUT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise DumpError(f"{self._name}: no scheduler answers: {error}") from error
        try:
            self._client.wait_for_workers(1, timeout=TIMEOUT_SECONDS)
            self._shared_task = self._client.scatter(task, broadcast=True)
        except (OSError, CancelledError) as error:  # a TimeoutError is an OSError
            self._client.close()
            raise DumpError(f"{self._name}: the cluster has no worker") from error
        self.jobs = max(1, sum(self._client.nthreads().values()))
        self.task = task

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def map(
        self, work: Work, batches: Sequence[Mapping[int, Compilation]]
    ) -> Iterator[tuple[int, Any]]:
        """The result for each compilation, by its position.

        Raises:
            WorkersLostError: workers died, or none was left; all other results were returned.
        """
        running = [
            self._client.submit(run_packed, work, self._shared_task, packed(batch), pure=False)
            for batch in batches
        ]
        is_over = Event()
        Thread(target=self._cancel_without_workers, args=(running, is_over), daemon=True).start()
        lost = ""
        try:
            for done in as_completed(running, loop=self._client.loop):
                try:
                    yield from done.result()
                except KilledWorker:
                    lost = "workers of the cluster died of this work, perhaps of too little memory"
                except CancelledError:
                    lost = lost or "the cluster lost all its workers, or its scheduler"
                done.release()
        finally:
            is_over.set()
        if lost:
            raise WorkersLostError(f"{self._name}: {lost}")

    def _cancel_without_workers(self, running: Sequence[Future], is_over: Event) -> None:
        # Without workers a scheduler keeps work, in the hope of new workers, for ever.
        while not is_over.wait(TIMEOUT_SECONDS):
            if self._client.status == "running" and not self._client.nthreads():
                self._client.cancel(running)
