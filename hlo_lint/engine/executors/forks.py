"""Runs functions in copies of this process: they read its memory, and send back values."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from hlo_lint.text.errors import DumpError

WAITING_THREAD: Final = "waits for the parent process"
"""The name of the thread of a worker that does nothing but wait, and so holds no lock."""
_NUMBER_BYTES: Final = 4


def can_fork() -> bool:
    """True where no other thread, such as those of jax, may hold a lock at the moment of a fork."""
    others = {thread.name for thread in threading.enumerate()} - {WAITING_THREAD}
    alone = len(others) == 1 and "jaxlib" not in sys.modules
    return alone and sys.platform == "linux"


def run_forked(
    functions: Sequence[Callable[[], Any]], jobs: int, is_here: Callable[[int], None]
) -> list[Any]:
    """The value of each function, computed here and in `jobs - 1` copies of this process.

    Each process takes the next function when it is done with one. `is_here` is called with the
    number of each that runs in this process.

    Raises:
        DumpError: a process dies. Else what a function raises.
    """
    queue, fill = os.pipe()
    # All numbers are there before anybody reads, and a read of one is not divided.
    os.write(fill, b"".join(at.to_bytes(_NUMBER_BYTES) for at in range(len(functions))))
    os.close(fill)
    children = [_child(functions, queue) for _ in range(min(jobs, len(functions)) - 1)]
    values: dict[int, Any] = {}
    try:
        for at in _numbers(queue):
            is_here(at)
            values[at] = functions[at]()
    except BaseException:
        for process, pipe in children:
            os.kill(process, signal.SIGKILL)
            os.close(pipe)
            os.waitpid(process, 0)
        raise
    finally:
        os.close(queue)
    for process, pipe in children:
        values |= _received(process, pipe)
    return [values[at] for at in range(len(functions))]


def _numbers(queue: int) -> Iterator[int]:
    while data := os.read(queue, _NUMBER_BYTES):
        yield int.from_bytes(data)


def _child(functions: Sequence[Callable[[], Any]], queue: int) -> tuple[int, int]:
    """Start a copy of this process; its number, and the pipe that its values come from."""
    source, target = os.pipe()
    process = os.fork()
    if process:
        os.close(target)
        return process, source
    status = 1
    try:
        os.close(source)
        try:
            content: object = {at: functions[at]() for at in _numbers(queue)}
        except Exception as error:
            content = error
        with os.fdopen(target, "wb") as stream:
            pickle.dump(content, stream, pickle.HIGHEST_PROTOCOL)
        status = 0
    finally:
        os._exit(status)


def _received(process: int, pipe: int) -> dict[int, Any]:
    with os.fdopen(pipe, "rb") as stream:
        data = stream.read()
    _, status = os.waitpid(process, 0)
    if status:
        raise DumpError(
            "a process that was checking has died, of too little memory perhaps: try --jobs 1"
        )
    content = pickle.loads(data)
    if isinstance(content, Exception):
        raise content
    return content  # type: ignore[no-any-return]
