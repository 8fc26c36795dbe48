"""Replace operations that cannot be run by a made-up function of their operands.

The values of an opaque custom call are unknown, but equal operands give equal results. So both
sides of a step get the same function of the operands. It is smooth, and differs for each target,
result and element: a wrong operand shows in the results, and rounding errors stay small.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Final
from zlib import crc32

from hlo_lint.engine.values.lowering.graph import (
    LoweredValue,
    Node,
    Nodes,
    assembled,
    bare,
    leaf_nodes,
)
from hlo_lint.engine.values.lowering.memory import from_memory, in_memory, untiled
from hlo_lint.engine.values.lowering.program import Cut
from hlo_lint.hlo.dtypes import PART_OF_COMPLEX, is_complex, is_inexact
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import ArrayShape, BufferShape, Shape, TupleShape, leaves

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.lower import Lowering


_LOGICAL: Final = ("__cublas$", "__cudnn$", "__onednn$", "SPMD")
"""XLA's own calls whose operands may have any layout after layout-assignment."""

_MULTIPLIER: Final = 0x9E3779B1
"""An odd number near 2^32 over the golden ratio: its multiples lie far from each other."""

WITH_SCRATCH: Final = ("__cublas$", "__cudnn$", "__cub$", "xla.gpu.ext.cub_")
"""XLA's own calls whose last result is scratch memory, in bytes."""


def cut(
    lowering: Lowering,
    instruction: Instruction,
    what: str,
    operands: Sequence[LoweredValue],
    shape: Shape,
    operand_shapes: Sequence[Shape | None] | None = None,
) -> LoweredValue:
    """The results of an operation that cannot be run: some function of its operands."""
    read = _operand_shapes(lowering, instruction) if operand_shapes is None else operand_shapes
    # Only opaque kernels depend on layouts; other operations are functions of logical indices.
    is_logical = instruction.opcode != "custom-call" or what.startswith(_LOGICAL)
    # XLA:GPU's layout-assignment gives a call without constraints any layout, XLA:CPU's a
    # descending one.
    is_free = not is_logical and "operand_layout_constraints" not in instruction.attributes
    is_logical |= is_free and not lowering.layouts_bind

    def lying(shape: Shape | None) -> list[ArrayShape]:
        parts = leaves(shape) if shape is not None else ()
        given = [part.element if isinstance(part, BufferShape) else part for _, part in parts]
        return [
            leaf.with_layout(None) if is_logical else untiled(leaf)
            for leaf in given
            if isinstance(leaf, ArrayShape)
        ]

    shapes = [lying(shape) for shape in read]
    results = lying(shape)
    rows: list[Node] = []
    for value, of_operand in zip(operands, shapes, strict=False):
        for node, leaf in zip(leaf_nodes(value), of_operand, strict=False):
            rows.append(in_memory(lowering.nodes, node, leaf) if leaf.dims else node)
    given = [str(result.with_layout(None)) for result in results]
    if what.startswith(WITH_SCRATCH) and isinstance(shape, TupleShape) and results:
        # The size of scratch memory is known late, and is not read.
        given = given[: len(given) - (results[-1].dtype in ("u8", "s8"))]
    signature = f"{[str(row.shape) for row in rows]} -> {given}"
    layouts = [leaf.layout for leaf in chain(results, *shapes)]
    if is_free and not all(layout is None or layout.is_descending for layout in layouts):
        # Before layout-assignment no such function of memory is known.
        signature += " in assigned layouts"
    if labels := instruction.attributes.get("dim_labels"):
        # Labels decide the order of the elements.
        signature += f" {labels} of {[str(leaf) for shape in shapes for leaf in shape]}"
    lowering.cuts.append(Cut(instruction, what, signature))
    computed = _function(lowering.nodes, what, rows, list(bare(shape)))
    values = [
        from_memory(lowering.nodes, row, leaf) if leaf.dims else row
        for row, leaf in zip(computed, results, strict=True)
    ]
    return assembled(shape, iter(values))


def _operand_shapes(lowering: Lowering, instruction: Instruction) -> list[Shape | None]:
    """The shapes of the operands, in the layouts that constraints or layout-assignment give."""
    constraints = instruction.attribute("operand_layout_constraints")
    shapes = lowering.operand_shapes(instruction)
    if not isinstance(constraints, tuple) or len(constraints) != len(shapes):
        return shapes
    return [
        given if isinstance(given, ArrayShape | TupleShape) else shape
        for given, shape in zip(constraints, shapes, strict=True)
    ]


def _function(
    nodes: Nodes, what: str, rows: Sequence[Node], results: Sequence[ArrayShape]
) -> list[Node]:
    """The results, each a row of elements in memory; `rows` are the operands in memory."""
    total = nodes.scalar(0.5, "f32")
    for number, row in enumerate(rows):
        weighed = _mean(nodes, row, crc32(f"{what} {number}".encode()))
        total = nodes.binary("add", total, weighed)
    return [
        _result(nodes, total, shape, crc32(f"{what} result {number}".encode()))
        for number, shape in enumerate(results)
    ]


def _mean(nodes: Nodes, row: Node, salt: int) -> Node:
    """The weighted mean of a row as f32; every element has its own weight."""
    if is_complex(row.shape.dtype):
        part = ArrayShape(PART_OF_COMPLEX[row.shape.dtype], row.shape.dims)
        halves = [nodes.make(half, part, (row,)) for half in ("real", "imag")]
        first, second = (_mean(nodes, half, salt + number) for number, half in enumerate(halves))
        return nodes.binary("add", first, second)
    numbers, weights = nodes.convert(row, "f32"), _weights(nodes, row.shape.dims, salt)
    weighed = nodes.reduced(nodes.binary("multiply", numbers, weights), "add", 0)
    return nodes.binary("multiply", weighed, 1 / max(prod(row.shape.dims), 1))


def _weights(nodes: Nodes, dims: tuple[int, ...], salt: int) -> Node:
    """Numbers between 0.5 and 1.5 that f32 holds, from the upper half of products modulo 2^32."""
    if not dims:
        return nodes.scalar(1 + salt % 997 / 1024, "f32")
    place = nodes.iota("u32", dims, 0)
    mixed = nodes.binary("add", nodes.binary("multiply", place, _MULTIPLIER), salt)
    upper = nodes.convert(nodes.binary("shift-right-logical", mixed, 16), "f32")
    return nodes.binary("add", nodes.binary("multiply", upper, 2**-16), 0.5)


def _result(nodes: Nodes, total: Node, shape: ArrayShape, salt: int) -> Node:
    dims = (prod(shape.dims),) if shape.dims else ()
    weights = _weights(nodes, dims, salt)
    if is_inexact(shape.dtype):
        weighed = nodes.binary("multiply", weights, total)
        part = nodes.convert(weighed, PART_OF_COMPLEX.get(shape.dtype, shape.dtype))
        row = ArrayShape(shape.dtype, dims)
        return part if part.shape == row else nodes.make("complex", row, (part, part))
    # Rounding must not change an integer, so integers depend on no float. Most are status codes of
    # solvers: for any code but 0 the program gives NaNs.
    return nodes.filled(0, ArrayShape(shape.dtype, dims))
