"""Copies, and copies that run beside the program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class BadCopy(Verified, Rule):
    """A copy whose source and destination differ in more than their place.

    ## Why
    A copy to or from host memory moves bytes as they lie: it cannot transpose on the way back.
    `copy-start` gives the destination, the source and a context (`HandleCopyStart` in
    `xla/service/hlo_verifier.cc`).
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "S-01c": Bad(
            """
            HloModule m

            ENTRY e {
              p = f32[8,3]{1,0:S(5)} parameter(0)
              ROOT c = f32[8,3]{0,1} copy(p)  // error
            }
            """,
            artefacts={".ir-no-opt.ll": ""},
        ),
        "S-100": Bad(
            """
            HloModule m

            ENTRY e {
              p = f32[8]{0} parameter(0)
              s = (f32[9]{0}, f32[8]{0}, u32[]) copy-start(p)  // error
              ROOT n = f32[8]{0} negate(p)
            }
            """
        ),
        "S-101": Bad.entry("""
            p = (f32[8]{0}, f32[9]{0}, u32[]) parameter(0)
            ROOT d = f32[8]{0} copy-done(p)  // error
        """),
    }
    examples = (
        *rows.values(),
        Good.entry("""
            p = f32[8]{0:S(5)} parameter(0)
            s = (f32[8]{0}, f32[8]{0:S(5)}, u32[]) copy-start(p)
            ROOT d = f32[8]{0} copy-done(s)
        """),
    )
