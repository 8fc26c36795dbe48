"""XLA's conditions for types to agree, of elements or of whole shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from hlo_lint.analysis.shape_inference.operation import (
    PRED,
    Impossible,
    Operation,
    Unknowable,
    known,
)
from hlo_lint.hlo.dtypes import (
    BITS,
    COMPLEX_OF_PART,
    ELEMENT_TYPES,
    FLOATS,
    PART_OF_COMPLEX,
    is_signed,
)
from hlo_lint.hlo.shape import (
    UNBOUNDED,
    ArrayShape,
    BufferShape,
    Layout,
    OpaqueShape,
    Shape,
    TupleShape,
    leaves,
    spelled_index,
)


def demand_known(*dtypes: str) -> None:
    """Raise `Unknowable` for an element type of a release that is not known here."""
    if not BITS.keys() >= {*dtypes}:
        raise Unknowable


def part_of(dtype: str) -> str:
    """The type of the parts of a complex type; any other type itself."""
    return PART_OF_COMPLEX.get(dtype, dtype)


def same_type(left: str, right: str) -> bool:
    """True if two types differ at most in float precision; unknown types agree with any."""
    return (
        left == right
        or (left in FLOATS and right in FLOATS)
        or left not in BITS
        or right not in BITS
    )


def promote_types(left: str, right: str) -> str:
    """The type of larger range; ties are decided by precision, then bits, then signedness."""
    if left == right:
        return left
    demand_known(left, right)
    if left in PART_OF_COMPLEX or right in PART_OF_COMPLEX:
        part = promote_types(part_of(left), part_of(right))
        return COMPLEX_OF_PART.get(part, part)
    return max(left, right, key=_rank)


def _rank(dtype: str) -> tuple[int, int, int, bool]:
    facts = ELEMENT_TYPES[dtype]
    return facts.max_exponent, facts.significand_bits, facts.bits, is_signed(dtype)


def same_dims(left: ArrayShape, right: ArrayShape) -> bool:
    """True if all sizes agree; an unbounded size agrees with any."""
    return left.dims == right.dims or (
        len(left.dims) == len(right.dims) and all(map(same_size, left.dims, right.dims))
    )


def same_size(left: int, right: int) -> bool:
    """True if two sizes may be the same."""
    return left == right or UNBOUNDED in (left, right)


def array_without_layout(
    dtype: str, dims: Sequence[int], dynamic: Sequence[bool] = ()
) -> ArrayShape:
    """An array without a layout."""
    return ArrayShape(dtype, tuple(dims), None, tuple(dynamic) if any(dynamic) else ())


def array_of(dtype: str, dims: Iterable[tuple[ArrayShape, int]]) -> ArrayShape:
    """An array of dimensions of other arrays, each with its size and whether it is dynamic."""
    places = tuple(dims)
    return array_without_layout(
        dtype,
        [shape.dims[dim] for shape, dim in places],
        [shape.is_dynamic(dim) for shape, dim in places],
    )


def other_dims(rank: int, *groups: Sequence[int]) -> list[int]:
    """The dimensions of an array of a rank that are in no group."""
    named = set().union(*groups)
    return [dim for dim in range(rank) if dim not in named]


def flags(shape: ArrayShape) -> tuple[bool, ...]:
    """A flag for each dimension: True if it is dynamic."""
    return shape.dynamic or (False,) * shape.rank


def without_layout(shape: Shape) -> Shape:
    """The shape with all layouts removed."""
    match shape:
        case ArrayShape(layout=None) | OpaqueShape():
            return shape
        case ArrayShape(dtype, dims, _, dynamic):
            return ArrayShape(dtype, dims, None, dynamic)
        case TupleShape(elements):
            return TupleShape(tuple(map(without_layout, elements)))
        case BufferShape(element):
            return BufferShape(element.with_layout(None))


class ShapeDifference(NamedTuple):
    """The first place where two shapes differ."""

    path: tuple[int, ...]
    """The index into the tuples: `(1, 0)`; empty if the shapes themselves differ."""
    left: Shape
    right: Shape


def shape_difference(
    left: Shape, right: Shape, *, any_precision: bool = False, index: tuple[int, ...] = ()
) -> ShapeDifference | None:
    """The first difference in types, sizes or structure; layouts and dynamic flags do not count."""
    match left, right:
        case ArrayShape(), ArrayShape():
            types = same_type if any_precision else str.__eq__
            same = types(left.dtype, right.dtype) and same_dims(left, right)
            return None if same else ShapeDifference(index, left, right)
        case TupleShape(), TupleShape() if len(left.elements) == len(right.elements):
            for number, (a, b) in enumerate(zip(left.elements, right.elements, strict=True)):
                inner = shape_difference(a, b, any_precision=any_precision, index=(*index, number))
                if inner is not None:
                    return inner
            return None
        case BufferShape(), BufferShape():
            inner = shape_difference(left.element, right.element, any_precision=any_precision)
            return None if inner is None else ShapeDifference(index, left, right)
        case _:
            return None if left == right else ShapeDifference(index, left, right)


def compatible(left: Shape, right: Shape, *, any_precision: bool = False) -> bool:
    """True if types, sizes and structure agree; layouts and dynamic flags do not matter."""
    if isinstance(left, ArrayShape) and isinstance(right, ArrayShape):  # nearly always
        if left.dims == right.dims and left.dtype == right.dtype:
            return True
    elif left == right:
        return True
    return shape_difference(left, right, any_precision=any_precision) is None


def describe_mismatch(left: Shape, right: Shape, *, any_precision: bool = False) -> tuple[str, str]:
    """Two incompatible shapes as text; of tuples, the first elements that differ."""
    mismatch = shape_difference(left, right, any_precision=any_precision) or ShapeDifference(
        (), left, right
    )
    place = f" at index {spelled_index(mismatch.path)}" if mismatch.path else ""
    return brief(mismatch.left) + place, brief(mismatch.right)


def wrong_result(opcode: str) -> str:
    """The message for a wrong shape; its `{}` are the inferred shape, then the printed shape."""
    return f"expected {{}} as the result of {opcode}, got {{}}"


def demand_compatible(
    left: Shape, right: Shape, message: str, *, any_precision: bool = False
) -> None:
    """Demand compatible shapes; `message` has a `{}` for each of them."""
    if not compatible(left, right, any_precision=any_precision):
        raise Impossible(
            message.format(*describe_mismatch(left, right, any_precision=any_precision))
        )


def layout_mismatch(
    left: Shape | None,
    right: Shape | None,
    message: str = "{} and {}",
    *,
    exact: bool = False,
    filled: bool = False,
) -> str:
    """The first arrays of two compatible shapes that have different layouts, or "".

    `message` has a `{}` for each of them.

    Layouts are compared by the order of dimensions; with `exact` also by tiles, element size,
    memory space and dynamic dimensions, as `Shape::Equal` does. With `exact` or `filled` an array
    without a layout has the descending layout, which XLA's parser fills in.
    """
    if left is None or right is None or left == right:
        return ""
    theirs = dict(leaves(right))
    for index, ours in leaves(left):
        counterpart = theirs.get(index)
        if isinstance(ours, BufferShape) and isinstance(counterpart, BufferShape):
            ours, counterpart = ours.element, counterpart.element
        if not isinstance(ours, ArrayShape) or not isinstance(counterpart, ArrayShape):
            continue
        if not _same_layout(ours, counterpart, exact=exact, filled=filled or exact):
            place = f" at index {spelled_index(index)}" if index else ""
            return message.format(f"{ours}{place}", counterpart)
    return ""


def _same_layout(left: ArrayShape, right: ArrayShape, *, exact: bool, filled: bool) -> bool:
    if exact and flags(left) != flags(right):
        return False
    if left.rank != right.rank or (not filled and None in (left.layout, right.layout)):
        return True
    if not exact:
        return left.minor_to_major == right.minor_to_major
    ours, theirs = (array.layout or Layout(array.minor_to_major) for array in (left, right))
    return ours == theirs


def without_memory_space(shape: Shape, *, tiles: bool = True) -> Shape:
    """The array in the default memory space; without tiles if `tiles` is false."""
    if not isinstance(shape, ArrayShape) or shape.layout is None:
        return shape
    kept = shape.layout.tiles if tiles else ()
    return shape.with_layout(shape.layout._replace(tiles=kept, memory_space=0))


def brief(shape: Shape) -> str:
    """A shape as text without layouts; a long tuple as its length."""
    if isinstance(shape, TupleShape) and len(shape.elements) > _MAX_TUPLE_LENGTH:
        return f"a tuple of {len(shape.elements)} elements"
    if isinstance(shape, TupleShape):
        return "(" + ", ".join(map(brief, shape.elements)) + ")"
    return str(without_layout(shape))


_MAX_TUPLE_LENGTH = 4


def demand_in_range(dims: Sequence[int], shape: ArrayShape | int, message: str) -> None:
    """Demand dimensions of an array, or of a rank; the message is of a dimension and that."""
    rank = shape if isinstance(shape, int) else shape.rank
    for dim in dims:
        if not 0 <= dim < rank:
            raise Impossible(message.format(dim, shape))


def demand_elements(operation: Operation, dtype: str, takes: Callable[[str], bool]) -> None:
    """Demand an element type that an operation takes."""
    demand_known(dtype)
    if not takes(dtype):
        raise Impossible(f"{operation.opcode} takes no elements of type {dtype}")


def demand_pred(what: str, root: str) -> None:
    """Demand a computation that returns a `pred[]`."""
    result = known(root)
    if not compatible(result, PRED):
        raise Impossible(f"{what} returns {brief(result)}, expected pred[]")


def demand_array_sizes(dims: Sequence[int], what: str) -> None:
    """Demands sizes that an array can have."""
    for size in dims:
        if size < 0:
            raise Impossible(f"{what} would have the negative size {size}")
