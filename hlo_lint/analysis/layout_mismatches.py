"""Operands whose layout differs from the result, of operations that must keep it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from hlo_lint.analysis.calls import positions_of
from hlo_lint.hlo.ir import Computation, Instruction, cached_analysis
from hlo_lint.hlo.kinds import types_of
from hlo_lint.hlo.opcodes import KEEPS_LAYOUT
from hlo_lint.hlo.records import name_in, name_of, operands_of, references_of, type_of
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape, arrays, shape_or_none

_PAIRED: Final = frozenset({"all-reduce", "sort"})
"""Operations that return a tuple with an element for each operand."""

_REPACKING: Final = frozenset({"convert", "compare", "is-finite", "scatter"})
"""Operations whose operands may be packed differently from their result."""


class LayoutMismatch(NamedTuple):
    """An operand that has a different layout from the result."""

    operand: int
    before: ArrayShape
    after: ArrayShape


def is_descending(shape: ArrayShape) -> bool:
    """True if a layout is descending apart from dimensions of size 1, which move no bytes.

    >>> from hlo_lint.hlo.shape import parse_array
    >>> is_descending(parse_array("f32[4,1,6]{2,0,1}"))
    True
    >>> is_descending(parse_array("f32[4,6]{0,1}"))
    False
    """
    order = [d for d in shape.minor_to_major if shape.dims[d] != 1]
    return all(outer > inner for outer, inner in pairwise(order))


def turned(instruction: Instruction) -> tuple[LayoutMismatch, ...]:
    """The operands whose layout differs from the result, if the opcode must keep the layout.

    The order and the packing of arrays of equal rank are compared, as in the verifier
    (`hlo_verifier.cc:4533-4571`), including dimensions of size 1: passes compare these too. Tiles,
    memory spaces and the indices of a scatter are not compared.
    """
    if instruction.opcode not in KEEPS_LAYOUT:
        return ()
    operands = tuple([operand.shape for operand in instruction.operands])
    return _turned(instruction.opcode, instruction.shape_or_none, operands)


@lru_cache(maxsize=1 << 14)
def _turned(
    opcode: str, result: Shape | None, operands: tuple[Shape | None, ...]
) -> tuple[LayoutMismatch, ...]:
    """The mismatches of some types, cached: dumps repeat them."""
    mismatches = []
    for number, before in enumerate(operands):
        # A scatter reads n arrays, the indices, then n updates.
        if opcode == "scatter" and number == len(operands) // 2:
            continue
        after = result
        if isinstance(after, TupleShape):
            paired = opcode in _PAIRED and len(after.elements) == len(operands)
            after = after.elements[number] if paired else None
        if not isinstance(before, ArrayShape) or not isinstance(after, ArrayShape):
            continue
        if before.rank != after.rank:
            # Elements that are split are rows of the other array: its last, minor dimension.
            small, large = sorted((before, after), key=lambda shape: shape.rank)
            orders = small.minor_to_major, large.minor_to_major
            splits = not all(orders) or orders[1] == (large.rank - 1, *orders[0])
            if opcode == "bitcast-convert" and not splits:
                mismatches.append(LayoutMismatch(number, before, after))
            continue
        # Their operand's type may have a different number of bits from the result's.
        repacks = opcode in _REPACKING or (opcode == "select" and number == 0)
        packed_alike = repacks or _packing(before) == _packing(after)
        if before.minor_to_major != after.minor_to_major or not packed_alike:
            mismatches.append(LayoutMismatch(number, before, after))
    return tuple(mismatches)


def _packing(shape: ArrayShape) -> int:
    return shape.layout.element_size_in_bits if shape.layout is not None else 0


def in_other_orders(computation: Computation, opcodes: Iterable[str]) -> Iterator[Instruction]:
    """The instructions of these opcodes with, or reading, a non-descending or packed layout.

    They are few, so a rule about orders looks only at these.
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
    """The names of the instructions with a non-descending or packed layout."""
    unusual = {type_text for type_text in types_of(computation) if not _is_plain(type_text)}
    if not unusual:
        return frozenset()
    return frozenset([name_of(row) for row in computation.rows if type_of(row) in unusual])


@lru_cache(maxsize=1 << 14)
def _is_plain(text: str) -> bool:
    layouts = [array.layout for array in arrays(shape_or_none(text)) if array.layout is not None]
    return all(layout.is_descending and not layout.element_size_in_bits for layout in layouts)
