"""An accuracy that nobody can give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class BadResultAccuracy(Verified, Rule):
    """An instruction that is asked for an accuracy and has none.

    ## Why
    Only functions that are approximated can be asked to be closer (`CheckUnaryOpWithResultAccuracy`
    in `xla/service/hlo_verifier.cc`).
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "I-13": Bad.entry("""
            p = f32[8] parameter(0)
            ROOT n = f32[8] negate(p), result_accuracy={mode=highest}  // error
        """),
    }
    examples = (
        *rows.values(),
        Good.entry("""
            p = f32[8] parameter(0)
            ROOT n = f32[8] tanh(p), result_accuracy={mode=highest}
        """),
    )
