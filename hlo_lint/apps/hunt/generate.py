"""Modules that look like what passes rewrite: a seed gives a text, and the traits of what is in it.

A trait is a step of `steps.txt`: the left side of some rewrite, with constants, types and sizes at
their edges. Steps are nested, because each one starts at a value that is there, mostly the last
one, and shared, because it may start at any. An expression is evaluated from the inside out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from hlo_lint.analysis.loops import COMPARISONS
from hlo_lint.apps.hunt.attributes import DrawnCall
from hlo_lint.apps.hunt.draft import STEPS, DrawnValue, ModuleDraft, NotDrawn, kind_of
from hlo_lint.apps.hunt.fair import unfair
from hlo_lint.hlo.dtypes import integer_range
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape

MOST_STEPS: Final = 14
MAX_TURNS: Final = 6
INTEGERS: Final = tuple(
    "s32 s32 s32 u32 u32 s8 s8 u8 u8 s64 s64 u64 u64 s16 u16 s4 u4 s32 u32 s8 u8 s2".split()
)
FLOATS: Final = ("f32", "f32", "f64", "bf16", "f16", "f8e4m3fn", "f8e5m2")
DEVICES: Final = ((1, 1), (4, 1), (1, 4))
"""The numbers of replicas and of partitions; most modules are for one device."""
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
    dtype = "pred" if draft.chance(12) else random.choice(FLOATS if draft.chance(5) else INTEGERS)
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
    values, computations = dict(draft.values), [*draft.computations]
    try:
        value = _evaluate(draft, start, text=text)
        if name != "convert" or not unfair(parse_file(_text(draft, [value])).modules[0]):
            return value
    except NotDrawn:
        pass
    draft.values, draft.computations = values, computations
    return None


def _text(draft: ModuleDraft, roots: Sequence[DrawnValue]) -> str:
    root = f"ROOT %root = {TupleShape(tuple(value.shape for value in roots))} tuple("
    root += ", ".join(f"%{value.name}" for value in roots) + ")"
    body = "\n  ".join([*(value.line for value in draft.values.values()), root])
    head = "HloModule hunted"
    head += f", replica_count={draft.replicas}" * (draft.replicas > 1)
    head += f", num_partitions={draft.partitions}" * (draft.partitions > 1)
    return "\n\n".join([head, *draft.computations, f"ENTRY %main {{\n  {body}\n}}\n"])


# ---- expressions


def _evaluate(draft: ModuleDraft, x: DrawnValue, *, text: str) -> DrawnValue:
    """Add what an expression makes of a value; the last statement's value."""
    for name, spelled in (_counter(draft) if "$begin" in text else {}).items():
        text = text.replace(name, spelled)
    while shared := _shared.search(text):
        text = text.replace(shared[0], draft.one_of(shared[1], x.array.dtype))
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
            rest = rest.replace(call[0], _called(draft, call[1], operands, called).name, 1)
        value = names[target.strip()] = _leaf(draft, rest.strip(), names)
    return value


def _called(
    draft: ModuleDraft, head: str, operands: list[DrawnValue], bodies: Sequence[str] = ()
) -> DrawnValue:
    """Add a call, and the computations that it calls."""
    words = [*head.split(":"), ""]
    opcode, variant, *_ = (
        draft.one_of(word[1:], operands[0].array.dtype) if word[:1] == "$" else word
        for word in words
    )
    shapes: list[Shape] = [operand.shape for operand in operands]
    if bodies and opcode not in ("call", "conditional", "while"):
        times = 2 if opcode in ("select-and-scatter", "sort") else 1
        shapes = [ArrayShape(one.array.dtype, ()) for one in operands for _ in range(times)]
    callees = []
    for number, body in enumerate(bodies, 1):
        taken = shapes[number : number + 1] if opcode == "conditional" else shapes
        callees.append(draft.called(taken, partial(_evaluate, text=body)))
    given: dict[str, Sequence[Any]] = {
        "VARIANT": variant,
        "CALLEES": callees,
        "FIRST": callees[:1],
        "SECOND": callees[1:],
    }
    return DrawnCall(draft, opcode, operands, given).add()


def _leaf(draft: ModuleDraft, word: str, names: dict[str, DrawnValue]) -> DrawnValue:
    """The value that a word of `steps.txt` names."""
    whole, _, rest = word.partition(".")
    if value := draft.values.get(whole):
        return _called(draft, f"get-tuple-element:{rest}", [value]) if rest else value
    if rest and whole == "w":
        return draft.parameter(ArrayShape(rest, ()))
    if rest:
        return draft.scalar(rest, None if whole == "z" else whole)
    if word not in names:
        leaf, _, like = word.partition("@")
        shape = _leaf(draft, like or "x", names).array
        names[word] = draft.leaf(leaf.rstrip("0123456789"), shape)
    return names[word]


def _counter(draft: ModuleDraft) -> dict[str, str]:
    """The counter of a loop of any integer type that soon ends; it may pass the end of its type."""
    random = draft.random
    while True:
        dtype = draft.one_of("index", "s32")
        low, high = integer_range(dtype)[0], integer_range(dtype)[-1]
        at = begin = random.choice((0, 0, 1, 2, 3, low, high, high - 1, 100))
        end = random.choice((0, 1, 2, 3, 5, low, high, high - 2, 101))
        step = random.choice((1, 1, 2, 3, 5, high, max(low, -1)))
        direction, advance = (
            random.choice([*COMPARISONS]),
            random.choice(("add", "add", "subtract")),
        )
        change, turns = step if advance == "add" else -step, 0
        while COMPARISONS[direction](at, end) and turns <= MAX_TURNS:
            at, turns = (at + change - low) % (high - low + 1) + low, turns + 1
        if turns <= MAX_TURNS:
            numbers = {"$begin": begin, "$end": end, "$step": step}
            scalars = {name: f"{number}.{dtype}" for name, number in numbers.items()}
            return {**scalars, "$direction": direction, "$advance": advance}
