"""Check pipelines on the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from distributed import Client, KilledWorker, as_completed

from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.engine.executors import Work, packed, run_packed
from hlo_lint.engine.runner import Task
from hlo_lint.text.errors import DumpError

TIMEOUT_SECONDS = 10


class DaskExecutor:
    """A client of a Dask scheduler, whose workers see the files under the same paths."""

    is_local = False

    def __init__(self, address: str, task: Task) -> None:
        try:
            self._client = Client(f"tcp://{address}", timeout=TIMEOUT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise DumpError(f"dask://{address}: no scheduler answers: {error}") from error
        self.jobs = max(1, sum(self._client.nthreads().values()))
        self.task = task
        self._shared_task = self._client.scatter(task, broadcast=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def map(
        self, work: Work, batches: Sequence[Mapping[int, Pipeline]]
    ) -> Iterator[tuple[int, Any]]:
        """The result for each pipeline, by its position."""
        running = [
            self._client.submit(run_packed, work, self._shared_task, packed(batch), pure=False)
            for batch in batches
        ]
        try:
            for done in as_completed(running, loop=self._client.loop):
                yield from done.result()
                done.release()
        except KilledWorker as error:
            raise DumpError(f"a worker of the cluster died: {error}") from error
