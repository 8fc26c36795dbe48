"""Operations that XLA:CPU lacks or runs slowly, as simpler operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hlo_lint.analysis.shape_inference.linear_algebra import dims_before_ragged
from hlo_lint.engine.values.lowering.graph import Graph, Node, Nodes, NotLowered, leaf_nodes
from hlo_lint.engine.values.lowering.memory import from_memory, in_memory
from hlo_lint.hlo.attributes.windows import WindowDimension
from hlo_lint.hlo.dtypes import neutral_element
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.opcodes import COMMUTATIVE
from hlo_lint.hlo.shape import ArrayShape, Shape, arrays, spelled_index

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.lower import Lowering

Pairs = list[tuple[int, int]]
"""Pairs of a dimension of a dot's left side and a dimension of its right side."""
_ENDLESS: Final = ("c", "f4", "f8")
"""Prefixes of element types, some of which have no infinities."""


def scan(
    lowering: Lowering, instruction: Instruction, leaves: list[Node], results: list[ArrayShape]
) -> list[Node]:
    """The outputs and the last carries of a scan, lowered to a loop over slices of its inputs."""
    nodes = lowering.nodes
    (axis,) = instruction.integers_attribute("dimensions") or (0,)
    carries = instruction.attribute("num_carries")
    if not isinstance(carries, int) or not 0 <= carries < len(leaves):
        raise NotLowered(f"%{instruction.name} carries {carries} of {len(leaves)} operands")
    inputs, first = leaves[: len(leaves) - carries], leaves[len(leaves) - carries :]
    outputs = [nodes.filled(0, shape) for shape in results[: len(results) - carries]]
    length = inputs[0].shape.dims[axis]
    if not length:
        return [*outputs, *first]
    state = [nodes.scalar(0, "s32"), *inputs, *first, *outputs]
    shapes = tuple(node.shape for node in state)
    begin = len(nodes.made)
    counter, *held = [nodes.parameter(number, shape) for number, shape in enumerate(shapes)]
    place = counter
    if instruction.attribute_text("is_reverse") == "true":
        place = nodes.binary("subtract", nodes.scalar(length - 1, "s32"), counter)
    taken = [_slice_at(nodes, node, axis, place) for node in held[: len(inputs)]]
    taken += held[len(inputs) : len(leaves)]
    step = lowering.called(instruction, "to_apply")
    inner = replace(lowering, scope=step.name, devices=1, watch=None)
    (value,) = inner.computation(step, [[node] for node in taken])
    given = list(leaf_nodes(value))
    written = []
    for output, part in zip(held[len(leaves) :], given, strict=False):
        dims = output.shape.dims
        update = nodes.reshape(part, (*dims[:axis], 1, *dims[axis + 1 :]))
        starts = _starts(nodes, output, axis, place)
        written.append(nodes.make("dynamic-update-slice", output.shape, (output, update, *starts)))
    after = nodes.binary("add", counter, 1)
    roots = [after, *held[: len(inputs)], *given[len(given) - carries :], *written]
    if tuple(root.shape for root in roots) != shapes:
        raise NotLowered(f"a step of %{instruction.name} gives a state of another type")
    goes_on = nodes.compare(counter, length, "LT")
    body = nodes.graph(shapes, roots, takes_tuple=True, gives_tuple=True)
    condition = nodes.graph(shapes, [goes_on], takes_tuple=True)
    del nodes.made[begin:]  # they are inside the loop
    loop = nodes.make("while", shapes, state, called=(("condition", condition), ("body", body)))
    _, *last = nodes.elements(loop)
    return [*last[len(leaves) :], *last[len(inputs) : len(leaves)]]


def running_sums(
    lowering: Lowering, call: Instruction, array: Node, shape: Shape
) -> list[Node] | None:
    """The running sums of the lines of an array in memory, by CUB; None for another scan.

    ScanRewriter of jax 0.10 gives the number of lines as `column_length`, and their length.
    """
    nodes, config = lowering.nodes, call.backend_config()
    read, written = (next(arrays(side)) for side in (call.operands[0].shape, shape))
    count, length, vector = (
        int(f"{config.get(f'{name}_length', 0)}") for name in ("column", "row", "vector")
    )
    if config.get("kind") != "SUM" or vector != 1 or count * length != written.elements:
        return None
    padding = f"0_{length - 1}" if config.get("is_reverse") is True else f"{length - 1}_0"
    lines = nodes.reshape(in_memory(nodes, array, read), (count, length))
    operands = lines, nodes.scalar(0, written.dtype)
    window = (("window", f"{{size=1x{length} pad=0_0x{padding}}}"),)
    called = (("to_apply", nodes.combiner("add", written.dtype)),)
    sums = nodes.make("reduce-window", lines.shape, operands, window, called)
    return [from_memory(nodes, nodes.reshape(sums, (count * length,)), written)]


def _slice_at(nodes: Nodes, node: Node, axis: int, place: Node) -> Node:
    """The slice of an array at an index of a dimension, without that dimension."""
    dims = node.shape.dims
    sizes = (*dims[:axis], 1, *dims[axis + 1 :])
    part = nodes.dynamic_slice(node, _starts(nodes, node, axis, place), sizes)
    return nodes.reshape(part, (*dims[:axis], *dims[axis + 1 :]))


def _starts(nodes: Nodes, node: Node, axis: int, place: Node) -> list[Node]:
    return [
        place if dimension == axis else nodes.scalar(0, "s32")
        for dimension in range(node.shape.rank)
    ]


def _paired(instruction: Instruction, name: str) -> Pairs:
    left, right = (
        instruction.integers_attribute(f"{side}_{name}_dims") or () for side in ("lhs", "rhs")
    )
    return list(zip(left, right, strict=True))


def ragged_dot(
    lowering: Lowering, instruction: Instruction, leaves: Sequence[Node], result: ArrayShape
) -> Node:
    """A dot whose left side has groups along a dimension; operand 2 gives their sizes.

    Each group has its own right side, or gives its own result. Elements outside of all groups count
    as zeros, as in `RaggedDotRewriter`.
    """
    nodes, (left, right, sizes) = lowering.nodes, leaves
    batch, contracting = (_paired(instruction, name) for name in ("batch", "contracting"))
    (ragged,) = instruction.integers_attribute("lhs_ragged_dims") or ()
    batch_dims, contracting_dims = ([axis for axis, _ in pairs] for pairs in (batch, contracting))
    if ragged in batch_dims:
        return nodes.dot(left, right, result.dtype, batch, contracting)
    free = [d for d in range(left.shape.rank) if d not in (*batch_dims, *contracting_dims)]
    before = dims_before_ragged(ragged, batch_dims, free, contracting_dims)
    inside = _groups(nodes, left.shape, ragged, sizes, before if sizes.shape.rank > 1 else [])
    # The groups are a new first dimension of the left side.
    dims = inside.shape.dims
    wide = nodes.broadcast(left, dims, range(1, len(dims)))
    wide = nodes.select(inside, wide, nodes.filled(0, wide.shape))
    batch, contracting = (
        [(ours + 1, theirs) for ours, theirs in pairs] for pairs in (batch, contracting)
    )
    if ragged not in contracting_dims:
        (group,) = instruction.integers_attribute("rhs_group_dims") or ()
        return nodes.dot(wide, right, result.dtype, batch, [(0, group), *contracting])
    product = nodes.dot(wide, right, result.dtype, batch, contracting)
    count = len(batch)
    others = [axis for axis in range(product.shape.rank) if axis != count]
    return nodes.transpose(product, [count, *others])


def _groups(
    nodes: Nodes, left: ArrayShape, ragged: int, sizes: Node, before: Sequence[int]
) -> Node:
    """A mask that says for each group and each element of the left side if they belong together."""
    import numpy as np

    count, last = sizes.shape.dims[-1], sizes.shape.rank - 1
    sizes = nodes.convert(sizes, "s64")
    up_to = nodes.constant(np.triu(np.ones((count, count), np.int64)), "s64")
    ends = nodes.dot(sizes, up_to, "s64", [], [(last, 0)])
    starts = nodes.binary("subtract", ends, sizes)
    dims = (count, *left.dims)
    order = sorted(range(len(before)), key=before.__getitem__)
    axes = [0, *(1 + before[number] for number in order)]

    def spread(node: Node) -> Node:
        return nodes.broadcast(nodes.transpose(node, [last, *order]), dims, axes)

    places = nodes.iota("s64", dims, 1 + ragged)
    above = nodes.compare(places, spread(starts), "GE")
    return nodes.binary("and", above, nodes.compare(places, spread(ends), "LT"))


def scaled_dot(
    lowering: Lowering, instruction: Instruction, leaves: Sequence[Node], result: ArrayShape
) -> Node | None:
    """A dot of arrays in blocks, each with a scale.

    None where a side has a scalar scale, which may be a placeholder.
    """
    nodes = lowering.nodes
    left, right, *scales = leaves
    if not all(scale.shape.rank for scale in scales):
        return None
    left, right = _scaled(nodes, left, scales[0]), _scaled(nodes, right, scales[1])
    batch, contracting = (_paired(instruction, name) for name in ("batch", "contracting"))
    return nodes.convert(nodes.dot(left, right, "f32", batch, contracting), result.dtype)


def block_scaled_dot(
    lowering: Lowering, call: Instruction, leaves: Sequence[Node], results: Sequence[ArrayShape]
) -> list[Node] | None:
    """A dot over the last dimensions, which come in blocks with a scale each.

    The right side may lack scales; a scalar operand scales the result (`BlockScalingRewriter`).
    """
    nodes, (left, right, *rest) = lowering.nodes, leaves
    scales = [scale for scale in rest if scale.shape.dims]
    config = call.backend_config().get("block_scaled_dot_backend_config", {})
    block = config.get("block_size", 0) if isinstance(config, Mapping) else None
    if not isinstance(block, int) or not 1 <= len(scales) <= 2 or len(results) != 1:
        return None
    last = left.shape.rank - 1
    if not 1 <= last <= 2 or any(scale.shape.rank != last + 1 for scale in scales):
        return None
    left = _scaled(nodes, left, scales[0], block)
    right = _scaled(nodes, right, scales[1], block) if scales[1:] else nodes.convert(right, "f32")
    product = nodes.dot(left, right, "f32", [(0, 0)] if last == 2 else [], [(last, last)])
    for scale in rest:
        if not scale.shape.dims:
            product = nodes.binary("multiply", product, nodes.convert(scale, "f32"))
    return [nodes.convert(product, results[0].dtype)]


def dequantized(
    lowering: Lowering, leaves: Sequence[Node], results: Sequence[ArrayShape]
) -> list[Node]:
    """An array in blocks along its last dimension, multiplied by their scales."""
    (result,), (array, scale) = results, leaves
    return [lowering.nodes.convert(_scaled(lowering.nodes, array, scale), result.dtype)]


def _scaled(nodes: Nodes, node: Node, scale: Node, block: int = 0) -> Node:
    """An array times the scales of its blocks.

    If the block size in the last dimension is given, there may be unused scales.
    """
    dims = node.shape.dims
    blocks = [size // max(own, 1) for size, own in zip(dims, scale.shape.dims, strict=True)]
    if block:
        blocks = [1] * (len(dims) - 1) + [block]
    pairs = list(zip(scale.shape.dims, blocks, strict=True))
    wide = nodes.broadcast(
        nodes.convert(scale, "f32"),
        tuple(size for pair in pairs for size in pair),
        range(0, 2 * len(dims), 2),
    )
    wide = nodes.reshape(wide, tuple(own * size for own, size in pairs))
    if block and all(own >= size for own, size in zip(wide.shape.dims, dims, strict=True)):
        wide = nodes.slice(wide, [0] * len(dims), dims)
    if wide.shape.dims != dims:
        raise NotLowered(f"scales of {scale.shape} do not fit blocks of {node.shape}")
    return nodes.binary("multiply", nodes.convert(node, "f32"), wide)


def reduce(
    lowering: Lowering, instruction: Instruction, leaves: Sequence[Node], result: ArrayShape
) -> Node | None:
    """A reduction from the neutral element, to which the init value is applied afterwards.

    XLA may apply an init value any number of times, even 0; here it is applied once. Returns None
    if several arrays are reduced, or the combiner has more than one operation.
    """
    if len(leaves) != 2 or leaves[1].shape.dtype.startswith(_ENDLESS):
        return None
    called = lowering.function(lowering.called(instruction, "to_apply"))
    combiner = _combiner(called)
    if not combiner:
        return None
    nodes, first = lowering.nodes, leaves[1]
    dtype = first.shape.dtype
    neutral = nodes.scalar(neutral_element(dtype, combiner), dtype)
    operands = nodes.convert(leaves[0], dtype), neutral
    axes = spelled_index(instruction.integers_attribute("dimensions") or ())
    attributes, graphs = (("dimensions", axes),), (("to_apply", called),)
    node = nodes.make("reduce", ArrayShape(dtype, result.dims), operands, attributes, graphs)
    node = node if neutral is first else nodes.binary(combiner, node, first)
    return nodes.convert(node, result.dtype)  # XLA:TPU rounds it as it is written


def _combiner(graph: Graph) -> str:
    """The opcode of a combiner that is a single operation of its parameters, or empty."""
    root, read = graph.roots[0], {*graph.roots[0].operands}
    is_plain = {node.opcode for node in read} == {"parameter"} and len(read) == 2
    return root.opcode if is_plain and root.opcode in COMMUTATIVE else ""


def reduce_window(
    lowering: Lowering, instruction: Instruction, leaves: Sequence[Node], result: ArrayShape
) -> Node | None:
    """A reduce-window whose windows each cover the whole dimension, as a broadcast reduction.

    XLA:TPU spells a sum next to its addends this way; run as a window it takes quadratic time.
    """
    window = instruction.attribute("window")
    if len(leaves) != 2 or not isinstance(window, tuple):
        return None
    array, first = leaves
    axes = []
    for axis, (size, part) in enumerate(zip(array.shape.dims, window, strict=True)):
        if part == WindowDimension(2 * size - 1, padding_low=size - 1, padding_high=size - 1):
            axes += [axis] if size > 1 else []
        elif part != WindowDimension(1):
            return None
    if not axes:
        return None
    nodes = lowering.nodes
    called = lowering.function(lowering.called(instruction, "to_apply"))
    kept = [axis for axis in range(result.rank) if axis not in axes]
    shape = ArrayShape(result.dtype, tuple(result.dims[axis] for axis in kept))
    dimensions = (("dimensions", spelled_index(axes)),)
    reduced = nodes.make("reduce", shape, (array, first), dimensions, (("to_apply", called),))
    return nodes.broadcast(reduced, result.dims, kept)
