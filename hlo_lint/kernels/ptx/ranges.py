"""Abstract values of PTX registers: ranges of numbers or of addresses.

Registers have no sign: a range represents values modulo the width, and a signed or unsigned
instruction first maps it to its own range. Unmodelled instructions return an unknown range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hlo_lint.kernels.ptx.reader import PtxInstruction

UNBOUNDED = 1 << 80


class Range(NamedTuple):
    """Numbers from `low` to `high`, inclusive, or byte offsets from a shared variable `base`."""

    base: str | None
    low: int
    high: int
    bits: int = -1
    """A mask of the bits that may be set; -1 if unknown. Only for non-negative numbers."""

    @property
    def is_bounded(self) -> bool:
        """True if both ends are known."""
        return self.low > -UNBOUNDED and self.high < UNBOUNDED

    @property
    def is_natural(self) -> bool:
        """True if it has only non-negative numbers, and no base."""
        return self.base is None and self.low >= 0 and self.is_bounded

    @property
    def mask(self) -> int:
        """The bits that may be set in a natural number of this range."""
        most = (1 << self.high.bit_length()) - 1
        return most if self.bits < 0 else self.bits & most


ANYTHING = Range(None, -UNBOUNDED, UNBOUNDED)


def natural(low: int, high: int, bits: int = -1) -> Range:
    """A range of non-negative numbers with a mask of bits that may be set."""
    if bits >= 0:
        high = min(high, bits)
    return Range(None, min(low, high), high, bits)


def single(value: int) -> Range:
    """The range of a single number."""
    return Range(None, value, value, value if value >= 0 else -1)


def join(left: Range | None, right: Range | None) -> Range | None:
    """The smallest range that includes both; `None` is the empty range."""
    if left is None or right is None:
        return right if left is None else left
    if left.base != right.base:
        return ANYTHING
    bits = -1 if left.bits < 0 or right.bits < 0 else left.bits | right.bits
    return Range(left.base, min(left.low, right.low), max(left.high, right.high), bits)


def _fitted(value: Range, width: int) -> Range:
    """The range in a register of `width` bits; the full range if it may wrap around."""
    if not value.is_bounded or value.high - value.low >= 1 << width:
        return Range(value.base, -UNBOUNDED, UNBOUNDED) if value.base else _full(width)
    if value.base is None and not -(1 << width) <= value.low <= value.high < 1 << (width + 1):
        return _full(width)
    return value


def _full(width: int, *, signed: bool = False) -> Range:
    half = 1 << (width - 1)
    return Range(None, -half, half - 1) if signed else natural(0, 2 * half - 1)


def as_read(value: Range, ptx_type: str) -> Range:
    """The range as an instruction of an integer type reads it: `s32` has negative numbers."""
    if value.base is not None:
        return ANYTHING
    full = _full(type_bits(ptx_type), signed=ptx_type.startswith("s"))
    return value if full.low <= value.low and value.high <= full.high else full


# ---- instructions


def type_bits(name: str) -> int:
    """The number of bits of an integer type; 0 for any other type."""
    digits = name[1:]
    return int(digits) if name[:1] in {"b", "u", "s"} and digits in {"8", "16", "32", "64"} else 0


def _sum(left: Range, right: Range) -> Range:
    if left.base is not None and right.base is not None:
        return ANYTHING
    base = left.base or right.base
    low, high = left.low + right.low, left.high + right.high
    if low <= -UNBOUNDED or high >= UNBOUNDED:
        return Range(base, -UNBOUNDED, UNBOUNDED)
    # Without a carry, a sum has the bits of its operands: `base + (i << 4)` keeps 4 zero bits.
    disjoint = left.is_natural and right.is_natural and not left.mask & right.mask
    return Range(base, low, high, left.mask | right.mask if disjoint else -1)


def _negated(value: Range) -> Range:
    return ANYTHING if value.base is not None else Range(None, -value.high, -value.low)


def _product(left: Range, right: Range) -> Range:
    if left.base or right.base or not (left.is_bounded and right.is_bounded):
        return ANYTHING
    ends = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
    shift = right.low.bit_length() - 1
    # A product with a power of 2 is a shift.
    if left.is_natural and right.low == right.high == 1 << max(shift, 0):
        return natural(min(ends), max(ends), left.mask << shift)
    return Range(None, min(ends), max(ends))


def _and(left: Range, right: Range) -> Range:
    naturals = [value for value in (left, right) if value.is_natural]
    if not naturals:
        return ANYTHING
    mask = naturals[0].mask & naturals[-1].mask
    return natural(0, min(value.high for value in naturals), mask)


def _or(left: Range, right: Range, *, exclusive: bool) -> Range:
    """The result of `or`, or of `xor` if `exclusive`."""
    if right.base is not None:
        left, right = right, left
    if not right.is_natural:
        return ANYTHING
    high = left.high + right.high
    if left.base is not None:
        # Code adds offsets to an aligned variable by `or`, which never exceeds the sum.
        return Range(left.base, left.low - exclusive * right.high, high)
    if not left.is_natural:
        return ANYTHING
    low = 0 if exclusive else max(left.low, right.low)
    return natural(low, high, left.mask | right.mask)


def _shifted_right(value: Range, by: Range) -> Range:
    if value.base is not None or not value.is_bounded or by.base is not None:
        return ANYTHING
    if by.low == by.high and 0 <= by.low < 64:
        bits = value.mask >> by.low if value.is_natural else -1
        return Range(None, value.low >> by.low, value.high >> by.low, bits)
    return natural(0, value.high) if value.low >= 0 else ANYTHING


def _field(length: Range, signed: bool) -> Range:
    if length.base is not None or length.low != length.high or not 0 < length.low <= 64:
        return ANYTHING
    return _full(length.low, signed=signed)


def computed(instruction: PtxInstruction, values: list[Range]) -> Range:
    """The result range of an arithmetic instruction for these operands."""
    parts = instruction.opcode.split(".")
    head, ptx_type = parts[0], parts[-1]
    width = type_bits(ptx_type)
    count = len(values)
    if head in {"mov", "cvta"} and count == 1:
        return values[0]
    if head == "shfl":
        return values[0] if values else ANYTHING
    if head == "cvt" and count == 1 and len(parts) >= 3:
        return _converted(values[0], parts[-2], ptx_type)
    if not width:
        return ANYTHING
    signed = ptx_type.startswith("s")
    wide = width * 2 if "wide" in parts else width
    result = ANYTHING
    match head, count:
        case "add", 2:
            result = _sum(*values)
        case "sub", 2:
            result = _sum(values[0], _negated(values[1]))
        case "neg", 1:
            result = _negated(values[0])
        case "mul", 2 if "hi" not in parts:
            result = _product(*(as_read(value, ptx_type) for value in values))
        case "mad", 3 if "hi" not in parts:
            product = _product(*(as_read(value, ptx_type) for value in values[:2]))
            result = _sum(_fitted(product, wide), values[2])
        case "and", 2:
            result = _and(*values)
        case "or" | "xor", 2:
            result = _or(*values, exclusive=head == "xor")
        case "shl", 2:
            value, by = values
            if by.base is None and by.low == by.high and 0 <= by.low < width:
                result = _product(value, single(1 << by.low))
        case "shr", 2:
            result = _shifted_right(as_read(values[0], ptx_type), values[1])
        case "bfe", 3:
            result = _field(values[2], signed)
        case "ld" | "atom", _ if width < 32 and not signed:
            return _full(width)
        case _:
            return ANYTHING
    return _fitted(result, wide) if result != ANYTHING else ANYTHING


def _converted(value: Range, to: str, ptx_type: str) -> Range:
    width, target = type_bits(ptx_type), type_bits(to)
    if not width or not target:
        return ANYTHING
    if value.base is not None:
        return value  # shared memory fits 32 bits
    # A narrowing conversion keeps the low bits: the value is unchanged modulo the new width.
    return _fitted(value, target) if target <= width else as_read(value, ptx_type)


COMPARISONS = {
    "lt": ("high", -1, "ge", "gt"),
    "le": ("high", 0, "gt", "ge"),
    "gt": ("low", 1, "le", "lt"),
    "ge": ("low", 0, "lt", "le"),
    "lo": ("high", -1, "hs", "hi"),
    "ls": ("high", 0, "hi", "hs"),
    "hi": ("low", 1, "ls", "lo"),
    "hs": ("low", 0, "lo", "ls"),
    "eq": ("both", 0, "ne", "eq"),
    "ne": ("not", 0, "eq", "ne"),
}
"""For each comparison: the end of the left side that it bounds, the step from the right side's end,
its negation, and the comparison with swapped sides."""


def narrow(value: Range, comparison: str, bound: Range) -> Range | None:
    """The part of a range for which a comparison with `bound` may hold; `None` if it is empty."""
    if value.base is not None or bound.base is not None:
        return value
    side, step, _, _ = COMPARISONS[comparison]
    low, high = value.low, value.high
    if side in {"high", "both"}:
        high = min(high, bound.high + step)
    if side in {"low", "both"}:
        low = max(low, bound.low + step)
    if side == "not" and bound.low == bound.high:
        low += low == bound.low
        high -= high == bound.high
    return Range(None, low, high, value.bits) if low <= high else None
