"""While loops whose condition is true for ever."""

from __future__ import annotations

from hlo_lint.analysis.loops import Counter, Loop, loops
from hlo_lint.hlo.ir import Module
from hlo_lint.rules.base import Bad, Findings, Good, Rule, Stage
from hlo_lint.rules.findings import Finding, Severity

_PROGRAM = """
HloModule m

body {{
  b = (s32[]) parameter(0)
  i = s32[] get-tuple-element(b), index=0
  step = s32[] constant({step})
  next = s32[] add(i, step)
  ROOT t = (s32[]) tuple(next)
}}

condition {{
  c = (s32[]) parameter(0)
  j = s32[] get-tuple-element(c), index=0
  limit = s32[] constant({limit})
  ROOT goes-on = pred[] compare(j, limit), direction={direction}
}}

ENTRY e {{
  zero = s32[] constant(0)
  first = (s32[]) tuple(zero)
  ROOT w = (s32[]) while(first), condition=condition, body=body{mark}
}}
"""
_ERROR = "  // error"
_HOST = frozenset({"infeed", "outfeed", "recv", "send", "custom-call"})


class LoopNeverEnds(Rule):
    """A while loop that runs for ever.

    ## Why
    The condition is the constant `true`, or it compares a counter with a constant that the counter
    never reaches: each iteration leaves the counter as it is, or steps over the limit and, when the
    integer wraps around, over it again. The program hangs, and nothing says where. A loop that
    waits for the host (infeed, send, custom calls) may be meant to be ended from outside.

    Reports: openxla/xla#47354.
    """

    severity = Severity.WARNING
    opcodes = frozenset({"while"})
    examples = (
        Bad(_PROGRAM.format(step=0, limit=10, direction="LT", mark=_ERROR)),
        Bad(_PROGRAM.format(step=2, limit=7, direction="NE", mark=_ERROR)),
        Bad.module(
            """
            body {
              b = (s32[]) parameter(0)
              i = s32[] get-tuple-element(b), index=0
              ROOT t = (s32[]) tuple(i)
            }

            condition {
              c = (s32[]) parameter(0)
              ROOT goes-on = pred[] constant(true)
            }

            ENTRY e {
              zero = s32[] constant(0)
              first = (s32[]) tuple(zero)
              ROOT w = (s32[]) while(first), condition=condition, body=body  // error
            }
            """
        ),
        Good(_PROGRAM.format(step=1, limit=10, direction="LT", mark="")),
        Good(_PROGRAM.format(step=2, limit=6, direction="NE", mark="")),
    )

    def check(self, module: Module, stage: Stage) -> Findings:
        """Each loop whose condition never becomes false."""
        for loop in loops(module):
            reason = _reason(loop)
            if reason and not _waits_for_the_host(loop):
                # A loop in the midst of a pipeline may be dead code that the next pass removes.
                severity = Severity.ERROR if stage.scheduled and stage.final else None
                yield Finding(
                    loop.instruction, f"this loop never ends: {reason}", severity=severity
                )


def _reason(loop: Loop) -> str:
    """The reason why the condition stays true; empty where it is not known to."""
    root = loop.condition.root
    if root is not None and root.opcode == "constant" and root.operands_text.strip() == "true":
        return "its condition is constant true"
    counter = loop.counter
    if counter is None or not counter.never_ends:
        return ""
    goes_on = f"the loop goes on while it is {counter.direction} {counter.limit}"
    return f"the counter starts at {counter.first}, {_steps(counter)}, and {goes_on}"


def _steps(counter: Counter) -> str:
    return f"each iteration adds {counter.step}" if counter.step else "no iteration changes it"


def _waits_for_the_host(loop: Loop) -> bool:
    return not _HOST.isdisjoint(loop.body.opcodes | loop.condition.opcodes)
