"""`hlo-lint hunt`: find bugs of a released XLA."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import click

from hlo_lint.apps.cli import common, parameters
from hlo_lint.apps.cli.tables import print_table
from hlo_lint.text.errors import DumpError, UsageError
from hlo_lint.text.phrases import counted
from hlo_lint.text.source import shown

_TIME = "Time for all of it; a later run goes on from the folder of -o."
_FROM = "Mutate the modules in this folder, in place of making modules (repeatable)."


@click.command("hunt", context_settings={"show_default": True})
@parameters.release_option("releases", multiple=True)
@parameters.python_option("pythons", multiple=True)
@parameters.target_option("targets", multiple=True)
@parameters.passes_option
@click.option("--minutes", type=click.FloatRange(0.1), default=10.0, help=_TIME)
@parameters.seed_option
@parameters.jobs_option
@click.option("--from", "sources", multiple=True, type=parameters.PATH, metavar="DIR", help=_FROM)
@parameters.output_option(required=True)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    releases: tuple[str, ...],
    pythons: tuple[str, ...],
    targets: tuple[str, ...],
    passes: str,
    sources: tuple[Path, ...],
    out: Path,
    jobs: int | None,
    **plan: Any,
) -> None:
    """Find bugs of a released XLA.

    Modules are made, compiled with every pass on disk, and judged: by how that ends, by all rules,
    and by the values that they compute. Of each cause one module is reduced, and written to the
    folder of -o with what a maintainer needs. They are compiled by each --jax and --python, else by
    the installed jaxlib, for each --target: a chip, cpu or gpu.

    Exit status: 0 nothing new was found, 1 something was, 2 wrong use.
    """
    try:
        from hlo_lint_hunt.campaign import CAUSES, HuntPlan
        from hlo_lint_hunt.generate import fair_texts
        from hlo_lint_hunt.judge import compilers_of
    except ImportError as error:
        raise DumpError(f"pip install 'hlo-lint[xla]' to run modules: {error}") from error
    texts = tuple(fair_texts(sources))
    if sources and not texts:
        raise UsageError("--from: no module there is small, and as a front end writes it")
    compilers = compilers_of(releases, pythons, targets, partial(click.echo, err=True))
    names = tuple(common.names([passes]) or ())
    with common.status_line() as note:
        campaign = HuntPlan(
            out, tuple(compilers), passes=names, texts=texts, jobs=jobs or 1, **plan
        ).run(note)
    for by in dict.fromkeys(by for by, _ in campaign.records):
        verdicts = [record for record in campaign.records.values() if record.by == by]
        # After a colon stands the reason, which differs from module to module.
        outcomes = Counter(verdict.outcome.partition(":")[0] for verdict in verdicts)
        listed = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
        fired = len({changed for verdict in verdicts for changed in verdict.passes})
        modules = counted(len(verdicts), "module")
        click.echo(shown(f"{by}: {modules}: {listed}; {fired} passes changed something"))
    if rows := campaign.table():
        print_table([("pass", "cause", "shows in", "first seed", "found", "known"), *rows])
        if (out / CAUSES).is_dir():
            click.echo(f"reduced modules, and programs that show them: {out / CAUSES}")
    else:
        click.echo("nothing was found")
    ctx.exit(1 if any(row[-1] == "new" for row in rows) else 0)
