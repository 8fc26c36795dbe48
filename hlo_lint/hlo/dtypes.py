"""The table of XLA's element types: widths, ranges, names in numpy.

The facts are from `xla/primitive_util.h` and `ml_dtypes`. A new type needs a single line.
"""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple


class ElementType(NamedTuple):
    """An element type."""

    bits: int
    """Width of an element that is not packed by a layout."""
    numpy: str
    """Its name in numpy, or in ml_dtypes for types that numpy lacks."""
    max_exponent: int = -1
    """`numeric_limits::max_exponent` of a real float; -1 for any other type."""
    significand_bits: int = -1
    """Significand bits of a real float, the leading bit included; -1 for any other type."""
    overflow: float = inf
    """The smallest literal that does not fit: XLA rounds to nearest first, so f16 takes 65519.99;
    types of less than 8 bits without infinities saturate (`CheckParsedValueIsInRange`)."""
    has_infinity: bool = True

    @property
    def is_float(self) -> bool:
        """True for a real floating-point type."""
        return self.significand_bits > 0

    @property
    def nan_payload_bits(self) -> int:
        """Fraction bits that distinguish NaNs; a type without infinities has a single NaN."""
        return self.significand_bits - 1 if self.is_float and self.has_infinity else 0


# Name, bits, name in numpy; of floats maximum exponent, bits of the significand, smallest literal
# that overflows, and `-` for a type without infinity.
_TABLE = """
pred            8 bool
s1              1 int1
s2              2 int2
s4              4 int4
s8              8 int8
s16            16 int16
s32            32 int32
s64            64 int64
u1              1 uint1
u2              2 uint2
u4              4 uint4
u8              8 uint8
u16            16 uint16
u32            32 uint32
u64            64 uint64
f4e2m1fn        4 float4_e2m1fn           3  2 inf -
f6e2m3fn        6 float6_e2m3fn           3  4 inf -
f6e3m2fn        6 float6_e3m2fn           5  3 inf -
f8e3m4          8 float8_e3m4             4  5 15.75
f8e4m3          8 float8_e4m3             8  4 248
f8e4m3b11fnuz   8 float8_e4m3b11fnuz      5  4 31 -
f8e4m3fn        8 float8_e4m3fn           9  4 464.0000000000001 -
f8e4m3fnuz      8 float8_e4m3fnuz         8  4 248 -
f8e5m2          8 float8_e5m2            16  3 61440
f8e5m2fnuz      8 float8_e5m2fnuz        16  3 61440 -
f8e8m0fnu       8 float8_e8m0fnu        128  1 2.552117751907038e38 -
f16            16 float16                16 11 65520
bf16           16 bfloat16              128  8 3.3961775292304957e38
f32            32 float32               128 24 3.4028235677973366e38
f64            64 float64              1024 53 inf
c64            64 complex64
c128          128 complex128
"""


def _read_table() -> dict[str, ElementType]:
    types = {}
    for line in _TABLE.strip().splitlines():
        name, bits, numpy, *limits = line.split()
        types[name] = ElementType(int(bits), numpy)
        if limits:
            exponent, significand, overflow, *no_infinity = limits
            real = int(exponent), int(significand), float(overflow), not no_infinity
            types[name] = ElementType(int(bits), numpy, *real)
    return types


ELEMENT_TYPES: Final = _read_table()
"""Every element type of arrays that jaxlib 0.12.0 knows, by name."""
BITS: Final = {name: dtype.bits for name, dtype in ELEMENT_TYPES.items()}
"""Width in bits of an element that is not packed by a layout."""
SUBBYTE: Final = {name: bits for name, bits in BITS.items() if bits < 8}
"""Width of the types that a layout may pack (`primitive_util::IsSubByteNonPredType`)."""
FLOATS: Final = frozenset(name for name, dtype in ELEMENT_TYPES.items() if dtype.is_float)
PART_OF_COMPLEX: Final = {"c64": "f32", "c128": "f64"}
"""The type of the two parts of a complex type."""
COMPLEX_OF_PART: Final = {part: whole for whole, part in PART_OF_COMPLEX.items()}


def is_float(dtype: str) -> bool:
    """True for a real floating-point type."""
    return dtype in FLOATS


def is_complex(dtype: str) -> bool:
    """True for a complex type."""
    return dtype in PART_OF_COMPLEX


def is_inexact(dtype: str) -> bool:
    """True for a real or complex floating-point type, whose results are rounded."""
    return is_float(dtype) or is_complex(dtype)


def is_signed(dtype: str) -> bool:
    """True for a signed integer type."""
    return dtype.startswith("s") and dtype in ELEMENT_TYPES


def is_integer(dtype: str) -> bool:
    """True for an integer type; pred is not an integer."""
    return dtype.startswith(("s", "u")) and dtype in ELEMENT_TYPES


def integer_range(dtype: str) -> range:
    """The numbers of an integer type.

    >>> integer_range("s8")[0], integer_range("s8")[-1]
    (-128, 127)
    """
    count = 1 << BITS[dtype]
    return range(-count // 2, count // 2) if is_signed(dtype) else range(count)


def zero_literal(dtype: str) -> str:
    """The zero of an element type, as in `constant(0)`."""
    return "false" if dtype == "pred" else "(0, 0)" if is_complex(dtype) else "0"


def neutral_element(dtype: str, opcode: str) -> float:
    """The neutral element of a combiner.

    >>> neutral_element("s8", "maximum"), neutral_element("u8", "and")
    (-128, 255)
    """
    if dtype == "pred":
        return opcode in ("and", "minimum", "multiply")
    low, high = (
        (-inf, inf) if is_float(dtype) else (integer_range(dtype)[index] for index in (0, -1))
    )
    all_bits = high if low == 0 else -1
    return {"multiply": 1, "and": all_bits, "maximum": low, "minimum": high}.get(opcode, 0)
