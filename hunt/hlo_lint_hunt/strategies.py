"""Hypothesis strategies: HLO modules that XLA accepts.

    from hypothesis import given
    from hlo_lint_hunt import strategies

    @given(strategies.modules())
    def test_my_pass(text: str) -> None:
        ...

They need the package `hypothesis`, part of `hlo-lint-hunt[strategies]`.
"""

from __future__ import annotations

from random import Random
from typing import Final

from hypothesis import strategies as st

from hlo_lint.hlo.opcodes import KEEPS_LAYOUT
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.shape import ArrayShape, Layout
from hlo_lint_hunt.generate import drawn_module

_SCHEDULED: Final = "HloModule hunted, is_scheduled=true"


@st.composite
def modules(draw: st.DrawFn, *, layouts: bool = True) -> str:
    """Draw modules for a single device that XLA's parser and verifier accept, as texts.

    They are the modules of `hlo-lint hunt`, some of them scheduled. With `layouts`, arrays in the
    entry have random layouts; elementwise instructions keep the layout of an operand.
    """
    random: Random = draw(st.randoms(use_true_random=False))
    text, _ = drawn_module(random, (1, 1))
    text = _laid_out(text, random) if layouts else text
    return text if random.randrange(2) else text.replace("HloModule hunted", _SCHEDULED, 1)


def _laid_out(text: str, random: Random) -> str:
    """Add layouts to the entry."""
    orders: dict[str, tuple[int, ...]] = {}
    for instruction in parse_file(text).modules[0].entry_computation.instructions:
        shape = instruction.shape
        if isinstance(shape, ArrayShape) and shape.rank > 1:
            order = tuple(random.sample(range(shape.rank), shape.rank))
            if instruction.opcode in KEEPS_LAYOUT:
                for read in filter(None, map(orders.get, instruction.operand_names)):
                    if len(read) == shape.rank:
                        order = read
                        break
            orders[instruction.name] = order
            line = f"%{instruction.name} = {shape}"
            text = text.replace(f"{line} ", f"{line}{Layout(order)} ", 1)
    return text
