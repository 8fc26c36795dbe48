"""Opcodes that map element to element.

Sums, products, quotients and roots are rounded once, as IEEE 754 asks. Functions that no standard
rounds (`exponential`, `tanh` ...) are computed as doubles and rounded once, so that they are nearer
to the true value than any backend's approximation of an f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hlo_lint.engine.values.evaluator.arrays import (
    Array,
    Numbers,
    Unsupported,
    Value,
    accumulator,
    part_type,
    working_type,
)
from hlo_lint.engine.values.evaluator.site import Kernel, Site
from hlo_lint.hlo.dtypes import BITS, ELEMENT_TYPES, is_complex, is_float, is_integer, is_signed

Function = Callable[..., Any]

_erf: Function = np.frompyfunc(math.erf, 1, 1)


def _logistic(x: Array) -> Array:
    if x.dtype.kind == "c":
        return 1 / (1 + np.exp(-x))
    small = np.exp(-np.abs(x))  # exp of a non-positive number cannot overflow
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


_TRANSCENDENTAL: dict[str, Function] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "cosh": np.cosh,
    "cosine": np.cos,
    "erf": lambda x: np.asarray(_erf(x), np.float64),
    "exponential": np.exp,
    "exponential-minus-one": np.expm1,
    "log": np.log,
    "log-plus-one": np.log1p,
    "logistic": _logistic,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sine": np.sin,
    "sinh": np.sinh,
    "tan": np.tan,
    "tanh": np.tanh,
}


def _round_half_away(x: Array) -> Array:
    # x + 0.5 would round the largest number below one half up.
    whole = np.trunc(x)
    away = np.abs(x - whole) >= 0.5
    return np.copysign(np.where(away, np.abs(whole) + 1, np.abs(whole)), x)


def _sign(x: Array) -> Array:
    return (
        np.where((x == 0) | np.isnan(x), x, np.copysign(1, x))
        if x.dtype.kind == "f"
        else np.sign(x)
    )


_EXACT: dict[str, Function] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "floor": np.floor,
    "negate": np.negative,
    "round-nearest-afz": _round_half_away,
    "round-nearest-even": np.rint,
    "sign": _sign,
    "sqrt": np.sqrt,
}


def _unary(site: Site) -> Kernel:
    name = site.array.dtype
    numbers = site.numbers
    opcode = site.opcode
    if opcode in _TRANSCENDENTAL:
        if not (is_float(name) or is_complex(name)):
            raise Unsupported(f"{opcode} of {name}")
        kind, function = accumulator(name), _TRANSCENDENTAL[opcode]
    else:
        source = site.operand(0).dtype
        kind, function = working_type(source, numbers.wide), _EXACT[opcode]
        if name == "pred":
            return lambda x: x if opcode != "negate" else np.logical_not(x)
        if source[0] == "u" and opcode == "abs":
            return lambda x: x
    return lambda x: numbers.cast(np.asarray(function(x.astype(kind))), name)


def _not(site: Site) -> Kernel:
    numbers, name = site.numbers, site.array.dtype
    if name == "pred":
        return np.logical_not
    kind = working_type(name, wide=False)
    return lambda x: numbers.cast(np.invert(x.astype(kind)), name)


def _count_leading_zeros(site: Site) -> Kernel:
    name, numbers = site.array.dtype, site.numbers

    def count(x: Array) -> Array:
        bits = numbers.to_bits(x, name)
        zeros = np.full(bits.shape, BITS[name], np.int64)
        for length in range(1, BITS[name] + 1):
            zeros[bits >> np.array(length - 1, bits.dtype) != 0] = BITS[name] - length
        return numbers.cast(zeros, name)

    return count


def _popcnt(site: Site) -> Kernel:
    name, numbers = site.array.dtype, site.numbers

    def count(x: Array) -> Array:
        bits = numbers.to_bits(x, name)
        one = np.array(1, bits.dtype)
        ones = sum(
            (bits >> np.array(n, bits.dtype) & one).astype(np.int64) for n in range(BITS[name])
        )
        return numbers.cast(np.asarray(ones), name)

    return count


# Binary -----------------------------------------------------------------------------------------


def _divide_integers(x: Array, y: Array) -> Array:
    """Towards zero; by zero all ones, and the smallest by -1 is itself (`hlo_evaluator`)."""
    zero = y == 0
    if x.dtype.kind == "u":
        return np.where(zero, np.array(-1).astype(x.dtype), x // np.where(zero, 1, y))
    negated = y == -1
    safe = np.where(zero | negated, 1, y).astype(x.dtype)
    quotient = x // safe
    quotient = quotient + ((x % safe != 0) & ((x < 0) != (safe < 0)))
    return np.where(zero, -1, np.where(negated, -x, quotient)).astype(x.dtype)


def _remainder_integers(x: Array, y: Array) -> Array:
    """With the sign of the dividend; by zero the dividend."""
    zero = y == 0
    trivial = zero | (y == -1) if x.dtype.kind == "i" else zero
    safe = np.where(trivial, 1, y).astype(x.dtype)
    return np.where(zero, x, np.where(trivial, 0, np.fmod(x, safe))).astype(x.dtype)


def _power_integers(x: Array, y: Array) -> Array:
    """Mirrors `EmitIntegerPow` of XLA's elemental_ir_emitter.cc: six bits of the exponent count."""
    exponent = y.astype(y.dtype.str.replace("u", "i"))
    result, base = np.ones_like(x), x
    for bit in range(6):
        result = np.where(exponent >> bit & 1, result * base, result).astype(x.dtype)
        base = base * base
    return np.where(exponent >= 0, result, x == 1).astype(x.dtype)


def _shift(left: bool, logical: bool, name: str, numbers: Numbers) -> Function:
    """Bits shifted out are lost; by the width or more leaves nothing, or the sign."""
    bits = BITS[name]

    def shift(x: Array, y: Array) -> Array:
        amount = numbers.to_bits(y, name).astype(np.uint64)
        over = amount >= bits
        amount = np.where(over, 0, amount)
        if left or logical:
            words = numbers.to_bits(x, name).astype(np.uint64)
            moved = words << amount if left else words >> amount
            return np.asarray(np.where(over, 0, moved).astype(np.uint64))
        amount = np.where(over, bits - 1, amount).astype(np.int64)
        signed = numbers.to_bits(x, name).astype(np.int64) << 64 - bits >> 64 - bits
        return np.asarray(signed >> amount)

    return shift


_FLOAT_BINARY: dict[str, Function] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "remainder": np.fmod,
}
_INTEGER_BINARY: dict[str, Function] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": _divide_integers,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "remainder": _remainder_integers,
    "power": _power_integers,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_PRED_BINARY: dict[str, Function] = {
    "add": np.logical_or,
    "maximum": np.logical_or,
    "or": np.logical_or,
    "multiply": np.logical_and,
    "minimum": np.logical_and,
    "and": np.logical_and,
    "subtract": np.logical_xor,
    "xor": np.logical_xor,
}
_SHIFTS = {
    "shift-left": (True, True),
    "shift-right-logical": (False, True),
    "shift-right-arithmetic": (False, False),
}


def _binary(site: Site) -> Kernel:
    name, opcode, numbers = site.array.dtype, site.opcode, site.numbers
    function: Function | None
    kind = working_type(name, numbers.wide)
    if name == "pred":
        function = _PRED_BINARY.get(opcode)
    elif is_integer(name):
        if opcode in _SHIFTS:
            shift = _shift(*_SHIFTS[opcode], name, numbers)
            return lambda x, y: numbers.cast(shift(x, y), name)
        function = _INTEGER_BINARY.get(opcode)
    elif opcode in ("power", "atan2"):
        kind = accumulator(name)
        function = np.power if opcode == "power" else np.arctan2
    else:
        function = _FLOAT_BINARY.get(opcode)
    if function is None:
        raise Unsupported(f"{opcode} of {name}")
    apply = function
    return lambda x, y: numbers.cast(np.asarray(apply(x.astype(kind), y.astype(kind))), name)


def _multiply_high(site: Site) -> Kernel:
    name, numbers = site.array.dtype, site.numbers
    bits = BITS[name]

    def multiply(x: Array, y: Array) -> Array:
        high = (x.astype(object) * y.astype(object)) >> bits
        return numbers.cast(
            np.asarray(high).astype(np.int64 if is_signed(name) else np.uint64), name
        )

    return multiply


_COMPARE: dict[str, Function] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def _compare(site: Site) -> Kernel:
    direction = site.attribute("direction", "EQ")
    function = _COMPARE[direction]
    name, numbers = site.operand(0).dtype, site.numbers
    order = site.attribute("type", "") or site.attribute("order", "")
    if is_float(name) and order in ("TOTALORDER", "TOTAL"):
        return lambda x, y: function(total_order(x, name, numbers), total_order(y, name, numbers))
    kind = accumulator(name)
    return lambda x, y: function(x.astype(kind), y.astype(kind))


def total_order(x: Array, name: str, numbers: Numbers) -> Array:
    """Integers in the order -NaN < -inf < -0 < 0 < inf < NaN."""
    bits = numbers.to_bits(x, name)
    sign = np.array(1 << (BITS[name] - 1), bits.dtype)
    mask = np.array((1 << BITS[name]) - 1, bits.dtype)
    ordered: Array = np.where(bits & sign, ~bits & mask, bits | sign)
    return ordered


# Types ------------------------------------------------------------------------------------------


def convert(x: Array, source: str, target: str, numbers: Numbers) -> Array:
    """The elements in another type.

    A float becomes the nearest integer towards zero, what is out of range the nearest bound, and
    NaN 0, as XLA's CPU and GPU backends do.
    """
    if target == "pred":
        return np.asarray(x.astype(accumulator(source)) != 0)
    if is_integer(target) and (is_float(source) or is_complex(source)):
        bits = BITS[target]
        low, high = (
            (-1 << bits - 1, (1 << bits - 1) - 1) if is_signed(target) else (0, (1 << bits) - 1)
        )
        real = np.trunc((x.real if is_complex(source) else x).astype(np.float64))
        kind = np.dtype(np.int64 if is_signed(target) else np.uint64)
        inside = (real >= low) & (real < float(high + 1))
        whole = np.where(inside, real, 0).astype(kind)
        bound = np.where(
            np.isnan(real), 0, np.where(real < low, np.array(low, kind), np.array(high, kind))
        )
        return numbers.cast(np.where(inside, whole, bound).astype(kind), target)
    if is_complex(source) and not is_complex(target):
        return numbers.cast(np.asarray(x.real), target)
    if source == "pred" or is_integer(source):
        if is_integer(target):
            return numbers.cast(x.astype(accumulator(source)), target)
        # An integer goes to a small float by way of f32, as in XLA's elemental emitter.
        by_way = np.float64 if target in ("f64", "c128") or numbers.wide else np.float32
        return numbers.cast(x.astype(accumulator(source)).astype(by_way), target)
    return numbers.cast(x, target)


def _convert(site: Site) -> Kernel:
    source, target, numbers = site.operand(0).dtype, site.array.dtype, site.numbers
    return lambda x: convert(x, source, target, numbers)


def _bitcast_convert(site: Site) -> Kernel:
    source, target, numbers = site.operand(0).dtype, site.array.dtype, site.numbers
    if is_complex(source) or is_complex(target):
        raise Unsupported(f"bitcast-convert from {source} to {target}")
    before, after = BITS[source], BITS[target]
    if before == after:
        return lambda x: numbers.of_bits(numbers.to_bits(x, source), target)
    if site.lifted:
        raise Unsupported(f"bitcast-convert from {source} to {target} in a lifted computation")

    def split(x: Array) -> Array:
        bits = numbers.to_bits(x, source)
        shifts = np.arange(0, before, after, dtype=np.uint64)
        parts = bits[..., np.newaxis].astype(np.uint64) >> shifts & np.uint64((1 << after) - 1)
        return numbers.of_bits(parts, target)

    def join(x: Array) -> Array:
        bits = numbers.to_bits(x, source).astype(np.uint64)
        shifts = np.arange(0, after, before, dtype=np.uint64)
        return numbers.of_bits(np.bitwise_or.reduce(bits << shifts, axis=-1), target)

    return split if before > after else join


def _reduce_precision(site: Site) -> Kernel:
    """Mirrors `EmitReducePrecisionIR` of XLA's elemental_ir_emitter.cc."""
    name, numbers = site.array.dtype, site.numbers
    kept_exponent = site.attribute("exponent_bits", 0)
    kept_mantissa = site.attribute("mantissa_bits", 0)
    width = BITS[name]
    mantissa = ELEMENT_TYPES[name].significand_bits - 1
    exponent = width - 1 - mantissa
    if numbers.wide:
        return lambda x: x

    def reduce(x: Array) -> Array:
        bits = numbers.to_bits(x, name).astype(np.uint64)
        sign = bits & np.uint64(1 << (width - 1))
        rest = bits & np.uint64((1 << (width - 1)) - 1)
        if kept_mantissa < mantissa:
            last = np.uint64(mantissa - kept_mantissa)
            bias = (rest >> last & np.uint64(1)) + np.uint64((1 << int(last) - 1) - 1)
            rest = (rest + bias) >> last << last
        if kept_exponent < exponent:
            full_bias = (1 << (exponent - 1)) - 1
            kept_bias = (1 << (kept_exponent - 1)) - 1
            field = (rest >> np.uint64(mantissa)).astype(np.int64)
            infinite = np.uint64(((1 << exponent) - 1) << mantissa)
            rest = np.where(field > full_bias + kept_bias, infinite, rest)
            rest = np.where(field <= full_bias - kept_bias, np.uint64(0), rest)
        reduced = numbers.of_bits(sign | rest, name)
        return np.where(np.isnan(x), x, reduced)

    return reduce


def _pack_complex(site: Site) -> Kernel:
    """Real and imaginary part side by side: 1j * inf would be a NaN."""
    held = site.numbers.dtype(site.array.dtype)

    def pack(x: Array, y: Array) -> Array:
        x, y = np.broadcast_arrays(x, y)
        packed = np.empty(x.shape, held)
        packed.real, packed.imag = x, y
        return packed

    return pack


def _part(site: Site) -> Kernel:
    name, numbers = site.operand(0).dtype, site.numbers
    is_real = site.opcode == "real"
    if not is_complex(name):
        return (lambda x: x) if is_real else np.zeros_like
    return lambda x: numbers.cast(np.asarray(x.real if is_real else x.imag), part_type(name))


def _is_finite(site: Site) -> Kernel:
    name = site.operand(0).dtype
    if not is_float(name):
        raise Unsupported(f"is-finite of {name}")
    return lambda x: np.isfinite(x.astype(np.float64))


def _select(site: Site) -> Kernel:
    def select(condition: Array, x: Value, y: Value) -> Value:
        if isinstance(x, tuple):
            return x if bool(condition) else y
        return np.where(condition, x, y)  # type: ignore[arg-type]  # both are arrays here

    return select


def _clamp(site: Site) -> Kernel:
    name, numbers = site.array.dtype, site.numbers
    kind = working_type(name, numbers.wide)

    def clamp(low: Array, x: Array, high: Array) -> Array:
        low, x, high = low.astype(kind), x.astype(kind), high.astype(kind)
        return numbers.cast(np.minimum(np.maximum(x, low), high), name)

    return clamp


def _same(site: Site) -> Kernel:
    return lambda x, *_: x


BUILDERS: dict[str, Callable[[Site], Kernel]] = {
    **dict.fromkeys([*_TRANSCENDENTAL, *_EXACT], _unary),
    **dict.fromkeys([*_FLOAT_BINARY, *_INTEGER_BINARY, *_SHIFTS, "atan2"], _binary),
    "not": _not,
    "count-leading-zeros": _count_leading_zeros,
    "popcnt": _popcnt,
    "mulhi": _multiply_high,
    "compare": _compare,
    "convert": _convert,
    "bitcast-convert": _bitcast_convert,
    "reduce-precision": _reduce_precision,
    "complex": _pack_complex,
    "real": _part,
    "imag": _part,
    "is-finite": _is_finite,
    "select": _select,
    "clamp": _clamp,
    "opt-barrier": _same,
    "add-dependency": _same,
    "domain": _same,
}
