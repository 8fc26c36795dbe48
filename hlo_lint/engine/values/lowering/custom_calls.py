"""Lower custom calls by their configuration; calls of unknown targets are cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from hlo_lint.analysis.calls import MARKS
from hlo_lint.engine.values.lowering import convolutions, expansions, gemms
from hlo_lint.engine.values.lowering.cuts import cut
from hlo_lint.engine.values.lowering.graph import (
    Attributes,
    LoweredValue,
    Node,
    NotLowered,
    assembled,
    bare,
    leaf_nodes,
)
from hlo_lint.hlo.attributes.plain import Slice
from hlo_lint.hlo.attributes.reading import read_attribute
from hlo_lint.hlo.dtypes import is_float
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape
from hlo_lint.text.errors import PayloadError

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.lower import Lowering

_BUFFERS: Final = ("Pin", "Unpin")
"""Calls that move an array into a mutable buffer, and out of it."""
_MANUAL: Final = {
    "xla.sdy.GlobalToLocalShape": "SPMDFullToShardShape",
    "xla.sdy.LocalToGlobalShape": "SPMDShardToFullShape",
}
"""The partitioner's name for each of Shardy's ends of a manual region (`shardy-xla`).

Shardy's calls take and give several arrays at once."""


def lowered_call(
    lowering: Lowering, call: Instruction, operands: list[LoweredValue], shape: Shape
) -> LoweredValue:
    """The results of a custom call."""
    target = call.attributes.get("custom_call_target", "").strip('"')
    if (target in MARKS or target in _BUFFERS) and len(operands) == 1:
        return operands[0]
    if target.startswith("__xla_internal_call_marker_"):  # where call-outliner finds a call
        return tuple(operands) if isinstance(shape, TupleShape) else operands[0]
    if target in ("AllocateBuffer", "CreateBuffer"):
        # Memory that is written before it is read: XLA puts it where the text had zeros.
        return assembled(shape, iter(_workspace(lowering, shape, 0)))
    leaves = [node for value in operands for node in leaf_nodes(value)]
    arrays = list(bare(shape))
    if target in _MANUAL:
        return _manual(lowering, call, _MANUAL[target], operands, shape)
    # XLA:TPU (async-collective-fusion): the collective comes before its start, which holds the
    # source and the result; the done reads the start, and the collective's result once more.
    if target == "AsyncCollectiveStart" and [leaf.shape for leaf in leaves] == arrays[1:2]:
        idle = _workspace(lowering, shape, 0)
        return assembled(shape, iter([idle[0], leaves[0], *idle[2:]]))
    if target == "AsyncCollectiveDone" and [leaf.shape for leaf in leaves[1:2]] == arrays:
        return leaves[1]
    results: Sequence[Node] | None = None
    try:
        if target.startswith("__cublas$") and "backend_config" not in call.attributes:
            pass  # a call in a test: its dimensions are unknown
        elif target.startswith(("__cublas$gemm", "__cublas$lt$matmul")):
            results = gemms.matmul(lowering, call, target, leaves, arrays)
        elif target == "__cublas$triangularSolve":
            results = gemms.triangular_solve(lowering, call, leaves, arrays)
        elif target == "__onednn$matmul":
            results = gemms.onednn_matmul(lowering, call, leaves, arrays)
        elif target.startswith("__cudnn$conv"):
            results = convolutions.convolution(lowering, call, target, leaves, arrays)
        elif target in ("TopK", "__gpu$TopK"):
            results = _top_k_by(lowering, call, leaves[0], arrays)
        elif target.startswith(("__cub$DeviceRadixSort", "xla.gpu.ext.cub_sort_")):
            results = _radix_sort(lowering, call, leaves)
        elif target.startswith("xla.gpu.ext.cub_scan_"):
            results = expansions.running_sums(lowering, call, leaves[0], shape)
        elif target == "__op$block_scaled_dot":
            results = expansions.block_scaled_dot(lowering, call, leaves, arrays)
        elif target == "__op$dequantize":
            results = expansions.dequantized(lowering, leaves, arrays)
        elif target in ("X64Combine", "X64SplitLow", "X64SplitHigh"):
            results = _halves(lowering, target, leaves, shape)
        elif target == "Cholesky" and len(leaves) == 1 and _are_square(leaves[0]):
            results = [lowering.nodes.make("cholesky", arrays[0], leaves, (("lower", "true"),))]
        elif target in _TRIANGLES and _are_square(leaves[0]):
            results = _inverse(lowering, leaves, _TRIANGLES[target])
        elif target == "ConcatBitcast":
            results = _side_by_side(lowering, leaves, arrays)
    except PayloadError as error:
        raise NotLowered(f"%{call.name}: {error}") from error
    if results is None:
        return cut(lowering, call, target, operands, shape)
    results = [*results, *_workspace(lowering, shape, len(results))]
    return assembled(shape, iter(results))


def _manual(
    lowering: Lowering, call: Instruction, target: str, operands: list[LoweredValue], shape: Shape
) -> LoweredValue:
    """The arrays of a manual region, each cut as the partitioner's own call."""
    shapes = shape.elements if isinstance(shape, TupleShape) else (shape,)
    parts = zip(operands, lowering.operand_shapes(call), shapes, strict=True)
    results = [
        cut(lowering, call, target, [value], element, [read]) for value, read, element in parts
    ]
    return tuple(results) if isinstance(shape, TupleShape) else results[0]


def _workspace(lowering: Lowering, shape: Shape, count: int) -> list[Node]:
    """The results from number `count` on: unused scratch memory, as zeros."""
    return [lowering.nodes.filled(0, leaf) for leaf in list(bare(shape))[count:]]


def sort(
    lowering: Lowering, columns: Sequence[Node], axis: int, comparison: Attributes
) -> list[Node]:
    """Arrays sorted by the first array, ascending for `direction=LT` and descending for `GT`."""
    nodes = lowering.nodes
    scalars = [ArrayShape(column.shape.dtype, ()) for column in columns for _ in range(2)]
    keys = [nodes.parameter(number, scalars[number]) for number in range(2)]
    root = nodes.make("compare", ArrayShape("pred", ()), keys, comparison)
    called = (("to_apply", nodes.graph(tuple(scalars), [root])),)
    shapes = tuple(column.shape for column in columns)
    node = nodes.make("sort", shapes, columns, (("dimensions", f"{{{axis}}}"),), called)
    return [node] if len(columns) == 1 else nodes.elements(node)


def top_k(
    lowering: Lowering, keys: Node, results: Sequence[ArrayShape], largest: bool
) -> list[Node]:
    """The largest or smallest elements of each row in order, and their indices."""
    nodes, axis = lowering.nodes, keys.shape.rank - 1
    places = nodes.iota(results[1].dtype, keys.shape.dims, axis)
    comparison: Attributes = (("direction", "GT" if largest else "LT"),)
    if is_float(keys.shape.dtype):  # mirrors TopkDecomposer
        comparison += (("type", "TOTALORDER"),)
    ordered = sort(lowering, [keys, places], axis, comparison)
    return [
        nodes.slice(column, [0] * (axis + 1), result.dims)
        for column, result in zip(ordered, results, strict=True)
    ]


def _top_k_by(
    lowering: Lowering, call: Instruction, keys: Node, results: Sequence[ArrayShape]
) -> list[Node] | None:
    """The top elements by the call's comparator, by default `GT`; None for other comparators."""
    roots = [lowering.body(name).root for name in call.called_computations]
    given = {root.attributes.get("direction") for root in roots if root is not None} or {"GT"}
    return top_k(lowering, keys, results, given == {"GT"}) if given <= {"GT", "LT"} else None


def _radix_sort(lowering: Lowering, call: Instruction, leaves: list[Node]) -> list[Node]:
    """The result of CUB's sort along the last dimension.

    `descending` is in its options (`SortOptions`), which are the whole configuration or a part.
    """
    config = call.backend_config()
    options = config.get("sort_options", config)
    descending = isinstance(options, Mapping) and options.get("descending") is True
    axis = leaves[0].shape.rank - 1
    return sort(lowering, leaves, axis, (("direction", "GT" if descending else "LT"),))


def _side_by_side(
    lowering: Lowering, leaves: list[Node], results: Sequence[ArrayShape]
) -> list[Node] | None:
    """Slices concatenated along the dimension in which their sizes differ from the result's.

    Slices of the same array come in the order of their copies; in memory they keep the array's
    order.
    """
    (result,) = results
    if any(leaf.shape.rank != result.rank for leaf in leaves):
        return None
    axes = [
        axis
        for axis, size in enumerate(result.dims)
        if {size} != {leaf.shape.dims[axis] for leaf in leaves}
    ]
    if len(axes) != 1 or sum(leaf.shape.dims[axes[0]] for leaf in leaves) != result.dims[axes[0]]:
        return None
    if {(leaf.opcode, leaf.operands) for leaf in leaves} == {("slice", leaves[0].operands)}:
        leaves.sort(key=lambda leaf: _ranges(leaf)[axes[0]])
        ranges = [_ranges(leaf)[axes[0]] for leaf in leaves]
        is_whole = [end.start for end in ranges] == [0, *(end.limit for end in ranges[:-1])]
        if is_whole and leaves[0].operands[0].shape == result:
            return [leaves[0].operands[0]]
    return [lowering.nodes.concatenate(leaves, axes[0])]


def _ranges(part: Node) -> tuple[Slice, ...]:
    """The indices of a slice in each dimension."""
    ranges = read_attribute("slice", dict(part.attributes)["slice"])
    assert isinstance(ranges, tuple)
    return cast(tuple[Slice, ...], ranges)


_TRIANGLES: Final = {
    "InvertDiagBlocksLowerTriangular": "true",
    "InvertDiagBlocksUpperTriangular": "false",
}
"""Calls of XLA:TPU that invert triangular matrices, with their `lower` attribute."""


def _are_square(matrices: Node) -> bool:
    """True for square matrices in the last two dimensions."""
    dims = matrices.shape.dims
    return len(dims) > 1 and dims[-1] == dims[-2]


def _inverse(lowering: Lowering, parts: list[Node], lower: str) -> list[Node]:
    """The inverses of triangular matrices; complex matrices have a real and an imaginary part."""
    import numpy as np

    nodes, part = lowering.nodes, parts[0].shape
    blocks = parts[0]
    if len(parts) == 2:
        blocks = nodes.make("complex", ArrayShape("c64", part.dims), parts)
    identity = nodes.convert(
        nodes.constant(np.eye(part.dims[-1], dtype="f4"), "f32"), blocks.shape.dtype
    )
    identities = nodes.broadcast(identity, part.dims, (part.rank - 2, part.rank - 1))
    attributes = (("left_side", "true"), ("lower", lower), ("transpose_a", "NO_TRANSPOSE"))
    inverse = nodes.make("triangular-solve", blocks.shape, (blocks, identities), attributes)
    if len(parts) == 1:
        return [inverse]
    return [nodes.make(name, part, (inverse,)) for name in ("real", "imag")]


_COMPLEX: Final = {"X64Combine": "complex", "X64SplitLow": "real", "X64SplitHigh": "imag"}


def _halves(lowering: Lowering, target: str, leaves: list[Node], shape: Shape) -> list[Node] | None:
    """A 64-bit number from its halves, or a half of such a number, for XLA:TPU's 32-bit units.

    The halves of an integer are its high and low bits, those of a complex number its parts; an f64
    is the sum of an f32 and the f32 remainder.
    """
    nodes = lowering.nodes
    result = next(bare(shape))
    dtypes = {result.dtype, leaves[0].shape.dtype}
    if "c64" in dtypes:
        return [nodes.make(_COMPLEX[target], result, leaves)]
    if dtypes == {"f64", "f32"}:
        if target == "X64Combine":
            low, high = (nodes.convert(leaf, "f64") for leaf in leaves)
            return [nodes.binary("add", low, high)]
        near = nodes.convert(leaves[0], "f32")
        if target == "X64SplitHigh":
            return [near]
        lacking = nodes.binary("subtract", leaves[0], nodes.convert(near, "f64"))
        return [nodes.convert(lacking, "f32")]
    if result.dtype[0] not in "su" or any(leaf.shape.dtype[0] not in "su" for leaf in leaves):
        return None
    dims = leaves[0].shape.dims
    half, whole = ArrayShape("u32", dims), ArrayShape("u64", dims)
    places = nodes.filled(32, whole)
    if target == "X64Combine":
        low, high = (nodes.convert(nodes.bitcast_convert(leaf, half), "u64") for leaf in leaves)
        both = nodes.binary("or", low, nodes.binary("shift-left", high, places))
        return [nodes.bitcast_convert(both, result)]
    wide = nodes.bitcast_convert(leaves[0], whole)
    if target == "X64SplitHigh":
        wide = nodes.binary("shift-right-logical", wide, places)
    return [nodes.bitcast_convert(nodes.convert(wide, "u32"), result)]
