"""`hlo-lint config`: the settings, with the file that each comes from."""

from __future__ import annotations

from collections.abc import Iterator

import click

from hlo_lint.apps.cli import common, parameters
from hlo_lint.apps.settings.keys import ALLOWANCE, KEYS, schema_text
from hlo_lint.apps.settings.settings import OFF, Settings
from hlo_lint.apps.settings.toml import as_toml
from hlo_lint.text.errors import UsageError
from hlo_lint.text.source import shown


@click.command("config")
@click.argument("paths", nargs=-1, metavar="[PATH…]")
@click.option("--show", is_flag=True, expose_value=False, help="Print the settings (the default).")
@click.option(
    "--schema", "as_schema", is_flag=True, help="Print the JSON Schema of a settings file."
)
@parameters.shared_options(
    parameters.RULES, parameters.FINDINGS, parameters.FILES, parameters.STDIN
)
def command(paths: tuple[str, ...], as_schema: bool, shared: common.SharedOptions) -> None:
    """Print the settings for PATH, and where each comes from.

    PATH is the working directory by default. Settings are in hlo_lint.toml, or in
    [tool.hlo_lint] of pyproject.toml.
    """
    if as_schema:
        if paths:
            raise UsageError("--schema is the same for every path")
        click.echo(schema_text(), nl=False)
        return
    settings = common.settings_of(paths, shared)
    settings.chosen_rules()
    click.echo(settings_text(settings), nl=False)


def settings_text(settings: Settings) -> str:
    """Every setting in the syntax of a settings file; a setting without a value is a comment."""
    return "\n".join(_lines(settings)) + "\n"


def _lines(settings: Settings) -> Iterator[str]:
    file = settings.file
    yield f"# file: {shown(str(file.resolve())) if file is not None else 'none'}"
    for key in KEYS:
        value = getattr(settings, key.attribute)
        match key.name:
            case "jobs" if value is None:
                value = "auto"
            case "severity":
                value = {name: OFF if level is None else level for name, level in value.items()}
            case "allow":
                value = [
                    {
                        name: field
                        for name in ALLOWANCE
                        if (field := getattr(entry, name)) is not None
                    }
                    for entry in settings.allow
                ]
        if value is None:
            yield f"# {key.name} is not set"
        else:
            yield f"{key.name} = {as_toml(value)}  # {shown(settings.origin(key.attribute))}"
