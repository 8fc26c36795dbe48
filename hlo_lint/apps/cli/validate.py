"""`hlo-lint validate`: the first pass that changes the values of a module."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from hlo_lint.apps.cli import common, parameters
from hlo_lint.apps.cli.printing import print_validations
from hlo_lint.apps.validation import ValidationResult, validate
from hlo_lint.dumps.directory import Dump
from hlo_lint.report.formats import FORMATS, render
from hlo_lint.report.text import print_text
from hlo_lint.text.errors import DumpError


@click.command("validate")
@parameters.paths_argument
@click.option(
    "--against",
    type=click.Path(path_type=Path, exists=True),
    metavar="DUMP",
    help="Compare with another run of the same programs, after each step that both have.",
)
@parameters.inputs_option
@parameters.show_inputs_option
@click.option(
    "--all-steps", is_flag=True, help="Run every step; by default bisection finds the first change."
)
@click.option(
    "--seeds",
    type=click.IntRange(1, parameters.MAX_COUNT),
    default=2,
    show_default=True,
    help="The number of sets of inputs: of both signs, positive, negative, and so on.",
)
@click.option(
    "--kernels",
    is_flag=True,
    help="Compile each kernel of the final modules alone, and judge the results of those that run.",
)
@parameters.release_option("release")
@parameters.python_option("python")
@parameters.target_option()
@click.option("--on-gpu", is_flag=True, help="Run the kernels on the GPU of this machine.")
@parameters.seconds_option()
@click.option(
    "--memory",
    type=click.IntRange(1, parameters.MAX_COUNT),
    envvar="HLO_LINT_XLA_MEMORY",
    default=8192,
    show_default=True,
    metavar="MB",
    help="Memory that a child process may map.",
)
@parameters.jobs_option
@parameters.output_format(*FORMATS, "html", default=None, envvar="HLO_LINT_OUTPUT_FORMAT")
@parameters.report_output
@parameters.verbose_option
@parameters.color_option
@parameters.shared_options(parameters.FILES, parameters.MODULE, parameters.ALLOW_EMPTY)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    memory: int,
    jobs: int | None,
    output_format: str | None,
    output: Path | None,
    verbose: bool,
    show_inputs: bool,
    shared: common.SharedOptions,
    kernels: bool,
    release: str | None,
    python: str | None,
    target: str | None,
    on_gpu: bool,
    **options: Any,
) -> None:
    """Find the first pass that changes the values of a module.

    The dumps of each compilation run on the same inputs, on the CPU, with the installed jaxlib. A
    program may take 60 seconds; without --seconds there is no limit for all of them.

    With --kernels each kernel of the final modules is compiled alone, by the release that wrote the
    dump if that is here, and judged by XLA:CPU without its passes.

    Exit status: 0 nothing changed, 1 a pass or a kernel changed the values, 2 wrong use, or nothing
    to compare.
    """
    settings = common.settings_of(paths, shared)
    output_format = output_format or settings.output_format
    dump = common.open_given(paths, settings, shared)
    if not kernels and (release or python or target or on_gpu):
        raise click.UsageError("--jax, --python, --target and --on-gpu go with --kernels")
    if kernels:
        from hlo_lint.apps.cli.kernel_table import print_kernels_as_json, show_kernels
        from hlo_lint.apps.isolation import judged_kernels

        with common.status_line() as note:
            compilations = judged_kernels(
                dump,
                seconds=options["seconds"],
                memory=memory << 20,
                note=note,
                release=release,
                python=python,
                chip=target,
                on_gpu=on_gpu,
            )
            if output_format == "json":
                ctx.exit(print_kernels_as_json(compilations) > 0)
            ctx.exit(show_kernels(compilations, verbose=verbose) > 0)
    with common.status_line() as note:
        result = validate(
            dump,
            memory=memory << 20,
            jobs=jobs or os.cpu_count() or 1,
            settings=settings,
            note=note,
            **options,
        )
    if output_format == "text" and output is None:
        if result.report.findings:  # rich takes 0.1 s to import
            print_text(common.console(), result.report.findings, verbose=verbose)
        print_validations(result.validations, show_inputs=show_inputs)
    else:
        opened = common.open_given(paths, settings, shared)
        common.write_output(_rendered(result, output_format, opened, paths[0]), output)
    if not (result.validations or shared.allow_empty):
        raise DumpError(
            f"nothing compared: no compilation of {', '.join(paths)} has two dumps "
            f"({common.DUMP_EACH_PASS})"
        )
    ctx.exit(result.report.exit_status)


def _rendered(result: ValidationResult, output_format: str, dump: Dump, title: str) -> str:
    if output_format == "html":
        from hlo_lint.report.html.page import render_html

        return render_html(dump, result.report, title=title, sources=())
    return render(
        result.report, output_format, lambda line: click.echo(f"hlo-lint: {line}", err=True)
    )
