"""Arrays with a size that is known at run time: `f32[<=8]`.

One is a node of its whole bound, with a scalar for each dimension that has a size. What lies beyond
the sizes is 0, and no operation reads it: this is what XLA's dynamic-padder has to write out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Final

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
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.layouts import common_factors
from hlo_lint.hlo.opcodes import BINARY, UNARY
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape, spelled_index

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.lower import Lowering

_ELEMENTWISE: Final = (UNARY | BINARY | {"clamp", "select"}) - {"bitcast-convert"}
_BEYOND: Final = 77
"""The number that a static array has beyond the sizes of a bounded one: reading it is seen."""


def bounded(nodes: Nodes, data: Node, sizes: Sizes) -> Node:
    """An array with sizes; without any it is the array as it is."""
    if not any(sizes):
        return data
    kept = tuple(size and nodes.convert(size, "s32") for size in sizes)
    within = _within(nodes, data, kept, 0)
    axes = spelled_index([axis for axis, size in enumerate(kept) if size])
    operands = (within, *(size for size in kept if size))
    node = nodes.make("bounded", data.shape, operands, (("", axes),))
    node.sizes, nodes.has_bounded = kept, True
    return node


def static(node: Node) -> Node:
    """The whole bound of an array, with 0 beyond its sizes."""
    return node.operands[0] if node.sizes else node


def with_sizes(nodes: Nodes, value: LoweredValue, shape: Shape) -> Iterator[Node]:
    """The arrays in a value of a shape, each bounded one with its sizes after it."""
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
    """The shapes of what `with_sizes` gives; of a size with its bound."""
    if isinstance(shape, TupleShape):
        for element in shape.elements:
            yield from shapes_of(element)
    elif isinstance(shape, ArrayShape) and any(shape.dynamic):
        yield next(bare(replace(shape, dynamic=()))), None
        for flag, dim in zip(shape.dynamic, shape.dims, strict=True):
            if flag:
                yield ArrayShape("s32", ()), dim
    else:
        yield from ((leaf, None) for leaf in bare(shape))


def collected(nodes: Nodes, shape: Shape, given: Iterator[Node]) -> LoweredValue:
    """A value of a shape from what `with_sizes` gave."""
    if isinstance(shape, TupleShape):
        return tuple([collected(nodes, element, given) for element in shape.elements])
    if not isinstance(shape, ArrayShape) or not any(shape.dynamic):
        return assembled(shape, given)
    try:
        data = next(given)
        return bounded(nodes, data, [next(given) if flag else None for flag in shape.dynamic])
    except StopIteration:
        raise NotLowered("it has fewer results than its type says") from None


def bounded_value(
    lowering: Lowering,
    instruction: Instruction,
    opcode: str,
    operands: Sequence[LoweredValue],
    shape: Shape,
) -> LoweredValue:
    """The result of an operation that reads or gives bounded arrays.

    Raises:
        NotLowered: it is not known what it reads beyond their sizes.
    """
    from hlo_lint.engine.values.lowering.operations import on_device

    target = instruction.attributes.get("custom_call_target", "").strip('"')
    rule = _RULES.get(target or opcode, _elementwise if opcode in _ELEMENTWISE else None)
    arrays = [operand for operand in operands if isinstance(operand, Node)]
    if rule is None or len(arrays) != len(operands) or lowering.devices > 1:
        raise NotLowered(f"{target or opcode} of arrays whose sizes are known at run time only")

    def plain(shape: Shape, *read: Node) -> Node:
        """The operation of whole arrays."""
        shape = replace(_array(shape), dynamic=())
        result = on_device(lowering, instruction, opcode, [*map(static, read)], shape)
        if not isinstance(result, Node):
            raise NotLowered(f"it has several results and the type {shape}")
        return result

    try:
        return rule(lowering.nodes, instruction, arrays, shape, plain)
    except (IndexError, TypeError, ValueError) as error:  # of a text that XLA refuses
        reason = f"%{instruction.name} has attributes or a type that do not fit its operands"
        raise NotLowered(reason) from error


Plain = Callable[..., Node]
"""Gives the result of the operation for whole arrays."""


# ---- the operations


def _elementwise(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, plain: Plain
) -> LoweredValue:
    wide = [array for array in arrays if array.shape.dims]
    sizes = wide[0].sizes
    if any(array.sizes != sizes for array in wide):
        raise NotLowered(f"%{instruction.name} reads arrays whose sizes may differ")
    return bounded(nodes, plain(shape, *arrays), sizes)


def _set_size(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, _: Plain
) -> LoweredValue:
    array, size = arrays
    (axis,) = instruction.integers_attribute("dimensions") or ()
    sizes = list(array.sizes or [None] * array.shape.rank)
    sizes[axis] = None if size is nodes.scalar(array.shape.dims[axis], "s32") else size
    return bounded(nodes, static(array), sizes)


def _get_size(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], _: Shape, __: Plain
) -> LoweredValue:
    (axis,) = instruction.integers_attribute("dimensions") or ()
    return _size(nodes, arrays[0], axis)


def _transpose(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, plain: Plain
) -> LoweredValue:
    order = instruction.integers_attribute("dimensions") or ()
    sizes = [arrays[0].sizes[axis] for axis in order]
    return bounded(nodes, plain(shape, *arrays), sizes)


def _broadcast(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, plain: Plain
) -> LoweredValue:
    result = plain(shape, *arrays)
    sizes: list[Node | None] = [None] * result.shape.rank
    for axis, size in zip(
        instruction.integers_attribute("dimensions") or (), arrays[0].sizes, strict=True
    ):
        sizes[axis] = size
    return bounded(nodes, result, sizes)


def _reduce(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, plain: Plain
) -> LoweredValue:
    if len(arrays) != 2:
        raise NotLowered(f"%{instruction.name} reduces several arrays of sizes of their own")
    array, first = arrays
    axes = instruction.integers_attribute("dimensions") or ()
    sizes = [size for axis, size in enumerate(array.sizes) if axis not in axes]
    read = _within(nodes, static(array), array.sizes, first)
    return bounded(nodes, plain(shape, read, first), sizes)


def _dot(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, plain: Plain
) -> LoweredValue:
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
    return bounded(nodes, plain(shape, *arrays), [*shared, *rest])


def _pad(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, plain: Plain
) -> LoweredValue:
    array, filler = arrays
    sizes: list[Node | None] = []
    for size, edges in zip(array.sizes, instruction.attribute("padding"), strict=True):
        if size is None:
            sizes.append(None)
            continue
        if min(edges[:2]) < 0:
            raise NotLowered(f"%{instruction.name} takes from an end that is not known")
        between = nodes.binary("subtract", size, nodes.scalar(1, "s32"))
        between = nodes.binary("maximum", between, nodes.scalar(0, "s32"))
        between = nodes.binary("multiply", between, nodes.scalar(edges.interior, "s32"))
        around = nodes.scalar(edges.low + edges.high, "s32")
        sizes.append(_sum(nodes, [size, between, around] if edges.interior else [size, around]))
    read = _within(nodes, static(array), array.sizes, filler)
    return bounded(nodes, plain(shape, read, filler), sizes)


def _concatenate(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, plain: Plain
) -> LoweredValue:
    (axis,) = instruction.integers_attribute("dimensions") or ()
    others = {
        tuple(size for at, size in enumerate(array.sizes) if at != axis)
        or (None,) * (array.shape.rank - 1)
        for array in arrays
    }
    if len(others) > 1:
        raise NotLowered(f"%{instruction.name} reads arrays whose sizes may differ")
    shape = _array(shape)
    (sizes,) = others
    if not any(array.sizes and array.sizes[axis] for array in arrays):
        return bounded(nodes, plain(shape, *arrays), [*sizes[:axis], None, *sizes[axis:]])
    # What lies beyond one part is overwritten by the next one.
    zero = nodes.scalar(0, "s32")
    result, begin = nodes.filled(0, ArrayShape(shape.dtype, shape.dims)), zero
    for array in arrays:
        starts = [begin if at == axis else zero for at in range(shape.rank)]
        operands = [result, static(array), *starts]
        result = nodes.make("dynamic-update-slice", result.shape, operands)
        begin = _sum(nodes, [begin, _size(nodes, array, axis)])
    return bounded(nodes, result, [*sizes[:axis], begin, *sizes[axis:]])


def _slice(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, plain: Plain
) -> LoweredValue:
    shape = _array(shape)
    array = arrays[0]
    pairs = zip(array.sizes, array.shape.dims, shape.dims, strict=True)
    if any(size and old != new for size, old, new in pairs):
        raise NotLowered(f"%{instruction.name} takes a part of a size that is not known")
    return bounded(nodes, plain(shape, *arrays), array.sizes)


def _update(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, plain: Plain
) -> LoweredValue:
    """The array with an update; beyond the sizes of that it stays as it was."""
    array, update, *starts = arrays
    part = static(update)
    if update.sizes:
        pairs = zip(update.sizes, part.shape.dims, array.shape.dims, strict=True)
        if any(size and dim == whole for size, dim, whole in pairs):
            raise NotLowered(f"%{instruction.name} overwrites a whole dimension with some of it")
        sizes = (("dynamic_slice_sizes", spelled_index(part.shape.dims)),)
        old = nodes.make("dynamic-slice", part.shape, (static(array), *starts), sizes)
        part = _within(nodes, part, update.sizes, old)
    return bounded(nodes, plain(shape, static(array), part, *starts), array.sizes)


def _reshape(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, _: Plain
) -> LoweredValue:
    """The elements within the sizes one after the other: an index for each, counted by sizes."""
    shape = _array(shape)
    array, given = arrays[0], arrays[1:]
    dims = array.shape.dims
    sources = [_size(nodes, array, axis) for axis in range(len(dims))]
    targets = [nodes.scalar(dim, "s32") for dim in shape.dims]
    flags = [axis for axis, flag in enumerate(shape.dynamic) if flag]
    if given:
        if any(size.opcode != "constant" for size in given):
            raise NotLowered(f"%{instruction.name} is given sizes that need not fit")
        targets = [nodes.convert(size, "s32") for size in given]
    bounds = common_factors(dims, shape.dims) if not given else ()
    for (first, begin), (last, end) in pairwise(bounds):
        own = [axis for axis in flags if begin <= axis < end]
        if not any(array.sizes[first:last]) and not own:
            continue
        if len(own) != 1:
            raise NotLowered(f"%{instruction.name} has sizes that its operand does not tell")
        count = reduce(lambda one, other: nodes.binary("multiply", one, other), sources[first:last])
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
    return bounded(nodes, nodes.reshape(taken, shape.dims), sizes)


def _to_static(
    nodes: Nodes, _: Instruction, arrays: Sequence[Node], shape: Shape, __: Plain
) -> LoweredValue:
    (array,) = arrays
    if not isinstance(shape, TupleShape):
        raise NotLowered(f"it has the type {shape}, which is not a tuple")
    sizes = [_size(nodes, array, axis) for axis in range(array.shape.rank)]
    return _within(nodes, static(array), array.sizes, _BEYOND), *sizes[: len(shape.elements) - 1]


def _to_bounded(
    nodes: Nodes, instruction: Instruction, arrays: Sequence[Node], shape: Shape, _: Plain
) -> LoweredValue:
    shape = _array(shape)
    array, *sizes = arrays
    if len(sizes) != shape.rank:
        raise NotLowered(f"%{instruction.name} has not a size for each dimension")
    pairs = zip(sizes, shape.dynamic, strict=True)
    return bounded(nodes, array, [size if flag else None for size, flag in pairs])


_RULES: Final[Mapping[str, Callable[..., LoweredValue]]] = {
    "set-dimension-size": _set_size,
    "get-dimension-size": _get_size,
    "transpose": _transpose,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "dot": _dot,
    "pad": _pad,
    "concatenate": _concatenate,
    "slice": _slice,
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


def _size(nodes: Nodes, array: Node, axis: int) -> Node:
    size = array.sizes[axis] if array.sizes else None
    return size or nodes.scalar(array.shape.dims[axis], "s32")


def _sum(nodes: Nodes, numbers: Sequence[Node]) -> Node:
    return reduce(lambda one, other: nodes.binary("add", one, other), numbers)


def _within(nodes: Nodes, array: Node, sizes: Sizes, beyond: Node | int) -> Node:
    """The array with another number beyond its sizes."""
    dims = array.shape.dims
    if not isinstance(beyond, Node):
        beyond = nodes.scalar(beyond, array.shape.dtype)
    for axis, size in enumerate(sizes):
        if size is not None:
            numbers = ArrayShape("s32", dims)
            counter = nodes.make("iota", numbers, attributes=(("iota_dimension", str(axis)),))
            ends = (counter, nodes.broadcast(size, dims))
            mask = nodes.make("compare", ArrayShape("pred", dims), ends, (("direction", "LT"),))
            full = beyond if beyond.shape.dims else nodes.broadcast(beyond, dims)
            operands = (mask, array, full)
            array = nodes.make("select", array.shape, operands)
    return array


def _places(nodes: Nodes, index: Node, sizes: Sequence[Node]) -> list[Node]:
    """The index in each dimension of the elements of these numbers, in an array of these sizes."""
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
