"""Loops whose condition stays true: by constants, or a counter that passes its limit."""

from __future__ import annotations

from typing import Final

from hlo_lint.analysis.loops import COMPARISONS, Counter, Loop, scalar
from hlo_lint.hlo.dtypes import integer_range

NEVER: Final = "never ends"
_MANY: Final = 1 << 17
"""Iterations after which an overflow takes too long."""


def endless(loop: Loop) -> str:
    """`never ends: …`, or `ends only after an overflow: …`; "" if the loop may end."""
    reason, counter = _reason(loop), loop.counter
    if reason:
        return f"{NEVER}: {reason}"
    if counter is not None and _leads_away(counter):
        return f"ends only after an overflow: {_counts(counter)}"
    return ""


def _reason(loop: Loop) -> str:
    """The reason why the condition stays true, or ""."""
    root = loop.condition.root
    if root is not None and root.opcode == "constant" and root.operands_text.strip() == "true":
        return "its condition is constant true"
    if root is not None and root.opcode == "compare":
        left, right = scalar(root, 0), scalar(root, 1)
        direction = root.attributes.get("direction", "")
        if left is not None and right is not None and direction in COMPARISONS:
            goes_on = COMPARISONS[direction](left, right)
            return f"its condition is {left} {direction} {right}" if goes_on else ""
    counter = loop.counter
    return _counts(counter) if counter is not None and counter.never_ends else ""


def _counts(counter: Counter) -> str:
    goes_on = f"the loop goes on while it is {counter.direction} {counter.limit}"
    steps = f"each iteration adds {counter.step}" if counter.step else "no iteration changes it"
    return f"the counter starts at {counter.first}, {steps}, and {goes_on}"


def _leads_away(counter: Counter) -> bool:
    """True if only an overflow ends the loop, after many iterations."""
    if counter.first is None or not counter.dtype.startswith("s"):
        return False
    numbers, step = integer_range(counter.dtype), counter.step or 1
    distance = numbers.stop - counter.first if step > 0 else counter.first - numbers.start
    if distance // abs(step) < _MANY:
        return False
    is_up = counter.direction in ("LT", "LE") and counter.step < 0
    is_down = counter.direction in ("GT", "GE") and counter.step > 0
    return (is_up or is_down) and COMPARISONS[counter.direction](counter.first, counter.limit)
