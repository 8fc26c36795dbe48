"""While loops whose condition never becomes false."""

from __future__ import annotations

from hlo_lint.analysis.endless_loops import NEVER, endless
from hlo_lint.analysis.loops import loops
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.opcodes import EXTERNAL
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity, Stage
from hlo_lint.rules.evidence import NO_END, RefusedByXla

_LOOP = """
body {{
  i = {type}[] get-tuple-element(({type}[]) b), index=0
  step = {type}[] constant({step})
  next = {type}[] add(i, step)
  ROOT t = ({type}[]) tuple(next)
}}
condition {{
  j = {type}[] get-tuple-element(({type}[]) c), index=0
  limit = {type}[] constant({limit})
  ROOT goes-on = pred[] compare(j, limit), direction={direction}
}}
zero = {type}[] constant(0)
first = ({type}[]) tuple(zero)
ROOT w = ({type}[]) while(first), condition=condition, body=body  // error
"""


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
        Bad.entry(_LOOP.format(type="s32", step=0, limit=10, direction="LT")),
        Bad.entry(_LOOP.format(type="s32", step=2, limit=7, direction="NE")),
        Bad.entry("""
            body { ROOT n = f32[8] negate(f32[8] x) }
            condition {
              y = f32[8] parameter(0)
              ROOT goes-on = pred[] constant(true)
            }
            ROOT w = f32[8] while(f32[8] p), condition=condition, body=body  // error
        """),
        Bad.entry(_LOOP.format(type="s32", step=-1, limit=10, direction="LT")),
        Bad.entry(_LOOP.format(type="f32", step=0.1, limit=1, direction="NE")),
        Good.entry(_LOOP.format(type="f32", step=0.5, limit=8, direction="NE")),
        Good.entry(_LOOP.format(type="s32", step=1, limit=10, direction="LT")),
        Good.entry(_LOOP.format(type="s32", step=2, limit=6, direction="NE")),
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
