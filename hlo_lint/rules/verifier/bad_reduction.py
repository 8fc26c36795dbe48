"""Reducers: the computations of reduce, reduce-window, map."""

from __future__ import annotations

from hlo_lint.rules.base import Good
from hlo_lint.rules.verifier import VerifierRule


class BadReduction(VerifierRule):
    """A reduction or map whose computation does not match its operands.

    ## Why
    The computation of a reduction takes an accumulator and an element of each operand, and returns
    the new accumulators (`HandleReduce` in `xla/service/hlo_verifier.cc`).
    """

    messages = (
        "Reduction function must take",
        "Reduction function must produce a",
        "-th parameter shape differs from the",
    )

    table = """
        reducer-shape: ShapeVerifier::HandleReduce (reduce reduce-window map)
          reduce, reduce-window, map: a computation of the element types
            twice { ROOT s = f32[] add(f32[] a, a) }
            z = f32[] constant(0)
            ROOT r = f32[] reduce(f32[8] p, z), dimensions={0}, to_apply=twice  // error
    """
    examples = (
        Good.entry("""
            add { ROOT s = f32[] add(f32[] a, f32[] b) }
            z = f32[] constant(0)
            ROOT r = f32[] reduce(f32[8] p, z), dimensions={0}, to_apply=add
        """),
    )
