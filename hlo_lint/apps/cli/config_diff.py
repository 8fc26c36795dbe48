"""`hlo-lint config-diff`: the settings in which two runs differ."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hlo_lint.apps.cli import common, options

if TYPE_CHECKING:
    from hlo_lint.dumps.options import OptionDifference
    from hlo_lint.dumps.pipeline import Pipeline


@click.command("config-diff")
@options.two_folders
@options.json_option
@click.pass_context
def command(ctx: click.Context, before: Path, after: Path, as_json: bool) -> None:
    """Print the flags and settings in which two runs differ.

    A and B are their dumps; the configuration and the target count, too. Modules are paired by
    name.

    Exit status: 0 the same, 1 different, 2 wrong use.
    """
    from hlo_lint.dumps.options import differences

    by_difference: dict[OptionDifference, list[str]] = {}
    for ours, theirs in _pairs(before, after):
        for difference in differences(ours, theirs):
            by_difference.setdefault(difference, []).append(ours.title)
    if as_json:
        answer = [
            {
                "record": difference.record,
                "name": difference.name,
                "before": difference.before,
                "after": difference.after,
                "modules": modules,
            }
            for difference, modules in by_difference.items()
        ]
        click.echo(json.dumps({"version": 1, "differences": answer}, indent=2))
    else:
        _show(by_difference)
    ctx.exit(1 if by_difference else 0)


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


def _show(by_difference: dict[OptionDifference, list[str]]) -> None:
    from hlo_lint.text.source import shown

    if not by_difference:
        click.echo("the same")
    for difference, modules in by_difference.items():
        where = "" if len(modules) == 1 else f" ({len(modules)} modules)"
        click.echo(click.style(f"{difference.record}: {shown(difference.name)}{where}", bold=True))
        for mark, values, colour in (
            ("-", difference.before, "red"),
            ("+", difference.after, "green"),
        ):
            value = ", ".join(map(shown, values)) if values else "not set"
            click.echo(click.style(f"  {mark} {value}", fg=colour))
