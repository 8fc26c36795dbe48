"""Parameters whose memory results may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class BadAliasing(Verified, Rule):
    """A program whose results are to lie in parameters that are not there, or of another size.

    ## Why
    `input_output_alias` and `buffer_donor` in the header hand memory of parameters to results
    (`xla/hlo/ir/hlo_input_output_alias_config.cc`). XLA compares their sizes only behind
    layout-assignment: before, its size function returns 0.
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "M-04": Bad(
            """
            HloModule m, input_output_alias={ {}: (0, {}, must-alias) },  // error
                entry_computation_layout={(f32[8,3]{1,0})->f32[8,3]{0,1}}

            ENTRY e {
              p = f32[8,3]{1,0} parameter(0)
              ROOT n = f32[8,3]{0,1} negate(p)
            }
            """
        ),
        "M-61": Bad(
            """
            HloModule m, input_output_alias={ {}: (1, {}, may-alias) }  // error

            ENTRY e {
              p = f32[8,3]{1,0} parameter(0)
              ROOT n = f32[8,3]{1,0} negate(p)
            }
            """
        ),
        "3.5-6": Bad(
            """
            HloModule m, input_output_alias={ {}: (0, {}, may-alias) }  // error

            ENTRY e {
              p = f32[8] parameter(0)
              ROOT r = f32[4] slice(p), slice={[0:4]}
            }
            """
        ),
        "M-62": Bad(
            """
            HloModule m, input_output_alias={ {}: (0, {}, may-alias) },  // error
                buffer_donor={ (0, {}) }

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
            HloModule m, input_output_alias={ {}: (0, {}, must-alias) },
                entry_computation_layout={(f32[8,3]{1,0})->f32[8,3]{1,0}}

            ENTRY e {
              p = f32[8,3]{1,0} parameter(0)
              ROOT n = f32[8,3]{1,0} negate(p)
            }
            """
        ),
        Good(
            """
            HloModule m, buffer_donor={ (0, {}) }

            ENTRY e {
              p = f32[8,3]{1,0} parameter(0)
              ROOT n = f32[8,3]{1,0} negate(p)
            }
            """
        ),
    )
