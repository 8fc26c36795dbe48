"""`hlo-lint blame`: the history of each finding."""

from __future__ import annotations

import click

from hlo_lint.apps.api import lint
from hlo_lint.apps.cli import common, completion, parameters
from hlo_lint.report.history import print_lives


@click.command("blame")
@click.argument("path", shell_complete=completion.paths)
@click.argument("rule", required=False, shell_complete=completion.rules)
@parameters.file_options
@click.option("--json", "as_json", is_flag=True, help="Print the report of `check` as JSON.")
@click.pass_context
def command(
    ctx: click.Context, /, path: str, rule: str | None, as_json: bool, shared: common.SharedOptions
) -> None:
    """Print which pass introduced, and which resolved each finding.

    PATH is checked; with RULE, by that rule alone.

    Exit status: 1 if `check` reports it too, else 0.
    """
    settings = common.settings_of((path,), shared)
    dump = common.open_given((path,), settings)
    with common.progress_bar(dump) as progress:
        report = lint(
            dump, [rule] if rule else None, settings=settings, resolved=True, progress=progress
        )
    if as_json:
        click.echo(report.to_json(), nl=False)
    else:
        print_lives(common.console(), report.findings)
    ctx.exit(common.exit_status(report, shared))
