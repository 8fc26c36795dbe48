"""`hlo-lint hunt`: find bugs of a released XLA."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import click

from hlo_lint.apps.cli import common, completion, parameters
from hlo_lint.apps.cli.tables import print_table
from hlo_lint.apps.hunt.campaign import CAUSES, HuntPlan
from hlo_lint.apps.hunt.generate import fair_texts
from hlo_lint.apps.hunt.judge import compilers_of
from hlo_lint.text.errors import UsageError
from hlo_lint.text.phrases import counted
from hlo_lint.text.source import shown

_TIME = "Time for all of it; a later run goes on from FOLDER."
_FROM = "Mutate the modules in this folder, in place of making modules (repeatable)."
_RELEASE = "Hunt in this release of jax (repeatable); by default in the jaxlib that is installed."
_PYTHON = "The same for a Python (repeatable)."
_TARGET = "cpu, gpu, or a chip to compile for that need not be there: h200, v5e (repeatable)."
_JOBS = click.IntRange(1, parameters.MAX_COUNT)
_chips: dict[str, Any] = {"metavar": "CHIP", "shell_complete": completion.targets}


@click.command("hunt", context_settings={"show_default": True})
@click.option("--jax", "releases", multiple=True, metavar="RELEASE", help=_RELEASE)
@click.option("--python", "pythons", multiple=True, metavar="PATH", help=_PYTHON)
@click.option("--target", "targets", multiple=True, help=_TARGET, **_chips)
@click.option("--passes", default="", metavar="PASS,…", help="Judge these passes alone.")
@click.option("--minutes", type=click.FloatRange(0.1), default=10.0, help=_TIME)
@click.option("--seed", type=click.IntRange(0), default=0, help="The first module's.")
@click.option("--jobs", "-j", type=_JOBS, default=1, help="Modules that are judged at a time.")
@click.option("--from", "sources", multiple=True, type=parameters.PATH, metavar="DIR", help=_FROM)
@parameters.written_to("FOLDER", "Keep verdicts and causes in this folder.", required=True)
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
    **plan: Any,
) -> None:
    """Find bugs of a released XLA.

    Modules are made, compiled with every pass on disk, and judged: by how that ends, by all rules,
    and by the values that they compute. Of each cause one module is reduced, and written to FOLDER
    with what a maintainer needs.

    Exit status: 0 nothing new was found, 1 something was, 2 wrong use.
    """
    texts = tuple(fair_texts(sources))
    if sources and not texts:
        raise UsageError("--from: no module there is small, and as a front end writes it")
    compilers = compilers_of(releases, pythons, targets, partial(click.echo, err=True))
    names = tuple(common.names([passes]) or ())
    with common.status_line() as note:
        campaign = HuntPlan(out, tuple(compilers), passes=names, texts=texts, **plan).run(note)
    for by in dict.fromkeys(by for by, _ in campaign.records):
        verdicts = [record for record in campaign.records.values() if record.by == by]
        outcomes = Counter(verdict.outcome for verdict in verdicts).most_common(4)
        listed = ", ".join(f"{count} {outcome}" for outcome, count in outcomes)
        fired = len({changed for verdict in verdicts for changed in verdict.passes})
        modules = counted(len(verdicts), "module")
        click.echo(shown(f"{by}: {modules}: {listed}; {fired} passes changed something"))
    if rows := campaign.table():
        print_table([("pass", "cause", "shows in", "first seed", "found", "known"), *rows])
        click.echo(f"reduced modules, and programs that show them: {out / CAUSES}")
    else:
        click.echo("nothing was found")
    ctx.exit(1 if any(row[-1] == "new" for row in rows) else 0)
