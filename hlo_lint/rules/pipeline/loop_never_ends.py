"""While loops whose condition never becomes false."""

from __future__ import annotations

from hlo_lint.analysis.endless_loops import NEVER, endless
from hlo_lint.analysis.loops import loops
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.opcodes import EXTERNAL
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity, Stage
from hlo_lint.rules.evidence import NO_END, RefusedByXla

_PROGRAM = """
body {{
  i = s32[] get-tuple-element((s32[]) b), index=0
  step = s32[] constant({step})
  next = s32[] add(i, step)
  ROOT t = (s32[]) tuple(next)
}}
condition {{
  j = s32[] get-tuple-element((s32[]) c), index=0
  limit = s32[] constant({limit})
  ROOT goes-on = pred[] {test}
}}
zero = s32[] constant(0)
first = (s32[]) tuple(zero)
ROOT w = (s32[]) while(first), condition=condition, body=body  // error
"""
_LESS = "compare(j, limit), direction=LT"
_DIFFERS = "compare(j, limit), direction=NE"


class LoopNeverEnds(Rule):
    """A while loop that runs forever.

    ## Why
    The condition is the constant `true`, or compares two constants, or compares a counter with a
    limit that the counter never reaches: no iteration changes the counter, or its step skips the
    limit even after the integer wraps around, or the step is too small to change a floating-point
    counter of this size. The program hangs without saying where. A counter that moves away from its
    limit ends the loop only after an overflow, billions of iterations later. Loops that communicate
    with the host (infeed, send, custom calls) are not reported: the host may end them.
    """

    severity = Severity.WARNING
    opcodes = frozenset({"while"})
    evidence = (RefusedByXla(NO_END, by="cpu 0.10.2", example=1),)
    reports = "openxla/xla#47354"
    examples = (
        Bad.entry(_PROGRAM.format(step=0, limit=10, test=_LESS)),
        Bad.entry(_PROGRAM.format(step=2, limit=7, test=_DIFFERS)),
        Bad.entry(_PROGRAM.format(test="constant(true)", step=1, limit=10)),
        Bad.entry(_PROGRAM.format(step=-1, limit=10, test=_LESS)),
        Bad.entry(_PROGRAM.format(step=0.1, limit=1, test=_DIFFERS).replace("s32", "f32")),
        Good.entry(_PROGRAM.format(step=0.5, limit=8, test=_DIFFERS).replace("s32", "f32")),
        Good.entry(_PROGRAM.format(step=1, limit=10, test=_LESS)),
        Good.entry(_PROGRAM.format(step=2, limit=6, test=_DIFFERS)),
    )

    def check(self, module: Module, stage: Stage) -> Findings:
        """Loops whose condition never becomes false."""
        for loop in loops(module):
            reason = endless(loop)
            # The host may end a loop that communicates with it.
            if reason and EXTERNAL.isdisjoint(loop.body.opcodes | loop.condition.opcodes):
                # In the middle of a pipeline, the loop may be dead code that a later pass removes.
                is_error = stage.scheduled and stage.final and reason.startswith(NEVER)
                severity = Severity.ERROR if is_error else None
                yield Finding(loop.instruction, f"this loop {reason}", severity=severity)
