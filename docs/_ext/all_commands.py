"""Every command of `hlo-lint`, imported: sphinx-click sees none that is imported when asked for."""

from __future__ import annotations

import click

from hlo_lint.apps.cli.main import cli as lazy

_context = click.Context(lazy)
cli = click.Group(
    lazy.name,
    help=lazy.help,
    params=lazy.params,
    commands=[
        command
        for name in lazy.list_commands(_context)
        if (command := lazy.resolve_command(_context, [name])[1]) is not None
    ],
)
