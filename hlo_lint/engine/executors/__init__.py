"""Executors, which check pipelines in this process, in several of this machine, or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.engine.runner import Task
from hlo_lint.text.errors import DumpError, UsageError

Work = Callable[[Task, Pipeline], Any]


class Executor(AbstractContextManager["Executor"], Protocol):
    """Applies a function to pipelines."""

    task: Task
    is_local: bool
    """True if it runs in this folder of this machine."""
    jobs: int
    """The number of processes; 1 if nothing is gained by batches."""

    def map(
        self, work: Work, batches: Sequence[Mapping[int, Pipeline]]
    ) -> Iterator[tuple[int, Any]]:
        """The result for each pipeline, by its position, in any order.

        The pipelines of a batch are sent together. Large ones come first.

        Raises:
            DumpError: a process dies, as it does where memory is short.
        """


def open_executor(address: str | None, jobs: int, task: Task) -> Executor:
    """The executor at an address, `dask://HOST:PORT`; without one, that many processes here.

    Raises:
        UsageError: it is not an address.
        DumpError: nobody answers there, or the engine is not installed.
    """
    if address is None:
        from hlo_lint.engine.executors.local import LocalExecutor

        return LocalExecutor(jobs, task)
    scheme, _, rest = address.partition("://")
    if scheme != "dask" or not rest:
        raise UsageError(f"--executor takes dask://HOST:PORT, not {address}")
    try:
        from hlo_lint.engine.executors.dask import DaskExecutor
    except ImportError as error:
        needs = f"--executor dask:// needs {error.name or 'dask'}"
        raise DumpError(f"{needs}: pip install 'hlo-lint[dask]'") from None
    return DaskExecutor(rest, task)


def run_batch(work: Work, task: Task, batch: Mapping[int, Pipeline]) -> list[tuple[int, Any]]:
    """The results of one batch."""
    return [(at, work(task, pipeline)) for at, pipeline in batch.items()]


def packed(batch: Mapping[int, Pipeline]) -> bytes:
    """A batch as it is sent: pools write in a thread of their own what this one goes on with."""
    from pickle import dumps

    return dumps(batch)


def run_packed(work: Work, task: Task, batch: bytes) -> list[tuple[int, Any]]:
    """The results of a batch that was sent; what runs in another process."""
    from pickle import loads

    return run_batch(work, task, loads(batch))
