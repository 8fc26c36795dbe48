"""`hlo-lint hunt`: find bugs of a released XLA."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path

import click

from hlo_lint.apps.cli import common, completion, parameters
from hlo_lint.apps.cli.tables import print_table
from hlo_lint.apps.hunt.campaign import CAUSES, Campaign
from hlo_lint.apps.hunt.generate import Generated
from hlo_lint.apps.hunt.judges import judges_of
from hlo_lint.apps.hunt.mutate import fair_texts, mutated
from hlo_lint.apps.reduction import parser
from hlo_lint.text.errors import UsageError
from hlo_lint.text.phrases import counted
from hlo_lint.text.source import shown
from hlo_lint.xla.limits import Deadline

SETTLING = 0.25
"""The share of the time that is kept for what was found to be reduced."""


@click.command("hunt")
@click.option(
    "--jax",
    "releases",
    multiple=True,
    metavar="RELEASE",
    help="Hunt in this release of jax (repeatable); by default in the jaxlib that is installed.",
)
@click.option(
    "--python",
    "pythons",
    multiple=True,
    metavar="PATH",
    help="Hunt in the jaxlib of this Python (repeatable).",
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="CHIP",
    shell_complete=completion.targets,
    help="cpu, or a chip to compile for that need not be there: h200, v5e (repeatable).",
)
@click.option(
    "--passes", default="", metavar="PASS,…", help="Run these passes of XLA, and no other."
)
@click.option(
    "--minutes",
    type=click.FloatRange(0.1),
    default=10.0,
    show_default=True,
    help="Time for all of it; a later run goes on from FOLDER.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="The first module's."
)
@click.option(
    "--jobs",
    "-j",
    type=click.IntRange(1, parameters.MAX_COUNT),
    default=1,
    show_default=True,
    metavar="N",
    help="Modules that are judged at a time.",
)
@click.option(
    "--from",
    "sources",
    multiple=True,
    type=parameters.PATH,
    metavar="DIR",
    help="Mutate the modules in this folder, in place of making modules (repeatable).",
)
@parameters.written_to("FOLDER", "Keep verdicts and causes in this folder.", required=True)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    releases: tuple[str, ...],
    pythons: tuple[str, ...],
    targets: tuple[str, ...],
    passes: str,
    minutes: float,
    seed: int,
    jobs: int,
    sources: tuple[Path, ...],
    out: Path,
) -> None:
    """Find bugs of a released XLA.

    Modules are made, compiled with every pass on disk, and judged: by how that ends, by all rules,
    and by the values that they compute. Of each cause one module is reduced, and written to FOLDER
    with what a maintainer needs.

    Exit status: 0 nothing new was found, 1 something was, 2 wrong use.
    """
    texts = fair_texts(sources)
    if sources and not texts:
        raise UsageError("--from: no module there is small, and as a front end writes it")
    names = [name for name in passes.split(",") if name]
    deadline = Deadline(60 * minutes * (1 - SETTLING))
    campaign = Campaign.at(out)
    seeds = _Seeds(max(seed, campaign.last + 1))

    def hunt() -> None:
        with judges_of(releases, pythons, targets, passes=names, announce=announce) as judges:
            modules = _mutations(texts, seeds, deadline) if texts else campaign.generated(seeds)
            campaign.run(judges, deadline, modules, note)

    def announce(text: str) -> None:
        click.echo(text, err=True)

    with common.status_line() as note, ThreadPoolExecutor(jobs) as threads:
        try:
            for done in [threads.submit(hunt) for _ in range(jobs)]:
                done.result()
        except BaseException:  # an interrupt: the verdicts so far are in the folder
            deadline.end_now()
            raise
        with judges_of(releases, pythons, targets, passes=names) as judges:
            campaign.settle(judges, Deadline(60 * minutes * SETTLING), note)
    _print(campaign, out)
    ctx.exit(1 if any(row[-1] == "new" for row in campaign.table()) else 0)


class _Seeds:
    """Numbers, each once, for several threads."""

    def __init__(self, first: int) -> None:
        self._next, self._lock = first, threading.Lock()

    def __iter__(self) -> Iterator[int]:
        while True:
            with self._lock:
                self._next += 1
                seed = self._next - 1
            yield seed


def _mutations(texts: list[str], seeds: _Seeds, deadline: Deadline) -> Iterator[Generated]:
    with parser() as guard:
        for seed in takewhile(lambda _: deadline.left > 0, seeds):
            if (module := mutated(texts, seed, guard)) is not None:
                yield module


def _print(campaign: Campaign, out: Path) -> None:
    for name, outcomes in campaign.outcomes.items():
        total, fired = sum(outcomes.values()), len(campaign.passes[name])
        listed = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common(4))
        modules = counted(total, "module")
        click.echo(shown(f"{name}: {modules}: {listed}; {fired} passes changed something"))
    rows = campaign.table()
    if not rows:
        click.echo("nothing was found")
        return
    print_table([("pass", "cause", "shows in", "first seed", "found", "upstream"), *rows])
    click.echo(f"reduced modules, and programs that show them: {out / CAUSES}")
