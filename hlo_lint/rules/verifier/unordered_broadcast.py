"""Broadcasts out of order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class UnorderedBroadcast(Verified, Rule):
    """A broadcast that transposes on its way, or maps two dimensions to one.

    ## Why
    Behind layout normalization XLA:GPU reads a broadcast as one that keeps the order of dimensions
    (`verify_broadcast_dimensions_order` in `xla/service/hlo_verifier.h`); which of two dimensions
    counts that go to one place is said nowhere.
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "I-07": Bad(
            """
            HloModule m

            ENTRY e {
              p = f32[8,3]{1,0} parameter(0)
              ROOT b = f32[3,8,2]{2,1,0} broadcast(p), dimensions={1,0}  // error
            }
            """,
            artefacts={".ir-no-opt.ll": ""},
        ),
        "3.5-7": Bad(
            """
            HloModule m

            ENTRY e {
              p = f32[8,8]{1,0} parameter(0)
              ROOT b = f32[8,2]{1,0} broadcast(p), dimensions={0,0}  // error
            }
            """
        ),
    }
    examples = (
        *rows.values(),
        Good(
            """
            HloModule m

            ENTRY e {
              p = f32[8,3]{1,0} parameter(0)
              ROOT b = f32[8,3,2]{2,1,0} broadcast(p), dimensions={0,1}
            }
            """,
            artefacts={".ir-no-opt.ll": ""},
        ),
    )
