"""Commands of other packages, found through the entry-point group `hlo_lint.commands`.

    [project.entry-points."hlo_lint.commands"]
    hunt = "hlo_lint_hunt.command:command"

The value names a command of click, the entry point's name is its word on the command line. The
commands of this package take precedence.
"""

from __future__ import annotations

from collections.abc import Container

import click

from hlo_lint.rules.plugins import plugin_entries, plugin_title
from hlo_lint.text.errors import UsageError

GROUP = "hlo_lint.commands"
DISTRIBUTIONS = {"hunt": "hlo-lint-hunt"}
"""Commands that are distributions of this project, by name."""


def command_names(own: Container[str]) -> list[str]:
    """The names of all commands of other packages, less those of this package."""
    names = dict.fromkeys(entry.name for entry in plugin_entries(GROUP))
    return [name for name in names if name not in own]


def command_of(name: str) -> click.Command | None:
    """The command of another package; None if no package has it.

    Raises:
        UsageError: it cannot be imported, or is not installed, or two packages have it.
    """
    entries = [entry for entry in plugin_entries(GROUP) if entry.name == name]
    if not entries:
        if name in DISTRIBUTIONS:
            distribution = DISTRIBUTIONS[name]
            raise UsageError(f"{name} is a distribution of its own: pip install {distribution}")
        return None
    titles = [plugin_title(entry) for entry in entries]
    if len(entries) > 1:
        raise UsageError(f"two packages have a command {name}: {' and '.join(titles)}")
    try:
        command = entries[0].load()
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise UsageError(
            f"{titles[0]} cannot be imported: {reason}; repair or uninstall the package"
        ) from error
    if not isinstance(command, click.Command):
        raise UsageError(f"{titles[0]} must name a command of click")
    return command
