"""Failures of a command: for each a line on standard error, with an exit status."""

from __future__ import annotations

import errno
import os

import click
from click.exceptions import Exit

from hlo_lint.apps.cli.program import SIGPIPE, after_signal, discard_output, signal_of
from hlo_lint.text.errors import HloLintError, interrupt_behind
from hlo_lint.text.source import shown_lines

_OUTPUT_FAILS = (
    *(errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO),
    errno.EBADF,  # a descriptor that is open for reading only: `hlo-lint rules 1< file`
)
"""Errors of writing to standard output: files are written by `text.files`, which names them."""


class _Stop(click.ClickException):
    exit_code = 2


class _Ended(Exception):
    """A signal ended the command, which has cleaned up."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def as_failure(error: BaseException) -> BaseException:
    """The exception that ends a command; an `HloLintError` gives exit status 2."""
    interrupt = interrupt_behind(error)
    if interrupt is not None:
        return _Ended(signal_of(interrupt))
    match error:
        case HloLintError():
            return _Stop(str(error))
        case click.ClickException() | Exit() | _Ended():
            return error
        case BrokenPipeError():
            return _Ended(SIGPIPE)
        case MemoryError():
            return _Stop("not enough memory; check fewer files at a time, or --jobs 1")
        case OSError() if error.errno in _OUTPUT_FAILS:
            return error
        case Exception() if not os.environ.get("HLO_LINT_TRACEBACK"):
            return _Stop(
                f"internal error: {type(error).__name__}: {error}\n"
                "This is a defect of hlo-lint. HLO_LINT_TRACEBACK=1 shows where; please report it "
                "with the file."
            )
        case _:
            return error


def status_after(error: BaseException) -> int:
    """Print why the program stops, and return its exit status."""
    failure = as_failure(error)
    match failure:
        case click.ClickException():
            failure.message = shown_lines(failure.message)  # type: ignore[misc]
            failure.show()
            return failure.exit_code
        case _Ended():
            return after_signal(failure.number)
        case SystemExit():  # click's answer to a reader of `--help` that went away
            return after_signal(SIGPIPE)
        case OSError():
            discard_output()
            click.echo(f"Error: standard output cannot be written: {failure.strerror}", err=True)
            return 2
        case _:
            raise failure
