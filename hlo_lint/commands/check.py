"""`hlo-lint check`: what is wrong with HLO."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hlo_lint.commands import common

if TYPE_CHECKING:
    from hlo_lint.api import Report


@click.command("check")
@common.paths_argument
@common.select_option
@common.ignore_option
@common.before_option
@click.option(
    "--output-format",
    type=click.Choice(["text", "concise", "json"]),
    default="text",
    show_default=True,
    envvar="HLO_LINT_OUTPUT_FORMAT",
)
@click.option(
    "--cured", is_flag=True, help="Look at every step: tell what a later pass cured, too."
)
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    before: str | None,
    output_format: str,
    cured: bool,
) -> None:
    """Check dump directories and files of HLO; `-` is standard input."""
    from hlo_lint.api import lint

    dump = common.open_given(paths)
    with common.progress_bar(dump) as progress:
        report = lint(
            dump, common.names(select), common.names(ignore), before, cured=cured, progress=progress
        )
    _print_report(report, output_format)
    ctx.exit(report.exit_status)


def _print_report(report: Report, output_format: str) -> None:
    match output_format:
        case "json":
            click.echo(report.to_json(), nl=False)
        case "concise":
            from hlo_lint.report.text import render_concise

            for finding in report.findings:
                click.echo(render_concise(finding))
        case _:
            report.print(common.console())
