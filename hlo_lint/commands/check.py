"""`hlo-lint check`: what is wrong with HLO."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hlo_lint.commands import common
from hlo_lint.report.formats import FORMATS, render

if TYPE_CHECKING:
    from hlo_lint.api import Report


@click.command("check")
@common.paths_argument
@common.select_option
@common.ignore_option
@common.before_option
@click.option(
    "--output-format",
    type=click.Choice(list(FORMATS)),
    default="text",
    show_default=True,
    envvar="HLO_LINT_OUTPUT_FORMAT",
)
@click.option(
    "--cured", is_flag=True, help="Look at every step: tell what a later pass cured, too."
)
@common.sniff_option
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    before: str | None,
    output_format: str,
    cured: bool,
    sniff: bool,
) -> None:
    """Check dump directories and files of HLO; `-` is standard input."""
    from hlo_lint.api import lint

    dump = common.open_given(paths, sniff=sniff)
    with common.progress_bar(dump) as progress:
        report = lint(
            dump, common.names(select), common.names(ignore), before, cured=cured, progress=progress
        )
    _print_report(report, output_format)
    ctx.exit(report.exit_status)


def _print_report(report: Report, output_format: str) -> None:
    if output_format == "text":
        report.print(common.console())
        return
    text = render(report, output_format, lambda line: click.echo(f"hlo-lint: {line}", err=True))
    click.echo(text, nl=False)
