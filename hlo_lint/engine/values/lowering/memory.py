"""The order of elements in memory, spelled as operations on the logical array."""

from __future__ import annotations

from itertools import dropwhile
from math import prod
from typing import TYPE_CHECKING

from hlo_lint.analysis.loops import slice_descriptor
from hlo_lint.engine.values.lowering.graph import Node, Nodes, NotLowered
from hlo_lint.hlo.dtypes import BITS
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import ArrayShape, Layout, Shape, Tile

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.lower import Lowering


def untiled(shape: ArrayShape) -> ArrayShape:
    """The shape without tiles, whose padding does not affect the values of a call."""
    if shape.layout is None or not shape.layout.tiles:
        return shape
    return shape.with_layout(Layout(shape.layout.minor_to_major))


def in_memory(nodes: Nodes, node: Node, shape: ArrayShape) -> Node:
    """The elements of an array as a flat row in memory order.

    Padding of tiles is zero.
    """
    padded, dims, permutation = _steps(shape)
    whole = nodes.padded(node, padded)
    return nodes.reshape(nodes.transpose(nodes.reshape(whole, dims), permutation), (prod(padded),))


def from_memory(nodes: Nodes, row: Node, shape: ArrayShape) -> Node:
    """The array whose elements are a flat row in memory order."""
    padded, dims, permutation = _steps(shape)
    moved = nodes.reshape(row, tuple(dims[axis] for axis in permutation))
    inverse = sorted(range(len(permutation)), key=permutation.__getitem__)
    whole = nodes.reshape(nodes.transpose(moved, inverse), padded)
    return nodes.slice(whole, [0] * shape.rank, shape.dims)


def _steps(shape: ArrayShape) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The dimensions padded to whole tiles, those dimensions split by tiles, and their order.

    A tile of `(8,128)` splits its dimensions in two: the tile indices come before the positions
    within a tile (`xla/shape_util.cc`, `IndexUtil`). Tiles within tiles only order the bytes of
    smaller types, alike for each element type.
    """
    order = tuple(reversed(shape.minor_to_major))
    tiles = shape.layout.tiles if shape.layout is not None else ()
    if not tiles or not order:
        return shape.dims, shape.dims, order
    tile = tiles[0]
    if None in tile or len(tile) > len(order):
        raise NotLowered(f"the tiles of {shape} combine dimensions")
    tiled = dict(zip(order[len(order) - len(tile) :], tile, strict=True))
    padded: list[int] = []
    dims: list[int] = []
    outer: dict[int, int] = {}
    inner: dict[int, int] = {}
    for axis, size in enumerate(shape.dims):
        outer[axis] = len(dims)
        part = tiled.get(axis)
        if part is None:
            padded.append(size)
            dims.append(size)
            continue
        count = -(-size // part)
        padded.append(count * part)
        dims += [count, part]
        inner[axis] = len(dims) - 1
    permutation = [outer[axis] for axis in order] + [inner[axis] for axis in order if axis in inner]
    return tuple(padded), tuple(dims), tuple(permutation)


def bitcast_value(nodes: Nodes, node: Node, source: ArrayShape, target: ArrayShape) -> Node:
    """The result of a bitcast between arrays of equal size in memory."""
    plain = ArrayShape(source.dtype, source.dims), ArrayShape(target.dtype, target.dims)
    if plain[0] == plain[1] and source.minor_to_major == target.minor_to_major:
        return node
    dims, (source, target) = target.dims, (_with_dimensions(shape) for shape in (source, target))
    node = nodes.reshape(node, source.dims)
    has_padding = _is_padded(source) or _is_padded(target)
    if has_padding and _sizes_and_tiles(source) == _sizes_and_tiles(target):
        # The padding stays in place: dimensions only move, and those of size 1 come and go.
        source, target = untiled(source), untiled(target)
    wide, narrow = BITS.get(source.dtype, 8), BITS.get(target.dtype, 8)
    row = in_memory(nodes, node, source)
    count = prod(_steps(target)[0])
    if row.shape.dims[0] * wide != count * narrow:
        raise NotLowered(f"a bitcast of {source} to {target}, whose sizes in memory differ")
    if wide > narrow:
        parts = ArrayShape(target.dtype, (*row.shape.dims, wide // narrow))
        row = nodes.bitcast_convert(row, parts)
    else:
        if wide < narrow:
            row = nodes.reshape(row, (count, narrow // wide))
        row = nodes.bitcast_convert(row, ArrayShape(target.dtype, (count,)))
    return nodes.reshape(from_memory(nodes, nodes.reshape(row, (count,)), target), dims)


def _with_dimensions(shape: ArrayShape) -> ArrayShape:
    """A tiled scalar as an array with a single element, which occupies the whole tile."""
    if shape.dims or shape.layout is None or not shape.layout.tiles:
        return shape
    tiles = shape.layout.tiles
    rank = len(tiles[0])
    array = ArrayShape(shape.dtype, (1,) * rank)
    return array.with_layout(Layout(tuple(reversed(range(rank))), tiles))


def _sizes_and_tiles(shape: ArrayShape) -> tuple[list[int], list[Tile]]:
    """The sizes larger than 1, minor to major, and the tiles."""
    sizes = [shape.dims[axis] for axis in shape.minor_to_major if shape.dims[axis] != 1]
    # A single element comes first in any tile.
    tiles = shape.layout.tiles if shape.layout is not None and sizes else ()
    # Leading sizes of 1 do not count: `(1,128)` orders elements as `(128)` does.
    return sizes, [(*dropwhile(lambda size: size == 1, tile[:-1]), *tile[-1:]) for tile in tiles]


def _is_padded(shape: ArrayShape) -> bool:
    """True if a tile reaches beyond the array, or combines dimensions."""
    try:
        return _steps(shape)[0] != shape.dims
    except NotLowered:
        return True


def by_descriptor(
    lowering: Lowering, instruction: Instruction, opcode: str, leaves: list[Node], shape: Shape
) -> Node | None:
    """A slice at the offset of its `dynamic_slice_config`; None without that config.

    XLA:GPU copies by the descriptor and computes no index (`DynamicMemcpyThunk`).
    """
    nodes = lowering.nodes
    descriptor = slice_descriptor(instruction)
    if descriptor is None:
        return None
    shapes = lowering.operand_shapes(instruction)
    whole, part = shapes[0], shape if opcode == "dynamic-slice" else shapes[1]
    if not (isinstance(whole, ArrayShape) and isinstance(part, ArrayShape)):
        return None
    if not whole.element_bits or whole.element_bits % 8:
        return None
    offset = nodes.scalar(descriptor.byte_offset, "s64")
    if stride := descriptor.byte_stride:
        # In a nest the descriptor may mean any of the loops: the operands decide there.
        if len(lowering.iterations) != 1 or (iteration := lowering.iterations[0]) is None:
            return None
        offset = nodes.binary("add", offset, nodes.binary("multiply", iteration(), stride))
    first = nodes.binary("divide", offset, whole.element_bits // 8)
    row = in_memory(nodes, leaves[0], whole)
    count = prod(part.dims)
    if opcode == "dynamic-slice":
        return from_memory(nodes, nodes.dynamic_slice(row, (first,), (count,)), part)
    update = in_memory(nodes, leaves[1], part)
    changed = nodes.make("dynamic-update-slice", row.shape, (row, update, first))
    return from_memory(nodes, changed, whole)
