"""Dots whose algorithm keeps fewer bits than their operand_precision requests."""

from __future__ import annotations

from typing import Final

from hlo_lint.analysis.calls import instructions_of
from hlo_lint.hlo.arrays import operand_array
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import RefusedByXla

_ASKED: Final = {"high": 16, "highest": 24}
"""The significant bits of an f32 that each precision requests."""
_KEPT: Final = {
    "dot_any_f8_any_f8_f32": 4,
    "dot_any_f8_any_f8_f32_fast_accum": 4,
    "dot_bf16_bf16_bf16": 8,
    "dot_bf16_bf16_f32": 8,
    "dot_bf16_bf16_f32_x3": 16,
    "dot_f16_f16_f16": 11,
    "dot_f16_f16_f32": 11,
    "dot_tf32_tf32_f32": 11,
    "dot_tf32_tf32_f32_x3": 22,
}
"""The significant bits of an f32 that each algorithm keeps; other algorithms keep all."""
_PROGRAM: Final = """
a = bf16[8,8] convert(f32[8,8] p)
b = bf16[8,8] convert(f32[8,8] q)
ROOT d = f32[8,8] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, \
operand_precision={{{asked},{asked}}}, algorithm={algorithm}  // error
"""


class PrecisionDisagrees(Rule):
    """An f32 dot whose algorithm contradicts its operand_precision.

    ## Why
    A program requests more than the default precision with `operand_precision`, as decompositions
    do, which lose all digits otherwise. `algorithm` states how a dot is computed and overrides it.
    A pass that sets an algorithm on such a dot loses the precision, and no type shows it.
    """

    severity = Severity.WARNING
    opcodes = frozenset({"dot"})
    evidence = (RefusedByXla("must specify DEFAULT precision config", "gpu 0.10.0"),)
    reports = "openxla/xla@224a478aa9"
    examples = (
        Bad.entry(_PROGRAM.format(asked="highest", algorithm="dot_bf16_bf16_f32")),
        Good.entry(_PROGRAM.format(asked="default", algorithm="dot_bf16_bf16_f32")),
        Good.entry(_PROGRAM.format(asked="highest", algorithm="dot_bf16_bf16_f32_x9")),
    )

    def check(self, module: Module) -> Findings:
        """Dots of f32, or of converted f32, whose algorithm keeps too few bits."""
        for dot in instructions_of(module, "dot"):
            if "algorithm=" not in dot.attributes_text:
                continue
            kept = _KEPT.get((dot.attribute_text("algorithm") or "").lower())
            asked = (dot.attribute_text("operand_precision") or "").strip("{}").split(",")
            for number, precision in enumerate(asked):
                wanted = _ASKED.get(precision.strip(), 0)
                if kept is not None and kept < wanted and _was_f32(dot, number):
                    yield Finding(
                        dot,
                        f"operand_precision is {precision.strip()}, but the algorithm keeps only "
                        f"{kept} of the 24 bits of an f32",
                        operand=number,
                    )
                    break


def _was_f32(dot: Instruction, number: int) -> bool:
    """True if an operand is f32, or converted from f32."""
    array, producer = operand_array(dot, number), dot.producer(number)
    if producer is not None and producer.opcode == "convert":
        array = operand_array(producer, 0)
    return array is not None and array.dtype == "f32"
