"""The base of the rules of the family `verifier`: XLA's `HloVerifier`, run over a module.

    verify(module, stage, checks, memo) -> Violations

`xla/service/hlo_verifier.cc` stops at the first error; here all are found. The checks are methods
of the rules; `verify` runs them in one pass, and the memo of a run holds the results that its
modules share. Unreadable text has no violations. `docs/verifier.md` lists all checks.
"""

from hlo_lint.analysis.verifier.checks import Checks, marks_of
from hlo_lint.analysis.verifier.scope import Violation
from hlo_lint.analysis.verifier.verify import VerifierMemo, Violations, verify

__all__ = ["Checks", "VerifierMemo", "Violation", "Violations", "marks_of", "verify"]
