"""`hlo-lint config-diff`: the settings in which two runs differ."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from hlo_lint.apps.cli import common, parameters
from hlo_lint.dumps.directory import open_dump
from hlo_lint.dumps.options import RECORDS, OptionDifference, differences
from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.dumps.selection import by_module
from hlo_lint.text.errors import DumpError
from hlo_lint.text.source import shown


@click.command("config-diff")
@parameters.two_folders
@parameters.json_option
@click.pass_context
def command(ctx: click.Context, before: Path, after: Path, as_json: bool) -> None:
    """Print the flags and settings in which two runs differ.

    A and B are their dumps; the configuration and the target count, too. Modules are paired by
    name.

    Exit status: 0 the same, 1 different, 2 wrong use.
    """
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
        common.print_json(differences=answer)
    else:
        _show(by_difference)
    ctx.exit(1 if by_difference else 0)


def _pairs(before: Path, after: Path) -> Iterable[tuple[Pipeline, Pipeline]]:
    """The modules of both directories that have one name, in the order of the first."""
    sides: list[dict[str, list[Pipeline]]] = []
    for path in (before, after):
        by_name = {
            name: [run for run in runs if any(map(run.artefact_path, RECORDS))]
            for name, runs in by_module(open_dump(path)).items()
        }
        if not any(by_name.values()):
            raise DumpError(f"{path}: no record of flags, configuration or target is in it")
        sides.append({name: runs for name, runs in by_name.items() if runs})
    return common.paired(sides, (before, after))


def _show(by_difference: dict[OptionDifference, list[str]]) -> None:
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
