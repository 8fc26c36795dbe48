"""Floating-point operands of different precision."""

from __future__ import annotations

from hlo_lint.rules.base import Good
from hlo_lint.rules.verifier import VerifierRule


class MixedFloatOperands(VerifierRule):
    """An instruction whose floating-point operands have different precision.

    ## Why
    After the passes that settle precision, all floating-point operands of an elementwise
    instruction have the same type; a code generator assumes the type of the first (`CheckShape` in
    `xla/service/hlo_verifier.cc`, unless `allow_mixed_precision`). Reported only in numbered dumps,
    where the verifier's options are known.
    """

    messages = ("Seen floating point types of different precisions in",)

    table = """
        operand-precision: ShapeVerifier::CheckShape
          floating-point operands have the same precision, except where opcodes may mix them
            // hlo-lint: stage gpu
            ROOT r = f32[8]{0} add(f32[8]{0} p, bf16[8]{0} q)  // error
    """
    examples = (
        Good.entry("""
            // hlo-lint: stage gpu
            c = f32[8]{0} convert(bf16[8]{0} q)
            ROOT r = f32[8]{0} add(f32[8]{0} p, c)
        """),
    )
