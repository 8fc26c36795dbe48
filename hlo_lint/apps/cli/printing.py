"""Reports of a check, printed or written to a file as options and settings say."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hlo_lint.apps.cli import common
from hlo_lint.text.errors import UsageError
from hlo_lint.text.phrases import NOT_LOOKED_AT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hlo_lint.apps.settings.settings import Settings
    from hlo_lint.report.report import Report


class ReportOptions(NamedTuple):
    """The options that say how a report is made and printed."""

    output_format: str | None = None
    output: Path | None = None
    statistics: bool = False
    resolved: bool = False
    blame: bool = False
    """True to print the history of each finding."""
    jobs: int | None = None
    """0 if the size of the input decides; None if the settings do."""
    executor: str | None = None
    quiet: bool = False
    verbose: bool = False
    log: Path | None = None
    """The log of the run; None for those beside the dump."""
    asked: Mapping[str, str | None] | None = None
    """Whom `--ask-xla` asks; None without it."""
    explains: bool = True
    """True to explain the messages of logs."""


def refuse_statistics(settings: Settings, options: ReportOptions) -> None:
    """Refuse formats that have no statistics.

    Raises:
        UsageError: they are asked for in such a format.
    """
    if options.statistics and settings.output_format not in ("text", "concise", "json"):
        raise UsageError(f"--statistics is text or json, not {settings.output_format}")


def output_report(
    report: Report, output_format: str, options: ReportOptions, seconds: float | None = None
) -> None:
    """Print a report, or write it to the file that the options name."""
    if options.blame and output_format == "text":
        from hlo_lint.report.history import plain_history, print_history

        details = {"quiet": options.quiet, "verbose": options.verbose}
        if options.output is not None or common.is_plain():
            write_report(plain_history(report, **details), options.output)
        else:
            print_history(common.console(), report, **details)
        return
    if output_format == "text" and not options.statistics and options.output is None:
        from hlo_lint.report import text

        if common.is_plain():
            plain = text.plain_findings(report.findings, verbose=options.verbose)
            whole = text.plain_report(report, verbose=options.verbose)
            sys.stdout.writelines(plain if options.quiet else whole)
            sys.stdout.flush()
            return
        if not (report.findings or report.skipped):  # rich takes longer to import than to check
            if not options.quiet:
                first, *rest = text.closing_lines(report)
                first += text.took(seconds, sys.stdout)
                write_report("".join(f"{line}\n" for line in (first, *rest)), None)
            return
        console = common.console()
        if options.quiet:
            text.print_text(console, report.findings, verbose=options.verbose)
        else:
            text.print_report(console, report, seconds, verbose=options.verbose)
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
        from hlo_lint.report.text import plain_findings

        return "".join(plain_findings(report.findings, verbose=options.verbose))
    if options.verbose and output_format == "text":
        from hlo_lint.report.text import plain_report

        return "".join(plain_report(report, verbose=True))
    from hlo_lint.report.formats import NO_ROOM, render

    def warn(line: str) -> None:
        print(f"hlo-lint: {line}", file=sys.stderr)

    if output_format in NO_ROOM and not options.quiet:
        from hlo_lint.report.text import hidden_line, resolved_count, skipped_lines

        for line in skipped_lines(report):
            if line.startswith(NOT_LOOKED_AT):
                warn(line)
        if count := resolved_count(report):
            warn(count)
        if report.hidden:
            warn(hidden_line(report.hidden))
    return render(report, output_format, warn)


MAX_PRINTED: Final = 1000
"""Number of elements of an array that is printed in full; of a larger array the edges are."""


def shown_array(array: NDArray[Any]) -> str:
    """The elements of an array, as numpy prints them."""
    import numpy as np

    if array.dtype.kind == "V" or array.dtype.name.startswith(("bfloat", "float8", "float4")):
        array = array.astype(np.float32)
    return str(np.array2string(array, threshold=MAX_PRINTED, separator=", ", max_line_width=100))
