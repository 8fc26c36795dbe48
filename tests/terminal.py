"""A real terminal of a given width: a program runs in a pty, and pyte reads what it would show."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import sys
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from tests.conftest import started

pyte = pytest.importorskip("pyte", reason="`make test` installs it")

ROWS = 50


@dataclass(frozen=True)
class Screen:
    """The output of a program on a terminal: the lines that scrolled away, too."""

    status: int
    cells: list[list[str]]
    """The character in each column of each line; a wide one has an empty column after it."""
    data: bytes
    """As it came, with what the terminal obeys."""

    @property
    def lines(self) -> list[str]:
        """The lines as text."""
        return ["".join(line).rstrip() for line in self.cells]

    @property
    def text(self) -> str:
        """All lines."""
        return "\n".join(self.lines)


def on_terminal(
    command: Sequence[str],
    columns: int,
    environment: Mapping[str, str],
    *,
    rows: int = ROWS,
    stdout: int | None = None,
    until: bytes | None = None,
) -> Screen:
    """The screen after a program that has a terminal for its output, its errors or both.

    It is interrupted, as by Ctrl-C, once it has written `until`.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    with started(
        command,
        stdin=theirs,
        stdout=theirs if stdout is None else stdout,
        stderr=theirs,
        env=dict(environment),
    ) as process:
        os.close(theirs)
        data = b""
        with open(ours, "rb", buffering=0) as terminal:
            try:
                while piece := terminal.read(65536):
                    data += piece
                    if until is not None and until in data:
                        process.send_signal(signal.SIGINT)
                        until = None
            except OSError:
                pass  # so a terminal says on Linux that nobody writes any more
        process.wait()
    return Screen(process.returncode, shown_by(data, columns, rows), data)


def shown_by(data: bytes, columns: int, rows: int = ROWS) -> list[list[str]]:
    """The lines that a terminal shows of some bytes, without empty ones at the end."""
    screen = pyte.HistoryScreen(columns, rows, history=10_000)
    pyte.ByteStream(screen).feed(data)
    lines = [*screen.history.top, *(screen.buffer[row] for row in range(rows))]
    cells = [[line[at].data for at in range(columns)] for line in lines]
    while cells and not "".join(cells[-1]).strip():
        cells.pop()
    return cells


def program(*arguments: str) -> list[str]:
    """The command line of hlo-lint."""
    return [sys.executable, "-W", "error", "-m", "hlo_lint", *arguments]
