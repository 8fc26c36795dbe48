"""Operands that XLA's parser drops."""

from __future__ import annotations

from hlo_lint.hlo.ir import Computation, Module
from hlo_lint.hlo.opcodes import LITERAL_OPERANDS
from hlo_lint.hlo.records import opcode_of, operands_of, references_of
from hlo_lint.rules.base import Bad, Findings, Good, Rule, Stage
from hlo_lint.rules.findings import Finding, Severity
from hlo_lint.text.patterns import late

_without_brackets = late(r"\[[^][(){}]*\]|\{[^][(){}]*\}|\([^][(){}]*\)").sub


class DroppedOperand(Rule):
    """An operand without a name, which XLA's parser drops in silence.

    ## Why
    Of `add(%p, f32[8]{0}, %q)` XLA's parser reads two operands, as if the second were not there:
    `ParseOperands` goes on at the next comma. What was meant is lost.
    """

    severity = Severity.WARNING
    always_reported = True
    skip_fusion_bodies = False
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

    def can_skip(self, module: Module, stage: Stage) -> bool:
        """True for what the printer wrote."""
        return not any(computation.has_spans for computation in module.computations)

    def check(self, computation: Computation) -> Findings:
        """One finding for each instruction with fewer operands than commas suggest."""
        if not computation.has_spans:
            return  # the printer wrote it
        for number, row in enumerate(computation.rows):
            text, names = operands_of(row), len(references_of(row))
            # Most texts have no commas but those between operands, and need no tokens.
            if "," not in text or names > text.count(",") or opcode_of(row) in LITERAL_OPERANDS:
                continue
            if names <= _commas(text):
                message = "XLA's parser drops an operand without a name"
                yield Finding(computation.at(number), message)


def _commas(text: str) -> int:
    """The number of commas between operands."""
    if '"' not in text and "/" not in text:  # no strings or comments, which may hold brackets
        left, bare = text, _without_brackets("", text)
        while left != bare:
            left, bare = bare, _without_brackets("", bare)
        if not any(bracket in bare for bracket in "[](){}"):
            return bare.count(",")
    from hlo_lint.hlo.parser.tokens import top_level_commas

    return top_level_commas(text)
