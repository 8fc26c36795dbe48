"""`hlo-lint server`: the language server, for editors to start."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from typing import BinaryIO, Final

import click

from hlo_lint.apps.cli.program import after_signal, handle_signals
from hlo_lint.text.errors import DumpError, UsageError

MAX_HEADER: Final = 4096
"""Bytes of a line before a message."""
MAX_MESSAGE: Final = 1 << 30
"""Bytes of a message: texts come in them."""


@click.command("server")
@click.option("--stdio", is_flag=True, help="Use standard input and output, as always.")
def command(stdio: bool) -> None:
    """Serve an editor by the Language Server Protocol.

    Messages go through standard input and output.

    Editors start it; `editors/` has their settings. It needs hlo-lint[lsp].
    """
    try:
        from hlo_lint.apps.lsp.app import make_server
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing not in ("pygls", "lsprotocol"):
            raise
        raise UsageError(
            f"the server needs {missing}, which is not installed: pip install 'hlo-lint[lsp]'"
        ) from error
    gc.enable()  # it runs for days, and versions of a text are cycles
    gc.set_threshold(20_000, 20, 20)  # a large text is 300,000 objects, which stay
    logging.getLogger("pygls.server").addFilter(_without_traceback)
    logging.basicConfig(stream=sys.stderr, level=logging.ERROR)
    handle_signals(_end)
    channel, sys.stdout = sys.stdout.buffer, sys.stderr  # a stray print must not reach the client
    server = make_server()
    try:
        server.start_io(_Messages(sys.stdin.buffer), channel)  # type: ignore[arg-type]
    finally:
        server.stop()


def _end(number: int, _: object) -> None:
    # A thread waits for the client, and Python would wait for it. Nothing is left to clean up: the
    # client writes the files.
    os._exit(0 if number == signal.SIGINT else after_signal(number))


class _Messages:
    """Standard input, valid LSP messages only: lines of headers, and messages."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readline(self) -> bytes:
        """A line of a header."""
        line = self._stream.readline(MAX_HEADER)
        if len(line) == MAX_HEADER:
            raise _unfit(f"a header of {MAX_HEADER} bytes")
        return line

    def read(self, size: int) -> bytes:
        """A message."""
        if size > MAX_MESSAGE:
            raise _unfit(f"a message of {size} bytes")
        return self._stream.read(size)


def _unfit(what: str) -> Exception:
    return DumpError(f"standard input: {what} is too long for the Language Server Protocol")


def _without_traceback(record: logging.LogRecord) -> bool:
    """Log a line about a message that cannot be read; the client that sent it gets an error."""
    if record.exc_info and record.msg == "Unable to handle message":
        record.msg = f"a message cannot be read: {record.exc_info[1]}"
        record.exc_info = None
    return True
