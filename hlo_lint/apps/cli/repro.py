"""`hlo-lint repro`: a directory that shows a problem to a maintainer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from hlo_lint.apps.cli import common, parameters
from hlo_lint.apps.cli.reduce import ReduceOptions, reduce_options
from hlo_lint.apps.reduction import Problem, finding_problem, repro_of
from hlo_lint.report.repro import Repro, titles, write_repro
from hlo_lint.rules.pipeline.values_changed import ValuesChanged
from hlo_lint.text.source import shown


@click.command("repro")
@click.argument("path", type=parameters.PATH)
@click.argument("findings", nargs=-1, metavar="RULE[:INSTRUCTION]…")
@parameters.output_option(required=True)
@click.option(
    "--program",
    type=parameters.PATH,
    metavar="FILE",
    help="A program in jax that shows the problem, for the report.",
)
@reduce_options
@parameters.shared_options(parameters.RULES, parameters.FILES, parameters.MODULE)
def command(
    path: Path,
    findings: tuple[str, ...],
    out: Path,
    program: Path | None,
    options: ReduceOptions,
    shared: common.SharedOptions,
) -> None:
    """Write a directory that shows a problem to a maintainer.

    Findings of PATH, a crash or a change of values are reduced first.

    A directory has the module with FileCheck lines, a pytest, a C++ test in the manner of XLA's
    own, a script that compiles it with a released jax, and a bug report. Of several findings each
    gets a directory in that of -o. By default the first error of PATH is taken.
    """
    if findings == (ValuesChanged.name(),):
        options = options._replace(changes_values=True)
    if options.of_xla:
        with options.problem(path, shared.module) as problem:
            repros = [_repro(problem, options)]
    else:
        settings = common.settings_of([str(path)], shared)
        problems = [
            finding_problem(common.open_given([str(path)], settings, shared), finding, settings)
            for finding in findings or (None,)
        ]
        repros = [_repro(problem, options) for problem in problems]
    folders = [out] if len(repros) == 1 else [out / title for title in titles(repros)]
    source = program.read_text("utf-8") if program else ""
    for repro, folder in zip(repros, folders, strict=True):
        files = write_repro(replace(repro, program=source), folder)
        if not options.quiet:
            names = ", ".join(file.name for file in files)
            click.echo(shown(f"{folder}: {repro.size[0]} instructions to {repro.size[1]}: {names}"))


def _repro(problem: Problem, options: ReduceOptions) -> Repro:
    reduction = options.reduced(problem, is_slow=options.of_xla)
    return repro_of(problem, reduction, options.known_release(problem), options.target)
