"""Shapes that cannot be, although XLA's parser may let them through."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hlo_lint.hlo.dtypes import BITS, ELEMENT_TYPES
from hlo_lint.hlo.shape import (
    UNBOUNDED,
    ArrayShape,
    BufferShape,
    OpaqueShape,
    Shape,
    ShapeSyntaxError,
    TupleShape,
    parse_shape,
)

_LIMIT = 1 << 63


def unsound(shape: Shape) -> Iterator[str]:
    """What is wrong with a shape, in words: types nobody knows, layouts that are no order."""
    match shape:
        case TupleShape(elements=elements):
            for element in dict.fromkeys(elements):
                yield from unsound(element)
        case BufferShape(element=element):
            yield from unsound(element)
        case ArrayShape():
            yield from _unsound_array(shape)
        case OpaqueShape():
            pass


def _unsound_array(shape: ArrayShape) -> Iterator[str]:
    if shape.dtype not in ELEMENT_TYPES:
        yield f"{shape.dtype} is no type; there are {', '.join(sorted(ELEMENT_TYPES))}"
        return
    if UNBOUNDED not in shape.dims and shape.elements * BITS.get(shape.dtype, 8) >= _LIMIT:
        yield f"{shape}: so many elements have no size in 64 bits"
    layout = shape.layout
    if layout is None:
        return
    if not str(layout)[1:-1]:
        yield f"{shape}: a layout of no dimensions is left out"
    bits = BITS.get(shape.dtype, 0)
    if 0 < layout.element_size_in_bits < bits and shape.dtype != "pred":
        yield f"{shape}: elements of {bits} bits do not fit into {layout.element_size_in_bits}"
    for part in layout.rest:
        yield from (f"{shape}: {said}" for said in _unsound_part(part, shape.rank))
    if not shape.has_valid_layout:
        yield f"{shape}: a layout names each of the dimensions 0 to {shape.rank - 1} once"
    for tile in layout.tiles:
        if not tile or any(size is not None and size < 1 for size in tile):
            yield f"{shape}: the sizes of a tile are positive"
    if layout.memory_space < 0 or layout.element_size_in_bits < 0:
        yield f"{shape}: memory spaces and element sizes are not negative"


def _unsound_part(part: str, rank: int) -> Iterator[str]:
    """What is wrong with a rarer part of the layout of an array with `rank` dimensions."""
    kind, _, inside = part.partition("(")
    if kind == "P":
        yield "only sparse arrays have a physical shape"
    elif kind == "D" and inside.count(",") != rank - 1:
        yield "each dimension has one level type"
    elif kind in ("#", "*") and not inside.startswith("u"):
        yield "indices and pointers are unsigned"
    elif kind == "SC" and any(int(number) >= rank for number in _split_dimensions(part)):
        yield "no dimension that is not there can be split"


_split_dimensions = re.compile(r"\(([0-9]{1,9}):").findall


def compatible(one: Shape, other: Shape) -> bool:
    """Whether both have the same types, sizes and structure: layouts and bounds do not count."""
    match one, other:
        case TupleShape(elements=ours), TupleShape(elements=theirs):
            return len(ours) == len(theirs) and all(map(compatible, ours, theirs))
        case BufferShape(element=mine), BufferShape(element=its):
            return compatible(mine, its)
        case ArrayShape(), ArrayShape():
            return one.dtype == other.dtype and one.dims == other.dims
        case _:
            return one == other


def has_element(shape: Shape | None, index: tuple[int, ...]) -> bool:
    """Whether a shape has the element; true where the shape is not known."""
    for element in index:
        if shape is None:
            return True
        if not isinstance(shape, TupleShape) or not 0 <= element < len(shape.elements):
            return False
        shape = shape.elements[element]
    return True


def tuple_of(text: str) -> tuple[Shape, ...] | None:
    """The shapes of a list without its parentheses, or None where they cannot be read."""
    try:
        shape = parse_shape(f"({text})")
    except ShapeSyntaxError:
        return None
    return shape.elements if isinstance(shape, TupleShape) else None
