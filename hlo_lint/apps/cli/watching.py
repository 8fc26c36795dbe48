"""Repeats a check when its files change, also while a compile writes them."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from hlo_lint.text.errors import HloLintError, UsageError, os_errors_as

INTERVAL = 0.25
"""Seconds between two scans of the files."""
_NICE = 19
"""The compile comes first: where both want one processor, a check gets a hundredth of it."""
_SHARE = 1 / 20
"""The share that this process may take of one processor while a compile writes."""
_begun = time.monotonic()
SETTLED = 2
"""Number of equal scans after which a file counts as written."""

FileTimes = dict[str, tuple[int, int]]


def watch(
    paths: Sequence[str],
    settings: Callable[[], Path | None],
    run: Callable[[bool], object],
    output: Path | None = None,
    is_written: Callable[[], bool] | None = None,
) -> None:
    """Run at once and after each change of a file below the paths, or of the settings file.

    `output` is the file that a run itself writes. An `HloLintError` is printed, since the next
    change may remove its cause. An interrupt ends the loop. So does the end of the process that
    writes the files, which `is_written` asks for: after it there is a last run, with True.

    Raises:
        UsageError: for standard input, which does not change.
    """
    if "-" in paths:
        raise UsageError("--watch needs files: standard input is read once")

    def look() -> FileTimes:
        file = settings()
        watched = [*paths, *([str(file)] if file is not None else [])]
        return _state(watched, None if output is None else os.path.abspath(output))

    if is_written is not None and hasattr(os, "nice"):
        os.nice(_NICE)
    gc.enable()  # a run of its own needs no collection; this one does not end
    try:
        while True:
            is_over = is_written is not None and not is_written()
            before = look()
            if is_written is not None and not is_over and not _state(paths, None):
                _wait(before, look, is_written)  # for the first file
                continue
            if sys.stdout.isatty():
                click.clear()
            try:
                run(is_over)
            except HloLintError as error:
                click.echo(f"Error: {error}", err=True)
            if is_over:
                return
            gc.collect()
            stamp = time.strftime("%H:%M:%S: ") if sys.stdout.isatty() else ""
            click.echo(f"{stamp}watching; Ctrl-C ends it", err=True)
            _wait(before, look, is_written)
    except KeyboardInterrupt as interrupt:
        # Ctrl-C is how a watch ends; after SIGTERM it ends as every command does.
        if getattr(interrupt, "number", signal.SIGINT) != signal.SIGINT:
            raise


def _wait(
    before: FileTimes, look: Callable[[], FileTimes], is_written: Callable[[], bool] | None
) -> None:
    """Wait until a change is over, or until the process that writes the files has ended.

    While something writes, what this process has cost so far bounds when that is.
    """
    last, same = before, 0
    while last == before or same < SETTLED or (is_written is not None and _is_tired()):
        time.sleep(INTERVAL)
        if is_written is not None:
            if not is_written():
                return
            if _is_tired():
                continue
        now = look()
        same = same + 1 if now == last else 0
        last = now


def _is_tired() -> bool:
    """True if this process and its workers have had more than their share of a processor."""
    spent = sum(os.times()[:4])
    return spent > _SHARE * (time.monotonic() - _begun)


@contextmanager
def started(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    stdout: int | None = None,
    stderr: int | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command; where the block ends before it, the command is ended, too.

    Raises:
        UsageError: it cannot be started.
    """
    with os_errors_as(f"{command[0]}: cannot be started", UsageError):
        process = subprocess.Popen(command, env=environment, stdout=stdout, stderr=stderr)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()


def shell_status(code: int) -> int:
    """The exit status that a shell gives for a `returncode` of a process."""
    return code if code >= 0 else 128 - code  # a negative one is the number of a signal


def is_running(process: int) -> bool:
    """True if a process is there and has not ended."""
    try:
        os.kill(process, 0)
        # One that nobody has waited for is still there: proc(5), the state after the name.
        return Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it belongs to somebody else, or the system has no /proc
        return True


def _state(paths: Sequence[str], output: str | None) -> FileTimes:
    """The modification time of each file, in nanoseconds, and its size in bytes."""
    state: FileTimes = {}
    for path in paths:
        folders = os.walk(path) if os.path.isdir(path) else [("", (), [path])]
        for folder, _, names in folders:
            for name in names:
                file = os.path.abspath(os.path.join(folder, name))
                with suppress(OSError):
                    status = os.stat(file)
                    state[file] = status.st_mtime_ns, status.st_size
    state.pop(output or "", None)
    return state
