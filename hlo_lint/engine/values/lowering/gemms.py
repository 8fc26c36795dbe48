"""Lower calls of cuBLAS to dots: `D = epilogue(alpha * A @ B + beta * C + bias)`.

The operands are those of `CublasLtMatmulThunk` and `GemmThunk` (`xla/backends/gpu/runtime`): A, B,
C where beta is not 0, scales of 8-bit floats, the bias.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, pi, sqrt
from struct import pack, unpack
from typing import TYPE_CHECKING, Final

from hlo_lint.engine.values.lowering.graph import Node, Nodes, NotLowered
from hlo_lint.hlo.dtypes import BITS, is_complex, is_float
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.kernels.custom_calls import decode_payload
from hlo_lint.kernels.custom_calls.gemm import GemmConfig, TriangularSolveConfig

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.lower import Lowering


def matmul(
    lowering: Lowering,
    call: Instruction,
    target: str,
    operands: Sequence[Node],
    results: Sequence[ArrayShape],
) -> list[Node] | None:
    """The results of a matrix product without its scratch memory; None if it has to be cut."""
    if target.partition("$matmul")[2] not in ("", "$f8"):
        return None  # its factors have a scale for each block
    config = decode_payload(call)
    if not isinstance(config, GemmConfig):
        raise NotLowered(f"%{call.name} has no configuration of a matrix product")
    nodes, result = lowering.nodes, results[0]
    left, right, *rest = operands
    has_narrow = _is_narrow(left.shape.dtype) or _is_narrow(right.shape.dtype)
    dtype = "f32" if is_float(result.dtype) and result.dtype != "f64" else result.dtype
    addend = rest.pop(0) if config.beta else None
    # Of A, of B, of C if there are four, of D.
    scales = [node for node in rest if not node.shape.dims] if target.endswith("$f8") else []
    rest = [node for node in rest if node not in scales]
    if len(scales) < 2 and has_narrow and target.endswith("$f8"):
        raise NotLowered(f"%{call.name} has {len(scales)} scales of 8-bit floats")
    product = _dot(nodes, left, right, config, ArrayShape(dtype, result.dims))
    for scale in scales[:2]:
        product = nodes.binary("multiply", product, nodes.convert(scale, dtype))
    product = times(nodes, product, config.alpha)
    if addend is not None:
        addend = times(nodes, nodes.convert(addend, dtype), complex(config.beta))
        if len(scales) > 3:
            addend = nodes.binary("multiply", addend, nodes.convert(scales[2], dtype))
        product = nodes.binary("add", product, addend)
    words = config.epilogue.split("_")
    if "BIAS" in words:
        bias = nodes.convert(rest.pop(0), dtype)
        last = range(product.shape.rank - bias.shape.rank, product.shape.rank)
        product = nodes.binary("add", product, nodes.broadcast(bias, result.dims, last))
    auxiliary = [nodes.convert(product, output.dtype) for output in results[1:2] if "AUX" in words]
    words = [word for word in words if word not in ("DEFAULT", "BIAS", "AUX")]
    for word in words:
        if word not in ACTIVATIONS:
            raise NotLowered(f"%{call.name} has the unknown epilogue {config.epilogue}")
        product = ACTIVATIONS[word](nodes, product)
    if config.gives_largest:
        size = nodes.convert(nodes.unary("abs", product), results[1].dtype)
        auxiliary.append(nodes.reduced(size, "maximum", -inf))
    if len(scales) > 2 and _is_narrow(result.dtype):
        product = nodes.binary("multiply", product, nodes.convert(scales[-1], dtype))
    return [nodes.convert(product, result.dtype), *auxiliary]


def _is_narrow(dtype: str) -> bool:
    return is_float(dtype) and BITS[dtype] == 8


def _dot(nodes: Nodes, left: Node, right: Node, config: GemmConfig, shape: ArrayShape) -> Node:
    axes = config.dimensions
    if left.shape.dtype != right.shape.dtype:
        left, right = (nodes.convert(side, shape.dtype) for side in (left, right))
    batch = list(zip(axes.lhs_batch, axes.rhs_batch, strict=True))
    contracting = list(zip(axes.lhs_contracting, axes.rhs_contracting, strict=True))
    return nodes.reshape(nodes.dot(left, right, shape.dtype, batch, contracting), shape.dims)


def times(nodes: Nodes, node: Node, factor: complex) -> Node:
    """An array times a number."""
    if factor == 1:
        return node
    number = factor if is_complex(node.shape.dtype) else factor.real
    return nodes.binary("multiply", node, number)  # type: ignore[arg-type]


def _relu(nodes: Nodes, node: Node) -> Node:
    return nodes.binary("maximum", node, 0)


def _gelu(nodes: Nodes, node: Node) -> Node:
    """GELU approximated by tanh, as in cuBLASLt."""
    cube = nodes.binary("multiply", nodes.binary("multiply", node, node), node)
    inner = nodes.binary("add", node, times(nodes, cube, 0.044715))
    tanh = nodes.unary("tanh", times(nodes, inner, sqrt(2 / pi)))
    factor = times(nodes, nodes.binary("add", tanh, 1), 0.5)
    return nodes.binary("multiply", node, factor)


def _elu(nodes: Nodes, node: Node) -> Node:
    zero = nodes.filled(0, node.shape)
    negative = nodes.unary("exponential-minus-one", node)
    return nodes.select(nodes.compare(node, zero, "GT"), node, negative)


ACTIVATIONS: Final[Mapping[str, Callable[[Nodes, Node], Node]]] = {
    "ELU": _elu,
    "RELU": _relu,
    "RELU6": lambda nodes, node: nodes.binary("minimum", _relu(nodes, node), 6),
    "GELU": _gelu,
    "SIGMOID": lambda nodes, node: nodes.unary("logistic", node),
    "SILU": lambda nodes, node: nodes.binary("multiply", node, nodes.unary("logistic", node)),
    "TANH": lambda nodes, node: nodes.unary("tanh", node),
}
"""Activations by their names in cuBLASLt's epilogues, and those that only cuDNN has."""


def onednn_matmul(
    lowering: Lowering, call: Instruction, operands: Sequence[Node], results: Sequence[ArrayShape]
) -> list[Node] | None:
    """A oneDNN product with its fused operations (`xla/service/cpu/onednn_config.proto`)."""
    nodes, result = lowering.nodes, results[0]
    config = call.backend_config().get("onednn_matmul_config")
    left, right, *rest = operands
    rank = left.shape.rank
    if not isinstance(config, Mapping) or not 2 <= rank == right.shape.rank:
        return None
    if left.shape.dims[:-2] != right.shape.dims[:-2] or not is_float(result.dtype):
        return None
    fusions = config.get("fusions")
    fusions = fusions if isinstance(fusions, Mapping) else {}
    words, factors = fusions.get("ops", []), fusions.get("alpha_typecast", [])
    # A single number until 2025: with several LINEAR, that of the last.
    if not isinstance(words, list):
        return None
    bits = list(factors) if isinstance(factors, list) else [factors] * len(words)
    sides = ((left, "transpose_a", rank - 1), (right, "transpose_b", rank - 2))
    axes = [2 * rank - 3 - axis if config.get(name) else axis for _, name, axis in sides]
    batch = [(axis, axis) for axis in range(rank - 2)]
    total = nodes.dot(left, right, "f32", batch, [(axes[0], axes[1])])
    total = nodes.reshape(total, result.dims)
    for word in words:
        name = _ONEDNN.get(str(word), str(word))
        if word == "LINEAR" and bits:
            total = times(nodes, total, _float(bits.pop(0)))
        elif word in ("BIAS", "BINARY_ADD", "SUM") and rest:
            total = nodes.binary("add", total, spread(nodes, rest.pop(0), total.shape))
        elif name in ACTIVATIONS:
            total = ACTIVATIONS[name](nodes, total)
        else:
            return None
    return [nodes.convert(total, result.dtype)]


def _float(bits: object) -> float:
    """The f32 with the given bits."""
    if not isinstance(bits, int):
        raise NotLowered(f"{bits} is not a number of 32 bits")
    return float(unpack("f", pack("I", bits & 0xFFFFFFFF))[0])


_ONEDNN: Final = {"GELU_TANH": "GELU", "SWISH": "SILU"}
"""oneDNN's names for activations of cuBLASLt."""


def spread(nodes: Nodes, addend: Node, shape: ArrayShape) -> Node:
    """An addend repeated along dimensions that it lacks, or where its size is 1."""
    first = shape.rank - addend.shape.rank
    axes = [axis for axis, size in enumerate(addend.shape.dims) if size != 1]
    plain = nodes.reshape(addend, tuple(addend.shape.dims[axis] for axis in axes))
    wide = nodes.convert(plain, shape.dtype)
    return nodes.broadcast(wide, shape.dims, [first + axis for axis in axes])


def triangular_solve(
    lowering: Lowering, call: Instruction, operands: Sequence[Node], results: Sequence[ArrayShape]
) -> list[Node]:
    """The solution of a triangular system."""
    config = decode_payload(call)
    if not isinstance(config, TriangularSolveConfig):
        raise NotLowered(f"%{call.name} has no configuration of a triangular solve")
    attributes = (
        ("left_side", str(config.left_side).lower()),
        ("lower", str(config.lower).lower()),
        ("transpose_a", config.transpose_a),
        ("unit_diagonal", str(config.unit_diagonal).lower()),
    )
    return [lowering.nodes.make("triangular-solve", results[0], operands[:2], attributes)]
