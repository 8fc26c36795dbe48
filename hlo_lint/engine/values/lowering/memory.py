"""The order of elements in memory, as reshapes and transposes of the logical array."""

from __future__ import annotations

from math import prod

from hlo_lint.engine.values.lowering.graph import Node, Nodes, NotLowered
from hlo_lint.hlo.dtypes import BITS
from hlo_lint.hlo.shape import ArrayShape, Layout, Tile


def untiled(shape: ArrayShape) -> ArrayShape:
    """The shape without tiles: what a call computes does not follow from its padding."""
    if shape.layout is None or not shape.layout.tiles:
        return shape
    return shape.with_layout(Layout(shape.layout.minor_to_major))


def in_memory(nodes: Nodes, node: Node, shape: ArrayShape) -> Node:
    """The elements of an array as one row, in the order in which the layout has them in memory."""
    dims, permutation = _steps(shape)
    return nodes.reshape(
        nodes.transpose(nodes.reshape(node, dims), permutation), (prod(shape.dims),)
    )


def from_memory(nodes: Nodes, row: Node, shape: ArrayShape) -> Node:
    """The array whose elements lie in memory as in a row."""
    dims, permutation = _steps(shape)
    moved = nodes.reshape(row, tuple(dims[axis] for axis in permutation))
    inverse = sorted(range(len(permutation)), key=permutation.__getitem__)
    return nodes.reshape(nodes.transpose(moved, inverse), shape.dims)


def _steps(shape: ArrayShape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dimensions with tiles split off, and the order in which they lie in memory.

    A tile of `(8,128)` splits its dimensions in two: the numbers of the tiles come before the
    places in one (`xla/shape_util.cc`, `IndexUtil`). Tiles within tiles order the bytes of smaller
    types only, alike for each element type.
    """
    order = tuple(reversed(shape.minor_to_major))
    tiles = shape.layout.tiles if shape.layout is not None else ()
    if not tiles or not order:
        return shape.dims, order
    tile = tiles[0]
    if None in tile or len(tile) > len(order):
        raise NotLowered(f"the tiles of {shape} combine dimensions")
    tiled = dict(zip(order[len(order) - len(tile) :], tile, strict=True))
    dims: list[int] = []
    outer: dict[int, int] = {}
    inner: dict[int, int] = {}
    for axis, size in enumerate(shape.dims):
        outer[axis] = len(dims)
        part = tiled.get(axis)
        if part is None:
            dims.append(size)
            continue
        if size % part:
            raise NotLowered(f"the tiles of {shape} are padded")
        dims += [size // part, part]
        inner[axis] = len(dims) - 1
    permutation = [outer[axis] for axis in order] + [inner[axis] for axis in order if axis in inner]
    return tuple(dims), tuple(permutation)


def bitcast(nodes: Nodes, node: Node, source: ArrayShape, target: ArrayShape) -> Node:
    """The same bytes as another array."""
    plain = ArrayShape(source.dtype, source.dims), ArrayShape(target.dtype, target.dims)
    if plain[0] == plain[1] and source.minor_to_major == target.minor_to_major:
        return node
    if prod(source.dims) == prod(target.dims):
        if _is_padded(source) or _is_padded(target):
            # Padding stays where it is: dimensions may change places, and those of 1 come and go.
            if _in_memory(source) != _in_memory(target):
                raise NotLowered(f"a bitcast of {source} to {target}, whose tiles are padded")
            source, target = untiled(source), untiled(target)
        row = in_memory(nodes, node, source)
        row = nodes.bitcast_convert(row, ArrayShape(target.dtype, row.shape.dims))
        return from_memory(nodes, row, target)
    wide, narrow = BITS.get(source.dtype, 8), BITS.get(target.dtype, 8)
    row = in_memory(nodes, node, source)
    count = prod(target.dims)
    if wide > narrow:
        row = nodes.bitcast_convert(
            row, ArrayShape(target.dtype, (*row.shape.dims, wide // narrow))
        )
    else:
        row = nodes.reshape(row, (count, narrow // wide))
        row = nodes.bitcast_convert(row, ArrayShape(target.dtype, (count,)))
    return from_memory(nodes, nodes.reshape(row, (count,)), target)


def _in_memory(shape: ArrayShape) -> tuple[list[int], tuple[Tile, ...]]:
    """The sizes larger than 1, the fastest one first, and the tiles."""
    sizes = [shape.dims[axis] for axis in shape.minor_to_major if shape.dims[axis] != 1]
    # One element lies first in its tile, whatever that is.
    return sizes, shape.layout.tiles if shape.layout is not None and sizes else ()


def _is_padded(shape: ArrayShape) -> bool:
    """True if a tile reaches over the edge of the array."""
    try:
        _steps(shape)
    except NotLowered:
        return True
    return False
