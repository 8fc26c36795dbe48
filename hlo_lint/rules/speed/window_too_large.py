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
    """A reduce-window that does billions of operations for what a few would give.

    ## Why
    XLA computes each window on its own. A cumulative sum that is spelled as a reduce-window over
    all elements takes the square of their number: 65,536 elements are read 4 billion times. XLA
    takes such windows apart before it emits code (reduce-window-rewriter), and leaves those that do
    not have the form it looks for. Spell it as a scan, or in two steps of windows.
    """

    severity = Severity.WARNING
    max_operations = Option(10_000_000_000, "Operations of one reduce-window.", least=0)
    opcodes = frozenset({"reduce-window"})
    examples = (
        Bad(_PROGRAM.format(size=65536, pad=65535, mark="  // error")),
        Good(_PROGRAM.format(size=512, pad=511, mark="")),
    )

    def check(self, final: FinalModule) -> Findings:
        """Each such window of a scheduled module, bodies of fusions included."""
        if not final.is_final and not final.module.is_scheduled:
            return  # a later pass may take it apart
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
