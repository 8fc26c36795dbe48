"""The command line: a command is a module of `hlo_lint.apps.cli`, imported when it is used."""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

import click

from hlo_lint import __version__

LATE = (
    "baseline",
    "bisect",
    "blame",
    "cache",
    "capture",
    "check",
    "completion",
    "config",
    "config-diff",
    "convert",
    "dialects",
    "diff",
    "explain",
    "fix",
    "match",
    "merge",
    "new-rule",
    "passes",
    "payload",
    "ranks",
    "reduce",
    "report",
    "repro",
    "rules",
    "run",
    "server",
    "validate",
)
"""The commands, each the `command` of its module."""


class _Commands(click.Group):
    """Imports a command when it is used; an `HloLintError` becomes one line and exit status 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(LATE)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in LATE:
            module = import_module(f"hlo_lint.apps.cli.{cmd_name.replace('-', '_')}")
            loaded: click.Command = module.command
            return loaded
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is named; an unknown name gets a hint."""
        if args and args[0] not in LATE and not args[0].startswith("-"):
            from hlo_lint.text.errors import nearest

            ctx.fail(f"no command is named {args[0]}: {nearest(args[0], LATE)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        from hlo_lint.text.errors import HloLintError

        try:
            return super().invoke(ctx)
        except HloLintError as error:
            raise _Stop(str(error)) from error
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt as error:
            raise _Ended(_number_of(error)) from None
        except BrokenPipeError:
            raise _Ended(_SIGPIPE) from None
        except MemoryError as error:
            raise _Stop("not enough memory; check fewer files at a time, or --jobs 1") from error
        except OSError as error:
            if error.errno not in _OUTPUT_FAILS:
                raise _internal(error) from error
            raise
        except Exception as error:
            raise _internal(error) from error


class _Stop(click.ClickException):
    exit_code = 2


def _internal(error: Exception) -> Exception:
    if os.environ.get("HLO_LINT_TRACEBACK"):
        return error
    return _Stop(
        f"internal error: {type(error).__name__}: {error}\n"
        "This is a defect of hlo-lint. HLO_LINT_TRACEBACK=1 shows where; please report it "
        "with the file."
    )


class _Signal(KeyboardInterrupt):
    """A signal that ends the program; whatever cleans up after Ctrl-C does so after each."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class _Ended(Exception):
    """The command is over because of a signal, and has cleaned up."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


_BY_SIGNAL = 128
"""Added to the number of a signal, it is the exit status of a program that the signal ended."""
_SIGPIPE = 13
"""Its number, also where the system has no such signal."""
_MESSAGES = {
    "SIGINT": "interrupted",
    "SIGTERM": "terminated",
    "SIGHUP": "the terminal was closed",
}
_OUTPUT_FAILS = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of writing to standard output: files are written by `text.files`, which names them."""


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hlo-lint")
def cli() -> None:
    """Finds what one XLA pass broke for another, in dumped HLO, and fixes it.

    Exit status: 0 clean, 1 at least one error or warning, 2 wrong use or internal error.
    """


def main() -> None:
    """The `hlo-lint` program."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed; no file may get its descriptor, and be printed into
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    for name in _MESSAGES:
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # as of `nohup`
            signal.signal(number, _raise)
    status = _status()
    # Nothing is left to clean up: a signal ends the process at once.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if status > _BY_SIGNAL:
        # The pool of workers, ended at its work, may print a traceback while Python shuts down.
        with suppress(OSError):
            sys.stderr.flush()
        os._exit(status)
    gc.freeze()  # Python's last collection, of all that was read, would take as long as a check
    sys.exit(status)


def _raise(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_DFL)  # the second one is obeyed at once
    raise _Signal(number)


def _status() -> int:
    """Run the command, print why it stopped, and return its exit status."""
    try:
        status = cli.main(prog_name="hlo-lint", standalone_mode=False) or 0
        sys.stdout.flush()
    except click.ClickException as error:
        from hlo_lint.text.source import shown_lines

        error.message = shown_lines(error.message)  # type: ignore[misc]
        error.show()
        return error.exit_code
    except _Ended as ended:
        return _after_signal(ended.number)
    except click.Abort as error:  # click's, of an interrupt while options are read
        return _after_signal(_number_of(error.__cause__))
    except KeyboardInterrupt as error:
        return _after_signal(_number_of(error))
    except SystemExit:  # click's answer to a reader of `--help` that went away
        return _after_signal(_SIGPIPE)
    except BrokenPipeError:
        return _after_signal(_SIGPIPE)
    except OSError as error:
        _discard_output()
        click.echo(f"Error: standard output cannot be written: {error.strerror}", err=True)
        return 2
    return status if isinstance(status, int) else 0


def _number_of(interrupt: BaseException | None) -> int:
    """The signal that an interrupt came from."""
    return interrupt.number if isinstance(interrupt, _Signal) else signal.SIGINT


def _after_signal(number: int) -> int:
    """The exit status that a shell gives a program that the signal ended."""
    if number == _SIGPIPE:
        _discard_output()
    else:
        click.echo(_MESSAGES[signal.Signals(number).name], err=True)
    return _BY_SIGNAL + number


def _discard_output() -> None:
    """Have Python write the rest, which it does as it ends, to nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
