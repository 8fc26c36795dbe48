"""`hlo-lint capture`: a check of a program for a chip that need not be present."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import click

from hlo_lint.apps.cli import common, parameters
from hlo_lint.apps.cli.tables import print_table
from hlo_lint.apps.jax.capture.children import Job
from hlo_lint.apps.jax.capture.comparison import (
    ProgramTrials,
    Question,
    ValuesVerdict,
    Winner,
    compare_releases,
)
from hlo_lint.apps.jax.capture.jit import empty_folder, for_one_compile
from hlo_lint.apps.jax.capture.targets import target_of
from hlo_lint.hlo.parser.literals import numpy_name
from hlo_lint.hlo.shape import ArrayShape, Shape, ShapeSyntaxError, TupleShape, parse_shape
from hlo_lint.report.text import hidden_line, print_text, summary
from hlo_lint.text.errors import UsageError
from hlo_lint.text.source import shown
from hlo_lint.xla.environments import (
    Interpreter,
    Platform,
    check_release,
    environment_of,
    interpreter_at,
    with_packages,
)

BACKENDS = ("default", "cublaslt")


@click.command("capture")
@click.argument("script", metavar="SCRIPT.py[:FUNCTION]")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENT…]")
@parameters.target_option(required=True)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="SHAPE",
    help="An argument of FUNCTION, as HLO spells it: 'f16[2,128]' (repeatable, in order).",
)
@parameters.release_option("releases", multiple=True)
@parameters.python_option("pythons", multiple=True)
@click.option(
    "--with",
    "packages",
    multiple=True,
    metavar="PACKAGE",
    help="Install a package that the script imports beside jax, in an environment of its own "
    "(repeatable).",
)
@click.option(
    "--backend",
    "backends",
    multiple=True,
    type=click.Choice(BACKENDS),
    default=BACKENDS,
    show_default=True,
    help="The backend for GEMMs whose backend the autotuner chooses (repeatable).",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of XLA: xla_gpu_enable_triton_gemm=false (repeatable).",
)
@click.option(
    "--keep",
    type=parameters.PATH,
    metavar="DIR",
    help="Keep the dumps in this folder, which must be empty or not exist.",
)
@click.option(
    "--values/--no-values",
    "runs",
    default=True,
    show_default=True,
    help="Run the module before and after optimization on the CPU, and compare the values.",
)
@parameters.seconds_option(default=60, show_default=True)
@parameters.shared_options(parameters.RULES, parameters.FINDINGS)
@parameters.output_format("text", "json")
@parameters.verbose_option
@parameters.color_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    script: str,
    arguments: tuple[str, ...],
    target: str,
    shapes: tuple[str, ...],
    releases: tuple[str, ...],
    pythons: tuple[str, ...],
    packages: tuple[str, ...],
    backends: tuple[str, ...],
    options: tuple[str, ...],
    keep: Path | None,
    runs: bool,
    seconds: float,
    output_format: str,
    verbose: bool,
    shared: common.SharedOptions,
) -> None:
    """Compile for a GPU or a TPU that need not be present, and check.

    SCRIPT:FUNCTION is compiled, or all that SCRIPT jits: with each --jax and --python, else with
    the jax of hlo-lint. A TPU may have a topology: v5e:4x4.

    The arguments of FUNCTION come from --shape, from `example_args` in the script, or, if it takes
    none, from what it returns: a function and its arguments. Without FUNCTION the script runs on
    the CPU, with the ARGUMENTs; each function that it jits is compiled for the shapes it was called
    with.

    Nothing is timed, so for a GPU both choices of the autotuner are compiled: XLA's first choice,
    and cuBLASLt.

    Exit status: 0 if all compile without findings, 1 otherwise, 2 wrong use.
    """
    job = _job(script, arguments, shapes, target, options)
    winners = [winner for winner in Winner if winner.value.lower() in backends]
    if job.target.is_tpu:
        winners = [Winner.DEFAULT]  # XLA:TPU has one backend for GEMMs, and no autotuner
    settings = for_one_compile(common.settings_of([str(job.script)], shared))
    question = Question(job, winners, settings, seconds if runs else 0)
    interpreters = _interpreters(job, releases, pythons, packages)
    is_kept = keep is not None
    temporary = partial(tempfile.TemporaryDirectory, ignore_cleanup_errors=True)
    with nullcontext(f"{empty_folder(keep)}") if keep else temporary(prefix="hlo_lint_") as folder:
        with common.status_line(line_after=common.LINE_AFTER) as progress:
            comparisons = compare_releases(
                question, interpreters, Path(folder), progress, keep=is_kept
            )
        if output_format == "json":
            programs = [_as_dict(comparison, is_kept) for comparison in comparisons]
            common.print_json(target=target, programs=programs)
        else:
            for number, comparison in enumerate(comparisons):
                if number:
                    click.echo()
                _show(comparison, has_winners=not job.target.is_tpu, verbose=verbose)
            _show_left_out(comparisons, seconds)
    ctx.exit(0 if all(comparison.clean for comparison in comparisons) else 1)


def _job(
    script: str,
    arguments: Sequence[str],
    shapes: Sequence[str],
    target: str,
    options: Sequence[str],
) -> Job:
    path, colon, function = script.rpartition(":")
    if not colon or not function.isidentifier():
        path, function = script, ""
    if not Path(path).is_file():
        raise UsageError(f"{path}: no such file; a script is wanted, as in model.py:step")
    if shapes and not function:
        raise UsageError("--shape says what a function takes: name one, as in model.py:step")
    if arguments and function:
        raise UsageError("arguments are for a script that is run; give --shape for a function")
    pairs = [option.removeprefix("--").partition("=") for option in options]
    for name, equals, _ in pairs:
        if not equals:
            raise UsageError(f"--option {name} has no value; give NAME=VALUE")
    return Job(
        script=Path(path),
        function=function or None,
        shapes=[_shape(shape) for shape in shapes] if shapes else None,
        arguments=arguments,
        target=target_of(target),
        # XLA reads numbers and names from text, but not true and false.
        options={
            name: {"true": True, "false": False}.get(value.lower(), value)
            for name, _, value in pairs
        },
    )


def _shape(text: str) -> Any:
    def spelled(shape: Shape) -> Any:
        match shape:
            case TupleShape(elements=elements) if elements:
                return [spelled(element) for element in elements]
            case ArrayShape() if numpy_name(shape.dtype) and not any(shape.dynamic):
                return [numpy_name(shape.dtype), list(shape.dims)]
            case _:
                raise UsageError(f"--shape {text}: {shape} is not an argument of a jax function")

    try:
        return spelled(parse_shape(text))
    except ShapeSyntaxError as error:
        place = f"{error.message} at column {error.offset + 1}"
        raise UsageError(f"--shape {text}: {place}; a shape is as in f16[2,128]") from error


def _interpreters(
    job: Job, releases: Sequence[str], pythons: Sequence[str], packages: Sequence[str]
) -> list[Interpreter]:
    announce = partial(click.echo, err=True)
    platform = Platform.TPU if job.target.is_tpu else Platform.GPU
    chosen = list(dict.fromkeys(releases))
    for release in chosen:
        check_release(release, platform)
    interpreters = [environment_of(release, announce, platform) for release in chosen]
    interpreters += [interpreter_at(path) for path in dict.fromkeys(pythons)]
    interpreters = interpreters or [interpreter_at(sys.executable)]
    if packages:
        return [with_packages(python, packages, announce) for python in interpreters]
    return interpreters


def _show(comparison: ProgramTrials, *, has_winners: bool, verbose: bool) -> None:
    print_text(common.console(), list(comparison.findings()), verbose=verbose)
    reports = [trial.report for trial in comparison.trials if trial.report is not None]
    hidden = {
        (finding.rule, finding.message): finding for report in reports for finding in report.hidden
    }
    if hidden:
        click.echo(hidden_line(list(hidden.values())))
    rows: list[tuple[str, ...]] = [("jax", "GEMM backend", "outcome", "values", "findings")]
    for trial in comparison.trials:
        findings = "" if trial.report is None else summary(trial.report).partition(" in ")[0]
        values = "" if trial.values is None else trial.values.value
        rows.append((trial.jax, trial.winner.value, trial.state.value, values, findings))
    if not has_winners:
        rows = [(jax, *rest) for jax, _, *rest in rows]
    print_table(rows)
    for trial in comparison.trials:
        if trial.message:
            reason = shown(trial.message.splitlines()[0])
            click.echo(f"{trial.title}: {trial.state.value}: {reason}")
        if trial.values_note:
            click.echo(f"{trial.title}: values not run: {shown(trial.values_note)}")
    click.echo(click.style(shown(comparison.verdict), bold=True))


def _show_left_out(comparisons: Sequence[ProgramTrials], seconds: float) -> None:
    """The programs for whose values there was no time."""
    left_out = [
        f"{trial.program} ({trial.title})"
        for comparison in comparisons
        for trial in comparison.trials
        if trial.values is ValuesVerdict.NO_TIME
    ]
    if left_out:
        names = shown(", ".join(left_out))
        click.echo(f"values not compared: {names}: {seconds:g} s were over (--seconds)")


def _as_dict(comparison: ProgramTrials, is_kept: bool) -> dict[str, Any]:
    return {
        "name": comparison.program,
        "verdict": comparison.verdict,
        "trials": [
            {
                "jax": trial.jax,
                "backend": trial.winner.value,
                "outcome": trial.state.value,
                "message": trial.message or None,
                "values": trial.values and trial.values.value,
                "values_note": trial.values_note or None,
                "dump": str(trial.folder) if is_kept and trial.folder else None,
                "report": trial.report and json.loads(trial.report.to_json()),
            }
            for trial in comparison.trials
        ],
    }
