"""`hlo-lint report`: the findings as an HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from hlo_lint.apps.api import lint
from hlo_lint.apps.cli import common, parameters
from hlo_lint.report.html.page import render_html
from hlo_lint.report.text import hidden_line, severities
from hlo_lint.text.source import shown


@click.command("report")
@parameters.paths_argument
@parameters.output_option(default=Path("report.html"), show_default=True)
@parameters.check_options
@click.option(
    "--source",
    "sources",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Show lines of Python files below DIR that the dump names (repeatable).",
)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    out: Path,
    sources: tuple[Path, ...],
    shared: common.SharedOptions,
) -> None:
    """Write an HTML page about dump directories or files.

    The page needs no network and no other file. `-o -` prints it.

    It shows each module's passes, the pass that introduced each finding and the one that resolved
    it, HLO before and after, the instruction with its neighbours, and the fix.

    Exit status: 0 clean, 1 at least one error or warning, 2 wrong use.
    """
    settings = common.settings_of(paths, shared)
    dump = common.open_given(paths, settings, shared)
    with common.progress_bar(dump) as progress:
        report = lint(dump, settings=settings, resolved=True, progress=progress)
    title = "standard input" if paths[0] == "-" else paths[0]
    title += f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    with common.status_line() as note:
        page = render_html(dump, report, title=title, sources=sources, progress=note)
    common.write_output(page.encode(), out)
    if str(out) != "-":
        resolved = len(report.resolved)
        errors, warnings, infos = (report.stats[name] for name in ("errors", "warnings", "infos"))
        counts = severities(errors, warnings, infos - resolved) or "no findings"
        counts += f", {resolved} resolved by a later pass" if resolved else ""
        click.echo(shown(f"{out}: {counts}, {len(page) / 1000:.0f} kB"), err=True)
        if report.hidden:
            click.echo(hidden_line(report.hidden), err=True)
    ctx.exit(common.exit_status(report, shared))
