"""Executors, which check compilations in this process, in local processes, or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.engine.runner import Task
from hlo_lint.text.errors import DumpError, UsageError

Work = Callable[[Task, Compilation], Any]


class WorkersLostError(DumpError):
    """Workers died; the message says where. Results that were there have been returned."""


class Executor(AbstractContextManager["Executor"], Protocol):
    """Applies a function to compilations."""

    task: Task
    is_local: bool
    """True if it runs on this machine, in this folder."""
    jobs: int
    """The number of processes; 1 if batches bring no gain."""

    def map(
        self, work: Work, batches: Sequence[Mapping[int, Compilation]]
    ) -> Iterator[tuple[int, Any]]:
        """The result for each compilation, by its position, in any order.

        The compilations of a batch are sent together. Large compilations come first.

        Raises:
            WorkersLostError: a process died, for example of too little memory.
        """


def open_executor(address: str | None, jobs: int, task: Task) -> Executor:
    """The executor at an address `dask://HOST:PORT`, or `jobs` local processes without an address.

    Raises:
        UsageError: the address has another form.
        DumpError: the scheduler does not answer, has no worker, or Dask is not installed.
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


def packed(batch: Mapping[int, Compilation]) -> bytes:
    """The pickled batch; a pool would pickle it in its own thread while this thread changes it."""
    from pickle import dumps

    return dumps(batch)


def run_packed(work: Work, task: Task, batch: bytes) -> list[tuple[int, Any]]:
    """The results of a packed batch; this runs in the worker."""
    from pickle import loads

    return [(position, work(task, compilation)) for position, compilation in loads(batch).items()]
