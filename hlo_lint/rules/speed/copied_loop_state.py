"""Copies of loop state in each iteration."""

from __future__ import annotations

from hlo_lint.analysis.carried_copies import CarriedCopy, carried_copies
from hlo_lint.hlo.shape import spelled_index
from hlo_lint.rules.base import Bad, FinalModule, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import PublicReport
from hlo_lint.rules.options import Option
from hlo_lint.text.phrases import sized

_PROGRAM = """
HloModule m, is_scheduled=true

negated { ROOT r = f32[1024,1024]{1,0} negate(f32[1024,1024]{1,0} n) }

body {
  i = s32[] get-tuple-element((s32[], f32[1024,1024]{1,0}) b), index=0
  x = f32[1024,1024]{1,0} get-tuple-element(b), index=1
  BODY
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT t = (s32[], f32[1024,1024]{1,0}) tuple(next, y)
}

condition {
  j = s32[] get-tuple-element((s32[], f32[1024,1024]{1,0}) c), index=0
  limit = s32[] constant(1000)
  ROOT goes-on = pred[] compare(j, limit), direction=LT
}

ENTRY e {
  zero = s32[] constant(0)
  first = (s32[], f32[1024,1024]{1,0}) tuple(zero, f32[1024,1024]{1,0} p)
  ROOT w = (s32[], f32[1024,1024]{1,0}) while(first), condition=condition, body=body
}
"""


class CopiedLoopState(Rule):
    """A loop that copies a whole array of its state in each iteration.

    ## Why
    An array in a loop's state keeps its buffer in all iterations and is updated in place. Copy
    insertion adds a copy where two values of the array would be live at the same time: a
    conditional in which one branch passes its operand through and another does not, a read after
    the update, a second result. The copy reads and writes the whole array in each iteration,
    however little of it changes. If the array is loop-invariant, the copy belongs before the loop.
    """

    severity = Severity.WARNING
    min_bytes = Option(
        1 << 30,
        "Smallest reported traffic of all iterations, in bytes; of a single iteration if the trip "
        "count is unknown.",
        least=0,
    )
    opcodes = frozenset({"while"})
    evidence = (
        PublicReport("openxla/xla#46314"),
        PublicReport("jax-ml/jax#5986"),
        PublicReport("jax-ml/jax#16661"),
        PublicReport("jax-ml/jax#38145"),
    )
    examples = (
        Bad(
            _PROGRAM.replace(
                "BODY",
                "k = f32[1024,1024]{1,0} copy(x)  // error\n"
                "  y = f32[1024,1024]{1,0} fusion(k), kind=kLoop, calls=negated",
            )
        ),
        Good(
            _PROGRAM.replace("BODY", "y = f32[1024,1024]{1,0} fusion(x), kind=kLoop, calls=negated")
        ),
    )

    def check(self, final: FinalModule) -> Findings:
        """Copies of loop state, in a final or scheduled module."""
        if not final.is_final and not final.module.is_scheduled:
            return
        for copied in carried_copies(final.module, self.min_bytes):
            yield Finding(copied.copy, _message(copied), _notes(copied))


def _message(copied: CarriedCopy) -> str:
    trips = copied.loop.trip_count
    often = "each iteration" if trips is None else f"each of {trips} iterations"
    element = f"part {spelled_index(copied.element)} of the state"
    loop = copied.loop.instruction.name
    return f"this copies {copied.shape}, {element} of %{loop}, in {often}"


def _notes(copied: CarriedCopy) -> tuple[str, ...]:
    notes = [
        f"each iteration reads and writes {sized(copied.byte_count)}, "
        f"{sized(copied.total_bytes)} in total"
    ]
    element = copied.element
    if len(element) == 1 and copied.loop.is_invariant(element[0]):
        notes.append("the array is loop-invariant: copy it before the loop")
    return tuple(notes)
