"""Errors in shapes that our reader of shapes reads and XLA's parser refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hlo_lint.hlo.dtypes import ELEMENT_TYPES
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

_INT64 = 1 << 63


def shape_errors(shape: Shape) -> Iterator[str]:
    """Messages on what XLA's parser refuses in a shape."""
    match shape:
        case TupleShape(elements=elements):
            # `MakeValidatedTupleShape` validates the elements of a tuple; an array alone is not.
            for element in dict.fromkeys(elements):
                yield from shape_errors(element)
                if isinstance(element, ArrayShape) and element.dtype in ELEMENT_TYPES:
                    yield from _invalid_element(element)
        case BufferShape(element=element):
            yield from shape_errors(element)
        case ArrayShape(dtype=dtype, layout=layout):
            if dtype not in ELEMENT_TYPES:
                types = ", ".join(sorted(ELEMENT_TYPES))
                yield f"unknown element type: {dtype}; XLA has {types}"
            if layout is not None and str(layout) == "{}":
                yield f"{shape}: a layout of no dimensions is left out"
            if layout is not None and any(
                property_text.startswith("P(") for property_text in layout.rest
            ):
                yield f"{shape}: the layout has a physical shape, but is not for a sparse array"
        case OpaqueShape():
            pass


def _invalid_element(shape: ArrayShape) -> Iterator[str]:
    """Errors of an array within a tuple: `ValidateShape` and `LayoutUtil::ValidateLayout`."""
    bits = ELEMENT_TYPES[shape.dtype].bits
    if UNBOUNDED not in shape.dims and shape.elements * max(1, bits // 8) >= _INT64:
        yield f"{shape}: the size in bytes overflows 64 bits"
    yield from invalid_layout(shape)


def invalid_layout(shape: ArrayShape) -> Iterator[str]:
    """Errors of `LayoutUtil::ValidateLayout`."""
    layout = shape.layout
    if layout is None:
        return
    if not shape.has_valid_layout:
        yield f"{shape}: a layout names each of the dimensions 0 to {shape.rank - 1} once"
    if any(not tile or 0 in tile for tile in layout.tiles):
        yield f"{shape}: the sizes of a tile are positive"
    if layout.element_size_in_bits < 0:
        yield f"{shape}: the element size is negative"
    for property_text in layout.rest:
        kind, _, _ = property_text.partition("(")
        if kind in ("#", "*"):
            yield f"{shape}: only sparse arrays have a type of indices or pointers"
        elif kind == "SC" and any(int(number) >= shape.rank for number in _splits(property_text)):
            yield f"{shape}: a split is along a dimension that is not there"


_splits = re.compile(r"\(([0-9]{1,9}):").findall


def has_element(shape: Shape | None, index: tuple[int, ...]) -> bool:
    """True if a shape has the element, or is not known."""
    for element in index:
        if shape is None:
            return True
        if not isinstance(shape, TupleShape) or not 0 <= element < len(shape.elements):
            return False
        shape = shape.elements[element]
    return True


def array_of(shape: Shape | None) -> Shape | None:
    """The shape, or of a buffer the array that it holds."""
    return shape.element if isinstance(shape, BufferShape) else shape


def tuple_of(text: str) -> tuple[Shape, ...] | None:
    """The shapes of a list without its parentheses, or None where they cannot be read."""
    try:
        shape = parse_shape(f"({text})")
    except ShapeSyntaxError:
        return None
    return shape.elements if isinstance(shape, TupleShape) else None
