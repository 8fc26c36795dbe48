"""What XLA knows of a custom call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class BadCustomCall(Verified, Rule):
    """A custom call whose constraints or types do not fit.

    ## Why
    `operand_layout_constraints` has a shape with a layout for each operand, and the result has a
    layout, too: a library is called with what lies there (`HandleCustomCall` in
    `xla/service/hlo_verifier.cc`).
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "S-82": Bad.entry("""
            p = f32[8]{0} parameter(0)
            ROOT c = f32[8]{0} custom-call(p), custom_call_target="f",  // error
                operand_layout_constraints={f32[9]{0}}
        """),
        "I-22": Bad.entry("""
            p = f32[8]{0} parameter(0)
            ROOT c = u64[] custom-call(p), custom_call_target="GetRngSeed"  // error
        """),
    }
    examples = (
        *rows.values(),
        Good.entry("""
            p = f32[8]{0} parameter(0)
            s = u64[] custom-call(), custom_call_target="GetRngSeed"
            ROOT c = f32[8]{0} custom-call(p), custom_call_target="f",
                operand_layout_constraints={f32[8]{0}}
        """),
    )
