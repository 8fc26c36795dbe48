"""Steps of a pass made from real dumps: changes that keep every property, and planted losses."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.opcodes import COLLECTIVES, ELEMENTWISE

_NAME = re.compile(r"%([\w.\-]+)")
_COUNT = re.compile(r'("known_trip_count":\{"n":")(\d+)')


@dataclass(frozen=True)
class Line:
    """An instruction."""

    name: str
    type: str
    opcode: str
    operands: str
    attributes: str
    is_root: bool = False

    @property
    def reads(self) -> list[str]:
        return _NAME.findall(self.operands)

    def renamed(self, names: dict[str, str]) -> Line:
        def name(match: re.Match[str]) -> str:
            return "%" + names.get(match[1], match[1])

        operands, attributes = (_NAME.sub(name, text) for text in (self.operands, self.attributes))
        renamed = names.get(self.name, self.name)
        return replace(self, name=renamed, operands=operands, attributes=attributes)

    def __str__(self) -> str:
        root = "ROOT " if self.is_root else ""
        head = f"  {root}%{self.name} = {self.type} {self.opcode}"
        return f"{head}({self.operands}){self.attributes}"


@dataclass(frozen=True)
class Body:
    """A computation."""

    name: str
    lines: tuple[Line, ...]
    tail: str
    is_entry: bool

    def with_lines(self, lines: Sequence[Line]) -> Body:
        return replace(self, lines=tuple(lines))

    def readers(self, name: str) -> list[int]:
        return [number for number, line in enumerate(self.lines) if name in line.reads]

    def __str__(self) -> str:
        lines = "\n".join(map(str, self.lines))
        return f"{'ENTRY ' if self.is_entry else ''}%{self.name} {{\n{lines}\n}}{self.tail}\n"


@dataclass(frozen=True)
class Program:
    """A module."""

    header: str
    bodies: tuple[Body, ...]

    @classmethod
    def of(cls, module: Module) -> Program:
        bodies = []
        for each in module.computations:
            lines = tuple(Line(*row[1:6], is_root=bool(row[0])) for row in each.rows)
            bodies.append(Body(each.name, lines, each.tail, each.is_entry))
        return cls(module.header, tuple(bodies))

    def with_body(self, number: int, lines: Sequence[Line], *more: Body) -> Program:
        bodies = list(self.bodies)
        bodies[number] = bodies[number].with_lines(lines)
        return replace(self, bodies=(*more, *bodies))

    def __str__(self) -> str:
        return "\n\n".join([self.header, *map(str, self.bodies)]) + "\n"

    @property
    def fused(self) -> set[str]:
        """The computations that fusions and reductions apply."""
        texts = [
            line.attributes
            for body in self.bodies
            for line in body.lines
            if line.opcode not in ("call", "while", "conditional")
        ]
        return {name for text in texts for name in _NAME.findall(text)}

    def places(self, is_fit: Callable[[Line], bool]) -> list[tuple[int, int]]:
        """The fitting instructions outside of fusions."""
        return [
            (number, place)
            for number, body in enumerate(self.bodies)
            if body.name not in self.fused
            for place, line in enumerate(body.lines)
            if is_fit(line)
        ]


Change = Callable[[Program, Random], tuple[Program, Program] | None]
"""A program before and after a pass; None if the program is not fit for it."""


def rename(program: Program, chance: Random) -> tuple[Program, Program]:
    bodies = []
    called = {body.name: f"c.{number}" for number, body in enumerate(program.bodies)}
    first = chance.randrange(1000)
    for number, body in enumerate(program.bodies):
        names = {line.name: f"v{number}.{first + n}" for n, line in enumerate(body.lines)}
        lines = tuple(line.renamed(called | names) for line in body.lines)
        bodies.append(replace(body, name=called[body.name], lines=lines))
    return program, replace(program, bodies=tuple(bodies))


def reorder(program: Program, chance: Random) -> tuple[Program, Program] | None:
    if "is_scheduled=true" in program.header:
        return None
    bodies = []
    for body in program.bodies:
        left, done, names = list(body.lines), set[str](), {line.name for line in body.lines}
        order: list[Line] = []
        while left:
            ready = [
                line
                for line in left
                if {*_NAME.findall(line.operands + line.attributes)} & names <= done
            ]
            line = chance.choice(ready or left)
            left.remove(line)
            done.add(line.name)
            order.append(line)
        bodies.append(body.with_lines(order))
    return program, replace(program, bodies=tuple(bodies))


def clone(program: Program, chance: Random) -> tuple[Program, Program] | None:
    places = [
        (number, place)
        for number, place in program.places(lambda line: line.opcode in ELEMENTWISE | {"fusion"})
        if len(program.bodies[number].readers(program.bodies[number].lines[place].name)) > 1
    ]
    if not places:
        return None
    number, place = chance.choice(places)
    body = program.bodies[number]
    line = body.lines[place]
    copy = replace(line, name=f"{line.name}.clone", is_root=False)
    reader = body.readers(line.name)[-1]
    lines = list(body.lines)
    operands = lines[reader].renamed({line.name: copy.name}).operands
    lines[reader] = replace(lines[reader], operands=operands)
    lines.insert(place + 1, copy)
    return program, program.with_body(number, lines)


def _undone(program: Program, chance: Random, change: Change) -> tuple[Program, Program] | None:
    made = change(program, chance)
    return None if made is None else (made[1], made[0])


def _outlined(program: Program, chance: Random, call: str) -> tuple[Program, Program] | None:
    places = program.places(lambda line: line.opcode in ELEMENTWISE)
    if not places:
        return None
    number, place = chance.choice(places)
    body, line = program.bodies[number], program.bodies[number].lines[place]
    by_name = {other.name: other for other in body.lines}
    reads = list(dict.fromkeys(line.reads))
    if "#" in line.operands or "control-pre" in line.attributes:
        return None
    if any(read not in by_name for read in reads):
        return None
    given = [
        Line(f"p.{n}", by_name[read].type, "parameter", str(n), "") for n, read in enumerate(reads)
    ]
    names = {read: f"p.{n}" for n, read in enumerate(reads)}
    inside = replace(line.renamed({**names, line.name: f"{line.name}.1"}), is_root=True)
    outlined = Body("outlined.9", (*given, inside), "", False)
    caller = Line(
        line.name if call == "call" else "outlined.fusion",
        line.type,
        call.partition(" ")[0],
        ", ".join(f"%{read}" for read in reads),
        ", to_apply=%outlined.9" if call == "call" else ", kind=kLoop, calls=%outlined.9",
        line.is_root,
    )
    lines = [other.renamed({line.name: caller.name}) for other in body.lines]
    lines[place] = caller
    return program, program.with_body(number, lines, outlined)


outline, fuse = partial(_outlined, call="call"), partial(_outlined, call="fusion")


def _loop(program: Program, chance: Random) -> tuple[int, int, int] | None:
    """The numbers of a body with a loop, of the loop, and of the loop's body."""
    bodies = {body.name: number for number, body in enumerate(program.bodies)}
    loops = []
    for number, place in program.places(lambda line: line.opcode == "while"):
        line = program.bodies[number].lines[place]
        found = re.search(r"body=%([\w.\-]+)", line.attributes)
        count = _COUNT.search(line.attributes)
        if "is_scheduled=true" in program.header or not (found and found[1] in bodies and count):
            continue
        if int(count[2]) > 3 and not int(count[2]) % 2:
            loops.append((number, place, bodies[found[1]]))
    return chance.choice(loops) if loops else None


def _copy_of(body: Body, given: str, word: str) -> list[Line]:
    """The lines of a body with another argument, under other names, without its parameter."""
    names = {line.name: f"{line.name}.{word}" for line in body.lines}
    names |= {line.name: given for line in body.lines if line.opcode == "parameter"}
    lines = (line.renamed(names) for line in body.lines if line.opcode != "parameter")
    return [replace(line, is_root=False) for line in lines]


def _recounted(line: Line, count: Callable[[int], int]) -> Line:
    text = _COUNT.sub(lambda match: f"{match[1]}{count(int(match[2]))}", line.attributes)
    return replace(line, attributes=re.sub(r',"known_init_step":\{[^}]*\}', "", text))


def unroll(program: Program, chance: Random) -> tuple[Program, Program] | None:
    place = _loop(program, chance)
    if place is None:
        return None
    number, at, body_number = place
    body = program.bodies[body_number]
    root = next((line for line in body.lines if line.is_root), None)
    if root is None:
        return None
    first = [replace(line, is_root=False) for line in body.lines]
    second = _copy_of(body, root.name, "unrolled")
    second = [replace(line, is_root=line.name == f"{root.name}.unrolled") for line in second]
    after = program.with_body(body_number, [*first, *second])
    lines = list(after.bodies[number].lines)
    lines[at] = _recounted(lines[at], lambda count: count // 2)
    return program, after.with_body(number, lines)


def peel(program: Program, chance: Random) -> tuple[Program, Program] | None:
    place = _loop(program, chance)
    if place is None:
        return None
    number, at, body_number = place
    body, caller = program.bodies[body_number], program.bodies[number]
    loop = caller.lines[at]
    root = next((line for line in body.lines if line.is_root), None)
    if root is None or len(loop.reads) != 1:
        return None
    copy = _copy_of(body, loop.reads[0], "peeled")
    lines = list(caller.lines)
    operands = _NAME.sub(f"%{root.name}.peeled", loop.operands)
    lines[at] = _recounted(replace(loop, operands=operands), lambda count: count - 1)
    lines[at:at] = copy
    return program, program.with_body(number, lines)


PRESERVING: dict[str, Change] = {
    **{change.__name__: change for change in (rename, reorder, clone, unroll, peel)},
    "merge": partial(_undone, change=clone),
    "outline": outline,
    "fuse": fuse,
    "inline": partial(_undone, change=outline),
}
"""Changes that keep every value and every property."""

COMPUTED = ELEMENTWISE | {"dot", "reduce", "fusion", "custom-call"}
LOSSES: dict[str, tuple[frozenset[str], str, str]] = {
    "frontend attribute": (COMPUTED, ', frontend_attributes={_xla_stream="1"}', ""),
    "frontend value": (COMPUTED, ', frontend_attributes={a="1"}', ', frontend_attributes={a="2"}'),
    "group": (COMPUTED | COLLECTIVES, ', frontend_attributes={_scheduling_group_id="3"}', ""),
    "origin": (COMPUTED, ', origin={{"v"}}', ""),
    "backend_config": (frozenset({"fusion", "custom-call"}), ', backend_config="b"', ""),
    "sharding": (ELEMENTWISE | {"dot"}, ", sharding={replicated}", ""),
    "manual": (ELEMENTWISE | {"dot"}, ", sharding={manual}", ", sharding={replicated}"),
    "statistics": (COMPUTED, ", statistics={visualizing_index=0,s=1.0}", ""),
    "precision": (frozenset({"dot"}), ", operand_precision={highest,highest}", ""),
    "algorithm": (frozenset({"dot"}), ", algorithm=dot_f32_f32_f32", ""),
    "side effect": (frozenset({"custom-call"}), ", custom_call_has_side_effect=true", ""),
    "is_stable": (frozenset({"sort"}), ", is_stable=true", ""),
    "accuracy": (
        frozenset({"exponential", "tanh", "log", "rsqrt"}),
        ", result_accuracy={mode=highest}",
        "",
    ),
}
"""By property: the opcodes that may have it, its text before a pass and after it."""


def plant(
    program: Program, chance: Random, change: Change, kind: str
) -> tuple[Program, Program] | None:
    """A step that loses a property of one instruction, beside a change that keeps all values."""
    opcodes, ours, theirs = LOSSES[kind]
    word = ours.partition("=")[0]
    places = program.places(
        lambda line: line.opcode in opcodes and word not in line.attributes and "#" not in line.type
    )
    if not places:
        return None
    number, place = chance.choice(places)
    lines = list(program.bodies[number].lines)
    text = lines[place].attributes
    # XLA prints the metadata, then the configuration, after all others.
    ends = [text.find(word) for word in (", metadata=", ", backend_config=") if word in text]
    at = len(text) if ours.startswith(", backend_config") else min([len(text), *ends])
    lines[place] = replace(lines[place], attributes=text[:at] + ours + text[at:])
    made = change(program.with_body(number, lines), chance)
    if made is None:
        return None
    before, after = made
    if str(before).count(ours) != 1 or str(after).count(ours) != 1:
        return None
    bodies = tuple(
        body.with_lines(
            [replace(line, attributes=line.attributes.replace(ours, theirs)) for line in body.lines]
        )
        for body in after.bodies
    )
    return before, replace(after, bodies=bodies)


def alter(program: Program, chance: Random) -> Program | None:
    """A program that computes another value by one operation, on the same operands."""
    becomes = {"add": "subtract", "maximum": "minimum", "sine": "cosine", "multiply": "add"}
    places = program.places(lambda line: line.opcode in becomes and "pred" not in line.type)
    if not places:
        return None
    number, place = chance.choice(places)
    lines = list(program.bodies[number].lines)
    lines[place] = replace(lines[place], opcode=becomes[lines[place].opcode])
    return program.with_body(number, lines)
