"""Comparisons of another type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class BadComparison(Verified, Rule):
    """A compare that takes its operands for another kind of numbers.

    ## Why
    Signed, unsigned and floating-point numbers are compared by different instructions; which ones
    follows from the element type (`HandleCompare` in `xla/service/hlo_verifier.cc`).
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "I-15": Bad.entry("""
            p = f32[8] parameter(0)
            ROOT c = pred[8] compare(p, p), direction=LT, type=SIGNED  // error
        """),
    }
    examples = (
        *rows.values(),
        Good.entry("""
            p = f32[8] parameter(0)
            ROOT c = pred[8] compare(p, p), direction=LT, type=TOTALORDER
        """),
    )
