"""Hypothesis strategies: HLO modules that XLA accepts.

    from hypothesis import given
    from hlo_lint.apps.testing import strategies

    @given(strategies.modules())
    def test_my_pass(text: str) -> None:
        ...

They need the package `hypothesis`, which comes with `hlo-lint[test]`.
"""

from __future__ import annotations

from random import Random
from typing import Final

from hypothesis import strategies as st

from hlo_lint.apps.hunt.generate import drawn_module
from hlo_lint.hlo.opcodes import KEEPS_LAYOUT
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.shape import ArrayShape, Layout

_SCHEDULED: Final = "HloModule hunted, is_scheduled=true"


@st.composite
def modules(draw: st.DrawFn, *, layouts: bool = True) -> str:
    """Texts of modules that XLA's parser reads and its verifier accepts, for one device.

    They are those of `hlo-lint hunt`, some of them scheduled. With `layouts` the arrays of the
    entry have any layouts; elementwise instructions keep that of an operand.
    """
    random: Random = draw(st.randoms(use_true_random=False))
    text, _ = drawn_module(random, (1, 1), {})
    text = _laid_out(text, random) if layouts else text
    return text if random.randrange(2) else text.replace("HloModule hunted", _SCHEDULED, 1)


def _laid_out(text: str, random: Random) -> str:
    """The module with layouts in the entry."""
    orders: dict[str, tuple[int, ...]] = {}
    for instruction in parse_file(text).modules[0].entry_computation.instructions:
        shape = instruction.shape
        if isinstance(shape, ArrayShape) and shape.rank > 1:
            order = tuple(random.sample(range(shape.rank), shape.rank))
            if instruction.opcode in KEEPS_LAYOUT:
                of_operands = map(orders.get, instruction.operand_names)
                order = next((one for one in of_operands if one and len(one) == len(order)), order)
            orders[instruction.name] = order
            line = f"%{instruction.name} = {shape}"
            text = text.replace(f"{line} ", f"{line}{Layout(order)} ", 1)
    return text
