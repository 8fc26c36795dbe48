"""Slices in loops, at the offsets that XLA:GPU copies from."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from hlo_lint.analysis.loops import backend_config, integer_field
from hlo_lint.engine.values.lowering.graph import Node, spelled
from hlo_lint.engine.values.lowering.memory import from_memory, in_memory
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import ArrayShape, Shape

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.lower import Lowering


def by_descriptor(
    lowering: Lowering, instruction: Instruction, opcode: str, leaves: list[Node], shape: Shape
) -> Node | None:
    """A slice at the offset that its `dynamic_slice_config` gives; None without one.

    XLA:GPU copies what the descriptor says and computes no index (`DynamicMemcpyThunk`).
    """
    nodes = lowering.nodes
    if '"dynamic_slice_config"' not in instruction.attributes_text:
        return None
    config = backend_config(instruction).get("dynamic_slice_config")
    offset, stride = (integer_field(config, name) for name in ("byte_offset", "byte_stride"))
    whole = instruction.operand_shape(0)
    if offset is None or stride is None or not isinstance(whole, ArrayShape):
        return None
    part = shape if opcode == "dynamic-slice" else instruction.operand_shape(1)
    if not isinstance(part, ArrayShape) or not whole.element_bits:
        return None
    at = nodes.scalar(offset, "s64")
    if stride:
        # In a nest the descriptor may mean any of the loops: the operands decide there.
        if len(lowering.iterations) != 1 or (iteration := lowering.iterations[0]) is None:
            return None
        steps = nodes.binary("multiply", iteration(), nodes.scalar(stride, "s64"))
        at = nodes.binary("add", at, steps)
    first = nodes.binary("divide", at, nodes.scalar(whole.element_bits // 8, "s64"))
    row = in_memory(nodes, leaves[0], whole)
    count = prod(part.dims)
    if opcode == "dynamic-slice":
        piece = nodes.make(
            "dynamic-slice",
            ArrayShape(whole.dtype, (count,)),
            (row, first),
            (("dynamic_slice_sizes", spelled([count])),),
        )
        return from_memory(nodes, piece, part)
    update = in_memory(nodes, leaves[1], part)
    changed = nodes.make("dynamic-update-slice", row.shape, (row, update, first))
    return from_memory(nodes, changed, whole)
