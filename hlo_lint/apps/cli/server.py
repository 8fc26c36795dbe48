"""`hlo-lint server`: the language server, for editors to start."""

from __future__ import annotations

import gc
import logging
import sys

import click


@click.command("server")
@click.option("--stdio", is_flag=True, help="Use standard input and output, as always.")
def command(stdio: bool) -> None:
    """Answer an editor on standard input and output, by the Language Server Protocol.

    Editors start it; `editors/` has their settings. It needs hlo-lint[lsp].
    """
    from hlo_lint.text.errors import UsageError

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
    channel, sys.stdout = sys.stdout.buffer, sys.stderr  # a stray print must not reach the client
    server = make_server()
    try:
        server.start_io(sys.stdin.buffer, channel)
    finally:
        server.stop()
