"""Calls, and computations that are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class BrokenCall(Verified, Rule):
    """A call that passes what its computation does not take, or a call where none may be.

    ## Why
    A call is inlined, or becomes a call of a thunk, by its operands and parameters one by one
    (`HandleCall` in `xla/service/hlo_verifier.cc`). A composite call has to say what it stands for.
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "S-03": Bad(
            """
            HloModule m

            f {
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a)
            }

            ENTRY e {
              p = f32[8]{0} parameter(0)
              ROOT r = f32[8]{0} negate(p), to_apply=f  // error
            }
            """
        ),
        "S-81": Bad(
            """
            HloModule m

            f {
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a)
            }

            ENTRY e {
              p = f32[9]{0} parameter(0)
              ROOT r = f32[8]{0} call(p), to_apply=f  // error
            }
            """
        ),
        "S-81c": Bad(
            """
            HloModule m

            f {
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a)
            }

            ENTRY e {
              p = f32[8]{0} parameter(0)
              ROOT r = f32[8]{0} call(p), to_apply=f, is_composite=true,  // error
                  frontend_attributes={composite.version="1"}
            }
            """
        ),
        "I-11": Bad(
            """
            HloModule m

            f {
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a)
            }

            ENTRY e {
              p = f32[8]{0} parameter(0)
              ROOT r = f32[8]{0} call(p), to_apply=f,  // error
                  output_to_operand_aliasing={{}: (0, {})}
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
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a)
            }

            ENTRY e {
              p = f32[8]{0} parameter(0)
              ROOT r = f32[8]{0} call(p), to_apply=f
            }
            """
        ),
    )
