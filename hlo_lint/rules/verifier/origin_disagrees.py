"""Where values come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class OriginDisagrees(Verified, Rule):
    """An instruction whose origin does not have the form of its value.

    ## Why
    `origin`, formerly `original_value`, names an array of the program before optimization for each
    array of a value; tools that compare values by it read past its end (`VerifyOriginalValues` in
    `xla/service/hlo_verifier.cc`).
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "M-42": Bad.entry("""
            p = (f32[8]{0}, s32[]) parameter(0), origin={{"p"}}  // error
            ROOT g = f32[8]{0} get-tuple-element(p), index=0
        """),
    }
    examples = (
        *rows.values(),
        Good.entry("""
            p = (f32[8]{0}, s32[]) parameter(0), origin={({"p" {0}}, {"p" {1}})}
            ROOT g = f32[8]{0} get-tuple-element(p), index=0
        """),
    )
