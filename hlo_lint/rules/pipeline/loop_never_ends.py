"""While loops whose condition is true for ever."""

from __future__ import annotations

from math import frexp, inf
from struct import pack, unpack
from typing import Final

from hlo_lint.analysis.loops import COMPARISONS, Counter, Loop, loops, scalar
from hlo_lint.hlo.dtypes import BITS
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
_MANY: Final = 32
"""Bits of a counter that takes too long to wrap around."""
_FORMATS: Final = {"f16": "e", "f32": "f", "f64": "d"}
MAX_STEPS: Final = 1 << 12
"""Iterations that are followed of a counter in floating point."""
_HOST = frozenset({"infeed", "outfeed", "recv", "send", "custom-call"})


class LoopNeverEnds(Rule):
    """A while loop that runs for ever.

    ## Why
    The condition is the constant `true` or compares two constants, or it compares a counter with a
    constant that the counter never reaches: each iteration leaves the counter as it is, or steps
    over the limit and, when the integer wraps around, over it again, or the step is too small to
    change a floating-point number of this size. The program hangs, and nothing says where. A
    counter that leads away from its limit ends the loop after an overflow, billions of iterations
    later. A loop that waits for the host (infeed, send, custom calls) may be meant to be ended from
    outside.

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
        Bad(_PROGRAM.format(step=-1, limit=10, direction="LT", mark=_ERROR)),
        Bad(_PROGRAM.format(step=0.1, limit=1, direction="NE", mark=_ERROR).replace("s32", "f32")),
        Good(_PROGRAM.format(step=0.5, limit=8, direction="NE", mark="").replace("s32", "f32")),
        Good(_PROGRAM.format(step=1, limit=10, direction="LT", mark="")),
        Good(_PROGRAM.format(step=2, limit=6, direction="NE", mark="")),
    )

    def check(self, module: Module, stage: Stage) -> Findings:
        """Each loop whose condition never becomes false."""
        for loop in loops(module):
            reason, counter = _reason(loop), loop.counter
            is_late = not reason and counter is not None and _leads_away(counter)
            if (reason or is_late) and not _waits_for_the_host(loop):
                # A loop in the midst of a pipeline may be dead code that the next pass removes.
                severity = Severity.ERROR if stage.scheduled and stage.final else None
                message = f"this loop never ends: {reason}"
                if counter is not None and is_late:
                    message = f"this loop ends only after an overflow: {_counts(counter)}"
                    severity = None
                yield Finding(loop.instruction, message, severity=severity)


def _reason(loop: Loop) -> str:
    """The reason why the condition stays true; empty where it is not known to."""
    root = loop.condition.root
    if root is not None and root.opcode == "constant" and root.operands_text.strip() == "true":
        return "its condition is constant true"
    if root is not None and root.opcode == "compare":
        one, other = scalar(root, 0), scalar(root, 1)
        direction = root.attributes.get("direction", "")
        if one is not None and other is not None and direction in COMPARISONS:
            goes_on = COMPARISONS[direction](one, other)
            return f"its condition is {one} {direction} {other}" if goes_on else ""
    counter = loop.counter
    if counter is None or not counter.never_ends:
        return _float_reason(loop)
    return _counts(counter)


def _counts(counter: Counter) -> str:
    goes_on = f"the loop goes on while it is {counter.direction} {counter.limit}"
    return f"the counter starts at {counter.first}, {_steps(counter)}, and {goes_on}"


def _leads_away(counter: Counter) -> bool:
    """True if only an overflow of many bits ends the loop."""
    if counter.first is None or not counter.dtype.startswith("s") or BITS[counter.dtype] < _MANY:
        return False
    is_up = counter.direction in ("LT", "LE") and counter.step < 0
    is_down = counter.direction in ("GT", "GE") and counter.step > 0
    return (is_up or is_down) and COMPARISONS[counter.direction](counter.first, counter.limit)


def _float_reason(loop: Loop) -> str:
    """The reason why a counter in floating point does not reach its limit."""
    if loop.float_counter is None or loop.float_counter[0] not in _FORMATS:
        return ""
    dtype, first, step, direction, limit = loop.float_counter
    counts = f"the counter starts at {first:g}, each iteration adds {step:g}"
    if direction == "NE":
        at, count = _rounded(first, dtype), 0
        while abs(at - limit) > abs(step) / 2 and count < MAX_STEPS:
            at, count = _rounded(at + step, dtype), count + 1
        passes = count < MAX_STEPS and at != limit
        return f"{counts}, and after {count} it is {at!r}, not {limit:g}" if passes else ""
    if (direction in ("LT", "LE")) != (step > 0) or direction == "EQ" or abs(limit) == inf:
        return ""
    # From a power of two on, neighbours are twice as far apart as before it.
    power = 2.0 ** (frexp(max(abs(first), abs(step)))[1])
    while power < abs(limit) and _rounded(power + abs(step), dtype) != power:
        power *= 2
    if power < abs(limit) and (limit > 0) == (step > 0):
        return f"{counts}, and {dtype} gives {power:g} + {abs(step):g} = {power:g}"
    return ""


def _rounded(value: float, dtype: str) -> float:
    form = _FORMATS[dtype]
    try:
        rounded: float = unpack(form, pack(form, value))[0]
    except OverflowError:
        return inf
    return rounded


def _steps(counter: Counter) -> str:
    return f"each iteration adds {counter.step}" if counter.step else "no iteration changes it"


def _waits_for_the_host(loop: Loop) -> bool:
    return not _HOST.isdisjoint(loop.body.opcodes | loop.condition.opcodes)
