"""Arrays with a size that is known at run time: `f32[<=8]`.

A bounded array is a node with the dimensions of its bound, and a scalar size for each dynamic
dimension. Elements beyond the sizes are 0 and are never read; XLA's dynamic-padder does the same
by explicit operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

from hlo_lint.engine.values.lowering.graph import (
    LoweredValue,
    Node,
    Nodes,
    NotLowered,
    Sizes,
    assembled,
    bare,
    leaf_nodes,
)
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape, spelled_index


def bounded(nodes: Nodes, data: Node, sizes: Sizes) -> Node:
    """An array with sizes, or the array itself if all dimensions are static."""
    if not any(sizes):
        return data
    kept = tuple(size and nodes.convert(size, "s32") for size in sizes)
    inside = within(nodes, data, kept, 0)
    axes = spelled_index([axis for axis, size in enumerate(kept) if size])
    operands = (inside, *(size for size in kept if size))
    node = nodes.make("bounded", data.shape, operands, (("", axes),))
    node.sizes, nodes.has_bounded = kept, True
    return node


def static(node: Node) -> Node:
    """The whole bound of an array, with 0 beyond its sizes."""
    return node.operands[0] if node.sizes else node


def with_sizes(nodes: Nodes, value: LoweredValue, shape: Shape) -> Iterator[Node]:
    """The arrays in a value of a shape; the sizes of a bounded array follow it."""
    if isinstance(shape, TupleShape) and isinstance(value, tuple):
        if len(value) != len(shape.elements):
            raise NotLowered(f"{len(value)} values cannot be {shape}")
        for part, element in zip(value, shape.elements, strict=True):
            yield from with_sizes(nodes, part, element)
    elif isinstance(shape, ArrayShape) and isinstance(value, Node):
        flags = shape.dynamic or (False,) * shape.rank
        sizes = value.sizes or (None,) * shape.rank
        if len(sizes) != len(flags):
            raise NotLowered(f"an array with {len(sizes)} dimensions cannot be {shape}")
        if any(size and not flag for size, flag in zip(sizes, flags, strict=True)):
            raise NotLowered(f"{shape} does not say which dimensions have a size of their own")
        yield static(value)
        for size, flag, dim in zip(sizes, flags, shape.dims, strict=True):
            if flag:
                yield size or nodes.scalar(dim, "s32")
    else:
        yield from leaf_nodes(value)


def shapes_of(shape: Shape) -> Iterator[tuple[ArrayShape, int | None]]:
    """The shapes of the nodes of `with_sizes`; a size comes with its bound."""
    if isinstance(shape, TupleShape):
        for element in shape.elements:
            yield from shapes_of(element)
    elif isinstance(shape, ArrayShape) and any(shape.dynamic):
        yield next(bare(shape._replace(dynamic=()))), None
        for flag, dim in zip(shape.dynamic, shape.dims, strict=True):
            if flag:
                yield ArrayShape("s32", ()), dim
    else:
        yield from ((leaf, None) for leaf in bare(shape))


def collected(nodes: Nodes, shape: Shape, given: Iterator[Node]) -> LoweredValue:
    """A value of a shape from the nodes of `with_sizes`."""
    if isinstance(shape, TupleShape):
        return tuple([collected(nodes, element, given) for element in shape.elements])
    if not isinstance(shape, ArrayShape) or not any(shape.dynamic):
        return assembled(shape, given)
    try:
        data = next(given)
        return bounded(nodes, data, [next(given) if flag else None for flag in shape.dynamic])
    except StopIteration:
        raise NotLowered("it has fewer results than its type says") from None


def size_along(nodes: Nodes, array: Node, axis: int) -> Node:
    """The size of an array along a dimension; the bound where it is static."""
    size = array.sizes[axis] if array.sizes else None
    return size or nodes.scalar(array.shape.dims[axis], "s32")


def total_of(nodes: Nodes, numbers: Sequence[Node]) -> Node:
    """The sum of numbers."""
    return reduce(lambda total, number: nodes.binary("add", total, number), numbers)


def within(nodes: Nodes, array: Node, sizes: Sizes, beyond: Node | int) -> Node:
    """The array with `beyond` outside of its sizes."""
    dims = array.shape.dims
    if not isinstance(beyond, Node):
        beyond = nodes.scalar(beyond, array.shape.dtype)
    for axis, size in enumerate(sizes):
        if size is not None:
            full = beyond if beyond.shape.dims else nodes.broadcast(beyond, dims)
            array = nodes.select(mask(nodes, dims, axis, size), array, full)
    return array


def mask(nodes: Nodes, dims: tuple[int, ...], axis: int, size: Node) -> Node:
    """A predicate that is true for the elements within the size along an axis."""
    return nodes.compare(nodes.iota("s32", dims, axis), size, "LT")
