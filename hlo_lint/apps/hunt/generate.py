"""Modules that look like what passes rewrite: a seed gives a text, and the traits of what is in it.

A trait is a step: a function that adds the left side of some rewrite, with constants, types and
sizes at their edges. Steps are nested, because each one starts at a value that is there, mostly the
last one, and shared, because it may start at any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from hlo_lint.apps.hunt import elementwise, movement, structured
from hlo_lint.apps.hunt.draft import FLOATS, INTEGERS, DrawnValue, ModuleDraft

Step = Callable[[ModuleDraft, DrawnValue], DrawnValue | None]

STEPS: Final[Mapping[str, Step]] = {
    step.__name__.rstrip("_").replace("_", "-"): step
    for step in (
        *(elementwise.binary, elementwise.constants_chain, elementwise.division, elementwise.shift),
        *(elementwise.same, elementwise.distributed, elementwise.unary, elementwise.comparison),
        *(elementwise.select, elementwise.clamp, elementwise.convert, elementwise.bits),
        *(elementwise.complexes, elementwise.functions, elementwise.mapped),
        *(movement.reshape, movement.transposition, movement.broadcasting, movement.reverse),
        *(movement.slice_, movement.pad, movement.concatenate, movement.iota),
        *(movement.dynamic_slice, movement.dynamic_update_slice),
        *(movement.gather, movement.scatter),
        *(structured.reduce, structured.arg_reduce, structured.reduce_window),
        *(structured.select_and_scatter, structured.sorting, structured.dot),
        *(structured.convolving, structured.loop, structured.conditional),
    )
}
MOST_STEPS: Final = 14


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
    dtypes: Sequence[str] = INTEGERS if random.randrange(5) else FLOATS
    names = list(STEPS)
    chances = [(weights or {}).get(name, 1.0) for name in names]
    draft = ModuleDraft(random, dtypes)
    dtype = "pred" if random.randrange(12) == 0 else random.choice(dtypes)
    draft.source(dtype, draft.dims(random.choice((0, 1, 1, 2, 2, 3, 3, 4)), 200))
    if draft.chance(3):
        first = draft.values[0]
        draft.parameter(first.dtype, first.dims)
    traits: list[str] = []
    made: list[DrawnValue] = []
    for _ in range(random.randint(2, MOST_STEPS)):
        (name,) = random.choices(names, chances)
        last = (made or draft.values)[-1]
        start = last if not draft.chance(3) else random.choice([*made, *draft.values[:2]])
        kept = len(draft.lines), len(draft.values), len(draft.computations), draft.parameters
        value = STEPS[name](draft, start)
        if value is None:
            del draft.lines[kept[0] :], draft.values[kept[1] :], draft.computations[kept[2] :]
            draft.parameters = kept[3]
            continue
        traits.append(name)
        made.append(value)
    results = [*made[-1:], *(value for value in made[:-1] if draft.chance(2))]
    return Generated(seed, draft.text(results or draft.values[-1:]), tuple(traits))
