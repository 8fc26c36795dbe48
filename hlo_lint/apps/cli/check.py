"""`hlo-lint check`: reports defects in HLO."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hlo_lint.apps.api import lint
from hlo_lint.apps.cli import common, parameters, printing
from hlo_lint.engine.input_size import automatic_jobs
from hlo_lint.text.errors import UsageError
from hlo_lint.text.source import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlo_lint.apps.settings.settings import Settings
    from hlo_lint.dumps.directory import Dump
    from hlo_lint.report.report import Report


_WIDTH = 200
MAX_FINDINGS = 1000
"""Number of findings of a rule in a file that are reported, unless the settings say otherwise."""


@click.command("check")
@parameters.dump_argument
@parameters.check_options
@parameters.gathered("options", printing.ReportOptions, parameters.report_options)
@click.option(
    "--strict",
    is_flag=True,
    help="Report what XLA's own parser refuses: that of the installed jaxlib, or of --jax.",
)
@click.option(
    "--ask-xla",
    is_flag=True,
    help="Report what XLA's own compiler refuses in the last module, without the chip: that of the "
    "release that wrote the dump, or of --jax.",
)
@click.option("--step", metavar="STEP", help="The step that --ask-xla compiles: a number, a pass.")
@parameters.target_option("chip")
@parameters.release_option("jax")
@parameters.resolved_option
@click.option(
    "--blame",
    is_flag=True,
    help="Print the history of each finding: the pass that introduced it, and the pass that "
    "resolved it. Implies --resolved.",
)
@parameters.jobs_option
@click.option(
    "--executor",
    metavar="dask://…",
    help="Check on the workers of a Dask cluster: dask://HOST:PORT.",
)
@click.option(
    "--write-baseline",
    type=parameters.PATH,
    metavar="FILE",
    help="Write all findings to this file, for --baseline; keep the reasons in it.",
)
@click.option(
    "--prune-baseline",
    type=parameters.PATH,
    metavar="FILE",
    help="Remove the findings that are gone from this baseline; add none.",
)
@click.option(
    "--log",
    type=parameters.PATH,
    metavar="FILE",
    help="Also explain this log of the run, as `hlo-lint explain FILE DUMP` does; by default a log "
    "in the folder of the dump, or DIR.log beside it. Text output only.",
)
@parameters.exit_zero_option
@parameters.quiet_option
@parameters.verbose_option
@click.option(
    "--show-files", is_flag=True, help="Print the files that would be read, and check nothing."
)
@click.option("--watch", is_flag=True, help="Check again whenever a file changes; Ctrl-C ends it.")
@parameters.color_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    strict: bool,
    ask_xla: bool,
    step: str | None,
    chip: str | None,
    write_baseline: Path | None,
    prune_baseline: Path | None,
    exit_zero: bool,
    show_files: bool,
    watch: bool,
    options: printing.ReportOptions,
    shared: common.SharedOptions,
) -> None:
    """Report defects in dump directories and files of HLO.

    The PATH `-` is standard input. Without one it is the folder that XLA_FLAGS dumps to
    (`--xla_dump_to`), else the working directory.
    """
    if options.blame and options.statistics:
        raise click.UsageError("--blame goes without --statistics")
    if strict:
        shared = shared._replace(extend_select=(*shared.extend_select, "parser-refuses"))
        if shared.jax is not None:  # here, where its progress is shown
            from hlo_lint.xla.environments import Platform, environment_of

            environment_of(shared.jax, partial(click.echo, err=True), Platform.CPU)
    elif shared.jax is not None and not ask_xla:
        raise click.UsageError("--jax goes with --strict or --ask-xla")
    if (step or chip) and not ask_xla:
        raise click.UsageError("--step and --target go with --ask-xla")
    options = options._replace(
        asked={"step": step, "chip": chip, "release": shared.jax} if ask_xla else None
    )
    if show_files:
        for compilation in common.open_given(paths, common.settings_of(paths, shared), shared):
            for file in (*compilation.dumps, *compilation.kernels):
                click.echo(shown(str(file.path)))
        return
    if (baseline := write_baseline or prune_baseline) is not None:
        if watch or options.blame or (write_baseline and prune_baseline):
            raise click.UsageError(
                "--write-baseline and --prune-baseline go without each other, --blame and --watch"
            )
        ctx.exit(_update_baseline(baseline, paths, options, shared, prune=write_baseline is None))
    if watch:
        from hlo_lint.apps.cli import watching

        settings_file = partial(common.settings_file, paths, shared)
        watching.watch(
            paths, settings_file, partial(_checked, paths, options, shared), options.output
        )
        return
    report = _checked(paths, options, shared)
    ctx.exit(common.exit_status(report, shared, exit_zero=exit_zero))


def _checked(
    paths: tuple[str, ...], options: printing.ReportOptions, shared: common.SharedOptions
) -> Report:
    begun = time.monotonic()
    settings = common.settings_of(paths, shared).overridden(output_format=options.output_format)
    if settings.max_findings is None:
        settings = settings.overridden(max_findings=MAX_FINDINGS)
    if options.statistics and settings.output_format not in ("text", "concise", "json"):
        raise UsageError(f"--statistics is text or json, not {settings.output_format}")
    dump = common.open_given(paths, settings, shared)
    report, jobs = _run(dump, settings, options)
    if options.asked is not None:
        report = _with_refusals(report, dump, settings, options.asked)
    seconds = time.monotonic() - begun
    is_text = settings.output_format == "text"
    printed = common.without_errors(report, shared) if is_text else report
    printing.output_report(printed, settings.output_format, options, seconds)
    logs = dump.logs if options.log is None else [options.log]
    if logs and options.explains and settings.output_format in ("text", "concise"):
        _explain_logs(dump, logs, is_asked=options.log is not None)
    if options.verbose:
        _print_details(settings, report, jobs, seconds)
    return report


def _with_refusals(
    report: Report, dump: Dump, settings: Settings, asked: Mapping[str, str | None]
) -> Report:
    """The report with what XLA's compiler refuses."""
    from hlo_lint.apps.asking import refusals
    from hlo_lint.engine.fingerprints import numbered

    with common.status_line() as note:
        refused, skipped = refusals(dump, note=note, **asked)
    findings = settings.reported(numbered(refused))
    stats = report.stats | {"errors": report.stats["errors"] + len(findings)}
    # The gap that advises this very command is closed.
    gaps = [gap for gap in report.skipped if "--ask-xla" not in gap.reason]
    return replace(
        report, findings=(*report.findings, *findings), skipped=(*gaps, *skipped), stats=stats
    )


def _explain_logs(dump: Dump, logs: Sequence[Path], *, is_asked: bool) -> None:
    """Print what the logs of a run say, with the instructions that they name."""
    from hlo_lint.apps.cli.ending import failure_message, last_message
    from hlo_lint.apps.cli.explain import answer, log_text
    from hlo_lint.dumps.directory import Dump
    from hlo_lint.report.messages import meaning_of

    for path in logs:
        text = log_text(path)
        failure = failure_message(text)
        if not is_asked and not failure:
            # Of a run that went well, only a warning with advice is worth a line.
            if (meaning := meaning_of(text, general=False)) is not None:
                click.echo(f"{shown(str(path))}: {meaning}")
            continue
        message = shown(failure or last_message(text))[:_WIDTH]
        click.echo(f"{shown(str(path))}: {message}".rstrip(": "))
        # A log beside some of the dumps is about these.
        beside = [run for run in dump if not is_asked and path.parent in run.dumps[0].path.parents]
        try:
            named = answer(text, Dump(beside) if beside else dump, has_page=is_asked)
            click.echo(named, nl=False)
        except UsageError as error:
            click.echo(f"{error}" if is_asked else "nothing is known of its messages")


def _run(dump: Dump, settings: Settings, options: printing.ReportOptions) -> tuple[Report, int]:
    """The report of a dump, and the number of processes that checked it."""
    jobs = (settings.jobs if options.jobs is None else options.jobs) or automatic_jobs(dump)
    with common.progress_bar(dump, wanted=not options.quiet) as progress:
        report = lint(
            dump,
            settings=settings.overridden(jobs=jobs),
            resolved=options.resolved or options.blame,
            executor=options.executor,
            progress=progress,
        )
    return report, jobs


def _update_baseline(
    path: Path,
    paths: tuple[str, ...],
    options: printing.ReportOptions,
    shared: common.SharedOptions,
    *,
    prune: bool,
) -> int:
    """Check, and write the findings to a baseline; return the exit status."""
    from hlo_lint.apps.cli.baseline import listing_all, update_baseline

    settings = listing_all(common.settings_of(paths, shared))
    report, _ = _run(common.open_given(paths, settings, shared), settings, options)
    if not report.unchecked or shared.allow_empty:  # else every entry would be gone
        update_baseline(path, report, settings, prune=prune)
    return common.exit_status(report, shared, exit_zero=True)


def _print_details(settings: Settings, report: Report, jobs: int, seconds: float) -> None:
    """Print the numbers of files and rules and the settings, on standard error."""
    from hlo_lint.rules.registry import all_rules

    rules = f"{len(settings.chosen_rules().chosen)} of {len(all_rules())}"
    for label, message in (
        ("settings", str(settings.file) if settings.file is not None else "no file"),
        ("rules", rules),
        ("processes", str(jobs)),
        ("read", f"{report.stats['files']} files, {report.stats['modules']} modules of HLO"),
        ("skipped", str(len(report.skipped))),
        ("took", f"{seconds:.2f} s"),
    ):
        print(f"{label}: {shown(message)}", file=sys.stderr)
