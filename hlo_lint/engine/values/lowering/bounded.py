"""Arrays with a size that is known at run time: `f32[<=8]`.

A bounded array is a node with the dimensions of its bound, and a scalar size for each dynamic
dimension. Elements beyond the sizes are 0 and are never read; XLA's dynamic-padder does the same
by explicit operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

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
from hlo_lint.hlo.attributes.windows import WindowDimension
from hlo_lint.hlo.dtypes import integer_range
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.layouts import common_factors
from hlo_lint.hlo.opcodes import ELEMENTWISE
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape, spelled_index

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.lower import Lowering


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


_ELEMENTWISE: Final = ELEMENTWISE - {"bitcast-convert"}
_BEYOND: Final = 77
"""The filler of a bounded array that becomes static: a read of it changes the results visibly."""


class _Operation(NamedTuple):
    """An operation that reads or gives bounded arrays."""

    nodes: Nodes
    instruction: Instruction
    arrays: Sequence[Node]
    shape: Shape
    on_whole: Callable[[Sequence[Node]], LoweredValue]
    """Gives the results of the operation for whole arrays."""

    @property
    def result(self) -> ArrayShape:
        """The shape of the only result."""
        return _array(self.shape)

    def plain(self, *read: Node) -> list[Node]:
        """The results of the operation on whole arrays, by default its own."""
        return list(leaf_nodes(self.on_whole([*map(static, read or self.arrays)])))

    def sized(self, results: Sequence[Node], sizes: Sizes) -> list[Node]:
        return [bounded(self.nodes, result, sizes) for result in results]

    def axes(self, *names: str) -> list[int]:
        return [a for name in names for a in self.instruction.integers_attribute(name) or ()]

    def number(self, number: int) -> Node:
        return self.nodes.scalar(number, "s32")

    def refused(self, reason: str) -> NotLowered:
        return NotLowered(f"%{self.instruction.name} {reason}")

    def shared_sizes(self, arrays: Sequence[Node]) -> Sizes:
        """The sizes of arrays that have to be the same."""
        sizes = arrays[0].sizes
        if any(array.sizes != sizes for array in arrays):
            raise self.refused(_DIFFER)
        return sizes

    def masked(self) -> tuple[Sizes, list[Node]]:
        """The shared sizes of a reduction's arrays, and its operands with init values beyond."""
        count = len(self.arrays) // 2
        sizes = self.shared_sizes(self.arrays[:count])
        pairs = zip(self.arrays[:count], self.arrays[count:], strict=True)
        read = [within(self.nodes, static(array), sizes, first) for array, first in pairs]
        return sizes, [*read, *self.arrays[count:]]


_DIFFER: Final = "reads arrays whose sizes may differ"


def bounded_value(
    lowering: Lowering,
    instruction: Instruction,
    opcode: str,
    operands: Sequence[LoweredValue],
    shape: Shape,
    on_device: Callable[..., LoweredValue],
) -> LoweredValue:
    """The result of an operation that reads or gives bounded arrays.

    `on_device` lowers the operation on whole arrays.

    Raises:
        NotLowered: the operation may depend on elements beyond the sizes.
    """
    target = instruction.attributes.get("custom_call_target", "").strip('"')
    rule = _RULES.get(target or opcode, _elementwise if opcode in _ELEMENTWISE else None)
    arrays = [operand for operand in operands if isinstance(operand, Node)]
    if rule is None or len(arrays) != len(operands) or lowering.devices > 1:
        raise NotLowered(f"{target or opcode} of arrays whose sizes are known at run time only")

    def on_whole(read: Sequence[Node]) -> LoweredValue:
        several = shape.elements if isinstance(shape, TupleShape) else (shape,)
        shapes = tuple(_array(part)._replace(dynamic=()) for part in several)
        given = TupleShape(shapes) if isinstance(shape, TupleShape) else shapes[0]
        return on_device(lowering, instruction, opcode, read, given)

    try:
        results = rule(_Operation(lowering.nodes, instruction, arrays, shape, on_whole))
        return tuple(results) if isinstance(shape, TupleShape) else results[0]
    except (IndexError, TypeError, ValueError) as error:  # a text that XLA refuses
        reason = f"%{instruction.name} has attributes or a type that do not fit its operands"
        raise NotLowered(reason) from error


# ---- the operations


def _elementwise(op: _Operation) -> list[Node]:
    sizes = op.shared_sizes([array for array in op.arrays if array.shape.dims])
    return op.sized(op.plain(), sizes)


def _set_size(op: _Operation) -> list[Node]:
    array, size = op.arrays
    (axis,) = op.axes("dimensions")
    sizes = list(array.sizes or [None] * array.shape.rank)
    sizes[axis] = None if size is op.number(array.shape.dims[axis]) else size
    return op.sized([static(array)], sizes)


def _transpose(op: _Operation) -> list[Node]:
    return op.sized(op.plain(), [op.arrays[0].sizes[axis] for axis in op.axes("dimensions")])


def _broadcast(op: _Operation) -> list[Node]:
    (result,) = op.plain()
    sizes: list[Node | None] = [None] * result.shape.rank
    for axis, size in zip(op.axes("dimensions"), op.arrays[0].sizes, strict=True):
        sizes[axis] = size
    return op.sized([result], sizes)


def _reduce(op: _Operation) -> list[Node]:
    axes = op.axes("dimensions")
    sizes, read = op.masked()
    kept = [size for axis, size in enumerate(sizes) if axis not in axes]
    return op.sized(op.plain(*read), kept)


def _dot(op: _Operation) -> list[Node]:
    shared: list[Node | None] = []
    rest: list[Node | None] = []
    pairs: list[list[Node | None]] = []
    for side, array in zip(("lhs", "rhs"), op.arrays, strict=True):
        of_batch, contracting = op.axes(f"{side}_batch_dims"), op.axes(f"{side}_contracting_dims")
        sizes = array.sizes or (None,) * array.shape.rank
        pairs.append([sizes[axis] for axis in (*of_batch, *contracting)])
        shared = shared or [sizes[axis] for axis in of_batch]
        rest += [s for axis, s in enumerate(sizes) if axis not in (*of_batch, *contracting)]
    if pairs[0] != pairs[1]:
        raise op.refused(_DIFFER)
    return op.sized(op.plain(), [*shared, *rest])


def _pad(op: _Operation) -> list[Node]:
    nodes, (array, filler) = op.nodes, op.arrays
    sizes: list[Node | None] = []
    for size, edges in zip(array.sizes, op.instruction.attribute("padding"), strict=True):
        if size is None:
            sizes.append(None)
            continue
        if min(edges[:2]) < 0:
            raise op.refused("has negative padding on a bounded dimension")
        between = nodes.binary("maximum", nodes.binary("subtract", size, 1), 0)
        between = nodes.binary("multiply", between, edges.interior)
        size = nodes.binary("add", size, between) if edges.interior else size
        sizes.append(nodes.binary("add", size, edges.low + edges.high))
    return op.sized(op.plain(within(nodes, static(array), array.sizes, filler), filler), sizes)


def _concatenate(op: _Operation) -> list[Node]:
    nodes, shape = op.nodes, op.result
    (axis,) = op.axes("dimensions")
    others = {
        tuple(size for number, size in enumerate(array.sizes) if number != axis)
        or (None,) * (array.shape.rank - 1)
        for array in op.arrays
    }
    if len(others) > 1:
        raise op.refused(_DIFFER)
    (sizes,) = others
    if not any(array.sizes and array.sizes[axis] for array in op.arrays):
        return op.sized(op.plain(), [*sizes[:axis], None, *sizes[axis:]])
    # Elements beyond the size of a part are overwritten by the next part.
    zero = op.number(0)
    result, begin = nodes.filled(0, ArrayShape(shape.dtype, shape.dims)), zero
    for array in op.arrays:
        starts = [begin if number == axis else zero for number in range(shape.rank)]
        operands = [result, static(array), *starts]
        result = nodes.make("dynamic-update-slice", result.shape, operands)
        begin = nodes.binary("add", begin, size_along(nodes, array, axis))
    return op.sized([result], [*sizes[:axis], begin, *sizes[axis:]])


def _slice(op: _Operation) -> list[Node]:
    shape, array = op.result, op.arrays[0]
    sizes = list(array.sizes)
    ranges = op.instruction.attribute("slice")
    limits = [part.limit for part in ranges] if ranges else array.shape.dims
    for axis, (size, limit) in enumerate(zip(array.sizes, limits, strict=True)):
        if size is not None and shape.dims[axis] != array.shape.dims[axis]:
            if size.literal is None or limit > int(size.literal):
                raise op.refused("slices a dimension of unknown size")
            sizes[axis] = None
    return op.sized(op.plain(), sizes)


def _reverse(op: _Operation) -> list[Node]:
    """A reverse: the elements within the sizes end up last, and are moved to the front."""
    nodes, (array,), (result,) = op.nodes, op.arrays, op.plain()
    dims, zero = array.shape.dims, op.number(0)
    for axis in op.axes("dimensions"):
        if (size := array.sizes[axis]) is not None:
            begin = nodes.binary("subtract", op.number(dims[axis]), size)
            starts = [begin if number == axis else zero for number in range(len(dims))]
            result = nodes.dynamic_slice(nodes.concatenate([result, result], axis), starts, dims)
    return op.sized([result], array.sizes)


def _sort(op: _Operation) -> list[Node]:
    """A sort that puts the elements within the sizes first."""
    nodes, arrays = op.nodes, op.arrays
    (axis,) = op.axes("dimensions")
    sizes, results = op.shared_sizes(arrays), op.plain()
    size = sizes[axis]
    if size is None:
        return op.sized(results, sizes)
    node = results[0] if len(results) == 1 else results[0].operands[0]
    ((name, comparator),) = node.called
    inside, flag = mask(nodes, arrays[0].shape.dims, axis, size), ArrayShape("pred", ())
    left, right = (nodes.parameter(2 * len(arrays) + number, flag) for number in range(2))
    first = nodes.binary("or", nodes.unary("not", right), comparator.roots[0])
    graph = nodes.graph((*comparator.parameters, flag, flag), [nodes.binary("and", left, first)])
    shapes, operands = (*node.shapes, inside.shape), (*node.operands, inside)
    ordered = nodes.make("sort", shapes, operands, node.attributes, ((name, graph),))
    return op.sized(nodes.elements(ordered)[:-1], sizes)


def _gather(op: _Operation) -> list[Node]:
    """A gather of whole bounded dimensions; the indices may be bounded, too."""
    (array, indices), (result,) = op.arrays, op.plain()
    gone = op.axes("collapsed_slice_dims", "operand_batching_dims")
    taken, offsets = op.axes("slice_sizes"), op.axes("offset_dims")
    of_indices = [axis for axis in range(result.shape.rank) if axis not in offsets]
    kept = [axis for axis in range(array.shape.rank) if axis not in gone]
    sizes: list[Node | None] = [None] * result.shape.rank
    for axis, size in enumerate(array.sizes):
        if size is not None:
            if axis not in kept or taken[axis] != array.shape.dims[axis]:
                raise op.refused("slices a dimension of unknown size")
            sizes[offsets[kept.index(axis)]] = size
    for axis, size in zip(of_indices, _sizes_of_places(op, indices), strict=True):
        sizes[axis] = size
    return op.sized([result], sizes)


def _scatter(op: _Operation) -> list[Node]:
    """A scatter of whole bounded dimensions; indices beyond the sizes go out of bounds."""
    nodes, (array, indices, updates) = op.nodes, op.arrays
    gone = op.axes("inserted_window_dims", "input_batching_dims")
    windows = op.axes("update_window_dims")
    given = updates.sizes or [None] * updates.shape.rank
    kept = [axis for axis in range(array.shape.rank) if axis not in gone]
    for axis, window in zip(kept, windows, strict=True):
        size = given[window]
        if size is not None and (not array.sizes or array.sizes[axis] is not size):
            raise op.refused(_DIFFER)
    places = [size for axis, size in enumerate(given) if axis not in windows]
    if places != _sizes_of_places(op, indices):
        raise op.refused(_DIFFER)
    if any(places):
        dtype = indices.shape.dtype
        nowhere = nodes.scalar(integer_range(dtype)[-1], dtype)
        indices = within(nodes, static(indices), indices.sizes, nowhere)
    return op.sized(op.plain(array, indices, updates), array.sizes)


def _sizes_of_places(op: _Operation, indices: Node) -> list[Node | None]:
    """The sizes of an array of indices, without the index vector dimension."""
    axis = op.instruction.attribute("index_vector_dim")
    sizes = indices.sizes or [None] * indices.shape.rank
    if axis != len(sizes) and sizes[axis] is not None:
        raise op.refused("reads index vectors of unknown size")
    return [size for number, size in enumerate(sizes) if number != axis]


def _reduce_window(op: _Operation) -> list[Node]:
    sizes, read = op.masked()
    pairs = zip(sizes, op.instruction.attribute("window"), strict=True)
    return op.sized(op.plain(*read), [size and _windows(op, size, part) for size, part in pairs])


def _windows(op: _Operation, size: Node, window: WindowDimension) -> Node:
    """The number of windows that fit into a dimension of a size."""
    if (window.base_dilation, window.padding_low, window.padding_high) != (1, 0, 0):
        # XLA's dynamic-padder counts only the elements.
        raise op.refused("has padded or dilated windows of unknown size")
    reach = (window.size - 1) * window.window_dilation + 1
    room = op.nodes.binary("add", size, window.stride - reach)
    return op.nodes.binary("divide", op.nodes.binary("maximum", room, 0), window.stride)


def _update(op: _Operation) -> list[Node]:
    """The array with an update; it is unchanged beyond the sizes of the update."""
    array, update, *starts = op.arrays
    part = static(update)
    if update.sizes:
        pairs = zip(update.sizes, part.shape.dims, array.shape.dims, strict=True)
        if any(size and dim == whole for size, dim, whole in pairs):
            raise op.refused("overwrites a whole dimension with a bounded update")
        old = op.nodes.dynamic_slice(static(array), starts, part.shape.dims)
        part = within(op.nodes, part, update.sizes, old)
    return op.sized(op.plain(array, part, *starts), array.sizes)


def _reshape(op: _Operation) -> list[Node]:
    """A reshape of the elements within the sizes, by a gather with computed indices."""
    nodes, shape = op.nodes, op.result
    array, *given = op.arrays
    dims = array.shape.dims
    sources = [size_along(nodes, array, axis) for axis in range(len(dims))]
    targets = [op.number(dim) for dim in shape.dims]
    flags = [axis for axis, flag in enumerate(shape.dynamic) if flag]
    if given:
        if any(size.opcode != "constant" for size in given):
            raise op.refused("has sizes that are not constant")
        targets = [nodes.convert(size, "s32") for size in given]
    bounds = common_factors(dims, shape.dims) if not given else ()
    for (first, begin), (last, end) in pairwise(bounds):
        own = [axis for axis in flags if begin <= axis < end]
        if not any(array.sizes[first:last]) and not own:
            continue
        if len(own) != 1:
            raise op.refused("has sizes that its operand does not determine")
        count = reduce(partial(nodes.binary, "multiply"), sources[first:last])
        rest = prod(shape.dims[axis] for axis in range(begin, end) if axis != own[0])
        targets[own[0]] = nodes.binary("divide", count, rest)
    total = prod(shape.dims)
    places = _places(op, nodes.iota("s32", (total,), 0), list(map(op.number, shape.dims)))
    places = _places(op, _counted(nodes, places, targets), sources)
    index = _counted(nodes, places, list(map(op.number, dims)))
    taken = nodes.make(
        "gather",
        ArrayShape(shape.dtype, (total,)),
        (nodes.reshape(static(array), (prod(dims),)), index),
        (
            ("collapsed_slice_dims", "{0}"),
            ("index_vector_dim", "1"),
            ("offset_dims", "{}"),
            ("slice_sizes", "{1}"),
            ("start_index_map", "{0}"),
        ),
    )
    sizes = [targets[axis] if axis in flags else None for axis in range(shape.rank)]
    return op.sized([nodes.reshape(taken, shape.dims)], sizes)


def _to_static(op: _Operation) -> list[Node]:
    (array,) = op.arrays
    if not isinstance(op.shape, TupleShape):
        raise NotLowered(f"it has the type {op.shape}, which is not a tuple")
    sizes = [size_along(op.nodes, array, axis) for axis in range(array.shape.rank)]
    padded = within(op.nodes, static(array), array.sizes, _BEYOND)
    return [padded, *sizes[: len(op.shape.elements) - 1]]


def _to_bounded(op: _Operation) -> list[Node]:
    shape = op.result
    array, *sizes = op.arrays
    if len(sizes) != shape.rank:
        raise op.refused("lacks a size for some dimension")
    pairs = zip(sizes, shape.dynamic, strict=True)
    return op.sized([array], [size if flag else None for size, flag in pairs])


_RULES: Final[Mapping[str, Callable[[_Operation], list[Node]]]] = {
    "set-dimension-size": _set_size,
    "get-dimension-size": lambda op: [size_along(op.nodes, op.arrays[0], *op.axes("dimensions"))],
    "transpose": _transpose,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "dot": _dot,
    "pad": _pad,
    "concatenate": _concatenate,
    "slice": _slice,
    "reverse": _reverse,
    "sort": _sort,
    "gather": _gather,
    "scatter": _scatter,
    "reduce-window": _reduce_window,
    "dynamic-slice": _slice,
    "dynamic-update-slice": _update,
    "reshape": _reshape,
    "dynamic-reshape": _reshape,
    "PadToStatic": _to_static,
    "SliceToDynamic": _to_bounded,
}


# ---- sizes and places


def _array(shape: Shape) -> ArrayShape:
    if not isinstance(shape, ArrayShape):
        raise NotLowered(f"it has the type {shape}, which is not an array")
    return shape


def _places(op: _Operation, index: Node, sizes: Sequence[Node]) -> list[Node]:
    """The index in each dimension of elements with these numbers, in an array of these sizes."""
    places: list[Node] = []
    for size in reversed(sizes):
        divisor = op.nodes.binary("maximum", size, 1)
        places.insert(0, op.nodes.binary("remainder", index, divisor))
        index = op.nodes.binary("divide", index, divisor)
    return places


def _counted(nodes: Nodes, places: Sequence[Node], sizes: Sequence[Node]) -> Node:
    """The number of the element at each place in an array of these sizes."""
    index = places[0]
    for place, size in zip(places[1:], sizes[1:], strict=True):
        index = nodes.binary("add", nodes.binary("multiply", index, size), place)
    return index
