"""The machinery under the rules of the family `verifier`: XLA's `HloVerifier`, run over a module.

    verify(module, stage, checks) -> {check: violations}

`xla/service/hlo_verifier.cc` stops at the first error; here all are found. The checks are methods
of the rules; `verify` runs them in one pass, and checks once what dumps share. Text that cannot be
read violates nothing. `docs/verifier.md` lists all checks.
"""

from hlo_lint.analysis.verifier.checks import Checks, marks_of
from hlo_lint.analysis.verifier.scope import Violation
from hlo_lint.analysis.verifier.verify import Violations, has_violations, mark_good, verify

__all__ = [
    "Checks",
    "Violation",
    "Violations",
    "has_violations",
    "mark_good",
    "marks_of",
    "verify",
]
