"""Lower operations on arrays with sizes that are known at run time.

No operation depends on elements beyond the sizes: they are masked or overwritten first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Final

from hlo_lint.engine.values.lowering.bounded import (
    bounded,
    mask,
    size_along,
    static,
    total_of,
    within,
)
from hlo_lint.engine.values.lowering.graph import (
    LoweredValue,
    Node,
    Nodes,
    NotLowered,
    Sizes,
    leaf_nodes,
)
from hlo_lint.hlo.attributes.windows import WindowDimension
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.layouts import common_factors
from hlo_lint.hlo.opcodes import ELEMENTWISE
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape, spelled_index

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.lower import Lowering

_ELEMENTWISE: Final = ELEMENTWISE - {"bitcast-convert"}
_BEYOND: Final = 77
"""The filler of a bounded array that becomes static: a read of it changes the results visibly."""


def bounded_value(
    lowering: Lowering,
    instruction: Instruction,
    opcode: str,
    operands: Sequence[LoweredValue],
    shape: Shape,
) -> LoweredValue:
    """The result of an operation that reads or gives bounded arrays.

    Raises:
        NotLowered: the operation may depend on elements beyond the sizes.
    """
    from hlo_lint.engine.values.lowering.operations import on_device

    target = instruction.attributes.get("custom_call_target", "").strip('"')
    rule = _RULES.get(target or opcode, _elementwise if opcode in _ELEMENTWISE else None)
    arrays = [operand for operand in operands if isinstance(operand, Node)]
    if rule is None or len(arrays) != len(operands) or lowering.devices > 1:
        raise NotLowered(f"{target or opcode} of arrays whose sizes are known at run time only")

    def plain(shape: Shape, *read: Node) -> list[Node]:
        """The results of the operation on whole arrays."""
        several = shape.elements if isinstance(shape, TupleShape) else (shape,)
        shapes = [_array(part)._replace(dynamic=()) for part in several]
        given = TupleShape(tuple(shapes)) if isinstance(shape, TupleShape) else shapes[0]
        result = on_device(lowering, instruction, opcode, [*map(static, read)], given)
        return list(leaf_nodes(result))

    try:
        results = rule(lowering.nodes, instruction, arrays, shape, plain)
        return tuple(results) if isinstance(shape, TupleShape) else results[0]
    except (IndexError, TypeError, ValueError) as error:  # a text that XLA refuses
        reason = f"%{instruction.name} has attributes or a type that do not fit its operands"
        raise NotLowered(reason) from error


Plain = Callable[..., list[Node]]
"""Gives the results of the operation for whole arrays."""


# ---- the operations


def _elementwise(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, plain: Plain
) -> list[Node]:
    sizes = _shared_sizes(instruction, [array for array in arrays if array.shape.dims])
    return _each(nodes, plain(shape, *arrays), sizes)


def _set_size(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, _: Plain
) -> list[Node]:
    array, size = arrays
    (axis,) = instruction.integers_attribute("dimensions") or ()
    sizes = list(array.sizes or [None] * array.shape.rank)
    sizes[axis] = None if size is nodes.scalar(array.shape.dims[axis], "s32") else size
    return [bounded(nodes, static(array), sizes)]


def _get_size(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], _: Shape, __: Plain
) -> list[Node]:
    (axis,) = instruction.integers_attribute("dimensions") or ()
    return [size_along(nodes, arrays[0], axis)]


def _transpose(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, plain: Plain
) -> list[Node]:
    order = instruction.integers_attribute("dimensions") or ()
    sizes = [arrays[0].sizes[axis] for axis in order]
    return _each(nodes, plain(shape, *arrays), sizes)


def _broadcast(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, plain: Plain
) -> list[Node]:
    (result,) = plain(shape, *arrays)
    sizes: list[Node | None] = [None] * result.shape.rank
    for axis, size in zip(
        instruction.integers_attribute("dimensions") or (), arrays[0].sizes, strict=True
    ):
        sizes[axis] = size
    return [bounded(nodes, result, sizes)]


def _reduce(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, plain: Plain
) -> list[Node]:
    axes = instruction.integers_attribute("dimensions") or ()
    sizes, read = _masked(nodes, instruction, arrays)
    return _each(
        nodes, plain(shape, *read), [s for axis, s in enumerate(sizes) if axis not in axes]
    )


def _masked(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node]
) -> tuple[Sizes, list[Node]]:
    """The shared sizes of a reduction's arrays, and its operands with init values beyond them."""
    count = len(arrays) // 2
    sizes = _shared_sizes(instruction, arrays[:count])
    pairs = zip(arrays[:count], arrays[count:], strict=True)
    read = [within(nodes, static(array), sizes, first) for array, first in pairs]
    return sizes, [*read, *arrays[count:]]


def _shared_sizes(instruction: Instruction, arrays: Sequence[Node]) -> Sizes:
    sizes = arrays[0].sizes
    if any(array.sizes != sizes for array in arrays):
        raise NotLowered(f"%{instruction.name} reads arrays whose sizes may differ")
    return sizes


def _dot(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, plain: Plain
) -> list[Node]:
    shared: list[Node | None] = []
    rest: list[Node | None] = []
    pairs: list[list[Node | None]] = []
    for side, array in zip(("lhs", "rhs"), arrays, strict=True):
        of_batch = instruction.integers_attribute(f"{side}_batch_dims") or ()
        contracting = instruction.integers_attribute(f"{side}_contracting_dims") or ()
        sizes = array.sizes or (None,) * array.shape.rank
        pairs.append([sizes[axis] for axis in (*of_batch, *contracting)])
        shared = shared or [sizes[axis] for axis in of_batch]
        rest += [s for axis, s in enumerate(sizes) if axis not in (*of_batch, *contracting)]
    if pairs[0] != pairs[1]:
        raise NotLowered(f"%{instruction.name} reads arrays whose sizes may differ")
    return _each(nodes, plain(shape, *arrays), [*shared, *rest])


def _pad(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, plain: Plain
) -> list[Node]:
    array, filler = arrays
    sizes: list[Node | None] = []
    for size, edges in zip(array.sizes, instruction.attribute("padding"), strict=True):
        if size is None:
            sizes.append(None)
            continue
        if min(edges[:2]) < 0:
            raise NotLowered(f"%{instruction.name} has negative padding on a bounded dimension")
        between = nodes.binary("subtract", size, nodes.scalar(1, "s32"))
        between = nodes.binary("maximum", between, nodes.scalar(0, "s32"))
        between = nodes.binary("multiply", between, nodes.scalar(edges.interior, "s32"))
        around = nodes.scalar(edges.low + edges.high, "s32")
        sizes.append(total_of(nodes, [size, between, around] if edges.interior else [size, around]))
    read = within(nodes, static(array), array.sizes, filler)
    return _each(nodes, plain(shape, read, filler), sizes)


def _concatenate(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, plain: Plain
) -> list[Node]:
    (axis,) = instruction.integers_attribute("dimensions") or ()
    others = {
        tuple(size for number, size in enumerate(array.sizes) if number != axis)
        or (None,) * (array.shape.rank - 1)
        for array in arrays
    }
    if len(others) > 1:
        raise NotLowered(f"%{instruction.name} reads arrays whose sizes may differ")
    shape = _array(shape)
    (sizes,) = others
    if not any(array.sizes and array.sizes[axis] for array in arrays):
        return _each(nodes, plain(shape, *arrays), [*sizes[:axis], None, *sizes[axis:]])
    # Elements beyond the size of a part are overwritten by the next part.
    zero = nodes.scalar(0, "s32")
    result, begin = nodes.filled(0, ArrayShape(shape.dtype, shape.dims)), zero
    for array in arrays:
        starts = [begin if number == axis else zero for number in range(shape.rank)]
        operands = [result, static(array), *starts]
        result = nodes.make("dynamic-update-slice", result.shape, operands)
        begin = total_of(nodes, [begin, size_along(nodes, array, axis)])
    return [bounded(nodes, result, [*sizes[:axis], begin, *sizes[axis:]])]


def _slice(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, plain: Plain
) -> list[Node]:
    shape = _array(shape)
    array = arrays[0]
    sizes = list(array.sizes)
    ranges = instruction.attribute("slice")
    limits = [part.limit for part in ranges] if ranges else array.shape.dims
    for axis, (size, limit) in enumerate(zip(array.sizes, limits, strict=True)):
        if size is not None and shape.dims[axis] != array.shape.dims[axis]:
            if size.literal is None or limit > int(size.literal):
                raise NotLowered(f"%{instruction.name} slices a dimension of unknown size")
            sizes[axis] = None
    return _each(nodes, plain(shape, *arrays), sizes)


def _reverse(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, plain: Plain
) -> list[Node]:
    """A reverse: the elements within the sizes end up last, and are moved to the front."""
    (array,), (result,) = arrays, plain(shape, *arrays)
    dims, zero = array.shape.dims, nodes.scalar(0, "s32")
    for axis in instruction.integers_attribute("dimensions") or ():
        if (size := array.sizes[axis]) is not None:
            begin = nodes.binary("subtract", nodes.scalar(dims[axis], "s32"), size)
            starts = [begin if number == axis else zero for number in range(len(dims))]
            operands = (nodes.concatenate([result, result], axis), *starts)
            taken = (("dynamic_slice_sizes", spelled_index(dims)),)
            result = nodes.make("dynamic-slice", array.shape, operands, taken)
    return [bounded(nodes, result, array.sizes)]


def _sort(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, plain: Plain
) -> list[Node]:
    """A sort that puts the elements within the sizes first."""
    (axis,) = instruction.integers_attribute("dimensions") or ()
    sizes, results = _shared_sizes(instruction, arrays), plain(shape, *arrays)
    size = sizes[axis]
    if size is None:
        return _each(nodes, results, sizes)
    node = results[0] if len(results) == 1 else results[0].operands[0]
    ((name, comparator),) = node.called
    inside, flag = mask(nodes, arrays[0].shape.dims, axis, size), ArrayShape("pred", ())
    left, right = (nodes.parameter(2 * len(arrays) + number, flag) for number in range(2))
    first = nodes.binary("or", nodes.unary("not", right), comparator.roots[0])
    graph = nodes.graph((*comparator.parameters, flag, flag), [nodes.binary("and", left, first)])
    shapes, operands = (*node.shapes, inside.shape), (*node.operands, inside)
    ordered = nodes.make("sort", shapes, operands, node.attributes, ((name, graph),))
    return _each(nodes, nodes.elements(ordered)[:-1], sizes)


def _gather(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, plain: Plain
) -> list[Node]:
    """A gather of whole bounded dimensions; the indices may be bounded, too."""
    array, indices = arrays
    gone = _axes(instruction, "collapsed_slice_dims", "operand_batching_dims")
    taken = _axes(instruction, "slice_sizes")
    (result,) = plain(shape, *arrays)
    offsets = _axes(instruction, "offset_dims")
    of_indices = [axis for axis in range(result.shape.rank) if axis not in offsets]
    kept = [axis for axis in range(array.shape.rank) if axis not in gone]
    sizes: list[Node | None] = [None] * result.shape.rank
    for axis, size in enumerate(array.sizes):
        if size is not None:
            if axis not in kept or taken[axis] != array.shape.dims[axis]:
                raise NotLowered(f"%{instruction.name} slices a dimension of unknown size")
            sizes[offsets[kept.index(axis)]] = size
    for axis, size in zip(of_indices, _sizes_of_places(instruction, indices), strict=True):
        sizes[axis] = size
    return [bounded(nodes, result, sizes)]


def _scatter(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, plain: Plain
) -> list[Node]:
    """A scatter of whole bounded dimensions; indices beyond the sizes go out of bounds."""
    array, indices, updates = arrays
    gone = _axes(instruction, "inserted_window_dims", "input_batching_dims")
    windows = _axes(instruction, "update_window_dims")
    given = updates.sizes or [None] * updates.shape.rank
    kept = [axis for axis in range(array.shape.rank) if axis not in gone]
    for axis, window in zip(kept, windows, strict=True):
        size = given[window]
        if size is not None and (not array.sizes or array.sizes[axis] is not size):
            raise NotLowered(f"%{instruction.name} reads arrays whose sizes may differ")
    places = [size for axis, size in enumerate(given) if axis not in windows]
    if places != _sizes_of_places(instruction, indices):
        raise NotLowered(f"%{instruction.name} reads arrays whose sizes may differ")
    if any(places):
        bits = int(indices.shape.dtype[1:]) - (indices.shape.dtype[0] == "s")
        nowhere = nodes.scalar((1 << bits) - 1, indices.shape.dtype)
        indices = within(nodes, static(indices), indices.sizes, nowhere)
    return _each(nodes, plain(shape, array, indices, updates), array.sizes)


def _axes(instruction: Instruction, *names: str) -> list[int]:
    return [axis for name in names for axis in instruction.integers_attribute(name) or ()]


def _sizes_of_places(instruction: Instruction, indices: Node) -> list[Node | None]:
    """The sizes of an array of indices, without the index vector dimension."""
    axis = instruction.attribute("index_vector_dim")
    sizes = indices.sizes or [None] * indices.shape.rank
    if axis != len(sizes) and sizes[axis] is not None:
        raise NotLowered(f"%{instruction.name} reads index vectors of unknown size")
    return [size for number, size in enumerate(sizes) if number != axis]


def _reduce_window(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, plain: Plain
) -> list[Node]:
    sizes, read = _masked(nodes, instruction, arrays)
    pairs = zip(sizes, instruction.attribute("window"), strict=True)
    reached = [size and _windows(nodes, instruction, size, part) for size, part in pairs]
    return _each(nodes, plain(shape, *read), reached)


def _windows(nodes: Nodes, instruction: Instruction, size: Node, window: WindowDimension) -> Node:
    """The number of windows that fit into a dimension of a size."""
    if (window.base_dilation, window.padding_low, window.padding_high) != (1, 0, 0):
        # XLA's dynamic-padder counts only the elements.
        raise NotLowered(f"%{instruction.name} has padded or dilated windows of unknown size")
    reach = (window.size - 1) * window.window_dilation + 1
    room = total_of(nodes, [size, nodes.scalar(window.stride - reach, "s32")])
    room = nodes.binary("maximum", room, nodes.scalar(0, "s32"))
    return nodes.binary("divide", room, nodes.scalar(window.stride, "s32"))


def _each(nodes: Nodes, results: Sequence[Node], sizes: Sizes) -> list[Node]:
    return [bounded(nodes, result, sizes) for result in results]


def _update(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, plain: Plain
) -> list[Node]:
    """The array with an update; it is unchanged beyond the sizes of the update."""
    array, update, *starts = arrays
    part = static(update)
    if update.sizes:
        pairs = zip(update.sizes, part.shape.dims, array.shape.dims, strict=True)
        if any(size and dim == whole for size, dim, whole in pairs):
            raise NotLowered(
                f"%{instruction.name} overwrites a whole dimension with a bounded update"
            )
        sizes = (("dynamic_slice_sizes", spelled_index(part.shape.dims)),)
        old = nodes.make("dynamic-slice", part.shape, (static(array), *starts), sizes)
        part = within(nodes, part, update.sizes, old)
    return _each(nodes, plain(shape, static(array), part, *starts), array.sizes)


def _reshape(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, _: Plain
) -> list[Node]:
    """A reshape of the elements within the sizes, by a gather with computed indices."""
    shape = _array(shape)
    array, given = arrays[0], arrays[1:]
    dims = array.shape.dims
    sources = [size_along(nodes, array, axis) for axis in range(len(dims))]
    targets = [nodes.scalar(dim, "s32") for dim in shape.dims]
    flags = [axis for axis, flag in enumerate(shape.dynamic) if flag]
    if given:
        if any(size.opcode != "constant" for size in given):
            raise NotLowered(f"%{instruction.name} has sizes that are not constant")
        targets = [nodes.convert(size, "s32") for size in given]
    bounds = common_factors(dims, shape.dims) if not given else ()
    for (first, begin), (last, end) in pairwise(bounds):
        own = [axis for axis in flags if begin <= axis < end]
        if not any(array.sizes[first:last]) and not own:
            continue
        if len(own) != 1:
            raise NotLowered(f"%{instruction.name} has sizes that its operand does not determine")
        count = reduce(
            lambda total, size: nodes.binary("multiply", total, size), sources[first:last]
        )
        rest = prod(shape.dims[axis] for axis in range(begin, end) if axis != own[0])
        targets[own[0]] = nodes.binary("divide", count, nodes.scalar(rest, "s32"))
    total = prod(shape.dims)
    flat = ArrayShape("s32", (total,))
    counter = nodes.make("iota", flat, attributes=(("iota_dimension", "0"),))
    places = _places(nodes, counter, [nodes.scalar(dim, "s32") for dim in shape.dims])
    places = _places(nodes, _counted(nodes, places, targets), sources)
    index = _counted(nodes, places, [nodes.scalar(dim, "s32") for dim in dims])
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
    return [bounded(nodes, nodes.reshape(taken, shape.dims), sizes)]


def _to_static(
    nodes: Nodes, _: Instruction, arrays: Sequence[Node], shape: Shape, __: Plain
) -> list[Node]:
    (array,) = arrays
    if not isinstance(shape, TupleShape):
        raise NotLowered(f"it has the type {shape}, which is not a tuple")
    sizes = [size_along(nodes, array, axis) for axis in range(array.shape.rank)]
    padded = within(nodes, static(array), array.sizes, _BEYOND)
    return [padded, *sizes[: len(shape.elements) - 1]]


def _to_bounded(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, _: Plain
) -> list[Node]:
    shape = _array(shape)
    array, *sizes = arrays
    if len(sizes) != shape.rank:
        raise NotLowered(f"%{instruction.name} lacks a size for some dimension")
    pairs = zip(sizes, shape.dynamic, strict=True)
    return [bounded(nodes, array, [size if flag else None for size, flag in pairs])]


_RULES: Final[Mapping[str, Callable[..., list[Node]]]] = {
    "set-dimension-size": _set_size,
    "get-dimension-size": _get_size,
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


def _places(nodes: Nodes, index: Node, sizes: Sequence[Node]) -> list[Node]:
    """The index in each dimension of elements with these numbers, in an array of these sizes."""
    places: list[Node] = []
    for size in reversed(sizes):
        divisor = nodes.binary("maximum", size, nodes.scalar(1, "s32"))
        places.insert(0, nodes.binary("remainder", index, divisor))
        index = nodes.binary("divide", index, divisor)
    return places


def _counted(nodes: Nodes, places: Sequence[Node], sizes: Sequence[Node]) -> Node:
    """The number of the element at each place in an array of these sizes."""
    index = places[0]
    for place, size in zip(places[1:], sizes[1:], strict=True):
        index = nodes.binary("add", nodes.binary("multiply", index, size), place)
    return index
