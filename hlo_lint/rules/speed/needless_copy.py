"""Copies of values that nothing else reads."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.opcodes import BINARY, PASSES_STATE, UNARY
from hlo_lint.hlo.records import type_of
from hlo_lint.hlo.shape import ArrayShape, shape_or_none
from hlo_lint.rules.base import Bad, FinalModule, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity
from hlo_lint.rules.options import Option
from hlo_lint.text.phrases import sized

_FRESH: Final = (BINARY | UNARY).union(
    "broadcast concatenate convolution copy dot gather pad reduce reverse select slice "
    "transpose".split()
)
"""Opcodes whose result is in memory of its own."""
_PROGRAM = """
HloModule m, is_scheduled=true

ENTRY e {{
  p = f32[67108864]{{0}} parameter(0)
  n = f32[67108864]{{0}} negate(p)
  c = f32[67108864]{{0}} copy(n){mark}
  ROOT r = f32[67108864]{{0}} {root}
}}
"""


class NeedlessCopy(Rule):
    """A copy of a value that only the copy reads, in the layout that it has.

    ## Why
    XLA copies where a value is needed after its memory was given away, or in another order or
    memory. Where nothing but the copy reads a value that has memory of its own, what reads the copy
    can read the value: the copy costs a pass over the array, and room for it. Two copies in a row
    are what a pass leaves that adds copies after copy elision.
    """

    severity = Severity.WARNING
    min_bytes = Option(1 << 26, "Bytes of the array that make a finding.", least=0)
    opcodes = frozenset({"copy"})
    examples = (
        Bad(_PROGRAM.format(root="negate(c)", mark="  // error")),
        Good(_PROGRAM.format(root="add(n, c)", mark="")),
    )

    def check(self, final: FinalModule) -> Findings:
        """Each such copy, in a module whose copies are those that will run."""
        if not final.is_final and not final.module.is_scheduled:
            return
        for computation in final.module.nonfusion_computations:
            for number in computation.positions("copy"):
                size = _byte_count(type_of(computation.rows[number]))
                if size is None or size < self.min_bytes:
                    continue
                copy = computation.at(number)
                if _is_needless(copy, copy.producer()):
                    yield Finding(
                        copy,
                        f"this copies {sized(size)} of %{copy.operand_names[0]}, which nothing "
                        "else reads",
                    )


@lru_cache(maxsize=1 << 12)
def _byte_count(type_text: str) -> int | None:
    """The bytes of an array that lies somewhere; None of anything else."""
    shape = shape_or_none(type_text)
    if not isinstance(shape, ArrayShape) or not shape.has_valid_layout:
        return None
    return shape.byte_size


def _is_needless(copy: Instruction, value: Instruction | None) -> bool:
    return (
        value is not None
        and value.opcode in _FRESH
        and value.type_text == copy.type_text
        and len(value.users) == 1
        and not value.is_root
        and "control-predecessors=" not in copy.attributes_text
        # Results and what a loop carries have to lie in given buffers: a swap takes two copies.
        and not copy.is_root
        and not any(user.opcode in PASSES_STATE for user in copy.users)
    )
