"""Requested accuracies of exact opcodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hlo_lint.analysis.verifier.checks import on_attribute
from hlo_lint.analysis.verifier.scope import Scope, Violation
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.opcodes import OPCODES, UNARY
from hlo_lint.rules.base import Good
from hlo_lint.rules.verifier import VerifierRule


class BadResultAccuracy(VerifierRule):
    """An exact instruction with a `result_accuracy`.

    ## Why
    Only approximated functions can have a requested accuracy (`CheckUnaryOpWithResultAccuracy` in
    `xla/service/hlo_verifier.cc`).
    """

    messages = ("Unary op with result accuracy is not supported for", "Unknown accuracy mode")
    table = """
        result-accuracy: CheckUnaryOpWithResultAccuracy
          only approximated opcodes have a result_accuracy
            ROOT n = f32[8] negate(f32[8] p), result_accuracy={mode=highest}  // error
    """
    examples = (
        Good.entry("""
            t = f32[8] tanh(f32[8] p), result_accuracy={mode=highest}
            ROOT a = f32[8] acos(t), result_accuracy={mode=highest}
        """),
    )

    @on_attribute("result_accuracy=")
    def accuracy(self, scope: Scope, instruction: Instruction) -> Iterator[Violation]:
        """Only approximated opcodes have a result_accuracy."""
        if instruction.opcode in _EXACT and instruction.attribute_text("result_accuracy"):
            message = f"{instruction.opcode} cannot have a result_accuracy"
            yield Violation("result-accuracy", instruction, message)


_EXACT: Final = frozenset(
    opcode for opcode in (*UNARY, "copy") if "result_accuracy" not in OPCODES[opcode].allowed
)
"""Unary opcodes that are not approximated."""
