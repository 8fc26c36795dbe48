"""`hlo-lint config`: the settings, where they come from, and the schema of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from hlo_lint.apps.cli import common, parameters
from hlo_lint.apps.settings.keys import ALLOWANCE, KEYS, schema_text
from hlo_lint.apps.settings.settings import OFF, Settings
from hlo_lint.apps.settings.toml import as_toml, key_of
from hlo_lint.text.errors import UsageError
from hlo_lint.text.source import shown


@click.command("config")
@click.argument("paths", nargs=-1, metavar="[PATH…]")
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
    tables = []
    for key in KEYS:
        value = getattr(settings, key.attribute)
        if key.name == "jobs" and value is None:
            value = "auto"
        if key.name == "allow":
            value = [
                {name: field for name in ALLOWANCE if (field := getattr(entry, name)) is not None}
                for entry in settings.allow
            ]
        origin = shown(settings.origin(key.attribute))
        if value is None:
            yield f"# {key.name} is not set"
        elif isinstance(value, Mapping) and value:
            tables.append((key.name, value, origin))
        else:
            yield f"{key.name} = {as_toml(value)}  # {origin}"
    for name, value, origin in tables:
        yield from _table(name, value, origin)


def _table(name: str, table: Mapping[str, object], origin: str) -> Iterator[str]:
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    if len(inner) < len(table):
        yield f"\n[{name}]  # {origin}"
    for key, value in table.items():
        if key not in inner:
            yield f"{key_of(key)} = {as_toml(OFF if value is None else value)}"
    for key, value in inner.items():
        yield from _table(f"{name}.{key_of(key)}", value, origin)
