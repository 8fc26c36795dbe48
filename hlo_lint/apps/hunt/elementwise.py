"""The left sides of elementwise rewrites, with constants at their edges."""

from __future__ import annotations

from typing import Final

from hlo_lint.apps.hunt.draft import DrawnValue, ModuleDraft, ends, shape_text
from hlo_lint.hlo.dtypes import BITS, PART_OF_COMPLEX, is_complex, is_float, is_integer, is_signed

ARITHMETIC: Final = ("add", "subtract", "multiply", "maximum", "minimum")
BITWISE: Final = ("and", "or", "xor")
SHIFTS: Final = ("shift-left", "shift-right-arithmetic", "shift-right-logical")
DIRECTIONS: Final = ("EQ", "NE", "LT", "LE", "GT", "GE")


def binary_opcodes(dtype: str) -> tuple[str, ...]:
    """Opcodes of two operands that are defined for all values of a type."""
    if dtype == "pred":
        return (*BITWISE, "maximum", "minimum")
    if is_integer(dtype):
        return (*ARITHMETIC, *BITWISE, *SHIFTS)
    return ("add", "subtract", "multiply") if is_complex(dtype) else (*ARITHMETIC, "divide")


def binary(d: ModuleDraft, x: DrawnValue) -> DrawnValue:
    """One operation with a constant or another value, on either side."""
    opcode = d.random.choice(binary_opcodes(x.dtype))
    other = d.splat(x) if d.chance(2) else d.partner(x)
    if d.chance(3):
        x, other = other, x
    return d.like(x, opcode, other)


def constants_chain(d: ModuleDraft, x: DrawnValue) -> DrawnValue:
    """Operations with constants: `(x + 3) - 5`, `(x << 2) >> 2`, `max(min(x, 1), 2)`."""
    opcodes = binary_opcodes(x.dtype)
    groups = [
        group
        for group in (("add", "subtract"), ("maximum", "minimum"), BITWISE, SHIFTS, ("multiply",))
        if set(group) <= set(opcodes)
    ]
    group = d.random.choice([*groups, opcodes])
    constant = d.splat(x)
    for _ in range(d.random.randint(2, 3)):
        x = d.like(x, d.random.choice(group), constant)
        if not d.chance(3):
            constant = d.splat(x)
    return x


def division(d: ModuleDraft, x: DrawnValue) -> DrawnValue | None:
    """Quotients and remainders by constants, and what is put together from them."""
    if not is_integer(x.dtype):
        return None
    by = d.splat(x, d.nonzero(x.dtype))
    one = d.like(x, d.random.choice(("divide", "remainder")), by)
    match d.random.randrange(6):
        case 0:
            return d.like(one, "multiply", by)
        case 1:
            return d.like(x, "subtract", d.like(one, "multiply", by))
        case 2:
            other = d.splat(x, d.nonzero(x.dtype))
            return d.like(one, d.random.choice(("divide", "remainder")), other)
        case 3:
            return d.like(d.like(x, "multiply", by), "divide", by)
        case 4:
            return d.like(one, "add", d.like(x, d.random.choice(("divide", "remainder")), by))
        case _:
            return one


def shift(d: ModuleDraft, x: DrawnValue) -> DrawnValue | None:
    """Shifts by amounts about the width, and back."""
    if not is_integer(x.dtype):
        return None
    bits = BITS[x.dtype]
    most = min(bits + 1, ends(x.dtype)[1])
    by = d.splat(x, str(d.random.choice((0, 1, bits - 1, most, d.random.randint(0, most)))))
    one = d.like(x, d.random.choice(SHIFTS), by)
    if d.chance(2):
        other = by if d.chance(2) else d.splat(x, str(d.random.randint(0, most)))
        return d.like(one, d.random.choice((*SHIFTS, *BITWISE)), other)
    return one


def same(d: ModuleDraft, x: DrawnValue) -> DrawnValue:
    """A value with itself, or with what was made of it: `x - x`, `x ^ (x & y)`, `-(-x)`."""
    other = d.like(x, d.random.choice(binary_opcodes(x.dtype)), d.partner(x)) if d.chance(2) else x
    opcode = d.random.choice(binary_opcodes(x.dtype))
    return d.like(x, opcode, other) if d.chance(2) else d.like(other, opcode, x)


def distributed(d: ModuleDraft, x: DrawnValue) -> DrawnValue:
    """`x * c + y * c`, with one of the two factors shared."""
    inner, outer = (d.random.choice(binary_opcodes(x.dtype)) for _ in range(2))
    shared = d.splat(x) if d.chance(2) else d.partner(x)
    left = d.like(x, inner, shared)
    other = d.partner(x)
    right = d.like(shared, inner, other) if d.chance(2) else d.like(other, inner, shared)
    return d.like(left, outer, right)


def unary(d: ModuleDraft, x: DrawnValue) -> DrawnValue:
    """Operations of one operand, twice or after one with a constant."""
    if x.dtype == "pred":
        opcodes: tuple[str, ...] = ("not",)
    elif is_integer(x.dtype):
        opcodes = ("not", "popcnt", "count-leading-zeros")
        opcodes += ("negate", "abs", "sign") if is_signed(x.dtype) else ("negate",)
    elif is_complex(x.dtype):
        opcodes = ("negate",)
    else:
        opcodes = ("negate", "abs", "floor", "ceil", "round-nearest-even", "round-nearest-afz")
        opcodes += ("sign", "sqrt", "negate")
    first = d.like(x, d.random.choice(opcodes))
    if d.chance(2):
        first = d.like(first, d.random.choice(opcodes))
    elif d.chance(2):
        first = d.like(first, d.random.choice(binary_opcodes(x.dtype)), x)
    return first


def comparison(d: ModuleDraft, x: DrawnValue) -> DrawnValue:
    """Comparisons, alone, negated and combined, of what was shifted by a constant or not."""
    directions = DIRECTIONS[:2] if is_complex(x.dtype) else DIRECTIONS
    left = d.like(x, d.random.choice(binary_opcodes(x.dtype)), d.splat(x)) if d.chance(2) else x

    def one(value: DrawnValue, other: DrawnValue) -> DrawnValue:
        operands = (other, value) if d.chance(3) else (value, other)
        text = f"compare(%{operands[0].name}, %{operands[1].name})"
        direction = d.random.choice(directions)
        return d.add("pred", x.dims, f"{text}, direction={direction}")

    result = one(left, d.splat(x) if not d.chance(3) else d.partner(x))
    for _ in range(d.random.randrange(3)):
        if d.chance(3):
            result = d.like(result, "not")
        else:
            again = one(left if d.chance(2) else x, d.splat(x))
            result = d.like(result, d.random.choice((*BITWISE, "maximum")), again)
    return result


def select(d: ModuleDraft, x: DrawnValue) -> DrawnValue:
    """Selections between values, constants, and selections by the same or an opposite predicate."""
    is_plain = is_complex(x.dtype) or x.dtype == "pred"
    mask = d.source("pred", x.dims) if is_plain else comparison(d, x)
    other = d.splat(x) if d.chance(2) else d.partner(x)
    arms = [x, other] if d.chance(2) else [other, x]
    result = _select(d, mask, *arms)
    if d.chance(2):
        mask = d.like(mask, "not") if d.chance(2) else mask
        result = _select(d, mask, result, d.splat(x) if d.chance(2) else x)
    return result


def _select(
    d: ModuleDraft, mask: DrawnValue, on_true: DrawnValue, on_false: DrawnValue
) -> DrawnValue:
    text = f"select(%{mask.name}, %{on_true.name}, %{on_false.name})"
    return d.add(on_true.dtype, on_true.dims, text)


def clamp(d: ModuleDraft, x: DrawnValue) -> DrawnValue | None:
    """Clamps with bounds that are equal, at the ends, or crossed, by scalars or arrays."""
    if x.dtype == "pred" or is_complex(x.dtype):
        return None
    if d.chance(2):
        low, high = (d.constant(x.dtype) for _ in range(2))
    else:
        low, high = (d.splat(x) for _ in range(2))
    result = d.add(x.dtype, x.dims, f"clamp(%{low.name}, %{x.name}, %{high.name})")
    if d.chance(2):
        result = d.like(result, d.random.choice(("maximum", "minimum")), d.splat(x))
    return result


def convert(d: ModuleDraft, x: DrawnValue) -> DrawnValue:
    """Conversions there and back; of a float to an integer only where all of them are in range."""
    source = x
    narrow = BITS[x.dtype] if is_integer(x.dtype) else 1
    for _ in range(d.random.randint(1, 3)):
        targets = ["pred"] * (not is_float(x.dtype) and not is_complex(x.dtype))
        if is_integer(x.dtype) or x.dtype == "pred":
            targets += ["s4", "u4", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "s2"]
            targets += ["f32", "f64"]
        elif is_float(x.dtype):
            targets += ["f32", "f64", "bf16", *(["f16"] if is_float(source.dtype) else [])]
            # A float that was an integer is in range of a type with more bits, and its sign.
            signed = not is_integer(source.dtype) or is_signed(source.dtype)
            if not is_float(source.dtype) and x.dtype in ("f32", "f64"):
                wide = [name for name in ("s8", "s16", "s32", "s64") if BITS[name] > narrow]
                targets = [name for name in wide if narrow <= 32] or ["f64"]
                targets += [f"u{name[1:]}" for name in wide if not signed]
        elif is_complex(x.dtype):
            targets = ["c64", "c128"]
        target = d.random.choice(targets)
        if not is_float(x.dtype) and is_float(target):
            source, narrow = x, BITS[x.dtype] if is_integer(x.dtype) else 1
        x = d.add(target, x.dims, f"convert(%{x.name})")
    return x


def bits(d: ModuleDraft, x: DrawnValue) -> DrawnValue | None:
    """The same bits as elements of another width, and back."""
    if not is_integer(x.dtype) or BITS[x.dtype] < 8 or not x.size:
        return None
    width = BITS[x.dtype]
    if d.chance(2) and width > 8:
        narrow = d.random.choice([w for w in (8, 16, 32) if w < width])
        dims = (*x.dims, width // narrow)
        if x.size * dims[-1] > 600:
            return None
        parts = d.add(f"{d.random.choice('su')}{narrow}", dims, f"bitcast-convert(%{x.name})")
        if d.chance(2):
            parts = binary(d, parts)
        return d.add(x.dtype, x.dims, f"bitcast-convert(%{parts.name})")
    for wide in (64, 32, 16):
        if x.dims and wide > width and x.dims[-1] == wide // width:
            return d.add(
                f"{d.random.choice('su')}{wide}", x.dims[:-1], f"bitcast-convert(%{x.name})"
            )
    return d.add(f"{d.random.choice('su')}{width}", x.dims, f"bitcast-convert(%{x.name})")


def complexes(d: ModuleDraft, x: DrawnValue) -> DrawnValue | None:
    """Complex numbers put together and taken apart."""
    if is_complex(x.dtype):
        part = PART_OF_COMPLEX[x.dtype]
        return d.add(part, x.dims, f"{d.random.choice(('real', 'imag'))}(%{x.name})")
    if x.dtype not in PART_OF_COMPLEX.values():
        return None
    whole = {"f32": "c64", "f64": "c128"}[x.dtype]
    other = d.partner(x)
    made = d.add(whole, x.dims, f"complex(%{x.name}, %{other.name})")
    if d.chance(2):
        made = d.like(made, d.random.choice(("add", "subtract", "multiply")), made)
    return complexes(d, made) if d.chance(2) else made


def functions(d: ModuleDraft, x: DrawnValue) -> DrawnValue | None:
    """Roots, powers and logarithms, of what another one left."""
    if x.dtype not in ("f32", "f64", "bf16", "f16"):
        return None
    opcodes: tuple[str, ...] = ("exponential", "log", "sqrt", "rsqrt", "cbrt", "tanh", "logistic")
    opcodes += ("log-plus-one",)
    opcodes += ("exponential-minus-one", "sine", "cosine", "atan2", "power", "remainder", "divide")
    opcodes += ("multiply", "abs", "negate")
    for _ in range(d.random.randint(1, 3)):
        opcode = d.random.choice(opcodes)
        if opcode in ("atan2", "power", "remainder", "divide", "multiply"):
            other = d.splat(x) if d.chance(2) else (x if d.chance(2) else d.partner(x))
            x = d.like(x, opcode, other)
        else:
            x = d.like(x, opcode)
    return x


def mapped(d: ModuleDraft, x: DrawnValue) -> DrawnValue | None:
    """The same small computation of every element, by `map` or a call."""
    opcode = d.random.choice(binary_opcodes(x.dtype))
    other = d.partner(x)
    if d.chance(2) and not is_complex(x.dtype):
        body = d.combiner(x.dtype, opcode)
        at = ",".join(map(str, range(x.rank)))
        return d.like(x, "map", other, more=f", dimensions={{{at}}}, to_apply=%{body}")
    shape = (x.dtype, x.dims)
    body = d.computation([shape, shape], f"ROOT r = {shape_text(*shape)} {opcode}(p0, p1)")
    return d.like(x, "call", other, more=f", to_apply=%{body}")
