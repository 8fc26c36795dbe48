"""Computations that nothing calls."""

from __future__ import annotations

from itertools import chain

from hlo_lint.analysis.calls import uncalled_computations
from hlo_lint.analysis.verifier.scope import header_span
from hlo_lint.hlo.ir import Computation
from hlo_lint.hlo.records import opcode_of, type_of
from hlo_lint.rules.base import Bad, FinalModule, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity

_PROGRAM = """
HloModule m

double {{
  a = f32[8] parameter(0)
  ROOT s = f32[8] add(a, a){mark}
}}

ENTRY e {{
  p = f32[8] parameter(0)
  ROOT r = f32[8] {root}
}}
"""

_CANONICAL = """
HloModule m

wrapped_negate {
  tmp_0 = f32[8] parameter(0)
  ROOT tmp_1 = f32[8] negate(f32[8] tmp_0)
}

ENTRY e {
  tmp_0 = f32[8] parameter(0)
  ROOT tmp_1 = f32[8] fusion(f32[8] tmp_0), kind=kLoop, calls=
  {
    tmp_0 = f32[8] parameter(0)
    ROOT tmp_1 = f32[8] negate(f32[8] tmp_0)
  }
}
"""


class UncalledComputation(Rule):
    """A computation that neither the entry nor anything it calls runs.

    ## Why
    XLA keeps computations that nothing calls until the next HloDCE, and drops them then. A text
    that still has one was written by hand, or by a pass that inlined or replaced the caller. It
    does nothing; a name that is one letter off a call's may be the reason.
    """

    severity = Severity.INFO
    examples = (
        Bad(_PROGRAM.format(mark="  // error", root="negate(p)")),
        Good(_PROGRAM.format(mark="", root="call(p), to_apply=double")),
        Good.entry("""
            p = f32[8] parameter(0)
            ROOT r = f32[8] map(p), dimensions={0}, to_apply={
              a = f32[] parameter(0)
              ROOT n = f32[] negate(a)
            }
        """),
        Good.module(_CANONICAL),
    )

    def check(self, final: FinalModule) -> Findings:
        """One finding for each, at its root; what only such a computation calls is left out."""
        module = final.module
        uncalled = uncalled_computations(module)
        if not uncalled:
            return
        written = {
            _instructions(inline.computation)
            for caller in module.computations
            for inline in chain.from_iterable(caller.inline.values())
        }
        for computation in uncalled:
            if _instructions(computation) not in written:
                at = computation.root or header_span(module)
                yield Finding(at, f"nothing calls %{computation.name}")


def _instructions(computation: Computation) -> tuple[tuple[str, str], ...]:
    """The types and opcodes of its instructions.

    XLA's canonical form prints a computation at its caller and by itself, in another order.
    """
    return tuple(sorted((type_of(row), opcode_of(row)) for row in computation.rows))
