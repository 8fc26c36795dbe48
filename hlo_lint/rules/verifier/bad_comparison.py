"""Comparison types of compares."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis.verifier.checks import on
from hlo_lint.analysis.verifier.scope import Scope, Violation
from hlo_lint.hlo.dtypes import is_complex, is_float, is_integer, is_signed
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.rules.base import Good, RefusedByXla
from hlo_lint.rules.verifier import VerifierRule


class BadComparison(VerifierRule):
    """A compare whose comparison type contradicts its element type.

    ## Why
    Signed, unsigned and floating-point numbers need different machine instructions. The element
    type determines the comparison type (`HandleCompare` in `xla/service/hlo_verifier.cc`).
    """

    messages = ("Expected comparison type",)
    # XLA:GPU of 0.11.2 gets a module without comparison types.
    evidence = (RefusedByXla("Expected comparison type FLOAT or TOTALORDER", by="gpu 0.10.0"),)

    table = """
        comparison-type: InstructionVerifier
          compare: the type matches its element type
            ROOT c = pred[8] compare(f32[8] p, p), direction=LT, type=SIGNED  // error
    """
    examples = (Good.entry("ROOT c = pred[8] compare(f32[8] p, p), direction=LT, type=TOTALORDER"),)

    @on("compare", local=True)
    def comparison(self, scope: Scope, compare: Instruction) -> Iterator[Violation]:
        """The comparison type matches the element type."""
        if "type=" not in compare.attributes_text:
            return
        comparison, shape = compare.attribute_or_none("type"), compare.operand_shape(0)
        if not isinstance(shape, ArrayShape) or not isinstance(comparison, str):
            return
        right = _comparisons(shape.dtype)
        if right and comparison not in right:
            message = (
                f"expected the comparison type {' or '.join(right)} for {shape.dtype}, "
                f"got {comparison}"
            )
            yield Violation("comparison-type", compare, message)


def _comparisons(dtype: str) -> tuple[str, ...]:
    if is_float(dtype):
        return ("FLOAT", "TOTALORDER")
    if is_complex(dtype):
        return ("FLOAT",)
    if is_integer(dtype):
        return ("SIGNED",) if is_signed(dtype) else ("UNSIGNED",)
    return ("UNSIGNED",) if dtype == "pred" else ()
