"""Loops whose condition stays true: by constants, a counter that passes its limit, rounding."""

from __future__ import annotations

from math import frexp, inf
from struct import pack, unpack
from typing import Final

from hlo_lint.analysis.loops import COMPARISONS, Counter, Loop, scalar
from hlo_lint.hlo.dtypes import integer_range

NEVER: Final = "never ends"
_MANY: Final = 1 << 17
"""Iterations after which an overflow takes too long."""
_FORMATS: Final = {"f16": "e", "f32": "f", "f64": "d"}
MAX_STEPS: Final = 1 << 12
"""The number of iterations for which a floating-point counter is followed."""


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
    if counter is None or not counter.never_ends:
        return _float_reason(loop)
    return _counts(counter)


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


def _float_reason(loop: Loop) -> str:
    """The reason why a floating-point counter does not reach its limit, or ""."""
    if loop.float_counter is None or loop.float_counter[0] not in _FORMATS:
        return ""
    dtype, first, step, direction, limit = loop.float_counter
    counts = f"the counter starts at {first:g}, each iteration adds {step:g}"
    if direction == "NE":
        value, count = _rounded(first, dtype), 0
        while abs(value - limit) > abs(step) / 2 and count < MAX_STEPS:
            value, count = _rounded(value + step, dtype), count + 1
        passes = count < MAX_STEPS and value != limit
        return f"{counts}, and after {count} it is {value!r}, not {limit:g}" if passes else ""
    if (direction in ("LT", "LE")) != (step > 0) or direction == "EQ" or abs(limit) == inf:
        return ""
    # From a power of two on, neighbours are twice as far apart as before it.
    power = 2.0 ** (frexp(max(abs(first), abs(step)))[1])
    while power < abs(limit) and _rounded(power + abs(step), dtype) != power:
        power *= 2
    # A counter that rises to a negative limit never gets that large.
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
