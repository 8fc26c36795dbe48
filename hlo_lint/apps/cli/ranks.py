"""`hlo-lint ranks`: compares the collectives of all processes."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import click

from hlo_lint.analysis.ranks import Divergence, RankedModule, Variant, compare_ranks, rank_folders
from hlo_lint.analysis.scheduled_collectives import MAX_COLLECTIVES, Collective
from hlo_lint.analysis.waits import Wait, waiting_collectives, waits_of
from hlo_lint.apps.cli import common, parameters
from hlo_lint.dumps.selection import FIRST, with_name
from hlo_lint.engine.diagnose import origin_of
from hlo_lint.text.errors import DumpError
from hlo_lint.text.phrases import counted
from hlo_lint.text.source import shown

_WIDTH = 300


@click.command("ranks")
@click.argument("paths", metavar="DIR…", nargs=-1, required=True)
@parameters.output_format("text", "json")
@parameters.color_option
@parameters.module_option
@parameters.quiet_option
@click.pass_context
def command(
    ctx: click.Context, paths: tuple[str, ...], output_format: str, module: str | None, quiet: bool
) -> None:
    """Compare the scheduled collectives of the processes of a run.

    A DIR is the dump folder of one process or device; a pattern stands for several, and one DIR
    alone for the folders in it, or for the processes whose timestamps its file names begin with.

    The logs in a DIR, or DIR.log beside it, tell which process waits for which collective.

    Exit status: 0 the collectives agree, 1 they do not, or compilations of different programs did
    not end, or a log tells of a wait, 2 wrong use.
    """
    ranks = rank_folders(paths)
    modules = compare_ranks(ranks)
    logs = {rank.name: waits_of(rank) for rank in ranks}
    waits = {name: rank_waits for name, (_, rank_waits) in logs.items() if rank_waits}
    if module is not None:
        modules = with_name(modules, attrgetter("names"), module, paths)
    if not waits and all(len(ranked.missing) + 1 >= len(ranks) for ranked in modules):
        raise DumpError(f"nothing compared: no module is on two of {len(ranks)} ranks")
    diverging = [ranked for ranked in modules if ranked.divergences]
    unlike = [ranked for ranked in modules if ranked.other_programs]
    if output_format == "json":
        listed = [_as_dict(ranked) for ranked in modules]
        listed_waits = {name: [*map(str, waits[name])] for name in waits}
        common.print_json(ranks=[rank.name for rank in ranks], modules=listed, waits=listed_waits)
    else:
        for ranked in diverging:
            for divergence in ranked.divergences:
                _show_divergence(ranked, divergence)
        for ranked in unlike:
            if not ranked.divergences:  # its cause says so
                _show_programs(ranked)
        for rank, rank_waits in waits.items():
            _show_waits(rank, rank_waits, modules)
        if waits and (silent := [name for name in logs if logs[name][0] and name not in waits]):
            click.echo(
                f"the log of {_few(tuple(silent))} tells of no wait: it is ahead, or it died"
            )
        if not quiet:
            _show_modules(modules)
            which = f" of {len(diverging)} do not" if diverging else ""
            count = counted(len(modules), "module")
            end = f"; the programs of {len(unlike)} differ" if unlike else ""
            click.echo(f"{len(ranks)} ranks, {count}: the collectives{which} agree{end}")
    ctx.exit(1 if diverging or unlike or waits else 0)


def _show_waits(rank: str, waits: Sequence[Wait], modules: Sequence[RankedModule]) -> None:
    for wait in waits:
        title = click.style(f"{shown(rank)} waits: ", bold=True)
        click.echo(title + shown(f"{wait}"[:_WIDTH]))
        click.echo(f"  {shown(str(wait.log))}:{wait.line}")
        for module, collective in waiting_collectives(wait, rank, modules):
            click.echo(f"  {shown(module.name)}: {shown(str(collective))}")
            variant = next(variant for variant in module.variants if rank in variant.ranks)
            click.echo(f"    {_place(variant, collective)}")
            if origin := origin_of(collective.instruction, variant.module):
                click.echo(f"    from: {shown(str(origin))}")


def _show_programs(module: RankedModule) -> None:
    title = f"{shown(module.name) or 'the module'}: the ranks compile different programs"
    click.echo(click.style("error: ", fg="red", bold=True) + click.style(title, bold=True))
    for variant in (module.variants[0], *module.other_programs):
        click.echo(f"  {_few(variant.ranks)}: {shown(str(variant.path))}")
    click.echo("  they differ before the first pass, and some compilations did not end")
    click.echo(
        "  note: processes that share the autotuner's results wait there for each other: a process "
        "with another program has other fusions to time"
    )


def _show_divergence(module: RankedModule, divergence: Divergence) -> None:
    ours, theirs = divergence.ours, divergence.theirs
    title = f"{shown(module.name) or 'the module'}: "
    click.echo(
        click.style("error: ", fg="red", bold=True)
        + click.style(title + "the ranks run different collectives", bold=True)
    )
    number = divergence.position + 1
    click.echo(f"  collective {number} is the first that differs:")
    for variant, collective in zip((ours, theirs), divergence.collectives, strict=True):
        words = f"no collective {number}" if collective is None else shown(str(collective))
        click.echo(f"  {_few(variant.ranks)}: {words}")
        click.echo(f"    {_place(variant, collective)}")
        if collective and (origin := origin_of(collective.instruction, variant.module)):
            click.echo(f"    from: {shown(str(origin))}")
    for line in _cause(divergence):
        click.echo(f"  {line}")


def _place(variant: Variant, collective: Collective | None) -> str:
    if collective is None:
        return shown(str(variant.path))
    module = variant.module
    line = module.file.lines.position(module.span(collective.instruction).start).line
    return f"{shown(str(variant.path))}:{line}"


def _cause(divergence: Divergence) -> list[str]:
    """The pass that made the difference, and the reason if it is known."""
    cause = divergence.cause
    if cause is None:
        return ["the pass that introduced the difference is unknown: the passes were not dumped"]
    lines, notes = [], list(cause.notes)
    if cause.first_pass == FIRST:
        lines.append("the processes compile different programs: they differ before the first pass")
        notes.clear()
    elif cause.first_pass is not None:
        lines.append(f"first pass after which the modules differ: {shown(cause.first_pass)}")
    if cause.first_text not in (None, cause.first_pass) and cause.first_pass != FIRST:
        lines.append(f"first pass after which their texts differ: {shown(cause.first_text)}")
    if not lines:
        lines.append("the dumps of the passes are the same: only the final modules differ")
    lines += [f"  A, {_few(divergence.ours.ranks)}: {shown(str(divergence.ours.path.parent))}"]
    lines += [f"  B, {_few(divergence.theirs.ranks)}: {shown(str(divergence.theirs.path.parent))}"]
    if any("autotuner" in (title or "") for title in (cause.first_pass, cause.first_text)):
        notes.append(
            "the autotuner chooses by timings, which differ between processes: let one process "
            "write its results (--xla_gpu_dump_autotune_results_to) and all of them load these "
            "(--xla_gpu_load_autotune_results_from)"
        )
    return [*lines, *(f"note: {shown(note)}" for note in notes)]


def _show_modules(modules: list[RankedModule]) -> None:
    """Print the modules that ranks compiled to different texts."""
    for module in modules:
        if len(module.variants) > 1:
            name = shown(module.name) or "the module"
            click.echo(f"{name}: compiled to {len(module.variants)} different texts")
            for variant in module.variants:
                state = "" if variant.is_final else ", not to the end"
                click.echo(f"  {variant.fingerprint}  {_few(variant.ranks)}{state}")
        if module.is_cut:
            click.echo(f"  only the first {MAX_COLLECTIVES:,} collectives were compared")
        if module.missing:
            click.echo(f"{shown(module.name)}: not compiled on {_few(module.missing)}")


def _few(names: tuple[str, ...]) -> str:
    """The first of some ranks, and how many more there are."""
    first = shown(names[0])
    return first if len(names) == 1 else f"{first} and {len(names) - 1} more"


def _as_dict(module: RankedModule) -> dict[str, Any]:
    return {
        "name": module.name,
        "missing": list(module.missing),
        "other_programs": [list(variant.ranks) for variant in module.other_programs],
        "variants": [
            {
                "fingerprint": variant.fingerprint,
                "path": str(variant.path),
                "final": variant.is_final,
                "ranks": list(variant.ranks),
            }
            for variant in module.variants
        ],
        "divergences": [
            {
                "ranks": [list(variant.ranks) for variant in (divergence.ours, divergence.theirs)],
                "position": divergence.position,
                "collectives": [
                    collective and str(collective) for collective in divergence.collectives
                ],
                "places": [
                    _place(variant, collective)
                    for variant, collective in zip(
                        (divergence.ours, divergence.theirs), divergence.collectives, strict=True
                    )
                ],
                "first_pass": divergence.cause and divergence.cause.first_pass,
                "first_text": divergence.cause and divergence.cause.first_text,
                "notes": list(divergence.cause.notes) if divergence.cause else [],
            }
            for divergence in module.divergences
        ],
    }
