"""Element types as numpy holds them: bits, wrapping integers, and rounding into a type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hlo_lint.hlo.dtypes import (
    BITS,
    PART_OF_COMPLEX,
    SUBBYTE,
    is_complex,
    is_float,
    is_integer,
    is_signed,
)
from hlo_lint.hlo.parser.literals import numpy_dtype
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape

Array: TypeAlias = NDArray[Any]
Value: TypeAlias = "Array | tuple[Value, ...] | None"
"""A logical array (a scalar has no dimensions), a tuple, or None for a token."""


def packed(shape: Shape | None, rest: Iterator[Array]) -> Value:
    """A value of a shape from the next arrays."""
    if isinstance(shape, TupleShape):
        return tuple(packed(element, rest) for element in shape.elements)
    return next(rest) if isinstance(shape, ArrayShape) else None


class Unsupported(Exception):
    """An instruction whose value these kernels do not define; says the reason."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The representation of values: each in its own type, or every float as a double."""

    wide: bool = False

    def dtype(self, name: str) -> np.dtype[Any]:
        """The type that holds elements of an element type."""
        if self.wide and is_float(name):
            return np.dtype(np.float64)
        if self.wide and is_complex(name):
            return np.dtype(np.complex128)
        return numpy_dtype(name)

    def cast(self, array: Array, name: str) -> Array:
        """The elements in a type: integers wrap, floats are rounded to nearest even."""
        held = self.dtype(name)
        if array.dtype == held:
            return array
        if name in SUBBYTE and array.dtype.kind in "iu":
            return _wrap(array, name).astype(held)
        return array.astype(held)

    def narrow(self, array: Array, name: str) -> Array:
        """The elements in the type itself, also where doubles hold them."""
        return array.astype(numpy_dtype(name)) if self.wide else array

    def to_bits(self, array: Array, name: str) -> Array:
        """The bit patterns as unsigned integers; complex numbers are refused."""
        if is_complex(name):
            raise Unsupported(f"the bits of {name}")
        narrow = np.ascontiguousarray(self.narrow(array, name)).reshape(array.shape)
        width = max(8, BITS[name])
        bits: Array = narrow.view(f"u{width // 8}") & np.array(
            (1 << BITS[name]) - 1, f"u{width // 8}"
        )
        return bits

    def of_bits(self, bits: Array, name: str) -> Array:
        """The elements that bit patterns spell, the inverse of `to_bits`."""
        width = max(8, BITS[name])
        words = np.ascontiguousarray(bits.astype(f"u{width // 8}")).reshape(bits.shape)
        if name == "pred":
            return np.asarray(words != 0)
        if is_integer(name) and name in SUBBYTE:
            return self.cast(words, name)
        elements: Array = words.view(numpy_dtype(name)).astype(self.dtype(name), copy=False)
        return elements


def _wrap(array: Array, name: str) -> Array:
    """The low bits of integers, sign extended for a signed type."""
    shift = 8 - BITS[name]
    low = array.astype(np.int8 if is_signed(name) else np.uint8)
    return (low << shift) >> shift


def working_type(name: str, wide: bool) -> np.dtype[Any]:
    """The type in which an exactly rounded operation is computed.

    A float of at most 11 significand bits is computed as f32, whose 24 bits make the second
    rounding harmless; XLA's float-normalization does the same.
    """
    if is_complex(name):
        return np.dtype(np.complex128)
    if is_float(name):
        return np.dtype(np.float64 if wide or name == "f64" else np.float32)
    if name in SUBBYTE:
        return np.dtype(np.int8 if is_signed(name) else np.uint8)
    return numpy_dtype(name)


def accumulator(name: str) -> np.dtype[Any]:
    """The type in which sums are kept: doubles for floats, else the type itself."""
    return working_type(name, wide=True)


def part_type(name: str) -> str:
    """The type of the parts of a complex type; of any other type, itself."""
    return PART_OF_COMPLEX.get(name, name)
