"""What has to run first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class BadSchedule(Verified, Rule):
    """An instruction that stands above what it reads, or has to wait for.

    ## Why
    In a scheduled module the order of the text is that of execution, and in every other one XLA's
    parser still wants operands first (`xla/hlo/ir/hlo_schedule.cc`).
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "M-60": Bad.entry("""
            p = f32[8] parameter(0)
            r = f32[8] negate(q)  // error
            q = f32[8] sine(p)
            ROOT s = f32[8] add(r, q)
        """),
        "M-60c": Bad(
            """
            HloModule m, is_scheduled=true

            ENTRY e {
              p = f32[8] parameter(0)
              r = f32[8] negate(p), control-predecessors={q}  // error
              q = f32[8] sine(p)
              ROOT s = f32[8] add(r, q)
            }
            """
        ),
    }
    examples = (
        *rows.values(),
        Good(
            """
            HloModule m, is_scheduled=true

            ENTRY e {
              p = f32[8] parameter(0)
              q = f32[8] sine(p)
              r = f32[8] negate(p), control-predecessors={q}
              ROOT s = f32[8] add(r, q)
            }
            """
        ),
    )
