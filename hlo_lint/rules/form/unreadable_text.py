"""Text that is not HLO, inside computations or between them."""

from __future__ import annotations

from hlo_lint.hlo.ir import HloFile
from hlo_lint.rules.base import Bad, Finding, Findings, Good, RefusedByXla, Rule, Severity


class UnreadableText(Rule):
    """A stretch of text that is not HLO.

    ## Why
    A truncated, merged or mistyped line hides an instruction from every other rule, and XLA's
    parser rejects the whole file for it. The text around it is checked.
    """

    severity = Severity.WARNING
    always_reported = True
    evidence = (RefusedByXla("cannot parse as an instruction name", by="parser 0.12.0.1"),)
    examples = (
        Bad.entry("""
            q = f32[8,3]{1,0} negate(p  // error
            ROOT r = f32[8,3]{1,0} add(f32[8,3]{1,0} p, p)
        """),
        Good("""
            HloModule whole

            ENTRY e {  // comments and line breaks may stand anywhere
              p = f32[8,3]{1,0}
                parameter(0)
              ROOT r = f32[8,3]{1,0} add(p, /*again*/ p)
            }
        """),
    )

    def check(self, file: HloFile) -> Findings:
        """A finding for each stretch of unreadable text."""
        for module in file.modules:
            for problem in module.problems:
                informal = "is not looked into" in problem.message
                severity = Severity.INFO if informal else None
                yield Finding(problem.span, problem.message, severity=severity)
