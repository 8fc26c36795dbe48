"""Computations without a caller."""

from __future__ import annotations

from itertools import chain

from hlo_lint.analysis.calls import uncalled_computations
from hlo_lint.analysis.verifier.scope import header_span
from hlo_lint.hlo.ir import Computation
from hlo_lint.hlo.records import opcode_of, type_of
from hlo_lint.rules.base import Bad, FinalModule, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity
from hlo_lint.text.phrases import listed

SHOWN = 3
"""The largest number of computations named in the message."""

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


_TWICE = """
HloModule m

double {
  a = f32[8] parameter(0)
  ROOT s = f32[8] add(a, a)  // error
}

triple {
  a = f32[8] parameter(0)
  d = f32[8] add(a, a)
  ROOT s = f32[8] add(a, d)
}

ENTRY e {
  ROOT p = f32[8] parameter(0)
}
"""


class UncalledComputation(Rule):
    """A computation that the entry never calls, directly or indirectly.

    ## Why
    A pass that inlines, clones or removes a caller leaves its computations behind until the next
    HloDCE: a module of Llama 3.1 8B among XLA's benchmarks has 415. They cost nothing. In a
    handwritten text, a misspelt name in a call may be the reason.
    """

    severity = Severity.INFO
    examples = (
        Bad(_PROGRAM.format(mark="  // error", root="negate(p)")),
        Bad(_TWICE),
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
        """A finding that names the uncalled computations, without their own callees."""
        module = final.module
        uncalled = uncalled_computations(module)
        if not uncalled:
            return
        written = {
            _instructions(inline.computation)
            for caller in module.computations
            for inline in chain.from_iterable(caller.inline.values())
        }
        left = [part for part in uncalled if _instructions(part) not in written]
        if left:
            names = listed((f"%{computation.name}" for computation in left), SHOWN)
            yield Finding(left[0].root or header_span(module), f"nothing calls {names}")


def _instructions(computation: Computation) -> tuple[tuple[str, str], ...]:
    """The sorted types and opcodes of a computation's instructions.

    XLA's canonical form prints a computation both inline and separately, in a different order.
    """
    return tuple(sorted((type_of(row), opcode_of(row)) for row in computation.rows))
