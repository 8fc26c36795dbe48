"""Names, parameters and roots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class BrokenStructure(Verified, Rule):
    """A computation with names, parameters or roots twice, or with operands from elsewhere.

    ## Why
    XLA keeps instructions as a graph in which this cannot be; a text can say it, and a dump that
    does was cut, edited, or written by a broken pass (`VerifyHloStructure` and
    `CheckFusionInstruction` in `xla/service/hlo_verifier.cc`). That the names of a module differ is
    asked of numbered dumps only.
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "I-01": Bad.entry("""
            p = f32[8] parameter(0)
            p = f32[8] negate(p)  // error
            ROOT r = f32[8] add(p, p)
        """),
        "I-05": Bad.entry("""
            p = f32[8] parameter(0)
            q = f32[8] parameter(0)  // error
            ROOT r = f32[8] add(p, q)
        """),
        "I-05r": Bad.entry("""
            p = f32[8] parameter(0)
            ROOT q = f32[8] negate(p)
            ROOT r = f32[8] add(p, q)  // error
        """),
        "M-10": Bad(
            """
            HloModule m

            f {
              a = f32[8] parameter(0)
              ROOT b = f32[8] fusion(a), kind=kLoop, calls=e  // error
            }

            ENTRY e {
              p = f32[8] parameter(0)
              ROOT r = f32[8] negate(p)
            }
            """
        ),
        "M-12": Bad(
            """
            HloModule m

            f {
              a = f32[8] parameter(0)
              ROOT b = f32[8] negate(a)
            }

            ENTRY e {
              p = f32[8] parameter(0)
              ROOT r = f32[8] add(p, a)  // error
            }
            """
        ),
    }
    examples = (
        *rows.values(),
        Good.entry("""
            p = f32[8] parameter(0)
            q = f32[8] parameter(1)
            ROOT r = f32[8] add(p, q)
        """),
    )
