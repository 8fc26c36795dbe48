"""Allowances for a finding that does not exist, in comments or settings."""

from __future__ import annotations

from hlo_lint.rules.base import Bad, Good, Rule, Severity
from hlo_lint.rules.evidence import Counted


class UnusedAllowance(Rule):
    """An allowance that matches no finding.

    ## Why
    An allowance may outlive its finding: the defect is fixed, the instruction is gone, or the name
    was mistyped. Then it hides the next finding at that place. So every comment, configured
    allowance and baseline entry must match a finding, and a comment must name existing rules and
    give a reason.

    It is reported only if the named rule ran on the file.

    ## Fix
    Removes the comment, or the unmatched name in it; `hlo-lint check --prune-baseline` prunes a
    baseline. A malformed allowance is not changed.
    """

    severity = Severity.WARNING
    evidence = (Counted("findings hidden", 0, 1),)
    examples = (
        Bad.entry(
            """
            ROOT r = f32[24]{0} bitcast(f32[8,3]{1,0} p)
            // hlo-lint: allow reshape-moves-data -- for the test of the fix  // error
            """,
            fixed="ROOT r = f32[24]{0} bitcast(f32[8,3]{1,0} p)",
        ),
        Bad.entry("""
            q = f32[24]{0} reshape(f32[8,3]{1,0} p)  // hlo-lint: allow reshape-moves-data  // error
            // hlo-lint: allow reshape-move-data -- for the test of the fix  // error
            ROOT r = f32[4,2,3]{0,1,2} reshape(q)
        """),
        Good.entry("""
            // hlo-lint: allow reshape-moves-data -- for the test of the fix
            ROOT r = f32[4,2,3]{0,1,2} reshape(f32[8,3]{1,0} p)
        """),
    )
