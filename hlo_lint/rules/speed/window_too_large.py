"""Windows that read each element thousands of times."""

from __future__ import annotations

from math import prod
from typing import Any

from hlo_lint.analysis.kinds import judged
from hlo_lint.hlo.arrays import result_array
from hlo_lint.hlo.ir import Instruction
from hlo_lint.rules.base import Bad, FinalModule, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity
from hlo_lint.rules.options import Option

_PROGRAM = """
HloModule m, is_scheduled=true

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}

ENTRY e {{
  p = f32[64,{size}]{{1,0}} parameter(0)
  zero = f32[] constant(0)
  ROOT w = f32[64,{size}]{{1,0}} reduce-window(p, zero), \
window={{size=1x{size} pad=0_0x{pad}_0}}, to_apply=add{mark}
}}
"""


class WindowTooLarge(Rule):
    """A reduce-window that takes billions of operations.

    ## Why
    XLA computes each window independently. A cumulative sum written as a reduce-window over all n
    elements takes n² reads: 4 billion for 65,536 elements. XLA splits such windows before it emits
    code (reduce-window-rewriter), but only if they match its pattern. Write a scan, or two smaller
    reduce-windows.
    """

    severity = Severity.WARNING
    max_operations = Option(
        10_000_000_000, "Largest accepted number of operations of a reduce-window.", least=0
    )
    opcodes = frozenset({"reduce-window"})
    examples = (
        Bad(_PROGRAM.format(size=65536, pad=65535, mark="  // error")),
        Good(_PROGRAM.format(size=512, pad=511, mark="")),
    )

    def check(self, final: FinalModule) -> Findings:
        """Large windows of a scheduled module, including fusion bodies."""
        if not final.is_final and not final.module.is_scheduled:
            return  # a later pass may split it
        for instruction, size in judged(final.module, "reduce-window", _size):
            shape = result_array(instruction)
            operations = 0 if shape is None else shape.elements * size
            if operations > self.max_operations:
                yield Finding(
                    instruction,
                    f"this reduce-window does {operations:,} operations: {size:,} for each "
                    "element of its result",
                )


def _size(instruction: Instruction) -> int:
    window: Any = instruction.attribute_or_none("window") or ()
    return prod(dimension.size for dimension in window)
