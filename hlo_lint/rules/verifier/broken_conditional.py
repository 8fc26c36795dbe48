"""What branches take and give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class BrokenConditional(Verified, Rule):
    """A conditional whose branches do not take what is passed, or give different things.

    ## Why
    Each branch has one parameter, which is the operand behind the selector, and all give the same
    type and layout: their results share one buffer (`HandleConditional` in
    `xla/service/hlo_verifier.cc`).
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "S-86": Bad(
            """
            HloModule m

            yes {
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a)
            }

            no {
              b = f32[8]{0} parameter(0)
              ROOT c = f32[8]{0} copy(b)
            }

            ENTRY e {
              i = f32[] parameter(0)
              p = f32[8]{0} parameter(1)
              ROOT r = f32[8]{0} conditional(i, p, p), true_computation=yes,  // error
                  false_computation=no
            }
            """
        ),
        "I-12": Bad(
            """
            HloModule m

            yes {
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a), sharding={replicated}
            }

            no {
              b = f32[8]{0} parameter(0)
              ROOT c = f32[8]{0} copy(b)
            }

            ENTRY e {
              i = pred[] parameter(0)
              p = f32[8]{0} parameter(1)
              ROOT r = f32[8]{0} conditional(i, p, p), true_computation=yes,  // error
                  false_computation=no, sharding={maximal device=0}
            }
            """
        ),
    }
    examples = (
        *rows.values(),
        Good(
            """
            HloModule m

            yes {
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a)
            }

            no {
              b = f32[8]{0} parameter(0)
              ROOT c = f32[8]{0} copy(b)
            }

            ENTRY e {
              i = pred[] parameter(0)
              p = f32[8]{0} parameter(1)
              ROOT r = f32[8]{0} conditional(i, p, p), true_computation=yes, false_computation=no
            }
            """
        ),
    )
