"""Modules that look like what passes rewrite: a seed gives a text, and the traits of what is in it.

A trait is a step of `steps.txt`: the left side of some rewrite, with constants, types and sizes at
their edges. Steps are nested, because each one starts at a value that is there, mostly the last
one, and shared, because it may start at any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from hlo_lint.apps.hunt.draft import (
    FLOATS,
    INTEGERS,
    STEPS,
    DrawnValue,
    ModuleDraft,
    NotDrawn,
    kind_of,
)
from hlo_lint.apps.hunt.fair import unfair
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.shape import TupleShape

MOST_STEPS: Final = 14
DEVICES: Final = ((1, 1), (4, 1), (1, 4))
"""The numbers of replicas and of partitions; most modules are for one device."""


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
        value = draft.evaluate(text, start)
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
