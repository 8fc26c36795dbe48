"""`hlo-lint baseline`: the file that lists known findings, so that only new ones are reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from hlo_lint.apps.api import lint
from hlo_lint.apps.cli import common, parameters
from hlo_lint.apps.settings.toml_locations import displayed
from hlo_lint.engine.input_size import automatic_jobs
from hlo_lint.engine.suppressions.baseline import (
    Baseline,
    BaselineComparison,
    BaselineEntry,
    compare_with_baseline,
    read_baseline,
    write_baseline,
)
from hlo_lint.report.text import render_concise
from hlo_lint.rules.findings import Severity
from hlo_lint.rules.registry import all_rules
from hlo_lint.text.errors import UsageError
from hlo_lint.text.phrases import counted
from hlo_lint.text.source import shown

DEFAULT = Path("hlo_lint_baseline.json")


@click.command("baseline")
@parameters.paths_argument
@click.option(
    "--update", is_flag=True, help="Write all findings to the file; keep the reasons in it."
)
@click.option("--prune", is_flag=True, help="Remove entries that are no longer found; add nothing.")
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help=f"The baseline; by default the one in the settings, else {DEFAULT}.",
)
@parameters.settings_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    update: bool,
    prune: bool,
    path: Path | None,
    shared: common.SharedOptions,
) -> None:
    """Compare findings with a baseline, or update the baseline.

    `hlo-lint check --baseline FILE` then reports only what the file does not list. Give both the
    same paths. Exit status: 1 for a new error or warning, else 0.
    """
    if update and prune:
        raise UsageError("--update removes what is gone as well: give either --update or --prune")
    settings = common.settings_of(paths, shared)
    path = displayed(path or settings.baseline or DEFAULT)
    baseline = Baseline(path) if update and not path.is_file() else read_baseline(path)
    dump = common.open_given(paths, settings, shared)
    jobs = settings.jobs or automatic_jobs(dump)
    with common.progress_bar(dump) as progress:
        report = lint(dump, settings=replace(settings, baseline=None, jobs=jobs), progress=progress)
    if report.unchecked and not shared.allow_empty:  # an update would remove every entry
        ctx.exit(common.exit_status(report, shared))
    ran = {rule.name() for rule in settings.chosen_rules()}
    not_run = {rule.name() for rule in all_rules()} - ran
    compared = compare_with_baseline(baseline, report.findings, not_run)
    if update or prune:
        after = compared.updated if update else compared.pruned
        write_baseline(after)
        click.echo(shown(_written(compared, after.entries, added=update)))
        return
    _show(compared, path)
    ctx.exit(1 if any(finding.severity is not Severity.INFO for finding in compared.new) else 0)


def _show(compared: BaselineComparison, path: Path) -> None:
    for finding in compared.new:
        click.echo(f"new:  {render_concise(finding)}")
    for entry in compared.gone:
        times = f" ({entry.count} times)" if entry.count > 1 else ""
        click.echo(shown(f"gone: {path}:{entry.line}: [{entry.rule}]: {entry.message}{times}"))
    click.echo(f"{len(compared.new)} new, {_number(compared.gone)} gone")


def _written(compared: BaselineComparison, entries: Sequence[BaselineEntry], *, added: bool) -> str:
    new = f"{len(compared.new)} new, " if added else ""
    findings = counted(_number(entries), "finding")
    return shown(f"{compared.updated.path}: {findings}, {new}{_number(compared.gone)} gone")


def _number(entries: Sequence[BaselineEntry]) -> int:
    return sum(entry.count for entry in entries)
