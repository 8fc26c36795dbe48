"""The workers of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import ray

from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.engine.executors import Work, run_batch
from hlo_lint.engine.parts import Task
from hlo_lint.text.errors import DumpError


class RayExecutor:
    """A client of the cluster at an address; the workers see the files under the same paths."""

    is_local = False

    def __init__(self, address: str, task: Task) -> None:
        try:
            self._session = ray.init(address, log_to_driver=False, logging_level="error")
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise DumpError(f"{address}: no cluster answers: {error}") from error
        self.jobs = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._task = ray.put(task)
        self._run = ray.remote(run_batch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        ray.shutdown()

    def map(
        self, work: Work, batches: Sequence[Mapping[int, Pipeline]]
    ) -> Iterator[tuple[int, Any]]:
        """The result for each pipeline, by its position."""
        running = [self._run.remote(work, self._task, batch) for batch in batches]
        try:
            while running:
                done, running = ray.wait(running)
                for reference in done:
                    yield from ray.get(reference)
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
            raise DumpError(f"a worker of the cluster has died: {error}") from error
