"""The commands and their options."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import click

from hlo_lint.apps.cli.main import COMMANDS


def command_of(name: str) -> click.Command:
    """The command of that name."""
    command = import_module(f"hlo_lint.apps.cli.{name.replace('-', '_')}").command
    assert isinstance(command, click.Command)
    return command


def options() -> Iterator[tuple[str, click.Option]]:
    """Each option of each command, with the name of the command."""
    for name in COMMANDS:
        for parameter in command_of(name).params:
            if isinstance(parameter, click.Option):
                yield name, parameter
