"""XLA's `HloVerifier`, row by row, and what it does not look at.

    verify(module, Demands(...)) -> {row: violations}

`xla/service/hlo_verifier.cc` stops at the first thing that is wrong; here everything is found.
`docs/verifier.md` lists the rows. Each module of this package is a family of checks, dispatched by
opcode; `verdicts` runs them, and judges once what dumps share. What cannot be read says nothing.
"""

from hlo_lint.analysis.verifier.scope import Demands, Violation
from hlo_lint.analysis.verifier.verdicts import Verdict, verify

__all__ = ["Demands", "Verdict", "Violation", "verify"]
