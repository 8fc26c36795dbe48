"""`hlo-lint diff`: the differences of two modules, apart from names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from hlo_lint.analysis.cycles import refuse_cycles
from hlo_lint.analysis.diff.difference import Difference, diff
from hlo_lint.apps.cli import common, parameters
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.selection import dump_at, longest_run, modules_of, one_file
from hlo_lint.report.diff import SHOWN, difference_as_dict, difference_lines
from hlo_lint.text.errors import UsageError

STYLES = {"-": "red", "+": "green", "~": "yellow", ">": "cyan"}


@click.command("diff")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option(
    "--in",
    "folder",
    type=parameters.PATH,
    metavar="DIR",
    help="A and B are dumps in this directory: a step's number, a pass (its first dump), a file; "
    "by default of the module with most dumps.",
)
@parameters.module_option
@parameters.all_option
@parameters.output_format("text", "json")
@parameters.color_option
@click.pass_context
def command(
    ctx: click.Context,
    before: str,
    after: str,
    folder: Path | None,
    module: str | None,
    everything: bool,
    output_format: str,
) -> None:
    """Print the differences of two modules, apart from names and ids.

    Exit status: 0 the same, 1 different, 2 wrong use.
    """
    files: list[PassDump]
    if folder is None:
        if module is not None:
            raise UsageError("--module goes with --in")
        files = [one_file(Path(path)) for path in (before, after)]
    else:
        compilation = longest_run(folder, module)
        files = [dump_at(compilation, which) for which in (before, after)]
    ours, theirs = (modules_of(dump) for dump in files)
    if len(ours) != len(theirs):
        raise UsageError(
            f"{files[0].path} holds {len(ours)} modules, {files[1].path} {len(theirs)}"
        )
    for compared in (*ours, *theirs):
        refuse_cycles(compared)  # a cycle has no order to compare
    differences = list(map(diff, ours, theirs))
    if output_format == "json":
        paths = {"before": str(files[0].path), "after": str(files[1].path)}
        modules = [difference_as_dict(difference) for difference in differences]
        common.print_json(**paths, modules=modules)
    else:
        show(differences, everything)
    ctx.exit(0 if all(difference.same for difference in differences) else 1)


def show(differences: Sequence[Difference], everything: bool) -> None:
    """Print differences, in colours on a terminal."""
    for difference in differences:
        for mark, line in difference_lines(difference, limit=None if everything else SHOWN):
            click.echo(click.style(line, fg=STYLES.get(mark)))
