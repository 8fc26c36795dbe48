"""`hlo-lint passes`: the changes that each pass of a compilation made."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import click

from hlo_lint.analysis.pass_stats import Effect, PassStats, passes, stats_as_dict
from hlo_lint.apps.cli import common, parameters
from hlo_lint.apps.cli.tables import print_table, terminal_width
from hlo_lint.dumps.artefacts.measured import find_measured
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.directory import open_dump
from hlo_lint.dumps.selection import main_compilations, only_module
from hlo_lint.engine.cost_figures import measured_kernels
from hlo_lint.report.costs import MAX_MEASURED, kernel_as_dict, measured_table
from hlo_lint.text.errors import DumpError
from hlo_lint.text.phrases import counted
from hlo_lint.text.source import shown

COLUMNS = ("step", "pipeline", "pass", "changed", "bytes", "fusions", "ms", "instructions")
NUMBERS = ("step", "fusions", "ms")


@click.command("passes")
@click.argument("folder", metavar="DIR", type=parameters.PATH)
@parameters.module_option
@click.option("--changed", is_flag=True, help="Print only the passes that changed the graph.")
@parameters.output_format("text", "json")
@parameters.color_option
def command(folder: Path, module: str | None, changed: bool, output_format: str) -> None:
    """Print the changes by each pass: instructions, bytes, time.

    `changed` is `names` where only names differ from the dump before. Bytes are those of arrays
    that come or go outside fusions. Without times of XLA (`--xla_dump_module_metadata`), `ms` is
    the time between the files, as long as they lie where XLA wrote them. A profile in DIR
    (`*.xplane.pb`, of `jax.profiler.trace`) adds the measured time of the final instructions.
    """
    compilations = main_compilations(only_module(open_dump(folder), module, [folder]))
    if not compilations:
        raise DumpError(f"{folder}: no compiler's dumps are in it")
    runs: list[tuple[Compilation, list[PassStats]]] = []
    for compilation in compilations:
        steps = list(passes(compilation))
        if changed:
            steps = [step for step in steps if step.effect in (Effect.FIRST, Effect.CHANGED)]
        runs.append((compilation, steps))
    profile = find_measured(folder)
    measured = [
        measured_kernels(compilation, profile) if profile is not None else []
        for compilation, _ in runs
    ]
    if output_format == "json":
        modules = [
            {
                "module": compilation.title,
                "passes": [stats_as_dict(step) for step in steps],
                "measured": [kernel_as_dict(kernel) for kernel in kernels],
            }
            for (compilation, steps), kernels in zip(runs, measured, strict=True)
        ]
        common.print_json(modules=modules)
        return
    for number, ((compilation, steps), kernels) in enumerate(zip(runs, measured, strict=True)):
        if number:
            click.echo()
        _show(compilation, [_row(step) for step in steps])
        if not compilation.pass_runs and any(step.microseconds for step in steps):
            click.echo("ms: between two files of the dump, with the time to write the second")
        if kernels:
            click.echo()
            print_table([tuple(map(shown, row)) for row in measured_table(kernels)], right=(0, 1))
            if (left := len(kernels) - MAX_MEASURED) > 0:
                click.echo(f"and {counted(left, 'instruction')} more (--output-format json)")


def _row(step: PassStats) -> tuple[str, ...]:
    counts = [f"+{count} {opcode}" for opcode, count in step.added.items()]
    counts += [f"-{count} {opcode}" for opcode, count in step.removed.items()]
    sizes = [
        f"{sign}{_bytes(size)}"
        for sign, size in (("+", step.bytes_added), ("-", step.bytes_removed))
        if size
    ]
    time = "" if step.microseconds is None else f"{step.microseconds / 1000:.1f}"
    if step.effect is Effect.FIRST:
        counts = [f"{step.instructions} in all"]
    return (
        "" if step.number is None else f"{step.number:04d}",
        step.pipeline,
        step.name,
        "" if step.effect is Effect.FIRST else step.effect.value,
        " ".join(sizes),
        str(step.fusions or ""),
        time,
        ", ".join(counts),
    )


def _bytes(size: int) -> str:
    """At most four digits: `640`, `12.3K`, `4.0M`."""
    value, unit = float(size), ""
    for unit in ("", "K", "M", "G", "T"):
        if value < 1024 or unit == "T":
            break
        value /= 1024
    return f"{size}" if not unit else f"{value:.1f}{unit}"


def _show(compilation: Compilation, rows: Sequence[tuple[str, ...]]) -> None:
    """Print the table; on a terminal, each pipeline of passes has its own, to save a column."""
    rows = [tuple(map(shown, row)) for row in rows]
    click.echo(click.style(shown(compilation.title), bold=True))
    if not terminal_width():
        print_table([COLUMNS, *rows], right=[COLUMNS.index(name) for name in NUMBERS])
        return
    columns = [name for name in COLUMNS if name != "pipeline"]
    right = [columns.index(name) for name in NUMBERS]
    for name, group in groupby(rows, key=itemgetter(1)):
        steps = [(row[0], *row[2:]) for row in group]
        if name:
            click.echo()
            click.echo(click.style(name, bold=True))
        unchanged = [number for number, row in enumerate(steps, 1) if row[2] != "yes"]
        print_table([columns, *steps], right=right, dim=unchanged)
