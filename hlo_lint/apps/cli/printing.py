"""Output of the report of a check, in the format that options or settings name."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from hlo_lint.apps.cli import common
from hlo_lint.text.phrases import NOT_LOOKED_AT, counted
from hlo_lint.text.source import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hlo_lint.engine.values.validate import Validation
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


def output_report(
    report: Report, output_format: str, options: ReportOptions, seconds: float | None = None
) -> None:
    """Print a report, or write it to the file that the options name."""
    output = options.output
    if output_format != "text" or options.statistics:
        common.write_output(_rendered(report, output_format, options), output)
        return
    from hlo_lint.report.text import plain_text, print_parts, report_parts, width_of

    # rich takes longer to import than to check
    is_plain = output is not None or common.is_plain() or not (report.findings or report.skipped)
    console = None if is_plain else common.console()
    if options.blame:
        from hlo_lint.report.blame import history_parts

        parts = history_parts(report, quiet=options.quiet, verbose=options.verbose)
    else:
        is_for_people = output is None and sys.stdout.isatty()
        parts = report_parts(
            report,
            seconds if is_for_people else None,
            quiet=options.quiet,
            verbose=options.verbose,
            width=0 if console is None else width_of(console),
        )
    if console is None:
        common.write_output(plain_text(parts), output)
    else:
        print_parts(console, parts)


def _rendered(report: Report, output_format: str, options: ReportOptions) -> str:
    if options.statistics:
        from hlo_lint.report.statistics import render_statistics

        return render_statistics(report, "json" if output_format == "json" else "text")
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


def print_validations(validations: Sequence[Validation], *, show_inputs: bool) -> None:
    """A line for each module, and the reasons why steps were not compared.

    With `show_inputs` first the inputs on which each change shows.
    """
    for change in chain(*(validation.changes for validation in validations if show_inputs)):
        for name, array, is_given in change.inputs:
            origin = "given" if is_given else "made up"
            click.echo(shown(f"%{name}, {origin}, shows {change.after.path.name}:"))
            click.echo(shown_array(array))
    for validation in validations:
        counts, runs = validation.counts, validation.runs
        outcomes = ", ".join(f"{n} {outcome.value}" for outcome, n in counts.most_common())
        steps = counted(counts.total(), "step")
        click.echo(shown(f"{validation.title}: {steps}: {outcomes}; {runs} runs"))
        for note in validation.notes:
            click.echo(shown(f"  {note}"))


def shown_array(array: NDArray[Any]) -> str:
    """The elements of an array, as numpy prints them."""
    import numpy as np

    if array.dtype.kind == "V" or array.dtype.name.startswith(("bfloat", "float8", "float4")):
        array = array.astype(np.float32)
    return str(np.array2string(array, threshold=MAX_PRINTED, separator=", ", max_line_width=100))
