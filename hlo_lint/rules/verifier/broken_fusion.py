"""A fusion and its body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class BrokenFusion(Verified, Rule):
    """A fusion that does not agree with its body.

    ## Why
    A kernel is generated from the body, and launched with the operands and the result of the
    fusion: each parameter lies as its operand does, and the root as the result (`HandleFusion` and
    `CheckFusionInstruction` in `xla/service/hlo_verifier.cc`).
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "S-77": Bad.entry("""
            p = f32[8]{0} parameter(0)
            ROOT r = f32[8]{0} fusion(p), kind=kLoop  // error
        """),
        "S-78": Bad(
            """
            HloModule m

            f {
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a)
            }

            ENTRY e {
              p = f32[8]{0} parameter(0)
              ROOT r = f32[4]{0} fusion(p), kind=kLoop, calls=f  // error
            }
            """
        ),
        "S-79": Bad(
            """
            HloModule m

            f {
              a = f32[8,3]{1,0} parameter(0)
              ROOT n = f32[8,3]{1,0} negate(a)
            }

            ENTRY e {
              p = f32[8,3]{0,1} parameter(0)
              ROOT r = f32[8,3]{1,0} fusion(p), kind=kLoop, calls=f  // error
            }
            """
        ),
        "I-05u": Bad(
            """
            HloModule m

            f {
              a = f32[8]{0} parameter(0)
              m = f32[8]{0} sine(a)  // error
              ROOT n = f32[8]{0} negate(a)
            }

            ENTRY e {
              p = f32[8]{0} parameter(0)
              ROOT r = f32[8]{0} fusion(p), kind=kLoop, calls=f
            }
            """
        ),
    }
    examples = (
        *rows.values(),
        Good(
            """
            HloModule m

            f {
              a = f32[8,3]{0,1} parameter(0)
              ROOT n = f32[8,3]{0,1} negate(a)
            }

            ENTRY e {
              p = f32[8,3]{0,1} parameter(0)
              ROOT r = f32[8,3]{0,1} fusion(p), kind=kLoop, calls=f
            }
            """
        ),
    )
