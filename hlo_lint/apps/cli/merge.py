"""`hlo-lint merge`: the report of a whole input from the reports of its shards."""

from __future__ import annotations

from pathlib import Path

import click

from hlo_lint.apps.api import merge_shards
from hlo_lint.apps.cli import common, parameters
from hlo_lint.apps.cli.printing import ReportOptions, output_report, refuse_statistics
from hlo_lint.engine.cache.values import from_json
from hlo_lint.engine.shards import ShardReport
from hlo_lint.text.errors import DumpError


@click.command("merge")
@click.argument(
    "files", nargs=-1, required=True, metavar="REPORT.json…", type=click.Path(path_type=Path)
)
@parameters.gathered("options", ReportOptions, parameters.report_options)
@click.option("--exit-zero", is_flag=True, help="Exit with 0 even if there are findings.")
@click.option("-q", "--quiet", is_flag=True, help="Print only findings.")
@parameters.color_option
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[Path, ...],
    exit_zero: bool,
    options: ReportOptions,
) -> None:
    """Merge the reports of `check --shard` into one.

    It is the report, byte for byte, that one `hlo-lint check` with their arguments prints. The
    settings file and the baseline are read again; no dump is.
    """
    reports = [ShardReport.read(path) for path in files]
    paths, shared, resolved = _arguments(files[0], reports[0])
    parameters.leave_plugins_out(ctx, None, shared.isolated)
    settings = common.settings_of(paths, shared).overridden(output_format=options.output_format)
    refuse_statistics(settings, options)
    report = merge_shards(reports, settings, resolved=resolved)
    output_report(report, settings.output_format, options)
    ctx.exit(common.exit_status(report, shared, exit_zero=exit_zero))


def _arguments(
    path: Path, report: ShardReport
) -> tuple[tuple[str, ...], common.SharedOptions, bool]:
    """The paths and options that the shards were checked with, and `--resolved`."""
    try:
        paths, shared, resolved = report.arguments
        return tuple(paths), from_json(common.SharedOptions, shared), bool(resolved)
    except (ValueError, TypeError, KeyError) as error:
        raise DumpError(f"{path}: a report of another version of hlo-lint") from error
