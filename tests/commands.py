"""The commands and their options, with those of the other distributions of this repository."""

from __future__ import annotations

from collections.abc import Iterator

import click
from click.testing import CliRunner, Result

from hlo_lint.apps.cli import main
from hlo_lint.apps.cli.other_packages import DISTRIBUTIONS

COMMANDS = (*main.COMMANDS, *DISTRIBUTIONS)


def invoke(*words: object, piped: str | bytes | None = None) -> Result:
    """`hlo-lint` with these words, in this process."""
    return CliRunner().invoke(main.cli, [*map(str, words)], input=piped)


def command_of(name: str) -> click.Command:
    """The command of that name."""
    _, command, _ = main.cli.resolve_command(click.Context(main.cli), [name])
    assert isinstance(command, click.Command)
    return command


def options() -> Iterator[tuple[str, click.Option]]:
    """Each option of each command, with the name of the command."""
    for name in COMMANDS:
        for parameter in command_of(name).params:
            if isinstance(parameter, click.Option):
                yield name, parameter
