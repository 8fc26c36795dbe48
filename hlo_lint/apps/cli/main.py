"""The command line: a command is a module of `hlo_lint.apps.cli`, imported when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from hlo_lint import __version__
from hlo_lint.apps.cli.failures import as_failure

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
    """Imports a command when it is used."""

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
        try:
            return super().invoke(ctx)
        except BaseException as error:
            failure = as_failure(error)
            if failure is error:
                raise
            raise failure from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hlo-lint")
def cli() -> None:
    """Finds what one XLA pass broke for another, in dumped HLO, and fixes it.

    Exit status: 0 clean, 1 at least one error or warning, 2 wrong use or internal error.
    """
