"""What a loop carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class BrokenWhile(Verified, Rule):
    """A loop that does not carry one value through its condition and its body.

    ## Why
    What goes into a loop, into its condition and its body, and what comes out lies in one buffer:
    XLA takes types and layouts to be the same everywhere (`HandleWhile` in
    `xla/service/hlo_verifier.cc`), and so it does with the sharding.
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "S-07": Bad(
            """
            HloModule m

            body {
              q = (s32[], f32[8]{0}) parameter(0)
              ROOT b = (s32[], f32[8]{0}) copy(q)
            }

            condition {
              q.1 = (s32[], f32[8]{0}) parameter(0)
              q.2 = s32[] parameter(1)
              n = s32[] get-tuple-element(q.1), index=0
              ROOT c = pred[] compare(n, n), direction=LT
            }

            ENTRY e {
              p = (s32[], f32[8]{0}) parameter(0)
              ROOT w = (s32[], f32[8]{0}) while(p), condition=condition, body=body  // error
            }
            """
        ),
        "S-85": Bad(
            """
            HloModule m

            body {
              q = (s32[], f32[8]{0}) parameter(0)
              ROOT b = (s32[], f32[8]{0}) copy(q)
            }

            condition {
              q.1 = (s32[], f32[8]{0}) parameter(0)
              n = s32[] get-tuple-element(q.1), index=0
              ROOT c = s32[] add(n, n)
            }

            ENTRY e {
              p = (s32[], f32[8]{0}) parameter(0)
              ROOT w = (s32[], f32[8]{0}) while(p), condition=condition, body=body  // error
            }
            """
        ),
        "I-08": Bad(
            """
            HloModule m

            body {
              q = (s32[], f32[8]{0}) parameter(0)
              ROOT b = (s32[], f32[8]{0}) copy(q), sharding={{replicated}, {maximal device=0}}
            }

            condition {
              q.1 = (s32[], f32[8]{0}) parameter(0)
              n = s32[] get-tuple-element(q.1), index=0
              ROOT c = pred[] compare(n, n), direction=LT
            }

            ENTRY e {
              p = (s32[], f32[8]{0}) parameter(0)
              ROOT w = (s32[], f32[8]{0}) while(p), condition=condition, body=body,  // error
                  sharding={{replicated}, {replicated}}
            }
            """
        ),
    }
    examples = (
        *rows.values(),
        Good(
            """
            HloModule m

            body {
              q = (s32[], f32[8]{0}) parameter(0)
              ROOT b = (s32[], f32[8]{0}) copy(q)
            }

            condition {
              q.1 = (s32[], f32[8]{0}) parameter(0)
              n = s32[] get-tuple-element(q.1), index=0
              ROOT c = pred[] compare(n, n), direction=LT
            }

            ENTRY e {
              p = (s32[], f32[8]{0}) parameter(0)
              ROOT w = (s32[], f32[8]{0}) while(p), condition=condition, body=body
            }
            """
        ),
    )
