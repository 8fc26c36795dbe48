"""Repeats a check when its files change."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import click

from hlo_lint.text.errors import HloLintError, UsageError

INTERVAL = 0.25
"""Seconds between two scans of the files."""
SETTLED = 2
"""Number of equal scans after which a file counts as written."""

FileTimes = dict[str, tuple[int, int]]


def watch(
    paths: Sequence[str],
    settings: Callable[[], Path | None],
    run: Callable[[], object],
    output: Path | None = None,
) -> None:
    """Run at once and after each change of a file below the paths, or of the settings file.

    `output` is the file that a run itself writes. An `HloLintError` is printed, since the next
    change may remove its cause. An interrupt ends the loop.

    Raises:
        UsageError: for standard input, which does not change.
    """
    if "-" in paths:
        raise UsageError("--watch needs files: standard input is read once")

    def times_now() -> FileTimes:
        file = settings()
        watched = [*paths, *([str(file)] if file is not None else [])]
        return _file_times(watched, None if output is None else os.path.abspath(output))

    gc.enable()  # `__main__` disables it, for commands that soon end
    try:
        while True:
            before = times_now()
            if sys.stdout.isatty():
                click.clear()
            try:
                run()
            except HloLintError as error:
                click.echo(f"Error: {error}", err=True)
            gc.collect()
            stamp = time.strftime("%H:%M:%S: ") if sys.stdout.isatty() else ""
            click.echo(f"{stamp}watching; Ctrl-C ends it", err=True)
            # Wait for a change, then until the files are written.
            last, same = before, 0
            while last == before or same < SETTLED:
                time.sleep(INTERVAL)
                now = times_now()
                same = same + 1 if now == last else 0
                last = now
    except KeyboardInterrupt as interrupt:
        # Ctrl-C is how a watch ends; after SIGTERM it ends as every command does.
        if getattr(interrupt, "number", signal.SIGINT) != signal.SIGINT:
            raise


def _file_times(paths: Sequence[str], output: str | None) -> FileTimes:
    """The modification time of each file, in nanoseconds, and its size in bytes."""
    times: FileTimes = {}
    for path in paths:
        folders = os.walk(path) if os.path.isdir(path) else [("", (), [path])]
        for folder, _, names in folders:
            for name in names:
                file = os.path.abspath(os.path.join(folder, name))
                with suppress(OSError):
                    status = os.stat(file)
                    times[file] = status.st_mtime_ns, status.st_size
    times.pop(output or "", None)
    return times
