"""The command line: a command is a module of `hlo_lint.apps.cli`, imported when it is used.

Other packages may add commands: `hlo_lint.apps.cli.other_packages`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from hlo_lint import __version__
from hlo_lint.apps.cli.failures import as_failure
from hlo_lint.text.errors import UsageError, nearest

GROUPS = {
    "Find and fix": ("check", "fix", "report", "match"),
    "What the passes did": ("passes", "diff", "bisect", "compare", "validate", "ranks"),
    "Run, compile and reduce": ("exec", "capture", "run", "reduce", "repro"),
    "Rules and settings": ("rules", "explain", "config", "example"),
}
"""The commands that people type, by task; each is the `command` of its module."""
FOR_PROGRAMS = ("server", "cache", "payload", "new-rule")
"""Commands for editors, shells and scripts, which the help only names."""
COMMANDS = (*(name for names in GROUPS.values() for name in names), *FOR_PROGRAMS)


def _other_names() -> Sequence[str]:
    from hlo_lint.apps.cli.other_packages import command_names

    return command_names(COMMANDS)


def _known_names() -> set[str]:
    """The names of all commands, also of those that are not installed."""
    from hlo_lint.apps.cli.other_packages import DISTRIBUTIONS

    return {*COMMANDS, *_other_names(), *DISTRIBUTIONS}


def _other_command(name: str) -> click.Command | None:
    from hlo_lint.apps.cli.other_packages import command_of

    return command_of(name)


class _Commands(click.Group):
    """Imports a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted((*COMMANDS, *_other_names()))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command with only its help, as lists show it: importing all commands takes long."""
        if cmd_name not in COMMANDS:
            try:
                return _other_command(cmd_name)
            except UsageError as error:
                return click.Command(cmd_name, help=str(error))
        import ast

        source = Path(__file__).with_name(f"{cmd_name.replace('-', '_')}.py").read_text("utf-8")
        tree = ast.parse(source)
        (function,) = (
            node
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and node.name == "command"
        )
        return click.Command(cmd_name, help=ast.get_docstring(function))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by group with the first sentence of their help, then the others."""
        groups: dict[str, Sequence[str]] = {**GROUPS}
        if others := _other_names():
            groups["Of other packages"] = others
        column = max(len(name) for names in groups.values() for name in names)
        for title, names in groups.items():
            commands = [command for name in names if (command := self.get_command(ctx, name))]
            rows = [
                (name.ljust(column), command.get_short_help_str(formatter.width - column - 4))
                for name, command in zip(names, commands, strict=True)
            ]
            with formatter.section(title):
                formatter.write_dl(rows)
        formatter.write_paragraph()
        formatter.write_text(f"For editors, shells and scripts: {', '.join(FOR_PROGRAMS)}.")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is named; an unknown name gets a hint."""
        name = args[0]
        if name in COMMANDS:
            module = import_module(f"{__package__}.{name.replace('-', '_')}")
            return name, module.command, args[1:]
        if not name.startswith("-"):
            if other := _other_command(name):
                return name, other, args[1:]
            ctx.fail(f"no command is named {name}: {nearest(name, _known_names())}")
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

    Exit status: 0 clean, 1 an error or a warning, 2 wrong use or a crash.
    """
