"""`hlo-lint config`: the settings, where they come from, and the schema of the file."""

from __future__ import annotations

import click

from hlo_lint.apps.cli import common, parameters
from hlo_lint.apps.settings.schema import schema_text
from hlo_lint.apps.settings.show import show as shown_settings
from hlo_lint.text.errors import UsageError


@click.command("config")
@click.argument("paths", nargs=-1, metavar="[PATH…]")
@click.option("--show", is_flag=True, help="Print the settings for PATH; this is the default.")
@click.option(
    "--schema", "as_schema", is_flag=True, help="Print the JSON Schema of a settings file."
)
@parameters.settings_options
def command(
    paths: tuple[str, ...], show: bool, as_schema: bool, shared: common.SharedOptions
) -> None:
    """Print the settings for PATH, and where each comes from.

    PATH is the working directory by default. Settings are in hlo_lint.toml, or in
    [tool.hlo_lint] of pyproject.toml.
    """
    if as_schema:
        if show or paths:
            raise UsageError("--schema is the same for every path")
        click.echo(schema_text(), nl=False)
        return
    settings = common.settings_of(paths, shared)
    settings.chosen_rules()
    click.echo(shown_settings(settings), nl=False)
