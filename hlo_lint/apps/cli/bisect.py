"""`hlo-lint bisect`: the first pass after which two runs of a program differ."""

from __future__ import annotations

from collections.abc import Sequence
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
@click.argument("runs", nargs=-1, required=True, metavar="A B", type=parameters.PATH)
@click.option(
    "--runs",
    "of_runs",
    is_flag=True,
    help="List what the bad runs chose, and no good one: A B … and --bad C --bad D.",
)
@click.option(
    "--bad", multiple=True, type=parameters.PATH, metavar="RUN", help="A bad run (repeatable)."
)
@parameters.module_option
@parameters.all_option
@parameters.output_format("text", "json")
@parameters.color_option
@click.pass_context
def command(
    ctx: click.Context,
    runs: tuple[Path, ...],
    of_runs: bool,
    bad: tuple[Path, ...],
    module: str | None,
    everything: bool,
    output_format: str,
) -> None:
    """Find the first pass after which two runs differ, and where.

    A and B are dumps of one program. With --runs there may be more: the choices that all bad runs
    made, and no good one, are listed, results of the autotuner first.

    Exit status: 0 they never differ, 1 they do, 2 wrong use.
    """
    if of_runs or bad:
        ctx.exit(_show_choices([run for run in runs if run not in bad], bad, module, output_format))
    if len(runs) != 2:
        raise click.UsageError("two runs are compared; --runs takes more")
    before, after = runs
    bisections = [bisect(*pair) for pair in common.pairs_of(before, after, module)]
    if output_format == "json":
        modules = [_as_dict(bisection) for bisection in bisections]
        common.print_json(modules=modules)
    else:
        for bisection in bisections:
            _show(bisection, everything)
    ctx.exit(0 if all(bisection.same for bisection in bisections) else 1)


def _show_choices(
    good: Sequence[Path], bad: Sequence[Path], module: str | None, output_format: str
) -> int:
    """Print the choices of the bad runs; 1 if there are any."""
    from hlo_lint.analysis.diff.run_choices import choices_of_bad

    if not (good and bad):
        raise click.UsageError("--runs needs good runs, and bad ones: --bad RUN")
    sides = [[common.runs_by_module(run, module) for run in runs] for runs in (good, bad)]
    names = set.intersection(*(set(run) for side in sides for run in side))
    if not names:
        raise click.UsageError("no module is in all runs")
    by_module = {
        name: choices_of_bad(*([run[name][0] for run in side] for side in sides))
        for name in sorted(names)
    }
    if output_format == "json":
        modules = [
            {"module": name, "choices": [choice._asdict() for choice in choices]}
            for name, choices in by_module.items()
        ]
        common.print_json(modules=modules)
        return int(any(by_module.values()))
    for name, choices in by_module.items():
        total = counted(len(choices), "choice")
        click.echo(shown(f"{name}: {total} of all {len(bad)} bad runs and of no good run"))
        for choice in choices:
            click.echo(shown(f"  {choice.kind} {choice.subject}: {choice.bad or 'none'}"))
            click.echo(shown(f"    good: {'; '.join(other or 'none' for other in choice.good)}"))
    return int(any(by_module.values()))


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
