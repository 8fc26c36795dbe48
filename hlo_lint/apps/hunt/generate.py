"""Modules that look like what passes rewrite: a seed gives a text, and the traits of what is in it.

A trait is a step of `steps.txt`: the left side of some rewrite, with constants, types and sizes at
their edges. Steps are nested, because each one starts at a value that is there, mostly the last
one, and shared, because it may start at any. An expression is evaluated from the inside out.
"""

from __future__ import annotations

import operator as op
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from hlo_lint.apps.hunt.attributes import called_shapes, draw_call
from hlo_lint.apps.hunt.draft import (
    FLOATS,
    INTEGERS,
    STEPS,
    DrawnValue,
    ModuleDraft,
    NotDrawn,
    kind_of,
    neutral_element,
)
from hlo_lint.apps.hunt.fair import unfair
from hlo_lint.hlo.dtypes import integer_range
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape

MOST_STEPS: Final = 14
MAX_TURNS: Final = 6
DEVICES: Final = ((1, 1), (4, 1), (1, 4))
"""The numbers of replicas and of partitions; most modules are for one device."""
_HOLDS: Final = {"LT": op.lt, "LE": op.le, "GT": op.gt, "GE": op.ge, "NE": op.ne}
_call = re.compile(r"([\w$:\-]+)\(([^()]*)\)((?:#\d+)*)")
_body = re.compile(r"\{([^{}]*)\}")
_shared = re.compile(r"\$\d(\w+)")


@dataclass(frozen=True)
class Generated:
    """A module, and what is in it."""

    seed: int
    text: str
    traits: tuple[str, ...]
    """The steps that made it, in order."""


def generate(seed: int, weights: Mapping[str, float] | None = None) -> Generated:
    """The module of a seed; `weights` say how often each step is taken, 1 by default.

    Four of five modules have integers alone, whose values are compared bit for bit.
    """
    random = Random(seed)
    draft = ModuleDraft(random)
    draft.replicas, draft.partitions = random.choices(DEVICES, (8, 1, 1))[0]
    dtypes = INTEGERS if random.randrange(5) else FLOATS
    dtype = "pred" if random.randrange(12) == 0 else random.choice(dtypes)
    first = draft.shape(dtype, random.choice((0, 1, 1, 2, 2, 3, 3, 4)))
    sources = [draft.source(first), *(draft.parameter(first) for _ in range(draft.chance(3)))]
    chances = [(weights or {}).get(name, 1.0) for name in STEPS]
    made: list[DrawnValue] = []
    traits: list[str] = []
    for _ in range(random.randint(2, MOST_STEPS)):
        (name,) = random.choices(list(STEPS), chances)
        start = random.choice([*made, *sources]) if draft.chance(3) else (made or sources)[-1]
        texts = [text for kinds, text in STEPS[name] if kind_of(start.array.dtype) in kinds]
        if texts and (value := _step(draft, name, random.choice(texts), start)):
            traits.append(name)
            made.append(value)
    results = [*made[-1:], *(value for value in made[:-1] if draft.chance(2))]
    return Generated(seed, _text(draft, results or sources[-1:]), tuple(traits))


def _step(draft: ModuleDraft, name: str, text: str, start: DrawnValue) -> DrawnValue | None:
    """The value that a step makes; None where it cannot be, which leaves the draft as it was."""
    lines, computations = len(draft.lines), len(draft.computations)
    values, parameters = dict(draft.values), draft.parameters
    try:
        value = _evaluate(draft, text, start)
        if name != "convert" or not unfair(parse_file(_text(draft, [value])).modules[0]):
            return value
    except NotDrawn:
        pass
    del draft.lines[lines:], draft.computations[computations:]
    draft.values, draft.parameters = values, parameters
    return None


def _text(draft: ModuleDraft, roots: Sequence[DrawnValue]) -> str:
    root = f"ROOT %root = {TupleShape(tuple(value.shape for value in roots))} tuple("
    root += ", ".join(f"%{value.name}" for value in roots) + ")"
    body = "\n  ".join([*draft.lines, root])
    head = "HloModule hunted"
    head += f", replica_count={draft.replicas}" * (draft.replicas > 1)
    head += f", num_partitions={draft.partitions}" * (draft.partitions > 1)
    return "\n\n".join([head, *draft.computations, f"ENTRY %main {{\n  {body}\n}}\n"])


# ---- expressions


def _evaluate(draft: ModuleDraft, text: str, x: DrawnValue) -> DrawnValue:
    """Add what an expression makes of a value; the last statement's value."""
    for name, spelled in (_counter(draft.random) if "$begin" in text else {}).items():
        text = text.replace(name, spelled)
    while shared := _shared.search(text):
        text = text.replace(shared[0], draft.opcode(shared[1], x.array.dtype))
    text = draft.choose(text)
    bodies: list[str] = []
    while body := _body.search(text):
        bodies.append(body[1])
        text = text.replace(body[0], f"#{len(bodies) - 1}", 1)
    names = {"x": x}
    for statement in text.split(";"):
        target, _, rest = statement.rpartition("=")
        while call := _call.search(rest):
            operands = [_leaf(draft, word.strip(), names) for word in call[2].split(",")]
            called = [bodies[int(number)] for number in call[3].split("#")[1:]]
            value = _called(draft, call[1], operands, called)
            rest = rest.replace(call[0], value.name, 1)
        value = names[target.strip()] = _leaf(draft, rest.strip(), names)
    return value


def _called(
    draft: ModuleDraft, head: str, operands: list[DrawnValue], bodies: Sequence[str] = ()
) -> DrawnValue:
    opcode, _, variant = head.partition(":")
    if opcode.startswith("$"):
        opcode = draft.opcode(opcode[1:], operands[0].array.dtype)
    callees = [
        _computation(draft, called_shapes(opcode, operands, number), text)
        for number, text in enumerate(bodies)
    ]
    return draw_call(draft, opcode, variant, operands, callees)


def _computation(draft: ModuleDraft, shapes: Sequence[Shape], text: str) -> str:
    return draft.called(shapes, lambda inner, values: _evaluate(inner, text, values[0]))


def _leaf(draft: ModuleDraft, word: str, names: dict[str, DrawnValue]) -> DrawnValue:
    """The value that a word of `steps.txt` names."""
    if word in draft.values:
        return DrawnValue(word, draft.values[word])
    whole, _, rest = word.partition(".")
    if whole in draft.values:
        return _called(draft, f"get-tuple-element:{rest}", [_leaf(draft, whole, names)])
    if rest and whole[0] == "w":
        return draft.parameter(ArrayShape(rest, ()))
    if rest:
        return draft.scalar(rest, None if whole[0] == "z" else whole)
    if word not in names:
        leaf, _, like = word.partition("@")
        shape = _leaf(draft, like or "x", names).array
        names[word] = _new(draft, leaf.rstrip("0123456789"), shape)
    return names[word]


def _new(draft: ModuleDraft, leaf: str, shape: ArrayShape) -> DrawnValue:
    if leaf in ("maximum", "minimum"):
        return draft.scalar(shape.dtype, neutral_element(shape.dtype, leaf))
    if leaf == "k":
        return draft.scalar(shape.dtype)
    if leaf == "v":
        return draft.parameter(ArrayShape(shape.dtype, ()))
    if leaf == "m":
        return draft.source(ArrayShape("pred", shape.dims))
    if leaf == "u":
        return draft.source(ArrayShape(shape.dtype, tuple(map(draft.upto, shape.dims))))
    return draft.partner(shape) if leaf == "y" else draft.splat(shape, leaf)


def _counter(random: Random) -> dict[str, str]:
    """The counter of a loop of any integer type that soon ends; it may pass the end of its type."""
    while True:
        dtype = random.choice("s32 s32 s64 u32 u32 s8 u8 u64 s16".split())
        low, high = integer_range(dtype)[0], integer_range(dtype)[-1]
        begin = random.choice((0, 0, 1, 2, 3, low, high, high - 1, 100))
        end = random.choice((0, 1, 2, 3, 5, low, high, high - 2, 101))
        step = random.choice((1, 1, 2, 3, 5, high, max(low, -1)))
        direction, advance = random.choice([*_HOLDS]), random.choice(("add", "add", "subtract"))
        at, turns = begin, 0
        while _HOLDS[direction](at, end) and turns <= MAX_TURNS:
            at += step if advance == "add" else -step
            at = (at - low) % (high - low + 1) + low
            turns += 1
        if turns <= MAX_TURNS:
            numbers = {"$begin": begin, "$end": end, "$step": step}
            scalars = {name: f"{number}.{dtype}" for name, number in numbers.items()}
            return {**scalars, "$direction": direction, "$advance": advance}
