"""A check as `hlo-lint check` makes it, from the settings to the printed report.

Nothing here imports click, which takes half as long as all else that a check of a small file needs.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hlo_lint.apps.cli import common

if TYPE_CHECKING:
    from hlo_lint.apps.settings.settings import Settings
    from hlo_lint.dumps.directory import Dump
    from hlo_lint.report.report import Report


class ReportOptions(NamedTuple):
    """The options that say how a report is made and printed."""

    output_format: str | None = None
    output: Path | None = None
    statistics: bool = False
    cured: bool = False
    jobs: int | None = None
    """0 if the size of the input decides; None if the settings do."""
    executor: str | None = None
    quiet: bool = False
    verbose: bool = False
    color: str = "auto"
    fix: bool = False
    """True to fix what can be fixed first; the report is of what remains."""
    unsafe_fixes: bool | None = None
    diff: bool = False


MAX_FINDINGS = 1000
"""Findings of one rule in one file that are reported, where the settings say nothing else."""


_PLAIN = frozenset(
    "allow_empty before config cured exclude exit_zero extend_ignore extend_select force_exclude "
    "ignore isolated no_cache output_format quiet select severity sniff stage statistics "
    "stdin_filename verbose".split()
)
"""Parameters of `hlo-lint check` that are flags, or texts that click hands on as they are."""


def plain_parameters(words: Sequence[str]) -> dict[str, Any] | None:
    """The parameters of `hlo-lint check`; None if click has to read them.

    It has to where there is a mistake, a short option, or one whose value it converts.
    """
    values = {**ReportOptions()._asdict(), **common.NO_OPTIONS._asdict()}
    values |= {"paths": (), "exit_zero": False}
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        name = option[2:].replace("-", "_")
        if not word.startswith("-") or word == "-":
            values["paths"] += (word,)
        elif name not in _PLAIN or option != f"--{name.replace('_', '-')}":
            return None
        elif isinstance(values[name], bool) and not equals:
            values[name] = True
        else:
            value = value if equals else next(rest, "-")
            if isinstance(values[name], bool) or value.startswith("-"):
                return None
            values[name] = (*values[name], value) if isinstance(values[name], tuple) else value
    if values["output_format"] is not None:
        from hlo_lint.report.formats import FORMATS

        if values["output_format"] not in FORMATS:
            return None
    return values if values["paths"] else None


def run(parameters: dict[str, Any]) -> int:
    """Check as the parameters of the command say, and return its exit status."""
    shared = common.SharedOptions(
        **{name: parameters.pop(name) for name in common.SharedOptions._fields}
    )
    if shared.isolated:
        from hlo_lint.rules.plugins import ISOLATED

        os.environ[ISOLATED] = "1"
    paths, exit_zero = parameters.pop("paths"), parameters.pop("exit_zero")
    report = check(paths, ReportOptions(**parameters), shared)
    return common.exit_status(report, shared, exit_zero=exit_zero)


def check(paths: tuple[str, ...], options: ReportOptions, shared: common.SharedOptions) -> Report:
    """Check once, and print the report."""
    from hlo_lint.apps.api import lint
    from hlo_lint.engine.input_size import automatic_jobs

    begun = time.monotonic()
    settings = common.settings_of(paths, shared).overridden(
        output_format=options.output_format,
    )
    if settings.max_findings is None:
        settings = settings.overridden(max_findings=MAX_FINDINGS)
    refuse_statistics(settings, options)
    dump = common.open_given(paths, settings, shared)
    if options.fix:
        return _fix(dump, settings.overridden(unsafe_fixes=options.unsafe_fixes), options, begun)
    jobs = (settings.jobs if options.jobs is None else options.jobs) or automatic_jobs(dump)
    with common.progress_bar(dump, wanted=not options.quiet) as progress:
        report = lint(
            dump,
            settings=settings.overridden(jobs=jobs),
            cured=options.cured,
            executor=options.executor,
            progress=progress,
        )
    seconds = time.monotonic() - begun
    print_report(report, settings.output_format, options, seconds)
    if options.verbose:
        _print_details(settings, report, jobs, seconds)
    return report


def _fix(dump: Dump, settings: Settings, options: ReportOptions, begun: float) -> Report:
    """Fix what can be fixed, or print what would change, and print the report of what remains."""
    from hlo_lint.apps.api import fix
    from hlo_lint.apps.cli.fix import write_diff, write_in_place

    with common.progress_bar(dump, wanted=not options.quiet) as progress:
        result = fix(dump, settings=settings, progress=progress)
    if options.diff:  # standard output is a patch
        write_diff(result)
        return result.remaining
    print(write_in_place(dump, result), file=sys.stderr)
    print_report(result.remaining, settings.output_format, options, time.monotonic() - begun)
    return result.remaining


def refuse_statistics(settings: Settings, options: ReportOptions) -> None:
    """Refuse formats that have no statistics.

    Raises:
        UsageError: they are asked for in such a format.
    """
    from hlo_lint.text.errors import UsageError

    if options.statistics and settings.output_format not in ("text", "concise", "json"):
        raise UsageError(f"--statistics is text or json, not {settings.output_format}")


def print_report(
    report: Report, output_format: str, options: ReportOptions, seconds: float | None = None
) -> None:
    """Print a report, or write it to the file that the options name."""
    if output_format == "text" and not options.statistics and options.output is None:
        from hlo_lint.report import text

        if common.is_plain(options.color):
            plain = text.plain_findings(report.findings)
            sys.stdout.writelines(plain if options.quiet else text.plain_report(report))
            sys.stdout.flush()
            return
        if not (report.findings or report.skipped):  # one line: rich takes longer to import
            if not options.quiet:
                write_report(f"{text.summary(report)}{text.took(seconds, sys.stdout)}\n", None)
            return
        console = common.console(color=options.color)
        if options.quiet:
            text.print_text(console, report.findings)
        else:
            text.print_report(console, report, seconds)
        return
    write_report(_rendered(report, output_format, options), options.output)


def write_report(text: str, output: Path | None) -> None:
    """Write a report to a file, or to standard output."""
    if output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    from hlo_lint.text.files import write

    write(output, text)


def _rendered(report: Report, output_format: str, options: ReportOptions) -> str:
    if options.statistics:
        from hlo_lint.report.statistics import render_statistics

        return render_statistics(report, "json" if output_format == "json" else "text")
    if options.quiet and output_format == "text":
        from hlo_lint.report.text import as_text

        return "".join(f"{as_text(finding)}\n\n" for finding in report.findings)
    from hlo_lint.report.formats import render

    return render(report, output_format, lambda line: print(f"hlo-lint: {line}", file=sys.stderr))


def _print_details(settings: Settings, report: Report, jobs: int, seconds: float) -> None:
    """Print what was read, and with which settings, on standard error."""
    from hlo_lint.rules.registry import all_rules
    from hlo_lint.text.source import shown

    rules = f"{len(settings.chosen_rules())} of {len(all_rules())}"
    for label, message in (
        ("settings", str(settings.file) if settings.file is not None else "no file"),
        ("rules", rules),
        ("processes", str(jobs)),
        ("read", f"{report.stats['files']} files, {report.stats['modules']} modules of HLO"),
        ("skipped", str(len(report.skipped))),
        ("took", f"{seconds:.2f} s"),
    ):
        print(f"{label}: {shown(message)}", file=sys.stderr)
