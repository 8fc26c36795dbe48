"""Index maps: the source of each element of a result, as digits of a mixed radix.

A map takes the number of an element, in logical row-major order, to the number of an element of
another array. Reshapes, transposes, copies, bitcasts and broadcasts only reorder the digits of that
number, so a chain of them is one list of digits; if two steps cut the number at incompatible
places, it is a short list of such lists. A canonical list is unique, so equal maps have equal
lists; several lists are compared element by element. Rules choose fixes with `layouts.py`; these
maps check the fixes, and share no code with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd, prod
from typing import TYPE_CHECKING, Final, NamedTuple

from hlo_lint.hlo.shape import UNBOUNDED, ArrayShape

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CHUNK: Final = 1 << 20
"""Elements compared at a time if digits do not decide."""


class Digit(NamedTuple):
    """A digit of the number of an element."""

    size: int
    stride: int
    """The distance in the source array between successive values of the digit."""


Digits = tuple[Digit, ...]
"""Digits from major to minor; their sizes multiply to the number of elements."""


@dataclass(frozen=True, slots=True)
class IndexMap:
    """The source of each of `count` elements.

    >>> transposed = transpose((2, 3), (1, 0))
    >>> [transposed.source(number) for number in range(6)]
    [0, 3, 1, 4, 2, 5]
    >>> transposed.after(transpose((3, 2), (1, 0)))
    IndexMap(count=6, steps=())
    """

    count: int
    """The number of elements of the result."""
    steps: tuple[Digits, ...]
    """Applied first to last; empty for the identity."""

    def after(self, inner: IndexMap) -> IndexMap:
        """The composition of both maps: `self.source(inner.source(number))`."""
        steps = list(inner.steps)
        for step in self.steps:
            _append(steps, step)
        return IndexMap(inner.count, tuple(steps))

    def source(self, number: int) -> int:
        """The number of the element that an element of the result comes from."""
        for step in self.steps:
            rest, number = number, 0
            for size, stride in reversed(step):
                rest, digit = divmod(rest, size)
                number += digit * stride
        return number

    def equals(self, other: IndexMap) -> bool:
        """True if both maps have the same source for every element; exact."""
        if self.count != other.count:
            return False
        if self.steps == other.steps or self.count == 0:
            return True
        if len(self.steps) < 2 and len(other.steps) < 2:
            return False  # each is canonical, and canonical digits are unique
        return self._differing(other) is None

    def difference(self, theirs: IndexMap) -> int | None:
        """An element whose sources differ between two maps of equal count; None if they agree."""
        if self.equals(theirs):
            return None
        places = {value for step in (*self.steps, *theirs.steps) for value in _suffixes(step)}
        for number in sorted(places):
            if number < self.count and self.source(number) != theirs.source(number):
                return number
        return self._differing(theirs)

    def _differing(self, theirs: IndexMap) -> int | None:
        """The first element whose sources differ, by a search over all elements."""
        import numpy as np

        # A block of minor digits that neither map splits moves as a unit.
        block = _common_block([*self.steps, *theirs.steps])
        blocks = self.count // block
        for start in range(0, blocks, CHUNK):
            numbers = np.arange(start, min(start + CHUNK, blocks), dtype=np.int64) * block
            unequal = _sources(self.steps, numbers) != _sources(theirs.steps, numbers)
            if unequal.any():
                return int(numbers[unequal.argmax()])
        return None


def _sources(steps: tuple[Digits, ...], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    for step in steps:
        rest, numbers = numbers, numbers * 0
        for size, stride in reversed(step):
            numbers = numbers + rest % size * stride
            rest = rest // size
    return numbers


def identity(count: int) -> IndexMap:
    """The map of an array onto itself: copies and reshapes."""
    return IndexMap(count, ())


def of_digits(digits: Iterable[Digit]) -> IndexMap:
    """The map of some digits, in canonical form."""
    given = tuple(digits)
    count = prod(digit.size for digit in given)
    canonical = _canonical(given)
    is_identity = canonical in ((), (Digit(count, 1),))
    return IndexMap(count, () if is_identity or not count else (canonical,))


def transpose(dims: Sequence[int], order: Sequence[int]) -> IndexMap:
    """The map of a transpose: dimension n of the result is dimension `order[n]` of the operand."""
    strides = _strides(dims)
    return of_digits(Digit(dims[number], strides[number]) for number in order)


def broadcast(dims: Sequence[int], into: Sequence[int], dimensions: Sequence[int]) -> IndexMap:
    """The map of a broadcast: dimension n of the operand is dimension `dimensions[n]`."""
    strides = _strides(dims)
    read = {into_number: strides[number] for number, into_number in enumerate(dimensions)}
    return of_digits(Digit(size, read.get(number, 0)) for number, size in enumerate(into))


def bitcast(source: ArrayShape, target: ArrayShape) -> IndexMap | None:
    """The map of a bitcast between elements of equal width; None if padding in memory moves.

    A layout is a list of digits, too: from the place in memory to the number of the element.
    """
    if source.elements != target.elements or source.element_bits != target.element_bits:
        return None
    if not (source.has_valid_layout and target.has_valid_layout):
        return None
    # Equal sizes in equal tiles have their padding at the same places.
    tiled = _major_to_minor(source) != _major_to_minor(target) or _tiles(source) != _tiles(target)
    before, after = _in_memory(source, tiled), _in_memory(target, tiled)
    if before is None or after is None:
        return None
    return before.after(_inverse(after))


def _major_to_minor(shape: ArrayShape) -> list[int]:
    return [shape.dims[number] for number in shape.minor_to_major[::-1]]


def _tiles(shape: ArrayShape) -> tuple[tuple[int | None, ...], ...]:
    return () if shape.layout is None else shape.layout.tiles


def _in_memory(shape: ArrayShape, tiled: bool) -> IndexMap | None:
    """The map from the place in memory to the element; with `tiled`, tiles count."""
    if UNBOUNDED in shape.dims:
        return None
    strides = _strides(shape.dims)
    digits = [Digit(shape.dims[number], strides[number]) for number in shape.minor_to_major[::-1]]
    if shape.layout is not None and shape.layout.rest:
        return None
    for tile in _tiles(shape) if tiled else ():
        missing = len(tile) - len(digits)
        digits[:0] = [Digit(1, 0)] * missing
        first = len(digits) - len(tile)
        outer, inner = digits[:first], []
        for (size, stride), cut in zip(digits[first:], tile, strict=True):
            if cut is None or cut <= 0 or size % cut:
                return None  # padding at the end of the dimension
            outer.append(Digit(size // cut, stride * cut))
            inner.append(Digit(cut, stride))
        digits = outer + inner
    return of_digits(digits)


def _inverse(permutation: IndexMap) -> IndexMap:
    """The inverse of a permutation, given as a single step or as the identity."""
    if not permutation.steps:
        return permutation
    (digits,) = permutation.steps
    places = zip(digits, _suffixes(digits), strict=True)
    by_stride = sorted(places, key=lambda place: -place[0].stride)
    return of_digits(Digit(digit.size, place) for digit, place in by_stride)


# Digits -----------------------------------------------------------------------------------------


def _strides(dims: Sequence[int]) -> list[int]:
    return [prod(dims[number + 1 :]) for number in range(len(dims))]


def _suffixes(digits: Digits) -> list[int]:
    """The weight of each digit in its number."""
    return _strides([digit.size for digit in digits])


def _canonical(digits: Digits) -> Digits:
    """The fewest equivalent digits: contiguous neighbours are joined."""
    joined: list[Digit] = []
    for digit in digits:
        if digit.size == 1:
            continue
        if joined and joined[-1].stride == digit.stride * digit.size:
            digit = Digit(joined.pop().size * digit.size, digit.stride)
        joined.append(digit)
    return tuple(joined)


def _append(steps: list[Digits], step: Digits) -> None:
    """Append a step, joined with the previous step if the digits fit."""
    while steps:
        joined = _joined(steps[-1], step)
        if joined is None:
            break
        steps.pop()
        if joined in ((), (Digit(prod(d.size for d in joined), 1),)):
            return
        step = joined
    steps.append(step)


def _joined(inner: Digits, outer: Digits) -> Digits | None:
    """Two steps as a single step; None if `outer` cuts a digit of `inner` at an odd place."""
    outer_values = _suffixes(outer)
    ordered = sorted(set(outer_values) | {digit.stride for digit in inner if digit.stride})
    if any(b % a for a, b in pairwise(ordered)):
        return None
    digits: list[Digit] = []
    for size, stride in inner:
        if not stride:
            digits.append(Digit(size, 0))
            continue
        edges = [cut for cut in ordered if stride < cut < stride * size]
        if any(stride * size % edge for edge in edges):
            return None
        for low, high in reversed([*pairwise([stride, *edges, stride * size])]):
            # The outer digit that contains this stride.
            places = zip(outer_values, outer, strict=True)
            value, digit = next(place for place in places if place[0] <= low)
            digits.append(Digit(high // low, digit.stride * (low // value)))
    return _canonical(tuple(digits))


def _common_block(steps: Sequence[Digits]) -> int:
    """A number of elements that every step moves together: its minor digit has stride 1."""
    block = 0
    for step in steps:
        if not step or step[-1].stride != 1:
            return 1
        # All further digits have to step over whole blocks, before and after.
        block = gcd(block, step[-1].size, *(digit.stride for digit in step[:-1]))
    return max(block, 1)
