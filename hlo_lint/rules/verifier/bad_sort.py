"""Comparators of sorts."""

from __future__ import annotations

from hlo_lint.rules.base import Good
from hlo_lint.rules.verifier import VerifierRule


class BadSort(VerifierRule):
    """A sort whose comparator does not match its operands.

    ## Why
    The comparator takes two scalars of each operand and returns true if the first comes first
    (`HandleSort` in `xla/service/hlo_verifier.cc`). For any other comparator, the generated code
    reads values that do not exist.
    """

    table = """
        sort-comparator: ShapeVerifier::HandleSort (sort)
          sort: a comparator of two scalars per operand that returns a pred[]
            less { ROOT s = f32[] subtract(f32[] a, f32[] b) }
            ROOT s = f32[8] sort(f32[8] p), dimensions={0}, to_apply=less  // error
    """
    examples = (
        Good.entry("""
            less { ROOT c = pred[] compare(f32[] a, f32[] b), direction=LT }
            ROOT s = f32[8] sort(f32[8] p), dimensions={0}, to_apply=less
        """),
    )
