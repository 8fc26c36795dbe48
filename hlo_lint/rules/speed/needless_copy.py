"""Copies of values that have no other user."""

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
"""Opcodes whose result has its own buffer."""
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
    """A copy of a value to the same layout, although only the copy reads it.

    ## Why
    XLA copies a value that is needed after its buffer is reused, or in a different layout or memory
    space. If only the copy reads a value that has its own buffer, users of the copy can read the
    value directly: the copy costs a pass over the array, and memory for it. Passes that add copies
    after copy elision leave two copies in a row.
    """

    severity = Severity.WARNING
    min_bytes = Option(1 << 26, "Smallest reported array, in bytes.", least=0)
    opcodes = frozenset({"copy"})
    examples = (
        Bad(_PROGRAM.format(root="negate(c)", mark="  // error")),
        Good(_PROGRAM.format(root="add(n, c)", mark="")),
    )

    def check(self, final: FinalModule) -> Findings:
        """Needless copies, in a final or scheduled module."""
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
                        f"this copies {sized(size)} of %{copy.operand_names[0]}, which has no "
                        "other user",
                    )


@lru_cache(maxsize=1 << 12)
def _byte_count(type_text: str) -> int | None:
    """The size in bytes of an array type with a valid layout; None for any other type."""
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
        # Results and loop state must be in given buffers: a swap takes two copies.
        and not copy.is_root
        and not any(user.opcode in PASSES_STATE for user in copy.users)
    )
