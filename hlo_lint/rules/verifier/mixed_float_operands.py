"""Floating-point operands of different precision."""

from __future__ import annotations

from hlo_lint.rules.base import Bad, Good
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
    """
    rows = {
        "operand-precision": Bad.entry(
            "ROOT r = f32[8]{0} add(f32[8]{0} p, bf16[8]{0} q)  // error",
            artefacts={".ir-no-opt.ll": ""},
        )
    }
    examples = (
        *rows.values(),
        Good.entry(
            """
            p = f32[8]{0} parameter(0)
            q = bf16[8]{0} parameter(1)
            c = f32[8]{0} convert(q)
            ROOT r = f32[8]{0} add(p, c)
            """,
            artefacts={".ir-no-opt.ll": ""},
        ),
    )
