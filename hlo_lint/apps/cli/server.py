"""`hlo-lint server`: the language server, for editors to start."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys

import click

from hlo_lint.apps.cli.program import after_signal, handle_signals
from hlo_lint.text.errors import UsageError


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
    logging.basicConfig(stream=sys.stderr, level=logging.ERROR)
    handle_signals(_end)
    channel, sys.stdout = sys.stdout.buffer, sys.stderr  # a stray print must not reach the client
    server = make_server()
    try:
        server.start_io(sys.stdin.buffer, channel)
    finally:
        server.stop()


def _end(number: int, _: object) -> None:
    # A thread waits for the client, and Python would wait for it. Nothing is left to clean up: the
    # client writes the files.
    os._exit(0 if number == signal.SIGINT else after_signal(number))
