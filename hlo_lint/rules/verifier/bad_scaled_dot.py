"""Scales of scaled dots."""

from __future__ import annotations

from hlo_lint.rules.base import Good
from hlo_lint.rules.verifier import VerifierRule


class BadScaledDot(VerifierRule):
    """A scaled-dot whose scales do not match its operands.

    ## Why
    Each scale applies to a block of its operand, so it has the same rank, and each of its
    dimensions divides the operand's (`HandleScaledDot` in `xla/service/hlo_verifier.cc`). A kernel
    computes the scale's address from that quotient.
    """

    messages = ("should be a multiple of dimension",)
    opcodes = frozenset({"scaled-dot"})
    table = """
        scale-rank: ShapeVerifier::HandleScaledDot (scaled-dot)
          a scale has the rank of its operand; there is a single contracting dimension
            ROOT d = f32[4,2] scaled-dot(f32[4,8] a, f32[8,2] b, f32[4] s, f32[4,2] t),  // error
                lhs_contracting_dims={1}, rhs_contracting_dims={0}
        scale-size: ShapeVerifier::HandleScaledDot
          each dimension of an operand is a multiple of its scale's
            ROOT d = f32[4,2] scaled-dot(f32[4,8] a, f32[8,2] b, f32[4,3] s, f32[4,2] t),  // error
                lhs_contracting_dims={1}, rhs_contracting_dims={0}
        scale-missing: ShapeVerifier::HandleScaledDot
          at most one scale is a scalar
            s = bf16[] constant(1)
            ROOT d = f32[4,2] scaled-dot(bf16[4,8] a, bf16[8,2] b, s, s),  // error
                lhs_contracting_dims={1}, rhs_contracting_dims={0}
    """
    examples = (
        Good.entry("""
            a = f8e4m3fn[4,8] parameter(0)
            b = f8e4m3fn[8,2] parameter(1)
            s = f8e8m0fnu[4,4] parameter(2)
            t = f8e8m0fnu[2,2] parameter(3)
            ROOT d = f32[4,2] scaled-dot(a, b, s, t), lhs_contracting_dims={1},
                rhs_contracting_dims={0}
        """),
    )
