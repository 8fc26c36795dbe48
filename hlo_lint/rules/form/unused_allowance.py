"""Comments and settings that allow a finding, and allow nothing."""

from __future__ import annotations

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.findings import Severity


class UnusedAllowance(Rule):
    """An allowance that allows nothing.

    ## Why
    An allowance outlives its finding: the defect is resolved, the instruction is gone, the name was
    mistyped. What stays after hides the next finding at that place, and nobody decided that. So a
    comment, a configured allowance and an entry of a baseline have to meet a finding, and a comment
    has to name rules that there are and give a reason.

    It is reported only if the rule that is named ran, and had the file to look at.

    ## Fix
    A comment is removed, or the name in it that meets nothing; `hlo-lint check --prune-baseline`
    does it for a baseline. What cannot be read as an allowance is left to its author.
    """

    severity = Severity.WARNING
    examples = (
        Bad(
            """
            HloModule outlived

            ENTRY e {
              p = f32[8,3]{1,0} parameter(0)
              ROOT r = f32[24]{0} bitcast(p)
              // hlo-lint: allow reshape-moves-data -- for the test of the fix  // error
            }
            """,
            fixed="""
            HloModule outlived

            ENTRY e {
              p = f32[8,3]{1,0} parameter(0)
              ROOT r = f32[24]{0} bitcast(p)
            }
            """,
        ),
        Bad(
            """
            HloModule unclear

            ENTRY e {
              p = f32[8,3]{1,0} parameter(0)
              q = f32[24]{0} reshape(p)  // hlo-lint: allow reshape-moves-data  // error
              // hlo-lint: allow reshape-move-data -- for the test of the fix  // error
              ROOT r = f32[4,2,3]{0,1,2} reshape(q)
            }
            """
        ),
        Good("""
            HloModule wanted

            ENTRY e {
              p = f32[8,3]{1,0} parameter(0)
              // hlo-lint: allow reshape-moves-data -- for the test of the fix
              ROOT r = f32[4,2,3]{0,1,2} reshape(p)
            }
        """),
    )
