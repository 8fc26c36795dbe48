"""The command line: a command is a module of `hlo_lint.apps.cli`, imported when it is used."""

from __future__ import annotations

import gc
import os
import signal
import sys
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
    "config",
    "config-diff",
    "convert",
    "dialects",
    "diff",
    "explain",
    "fix",
    "match",
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
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(128 + signal.SIGINT)  # as a shell reports a program that Ctrl-C ended
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if os.environ.get("HLO_LINT_TRACEBACK"):
                raise
            raise _Stop(
                f"internal error: {type(error).__name__}: {error}\n"
                "This is a defect of hlo-lint. HLO_LINT_TRACEBACK=1 shows where; please report it "
                "with the file."
            ) from error


class _Stop(click.ClickException):
    exit_code = 2


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hlo-lint")
def cli() -> None:
    """Finds what one XLA pass broke for another, in dumped HLO, and fixes it.

    Exit status: 0 clean, 1 at least one error or warning, 2 wrong use or internal error.
    """


def main() -> None:
    """The `hlo-lint` program."""
    gc.disable()  # one short run: what is read lives until the report, and nothing makes cycles
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        cli(prog_name="hlo-lint")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)
