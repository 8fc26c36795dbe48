"""Unnamed operands that XLA's parser drops."""

from __future__ import annotations

from hlo_lint.hlo.ir import Computation
from hlo_lint.hlo.opcodes import LITERAL_OPERANDS
from hlo_lint.hlo.records import opcode_of, operands_of, references_of
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import WrongValues
from hlo_lint.text.patterns import late

_without_brackets = late(r"\[[^][(){}]*\]|\{[^][(){}]*\}|\([^][(){}]*\)").sub


class DroppedOperand(Rule):
    """An operand without a name, which XLA's parser silently drops.

    ## Why
    XLA's parser reads `add(%p, f32[8]{0}, %q)` as an add of two operands: `ParseOperands` skips the
    unnamed operand and continues at the next comma.
    """

    severity = Severity.WARNING
    always_reported = True
    skip_fusion_bodies = False
    subsumes = frozenset({"wrong-result-shape"})
    evidence = (WrongValues(),)
    examples = (
        Bad.entry("ROOT n = f32[8]{0} add(f32[8]{0} p, f32[8]{0}, p)  // error"),
        Good.entry("""
            p = f32[8]{0} parameter(0)
            ROOT n = f32[8]{0} add(f32[8]{0} p, /*index=1*/ p)
        """),
    )

    def check(self, computation: Computation) -> Findings:
        """Instructions with fewer operands than their commas suggest."""
        if not computation.is_irregular:
            return  # XLA's printer wrote it
        for number, row in enumerate(computation.rows):
            text, names = operands_of(row), len(references_of(row))
            # In most texts all commas are between operands: no tokenizer is needed.
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
