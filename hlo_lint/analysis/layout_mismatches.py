"""Operations that keep the order of dimensions in memory, and operands that break it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from hlo_lint.analysis.calls import positions_of
from hlo_lint.hlo.ir import Computation, Instruction, cached_analysis
from hlo_lint.hlo.kinds import types_of
from hlo_lint.hlo.opcodes import KEEPS_LAYOUT
from hlo_lint.hlo.records import name_in, name_of, opcode_of, operands_of, references_of, type_of
from hlo_lint.hlo.shape import (
    ArrayShape,
    Shape,
    ShapeSyntaxError,
    TupleShape,
    arrays,
    parse_shape,
    shape_or_none,
)

_PAIRED: Final = frozenset({"all-reduce", "sort"})
"""Operations that give a tuple with an element for each operand."""

_REPACKING: Final = frozenset({"convert", "compare", "is-finite", "scatter"})
"""Operations whose operands may be packed otherwise than their result."""


class LayoutMismatch(NamedTuple):
    """An operand that lies otherwise than the result."""

    operand: int
    before: ArrayShape
    after: ArrayShape


def is_descending(shape: ArrayShape) -> bool:
    """True if a layout is descending but for dimensions of size 1, whose place moves no byte.

    >>> from hlo_lint.hlo.shape import parse_array
    >>> is_descending(parse_array("f32[4,1,6]{2,0,1}"))
    True
    >>> is_descending(parse_array("f32[4,6]{0,1}"))
    False
    """
    order = _long(shape)
    return all(one > other for one, other in pairwise(order))


def lie_alike(a: ArrayShape, b: ArrayShape) -> bool:
    """True if two arrays of equal dimensions lie in one order, dimensions of size 1 aside."""
    return _long(a) == _long(b)


def _long(shape: ArrayShape) -> list[int]:
    return [d for d in shape.minor_to_major if shape.dims[d] != 1]


def turned(instruction: Instruction) -> tuple[LayoutMismatch, ...]:
    """The operands that lie otherwise than the result of an operation that may not change that.

    Compared are the order and the packing of arrays of one rank, as the verifier does
    (`hlo_verifier.cc:4533-4571`), dimensions of size 1 included: passes compare these too. Tiles
    and memory spaces are other things. Indices of a scatter are not part of its result.
    """
    if instruction.opcode not in KEEPS_LAYOUT:
        return ()
    row, rows, index = instruction.row, instruction.computation.rows, instruction.computation.index
    places = [index.get(reference) for reference in references_of(row)]
    if None in places:  # an element of a tuple, or what is not there
        operands = tuple(operand.shape for operand in instruction.operands)
        return _turned(opcode_of(row), instruction.shape_or_none, operands)
    types = tuple([type_of(rows[place]) for place in places if place is not None])
    return _turned_types(opcode_of(row), type_of(row), types)


@lru_cache(maxsize=1 << 14)
def _turned_types(
    opcode: str, result: str, operands: tuple[str, ...]
) -> tuple[LayoutMismatch, ...]:
    """The answer for types as they are spelled, cached: dumps repeat them."""
    return _turned(opcode, shape_or_none(result), tuple(map(shape_or_none, operands)))


def _turned(
    opcode: str, result: Shape | None, operands: tuple[Shape | None, ...]
) -> tuple[LayoutMismatch, ...]:
    mismatches = []
    for number, before in enumerate(operands):
        # A scatter reads n arrays, the indices, n updates: the indices stand in the middle.
        if opcode == "scatter" and number == len(operands) // 2:
            continue
        after = result
        if isinstance(after, TupleShape):
            paired = opcode in _PAIRED and len(after.elements) == len(operands)
            after = after.elements[number] if paired else None
        if not isinstance(before, ArrayShape) or not isinstance(after, ArrayShape):
            continue
        if before.rank != after.rank:
            if opcode == "bitcast-convert" and not _splits_elements(before, after):
                mismatches.append(LayoutMismatch(number, before, after))
            continue
        # Their operand has another type than the result, so another number of bits.
        repacks = opcode in _REPACKING or (opcode == "select" and number == 0)
        packed_alike = repacks or _packing(before) == _packing(after)
        if before.minor_to_major != after.minor_to_major or not packed_alike:
            mismatches.append(LayoutMismatch(number, before, after))
    return tuple(mismatches)


def _splits_elements(before: ArrayShape, after: ArrayShape) -> bool:
    """True if the elements of one array are rows of the other: its last dimension, the minor."""
    small, large = sorted((before, after), key=lambda shape: shape.rank)
    orders = small.minor_to_major, large.minor_to_major
    return not all(orders) or orders[1] == (large.rank - 1, *orders[0])


def _packing(shape: ArrayShape) -> int:
    return shape.layout.element_size_in_bits if shape.layout is not None else 0


def in_other_orders(computation: Computation, opcodes: Iterable[str]) -> Iterator[Instruction]:
    """The instructions of these opcodes with a layout that is not descending, or is packed.

    They are few, so a rule about orders looks at nothing else.
    """
    names = _in_other_order(computation)
    if not names:
        return
    rows, apart = computation.rows, names.isdisjoint
    for number in positions_of(computation, opcodes):
        row = rows[number]
        if (
            name_of(row) in names
            or not apart(references_of(row))
            or ("#" in operands_of(row) and not apart(map(name_in, references_of(row))))
        ):
            yield computation.at(number)


@cached_analysis
def _in_other_order(computation: Computation) -> frozenset[str]:
    """The names of the instructions with such a layout."""
    other = {type_text for type_text in types_of(computation) if not _is_plain(type_text)}
    if not other:
        return frozenset()
    return frozenset([name_of(row) for row in computation.rows if type_of(row) in other])


@lru_cache(maxsize=1 << 14)
def _is_plain(text: str) -> bool:
    try:
        return all(
            array.layout is None
            or (array.layout.is_descending and not array.layout.element_size_in_bits)
            for array in arrays(parse_shape(text))
        )
    except ShapeSyntaxError:
        return True
