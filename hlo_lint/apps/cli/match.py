"""`hlo-lint match`: the places of a pattern of instructions, or its near misses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from hlo_lint.analysis import match as m
from hlo_lint.analysis.match import Match, Pattern
from hlo_lint.analysis.match.pattern import candidates
from hlo_lint.analysis.match.reader import read_pattern
from hlo_lint.apps.cli import common, parameters
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.directory import open_dump
from hlo_lint.dumps.selection import modules_of, only_module
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.text.errors import DumpError
from hlo_lint.text.source import shown

NEAR_MISSES = 20
"""Maximum number of near misses that are printed without `--all`."""
WIDTH = 160


@dataclass
class _Found:
    """A match or a near miss, the first dump that has it, and the number of dumps that do."""

    module: Module
    instruction: Instruction
    hit: Match | None
    reason: str
    place: str
    """`path:line:column`"""
    line: str
    dumps: int = 1


@click.command("match")
@click.argument("pattern")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@click.option(
    "--explain", is_flag=True, help="Also print near misses: the same opcode, and the difference."
)
@parameters.all_option
@parameters.module_option
@parameters.output_format("text", "json")
@parameters.color_option
@click.pass_context
def command(
    ctx: click.Context,
    pattern: str,
    paths: tuple[str, ...],
    explain: bool,
    everything: bool,
    module: str | None,
    output_format: str,
) -> None:
    """Find instructions by a pattern: 'reshape(custom_call())'.

    An opcode with patterns of its operands in brackets, `any()` for any instruction, "names" to
    print what they stand for, and .named("x") .any_order() .one_user() .attr(index=0)
    .shape(array(dtype="bf16", rank=2)) .shape("f32[8]").

    A match that many dumps of a module share is printed once. Exit status: 0 found, 1 not found,
    2 wrong use.
    """
    asked = read_pattern(pattern)
    hits: list[_Found] = []
    misses: list[_Found] = []
    for compilation in only_module(open_dump(paths), module, paths):
        for candidate in _search(asked, compilation, explain):
            (misses if candidate.hit is None else hits).append(candidate)
    if output_format == "json":
        near = {"near_misses": [_as_dict(miss) for miss in misses]} if explain else {}
        common.print_json(pattern=str(asked), matches=[_as_dict(hit) for hit in hits], **near)
    else:
        _show(hits, misses, everything, explain)
    ctx.exit(0 if hits else 1)


def _search(asked: Pattern, compilation: Compilation, explain: bool) -> Iterator[_Found]:
    """Each match and near miss once, at the first dump that has it."""
    searched: dict[Computation, tuple[tuple[Instruction, Match | None, str], ...]] = {}
    reported: dict[tuple[str, str], _Found] = {}
    for dump in compilation.dumps:
        try:
            modules = modules_of(dump)
        except DumpError as error:
            click.echo(f"skipped: {shown(str(error))}", err=True)
            continue
        for module in modules:
            for number, computation in enumerate(module.computations):
                if computation not in searched:
                    searched[computation] = tuple(_in_computation(asked, computation, explain))
                for instruction, hit, reason in searched[computation]:
                    key = computation.name, instruction.text
                    if key in reported:
                        reported[key].dumps += 1
                        continue
                    start = module.start + module.offset(number) + instruction.span.start
                    line, column = module.file.lines.position(start)
                    place = f"{dump.path}:{line}:{column}"
                    text = module.file.lines.line(line)
                    reported[key] = _Found(module, instruction, hit, reason, place, text)
    yield from reported.values()


def _in_computation(
    asked: Pattern, computation: Computation, explain: bool
) -> Iterator[tuple[Instruction, Match | None, str]]:
    if not explain:
        for hit in m.find(asked, computation):
            yield hit.instruction, hit, ""
        return
    for instruction in candidates(asked, computation):
        match = next(m.find(asked, instruction), None)
        yield instruction, match, "" if match else m.explain(asked, instruction)


def _show(
    hits: Sequence[_Found], misses: Sequence[_Found], everything: bool, explain: bool
) -> None:
    for place in hits:
        _show_place(place)
        if place.hit:
            names = ", ".join(f"{name} is {_title(place.hit, name)}" for name in place.hit)
            click.echo(f"  {shown(names)}")
    kept = misses if everything else misses[:NEAR_MISSES]
    for place in kept:
        _show_place(place)
        click.echo(click.style(f"  no match: {shown(place.reason)}", fg="yellow"))
    if len(kept) < len(misses):
        click.echo(f"… and {len(misses) - len(kept)} more near misses (--all)")
    near = f", {len(misses)} near" if explain else ""
    click.echo(f"{len(hits)} match{'' if len(hits) == 1 else 'es'}{near}")


def _show_place(candidate: _Found) -> None:
    also = f" (in {candidate.dumps} dumps)" if candidate.dumps > 1 else ""
    click.echo(click.style(shown(candidate.place), bold=True) + also)
    text = shown(candidate.line.strip())
    click.echo(f"  {text[:WIDTH]}{'…' if len(text) > WIDTH else ''}")


def _title(hit: Match, name: str) -> str:
    element = "".join(f"#{number}" for number in hit.element(name))
    return f"%{hit[name].name}{element}"


def _as_dict(candidate: _Found) -> dict[str, Any]:
    path, line, column = candidate.place.rsplit(":", 2)
    fields: dict[str, Any] = {
        "path": path,
        "line": int(line),
        "column": int(column),
        "module": candidate.module.name,
        "computation": candidate.instruction.computation.name,
        "instruction": candidate.instruction.name,
        "dumps": candidate.dumps,
    }
    if candidate.hit is None:
        return fields | {"reason": candidate.reason}
    captures = {name: _title(candidate.hit, name).removeprefix("%") for name in candidate.hit}
    return fields | {"captures": captures}
