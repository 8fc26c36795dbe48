"""Operands that XLA's parser drops."""

from __future__ import annotations

from hlo_lint.hlo.ir import Computation
from hlo_lint.hlo.opcodes import LITERAL_OPERANDS
from hlo_lint.rules.base import Bad, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity


class DroppedOperand(Rule):
    """An operand without a name, which XLA's parser drops in silence.

    ## Why
    Of `add(%p, f32[8]{0}, %q)` XLA's parser reads two operands, as if the second were not there:
    `ParseOperands` goes on at the next comma. What was meant is lost.
    """

    severity = Severity.WARNING
    always_reported = True
    unfused = False
    examples = (
        Bad.entry("""
            p = f32[8]{0} parameter(0)
            ROOT n = f32[8]{0} add(p, f32[8]{0}, p)  // error
        """),
        Good.entry("""
            p = f32[8]{0} parameter(0)
            ROOT n = f32[8]{0} add(f32[8]{0} p, /*index=1*/ p)
        """),
    )

    def check(self, computation: Computation) -> Findings:
        """One finding for each instruction with fewer operands than commas suggest."""
        if not computation.has_spans:
            return  # the printer wrote it
        for instruction in computation.instructions:
            if instruction.opcode in LITERAL_OPERANDS:
                continue
            text, names = instruction.operands_text, len(instruction.operand_names)
            # Most texts have no commas but those between operands, and need no tokens.
            if "," in text and names <= text.count(",") and names <= _commas(text):
                yield Finding(instruction, "XLA's parser drops an operand without a name")


def _commas(text: str) -> int:
    """The number of commas between operands."""
    from hlo_lint.hlo.parser.tokens import top_level_commas

    return top_level_commas(text)
