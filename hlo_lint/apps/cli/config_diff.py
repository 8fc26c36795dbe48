"""`hlo-lint config-diff`: the settings in which two runs differ."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hlo_lint.apps.cli import common

if TYPE_CHECKING:
    from hlo_lint.dumps.options import Difference
    from hlo_lint.dumps.pipeline import Pipeline


@click.command("config-diff")
@click.argument("before", metavar="A", type=click.Path(path_type=Path))
@click.argument("after", metavar="B", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(ctx: click.Context, before: Path, after: Path, as_json: bool) -> None:
    """Print the settings in which the runs with dumps in A and B differ: flags, configuration,
    target. Modules are paired by name.

    Exit status: 0 the same, 1 different, 2 wrong use.
    """
    from hlo_lint.dumps.options import differences

    found: dict[Difference, list[str]] = {}
    for ours, theirs in _pairs(before, after):
        for difference in differences(ours, theirs):
            found.setdefault(difference, []).append(ours.title)
    if as_json:
        said = [
            {
                "record": each.record,
                "name": each.name,
                "before": each.before,
                "after": each.after,
                "modules": modules,
            }
            for each, modules in found.items()
        ]
        click.echo(json.dumps({"version": 1, "differences": said}, indent=2))
    else:
        _show(found)
    ctx.exit(1 if found else 0)


def _pairs(before: Path, after: Path) -> Iterable[tuple[Pipeline, Pipeline]]:
    """The modules of both directories that have one name, in the order of the first."""
    from hlo_lint.dumps.directory import open_dump
    from hlo_lint.dumps.options import RECORDS
    from hlo_lint.dumps.selection import main_pipelines
    from hlo_lint.text.errors import DumpError

    sides: list[dict[str, list[Pipeline]]] = []
    for path in (before, after):
        by_name: dict[str, list[Pipeline]] = {}
        for pipeline in main_pipelines(open_dump(path)):
            if any(pipeline.artefact_path(ending) for ending in RECORDS):
                name = pipeline.dumps[0].name
                by_name.setdefault(name.module if name else "", []).append(pipeline)
        if not by_name:
            raise DumpError(f"{path}: no record of flags, configuration or target is in it")
        sides.append(by_name)
    return common.paired(sides, (before, after))


def _show(found: dict[Difference, list[str]]) -> None:
    from hlo_lint.text.source import shown

    if not found:
        click.echo("the same")
    for each, modules in found.items():
        where = "" if len(modules) == 1 else f" ({len(modules)} modules)"
        click.echo(click.style(f"{each.record}: {shown(each.name)}{where}", bold=True))
        for mark, values, colour in (("-", each.before, "red"), ("+", each.after, "green")):
            value = ", ".join(map(shown, values)) if values else "not set"
            click.echo(click.style(f"  {mark} {value}", fg=colour))
