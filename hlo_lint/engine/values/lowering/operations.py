"""Lower an instruction to its value on a single device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from hlo_lint.engine.values.lowering import convolutions, expansions
from hlo_lint.engine.values.lowering.bounded import bounded_value
from hlo_lint.engine.values.lowering.custom_calls import lowered_call, top_k
from hlo_lint.engine.values.lowering.cuts import cut
from hlo_lint.engine.values.lowering.graph import (
    Attributes,
    Graph,
    LoweredValue,
    Node,
    NotLowered,
    assembled,
    bare,
    element_of,
    leaf_nodes,
)
from hlo_lint.engine.values.lowering.memory import bitcast_value, by_descriptor
from hlo_lint.hlo.ir import CALLING_ATTRIBUTES, Instruction
from hlo_lint.hlo.opcodes import COMMON, FIRST_INDEX, FORWARDS, OPCODES, VALUELESS
from hlo_lint.hlo.parser.literals import ELIDED, AnyArray, LiteralError, LiteralValue
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.lower import Lowering

_FREE: Final = FORWARDS - {"bitcast"}
"""Opcodes whose result equals their first operand; they may only move it in memory."""
_DROPPED: Final = COMMON | VALUELESS | {"inferred_dimension"}
"""Attributes that do not affect the value of an instruction whose shape is known."""
_UNRUNNABLE: Final = frozenset(
    "infeed outfeed rng rng-get-and-update-state send send-done recv recv-done scan scaled-dot "
    "ragged-dot stochastic-convert dynamic-reshape set-dimension-size".split()
)
"""Opcodes whose value is undefined on a single CPU, or that jaxlib does not read."""
_ROUNDS: Final = frozenset("reverse select-and-scatter slice".split())
"""Opcodes whose result XLA:TPU may round to fewer bits, as it does in a copy."""
_EXPANDED: Final[Mapping[str, Callable[..., Node | None]]] = {
    "ragged-dot": expansions.ragged_dot,
    "reduce": expansions.reduce,
    "reduce-window": expansions.reduce_window,
    "scaled-dot": expansions.scaled_dot,
}
"""Simpler operations for those that XLA:CPU lacks, or runs slowly; None where they do not apply."""
_SMALL: Final = ("u8", "u16", "u32")
_DEFAULTS: Final = frozenset(
    {("feature_group_count", "1"), ("batch_group_count", "1"), ("order", "PARTIAL")}
)


def on_device(
    lowering: Lowering,
    instruction: Instruction,
    opcode: str,
    operands: list[LoweredValue],
    shape: Shape,
) -> LoweredValue:
    """The value on a device of an instruction other than collectives, loops and calls."""
    nodes = lowering.nodes
    if opcode in _FREE:
        kept = operands[0]
        if isinstance(kept, Node) and isinstance(shape, ArrayShape):
            return nodes.convert(kept, shape.dtype)  # XLA:TPU rounds in a copy
        return kept
    if opcode == "get-tuple-element":
        index = instruction.attribute("index")
        return element_of(operands[0], (index,) if isinstance(index, int) else ())
    if opcode == "copy-done":
        return element_of(operands[0], (0,))
    if opcode == "tuple":
        return tuple(operands)
    if opcode == "after-all":
        return None
    if opcode == "copy-start":
        parts = shape.elements if isinstance(shape, TupleShape) else ()
        return (operands[0], operands[0], *lowering.contexts(parts))
    if (isinstance(shape, ArrayShape) and any(shape.dynamic)) or (
        nodes.has_bounded and any(node.sizes for value in operands for node in leaf_nodes(value))
    ):
        return bounded_value(lowering, instruction, opcode, operands, shape, on_device)
    if opcode == "custom-call":
        return lowered_call(lowering, instruction, operands, shape)
    leaves = [node for value in operands for node in leaf_nodes(value)]
    match opcode:
        case "constant":
            return _constant(lowering, instruction, shape)
        case "bitcast" if isinstance(shape, ArrayShape):
            (source,) = lowering.operand_shapes(instruction)
            if isinstance(source, ArrayShape):
                target = next(bare(shape)).with_layout(shape.layout)
                return bitcast_value(nodes, leaves[0], source, target)
        case "reshape" if isinstance(shape, ArrayShape):
            return nodes.reshape(nodes.convert(leaves[0], next(bare(shape)).dtype), shape.dims)
        case "transpose" if isinstance(shape, ArrayShape):
            permutation = instruction.integers_attribute("dimensions") or ()
            return nodes.transpose(nodes.convert(leaves[0], shape.dtype), permutation)
        case "broadcast" if isinstance(shape, ArrayShape):
            node = nodes.convert(leaves[0], shape.dtype)
            dimensions = instruction.integers_attribute("dimensions") or ()
            return nodes.broadcast(node, shape.dims, dimensions)
        case "convert" if isinstance(shape, ArrayShape):
            return nodes.convert(leaves[0], shape.dtype)
        case "pad" if isinstance(shape, ArrayShape):
            leaves = [nodes.convert(leaf, shape.dtype) for leaf in leaves]
            paddings = instruction.attribute("padding")
            if isinstance(paddings, tuple) and any(min(edges[:2]) < 0 for edges in paddings):
                # Only algsimp removes negative padding; XLA:CPU has no code for it.
                return nodes.pad(leaves[0], leaves[1], paddings)
        case "convolution" if isinstance(shape, ArrayShape) and len(leaves) == 2:
            return convolutions.plain(nodes, instruction, leaves, next(bare(shape)))
        case "dynamic-slice" | "dynamic-update-slice":
            first = FIRST_INDEX[opcode]
            in_one = (leaves[0].shape.rank,)
            if [start.shape.dims for start in leaves[first:]] == [in_one]:  # until 2019
                leaves[first:] = nodes.scalars(leaves[first])
            # Of a constant u8 index XLA:CPU takes the first bit for a sign.
            leaves[first:] = [
                nodes.convert(start, "s64") if start.shape.dtype in _SMALL else start
                for start in leaves[first:]
            ]
            described = by_descriptor(lowering, instruction, opcode, leaves, shape)
            if described is not None:
                return described
        case "get-dimension-size" if isinstance(shape, ArrayShape):
            (axis,) = instruction.integers_attribute("dimensions") or ()
            return nodes.scalar(leaves[0].shape.dims[axis], shape.dtype)
        case "topk":
            largest = instruction.attribute("largest") is not False
            return assembled(shape, iter(top_k(lowering, leaves[0], list(bare(shape)), largest)))
        case "scan" | "ragged-dot" | "reduce" | "reduce-window" | "scaled-dot":
            results = list(bare(shape))
            if opcode == "scan":
                outputs = expansions.scan(lowering, instruction, leaves, results)
                return assembled(shape, iter(outputs))
            simpler = _EXPANDED[opcode](lowering, instruction, leaves, results[0])
            if simpler is not None:
                return assembled(shape, iter([simpler]))
    if opcode not in OPCODES or opcode in _UNRUNNABLE:
        return cut(lowering, instruction, opcode, operands, shape)
    shapes = tuple(bare(shape))
    dtype = shapes[0].dtype if opcode in _ROUNDS else ""
    if dtype and leaves[0].shape.dtype != dtype:
        shapes = (ArrayShape(leaves[0].shape.dtype, shapes[0].dims),)
    attributes, called = _attributes(lowering, instruction, opcode)
    node = nodes.make(opcode, shapes, leaves, attributes, called)
    if not isinstance(shape, TupleShape):
        return nodes.convert(node, dtype) if dtype else node
    return assembled(shape, iter(nodes.elements(node)))


def _attributes(
    lowering: Lowering, instruction: Instruction, opcode: str
) -> tuple[Attributes, tuple[tuple[str, Graph], ...]]:
    """The attributes that affect the value, and the lowered computations."""
    allowed = (OPCODES[opcode].allowed - _DROPPED) | set(OPCODES[opcode].required)
    attributes: list[tuple[str, str]] = []
    called: list[tuple[str, Graph]] = []
    for name, text in instruction.attributes.items():
        if name not in allowed:
            continue
        if name in CALLING_ATTRIBUTES:
            called.append((name, lowering.function(lowering.called(instruction, name))))
        elif (name, text) == ("order", "TOTAL"):
            attributes.append(("type", "TOTALORDER"))  # as releases before 0.11 spell it
        elif (name, text) not in _DEFAULTS:
            attributes.append((name, " ".join(text.split())))
    return tuple(sorted(attributes)), tuple(called)


def _constant(lowering: Lowering, instruction: Instruction, shape: Shape) -> LoweredValue:
    try:
        literal = instruction.literal
    except LiteralError as error:
        raise NotLowered(f"%{instruction.name}: {error}") from error
    return _literal(lowering, instruction, shape, literal)


def _literal(
    lowering: Lowering, instruction: Instruction, shape: Shape, literal: LiteralValue
) -> LoweredValue:
    if literal is ELIDED:
        return cut(lowering, instruction, "constant({...})", (), shape)
    if isinstance(shape, TupleShape):
        assert isinstance(literal, tuple)
        return tuple(
            _literal(lowering, instruction, element, part)
            for element, part in zip(shape.elements, literal, strict=True)
        )
    if literal is None or not isinstance(shape, ArrayShape):
        return None
    array: AnyArray = literal  # type: ignore[assignment]
    return lowering.nodes.constant(array, shape.dtype)
