"""`hlo-lint match`: finds a pattern of instructions, and its near misses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from hlo_lint.analysis.match import Match, Pattern
    from hlo_lint.dumps.pipeline import Pipeline
    from hlo_lint.hlo.ir import Computation, Instruction, Module

NEAR_MISSES = 20
"""Maximum near misses that are printed without `--all`."""
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
    "--explain", is_flag=True, help="Also print near misses: the same opcode, and what differs."
)
@click.option("--all", "everything", is_flag=True, help="Print every near miss, however many.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    pattern: str,
    paths: tuple[str, ...],
    explain: bool,
    everything: bool,
    as_json: bool,
) -> None:
    """Find PATTERN in HLO files and dump directories: 'reshape(custom_call())'.

    An opcode with patterns of its operands in brackets, `any()` for any instruction, "names" to
    print what they stand for, and .named("x") .any_order() .one_user() .attr(index=0)
    .shape(array(dtype="bf16", rank=2)) .shape("f32[8]").

    A match that many dumps of a module share is printed once. Exit status: 0 found, 1 not found,
    2 wrong use.
    """
    from hlo_lint.analysis.match.reader import read_pattern
    from hlo_lint.dumps.directory import open_dump

    asked = read_pattern(pattern)
    hits: list[_Found] = []
    misses: list[_Found] = []
    for pipeline in open_dump(paths):
        for found in _search(asked, pipeline, explain):
            (misses if found.hit is None else hits).append(found)
    if as_json:
        said = {"version": 1, "pattern": str(asked), "matches": [_as_dict(each) for each in hits]}
        if explain:
            said["near_misses"] = [_as_dict(each) for each in misses]
        click.echo(json.dumps(said, indent=2))
    else:
        _show(hits, misses, everything, explain)
    ctx.exit(0 if hits else 1)


def _search(asked: Pattern, pipeline: Pipeline, explain: bool) -> Iterator[_Found]:
    """Each hit and near miss once, at the first dump that has it."""
    from hlo_lint.dumps.selection import modules_of
    from hlo_lint.text.errors import DumpError
    from hlo_lint.text.source import shown

    known: dict[Computation, tuple[tuple[Instruction, Match | None, str], ...]] = {}
    met: dict[tuple[str, str], _Found] = {}
    for dump in pipeline.dumps:
        try:
            modules = modules_of(dump)
        except DumpError as error:
            click.echo(f"skipped: {shown(str(error))}", err=True)
            continue
        for module in modules:
            for number, computation in enumerate(module.computations):
                if computation not in known:
                    known[computation] = tuple(_in_computation(asked, computation, explain))
                for instruction, hit, reason in known[computation]:
                    key = computation.name, instruction.text
                    if key in met:
                        met[key].dumps += 1
                        continue
                    start = module.start + module.offset(number) + instruction.span.start
                    line, column = module.file.lines.position(start)
                    place = f"{dump.path}:{line}:{column}"
                    text = module.file.lines.line(line)
                    met[key] = _Found(module, instruction, hit, reason, place, text)
    yield from met.values()


def _in_computation(
    asked: Pattern, computation: Computation, explain: bool
) -> Iterator[tuple[Instruction, Match | None, str]]:
    from hlo_lint.analysis import match as m
    from hlo_lint.analysis.match.pattern import candidates

    if not explain:
        for hit in m.find(asked, computation):
            yield hit.instruction, hit, ""
        return
    for instruction in candidates(asked, computation):
        found = next(m.find(asked, instruction), None)
        yield instruction, found, "" if found else m.explain(asked, instruction)


def _show(
    hits: Sequence[_Found], misses: Sequence[_Found], everything: bool, explain: bool
) -> None:
    from hlo_lint.text.source import shown

    for found in hits:
        _show_place(found)
        if found.hit:
            names = ", ".join(f"{name} is {_title(found.hit, name)}" for name in found.hit)
            click.echo(f"  {shown(names)}")
    kept = misses if everything else misses[:NEAR_MISSES]
    for found in kept:
        _show_place(found)
        click.echo(click.style(f"  no match: {shown(found.reason)}", fg="yellow"))
    if len(kept) < len(misses):
        click.echo(f"… and {len(misses) - len(kept)} more near misses (--all)")
    near = f", {len(misses)} near" if explain else ""
    click.echo(f"{len(hits)} match{'' if len(hits) == 1 else 'es'}{near}")


def _show_place(found: _Found) -> None:
    from hlo_lint.text.source import shown

    also = f" (in {found.dumps} dumps)" if found.dumps > 1 else ""
    click.echo(click.style(shown(found.place), bold=True) + also)
    text = shown(found.line.strip())
    click.echo(f"  {text[:WIDTH]}{'…' if len(text) > WIDTH else ''}")


def _title(hit: Match, name: str) -> str:
    element = "".join(f"#{number}" for number in hit.element(name))
    return f"%{hit[name].name}{element}"


def _as_dict(found: _Found) -> dict[str, Any]:
    path, line, column = found.place.rsplit(":", 2)
    said: dict[str, Any] = {
        "path": path,
        "line": int(line),
        "column": int(column),
        "module": found.module.name,
        "computation": found.instruction.computation.name,
        "instruction": found.instruction.name,
        "dumps": found.dumps,
    }
    if found.hit is None:
        return said | {"reason": found.reason}
    captures = {name: _title(found.hit, name).removeprefix("%") for name in found.hit}
    return said | {"captures": captures}
