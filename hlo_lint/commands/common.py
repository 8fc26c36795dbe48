"""What several commands share: arguments, the input, the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

    from hlo_lint.dumps.directory import Dump

PROGRESS_AFTER = 1.0
"""Seconds of work before a terminal sees a progress bar."""

paths_argument = click.argument("paths", nargs=-1, required=True, metavar="PATH…")
select_option = click.option(
    "--select", multiple=True, metavar="RULE", help="Only these rules or families (repeatable)."
)
ignore_option = click.option(
    "--ignore", multiple=True, metavar="RULE", help="Not these rules or families (repeatable)."
)
before_option = click.option(
    "--before",
    metavar="PASS",
    help="The pass that comes next, where the dump does not say: layout_normalization, autotuner.",
)


def names(given: Iterable[str]) -> list[str] | None:
    """Names that were given one by one or with commas between; None where none was."""
    names = [name.strip() for entry in given for name in entry.split(",") if name.strip()]
    return names or None


def open_given(paths: Sequence[str]) -> Dump:
    """What lies under paths, or came through a pipe where `-` is the path.

    Raises:
        DumpError: for a path that is not there.
        UsageError: where `-` is one of several.
    """
    from hlo_lint.api import piped_dump
    from hlo_lint.dumps.directory import open_dump
    from hlo_lint.errors import UsageError

    if "-" not in paths:
        return open_dump(paths)
    if len(paths) > 1:
        raise UsageError("`-` reads standard input and goes with no other path")
    return piped_dump(sys.stdin.buffer.read())


def console(*, stderr: bool = False) -> Console:
    """Standard output or standard error, with colours where there is a terminal."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


@contextmanager
def progress_bar(dump: Dump) -> Iterator[Any]:
    """A function to call with numbers of files; on a terminal a bar appears when it takes long."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import Progress

    total = sum(len(pipeline.dumps) for pipeline in dump)
    begun = time.monotonic()
    bar = Progress(console=console(stderr=True), transient=True)
    task = bar.add_task("checking", total=total)
    started = False

    def advance(files: int) -> None:
        nonlocal started
        bar.advance(task, files)
        if not started and time.monotonic() - begun > PROGRESS_AFTER:
            started = True
            bar.start()

    try:
        yield advance
    finally:
        if started:
            bar.stop()
