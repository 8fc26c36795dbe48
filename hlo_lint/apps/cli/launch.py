"""The process of a program under `hlo-lint exec`: its start, its output, its end by force."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO, BinaryIO

from hlo_lint.apps.cli.ending import ProgramEnd
from hlo_lint.text.errors import UsageError, os_errors_as

GRACE = 5.0
"""Seconds that a program has to print its stack, or a process to close its output."""
INTERVAL = 0.2
"""Seconds between two looks at a program."""


def run_to_end(
    program: Sequence[str],
    variables: Mapping[str, str],
    folder: Path,
    log: Path,
    hang_seconds: float | None,
) -> ProgramEnd:
    """Run a program to its end; its errors are printed, and kept in a log."""
    kills = _memory_kills()
    # Standard output stays a terminal where it is one, unless silence counts.
    output = None if hang_seconds is None else subprocess.PIPE
    with log.open("wb") as file, _started(program, variables, output) as process:
        hung = _OutputWatch(process, file).wait(folder, hang_seconds)
    return ProgramEnd(process.returncode, hang_seconds if hung else None, _memory_kills() > kills)


@contextmanager
def _started(
    command: Sequence[str], variables: Mapping[str, str], stdout: int | None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command; where the block ends before it, the command is ended, too.

    The first Ctrl-C, which the command gets too, is ignored; the second ends the command.

    Raises:
        UsageError: it cannot be started.
    """
    with os_errors_as(f"{command[0]}: cannot be started", UsageError):
        process = subprocess.Popen(command, env=variables, stdout=stdout, stderr=subprocess.PIPE)
    interrupts = count()

    def obey(_: int, __: object) -> None:
        if next(interrupts):
            process.terminate()

    before = signal.signal(signal.SIGINT, obey)
    try:
        yield process
    finally:
        signal.signal(signal.SIGINT, before)
        if process.poll() is None:
            process.terminate()
        process.wait()


class _OutputWatch:
    """Copies the output of a program to its own streams and into a log, and notices hangs."""

    def __init__(self, process: subprocess.Popen[bytes], log: BinaryIO) -> None:
        self._process = process
        self._log = log
        self._last = time.monotonic()
        self._lock = threading.Lock()
        streams = (process.stdout, 1), (process.stderr, 2)
        self._copiers = [
            threading.Thread(target=self._copy, args=(stream, number), daemon=True)
            for stream, number in streams
            if stream is not None
        ]
        for copier in self._copiers:
            copier.start()

    def _copy(self, stream: IO[bytes], number: int) -> None:
        with stream, open(number, "wb", closefd=False) as own:
            while read := os.read(stream.fileno(), 1 << 16):
                self._last = time.monotonic()
                with self._lock, suppress(ValueError):  # the log is closed: a child outlives it
                    self._log.write(read)
                    self._log.flush()
                with suppress(OSError):
                    own.write(read)
                    own.flush()

    def wait(self, folder: Path, hang_seconds: float | None) -> bool:
        """Wait for the end of the program; True if it hung, and was killed."""
        hung = False
        if hang_seconds is None:
            self._process.wait()
        else:
            files = 0
            while self._process.poll() is None and not hung:
                time.sleep(INTERVAL)
                if (number := sum(len(names) for _, _, names in os.walk(folder))) != files:
                    files, self._last = number, time.monotonic()
                hung = time.monotonic() - self._last > hang_seconds
            if hung and self._process.poll() is None:
                _kill(self._process)
        for copier in self._copiers:
            copier.join(GRACE)
        return hung


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a program and its children; Python prints its stack before, by its fault handler."""
    family = [process.pid, *_descendants(process.pid)]
    for pid in reversed(family):
        with suppress(OSError):
            os.kill(pid, signal.SIGABRT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    for pid in family:
        if pid == process.pid and process.poll() is not None:
            continue
        with suppress(OSError):
            os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))
    process.wait()


def _descendants(pid: int) -> Iterator[int]:
    """The children of a process, their children and so on; none where there is no /proc."""
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from _descendants(child)


def _memory_kills() -> int:
    """The number of processes of this control group that the kernel killed for lack of memory."""
    with suppress(OSError, ValueError, IndexError):
        group = Path("/proc/self/cgroup").read_text().split("::")[1].splitlines()[0]
        events = Path(f"/sys/fs/cgroup{group}/memory.events").read_text().split()
        return int(events[events.index("oom_kill") + 1])
    return 0


def with_stacks(variables: Mapping[str, str], *, unbuffered: bool) -> dict[str, str]:
    """The variables with which Python prints its stack when a signal ends it."""
    added = {"PYTHONFAULTHANDLER": "1"} | ({"PYTHONUNBUFFERED": "1"} if unbuffered else {})
    return {**added, **variables}
