"""`hlo-lint bisect`: the first pass after which two runs of a program differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hlo_lint.analysis.diff.bisection import Bisection, bisect
from hlo_lint.apps.cli import common, parameters
from hlo_lint.apps.cli.diff import show
from hlo_lint.report.diff import difference_as_dict
from hlo_lint.text.phrases import counted
from hlo_lint.text.source import shown


@click.command("bisect")
@parameters.two_folders
@parameters.module_option
@parameters.all_option
@parameters.output_format("text", "json")
@parameters.color_option
@click.pass_context
def command(
    ctx: click.Context,
    before: Path,
    after: Path,
    module: str | None,
    everything: bool,
    output_format: str,
) -> None:
    """Find the first pass after which two runs differ, and where.

    A and B are dumps of one program.

    Exit status: 0 they never differ, 1 they do, 2 wrong use.
    """
    bisections = [bisect(*pair) for pair in common.pairs_of(before, after, module)]
    if output_format == "json":
        modules = [_as_dict(bisection) for bisection in bisections]
        common.print_json(modules=modules)
    else:
        for bisection in bisections:
            _show(bisection, everything)
    ctx.exit(0 if all(bisection.same for bisection in bisections) else 1)


def _show(bisection: Bisection, everything: bool) -> None:
    title = shown(bisection.before.title)
    if bisection.first is None or bisection.difference is None:
        click.echo(f"{title}: the same after each of {bisection.steps} steps")
    else:
        click.echo(click.style(f"{title}: {shown(bisection.first.title)}", bold=True))
        what = "pass" if bisection.first.pipeline or bisection.first.stage else "dump"
        same = f"; the same after {counted(bisection.steps, 'step')} before it"
        click.echo(f"  the first {what} after which they differ{same if bisection.steps else ''}")
        for side, dump in zip("AB", bisection.compared or (), strict=False):
            click.echo(f"  {side}: {shown(str(dump.path))}")
    for note in bisection.notes:
        click.echo(f"  note: {shown(note)}")
    if bisection.difference is not None:
        show([bisection.difference], everything)
        if bisection.ends_differ is not None:
            click.echo(f"the final modules {'differ' if bisection.ends_differ else 'are the same'}")


def _as_dict(bisection: Bisection) -> dict[str, Any]:
    first = bisection.first
    return {
        "module": bisection.before.title,
        "same": bisection.same,
        "steps": bisection.steps,
        "first": first
        and {
            "pass": first.name,
            "pipeline": first.pipeline,
            "before": first.before and str(first.before.path),
            "after": first.after and str(first.after.path),
        },
        "compared": [str(dump.path) for dump in bisection.compared or ()],
        "ends_differ": bisection.ends_differ,
        "notes": list(bisection.notes),
        "difference": None
        if bisection.difference is None
        else difference_as_dict(bisection.difference),
    }
