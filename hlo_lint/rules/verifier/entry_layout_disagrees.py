"""The header and the entry computation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class EntryLayoutDisagrees(Verified, Rule):
    """An entry computation whose parameters or result are not what the header says.

    ## Why
    Callers allocate and lay out arguments by `entry_computation_layout`; the program reads them as
    its parameters say (`VerifyEntryComputationLayout` in `xla/service/hlo_verifier.cc`).
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "M-01": Bad(
            """
            HloModule m, entry_computation_layout={(f32[8,3]{1,0})->f32[8,3]{1,0}}

            ENTRY e {
              p = f32[8,3]{1,0} parameter(0)
              ROOT n = f32[8,3]{0,1} negate(p)  // error
            }
            """,
            artefacts={".ir-no-opt.ll": ""},
        ),
        "M-02": Bad(
            """
            HloModule m, entry_computation_layout={(f32[8,3]{1,0})->f32[8,3]{1,0}}  // error

            ENTRY e {
              p = f32[8,3]{1,0} parameter(0)
              ROOT n = f32[8,3]{1,0} negate(p)
              q = f32[] parameter(1)
            }
            """
        ),
        "M-03": Bad(
            """
            HloModule m, entry_computation_layout={(f32[8,3]{1,0})->f32[8,3]{1,0}}

            ENTRY e {
              p = f32[8,3]{0,1} parameter(0)  // error
              ROOT n = f32[8,3]{1,0} negate(p)
            }
            """,
            artefacts={".ir-no-opt.ll": ""},
        ),
        "M-05": Bad(
            """
            HloModule m, entry_computation_layout={(f32[8,3]{1,0})->f32[8,3]{1,1}}  // error

            ENTRY e {
              p = f32[8,3]{1,0} parameter(0)
              ROOT n = f32[8,3]{1,0} negate(p)
            }
            """
        ),
    }
    examples = (
        *rows.values(),
        Good(
            """
            HloModule m, entry_computation_layout={(f32[8,3]{1,0})->f32[8,3]{1,0}}

            ENTRY e {
              p = f32[8,3]{1,0} parameter(0)
              ROOT n = f32[8,3]{1,0} negate(p)
            }
            """
        ),
    )
