"""Calls of cuDNN convolutions as convolutions of HLO.

The window and the labels of a backward convolution are those of the forward one
(`xla/service/gpu/transforms/conv_rewriter.cc`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from hlo_lint.analysis.loops import backend_config
from hlo_lint.engine.values.lowering.gemms import ACTIVATIONS, times
from hlo_lint.engine.values.lowering.graph import Node, Nodes, NotLowered
from hlo_lint.hlo.attributes.windows import ConvolutionDimensionNumbers, WindowDimension
from hlo_lint.hlo.dtypes import is_float
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import ArrayShape

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.lower import Lowering

_MODES: Final[Mapping[str, str]] = {
    "kNone": "",
    "kRelu": "RELU",
    "kElu": "ELU",
    "kSigmoid": "SIGMOID",
    "kTanh": "TANH",
}
"""Activations of cuDNN (`CudnnConvBackendConfig.activation_mode`)."""


def convolution(
    lowering: Lowering,
    call: Instruction,
    target: str,
    operands: Sequence[Node],
    results: Sequence[ArrayShape],
) -> list[Node] | None:
    """The results of a convolution but for its scratch memory; None for one that is cut."""
    labels, window = call.attribute("dim_labels"), call.attribute("window")
    groups = call.attribute("feature_group_count") or 1
    if not isinstance(labels, ConvolutionDimensionNumbers) or not isinstance(groups, int):
        raise NotLowered(f"%{call.name} has no labels of dimensions")
    dimensions = (
        [dim for dim in window if isinstance(dim, WindowDimension)]
        if isinstance(window, tuple)
        else []
    )
    if any(dim.is_reversed or dim.base_dilation != 1 for dim in dimensions):
        return None
    nodes, result = lowering.nodes, results[0]
    left, right, *rest = operands
    plain = ArrayShape(left.shape.dtype if is_float(result.dtype) else result.dtype, result.dims)
    match target.removeprefix("__cudnn$conv"):
        case "Forward" | "BiasActivationForward":
            node = _forward(nodes, left, right, plain, labels, dimensions, groups)
        case "BackwardInput" if groups == 1:
            node = _input_gradient(nodes, left, right, plain, labels, dimensions)
        case "BackwardFilter" if groups == 1:
            node = _filter_gradient(nodes, left, right, plain, labels, dimensions)
        case _:
            return None
    config = backend_config(call)
    inner = config.get("cudnn_conv_backend_config", config)
    settings = inner if isinstance(inner, Mapping) else {}
    node = nodes.convert(
        node, result.dtype if target.endswith("BiasActivationForward") else node.shape.dtype
    )
    node = times(nodes, node, _number(settings, "conv_result_scale", 1.0))
    if rest:
        bias = nodes.convert(rest[0], node.shape.dtype)
        node = nodes.binary(
            "add", node, nodes.broadcast(bias, result.dims, (labels.output_feature,))
        )
    if len(rest) > 1:
        side = times(
            nodes,
            nodes.convert(rest[1], node.shape.dtype),
            _number(settings, "side_input_scale", 0.0),
        )
        node = nodes.binary("add", node, side)
    mode = _MODES.get(str(settings.get("activation_mode", "kNone")))
    if mode is None or (mode and mode not in ACTIVATIONS):
        return None
    if mode:
        node = ACTIVATIONS[mode](nodes, node)
    return [nodes.convert(node, result.dtype)]


def _number(settings: Mapping[str, object], name: str, default: float) -> float:
    value = settings.get(name, default)
    return float(value) if isinstance(value, int | float) else default


def _labels(count: int, places: Mapping[str, int], spatial: Sequence[int]) -> str:
    letters = [""] * count
    for letter, place in places.items():
        letters[place] = letter
    for number, place in enumerate(spatial):
        letters[place] = str(number)
    return "".join(letters)


def _window(dimensions: Iterable[WindowDimension]) -> str:
    columns = list(zip(*dimensions, strict=True))
    if not columns:
        return ""
    size, stride, low, high, base, dilation, _ = columns
    parts = {
        "size": size,
        "stride": stride,
        "pad": [f"{a}_{b}" for a, b in zip(low, high, strict=True)],
        "lhs_dilate": base,
        "rhs_dilate": dilation,
    }
    texts = [f"{name}={'x'.join(map(str, part))}" for name, part in parts.items()]
    return "{" + " ".join(texts) + "}"


def _make(
    nodes: Nodes,
    operands: tuple[Node, Node],
    shape: ArrayShape,
    labels: str,
    dimensions: Sequence[WindowDimension],
    groups: int = 1,
) -> Node:
    attributes = [("dim_labels", labels)]
    if groups != 1:
        attributes.append(("feature_group_count", str(groups)))
    if dimensions:
        attributes.append(("window", _window(dimensions)))
    return nodes.make("convolution", shape, operands, tuple(attributes))


def _forward(
    nodes: Nodes,
    image: Node,
    kernel: Node,
    shape: ArrayShape,
    labels: ConvolutionDimensionNumbers,
    dimensions: Sequence[WindowDimension],
    groups: int,
) -> Node:
    rank = image.shape.rank
    spelled = (
        _labels(rank, {"b": labels.input_batch, "f": labels.input_feature}, labels.input_spatial)
        + "_"
        + _labels(
            rank,
            {"i": labels.kernel_input_feature, "o": labels.kernel_output_feature},
            labels.kernel_spatial,
        )
        + "->"
        + _labels(
            rank, {"b": labels.output_batch, "f": labels.output_feature}, labels.output_spatial
        )
    )
    return _make(nodes, (image, kernel), shape, spelled, dimensions, groups)


def _input_gradient(
    nodes: Nodes,
    gradient: Node,
    kernel: Node,
    shape: ArrayShape,
    labels: ConvolutionDimensionNumbers,
    dimensions: Sequence[WindowDimension],
) -> Node:
    """The gradient of the image: the kernel, mirrored, over the gradient with holes in it."""
    rank = gradient.shape.rank
    axes = "{" + ",".join(map(str, labels.kernel_spatial)) + "}"
    if dimensions:
        kernel = nodes.make("reverse", kernel.shape, (kernel,), (("dimensions", axes),))
    windows = []
    for number, dim in enumerate(dimensions):
        reach = (dim.size - 1) * dim.window_dilation
        given = (gradient.shape.dims[labels.output_spatial[number]] - 1) * dim.stride + 1
        wanted = shape.dims[labels.input_spatial[number]]
        low = reach - dim.padding_low
        high = wanted + reach - given - low
        windows.append(WindowDimension(dim.size, 1, low, high, dim.stride, dim.window_dilation))
    spelled = (
        _labels(rank, {"b": labels.output_batch, "f": labels.output_feature}, labels.output_spatial)
        + "_"
        + _labels(
            rank,
            {"o": labels.kernel_input_feature, "i": labels.kernel_output_feature},
            labels.kernel_spatial,
        )
        + "->"
        + _labels(rank, {"b": labels.input_batch, "f": labels.input_feature}, labels.input_spatial)
    )
    return _make(nodes, (gradient, kernel), shape, spelled, windows)


def _filter_gradient(
    nodes: Nodes,
    image: Node,
    gradient: Node,
    shape: ArrayShape,
    labels: ConvolutionDimensionNumbers,
    dimensions: Sequence[WindowDimension],
) -> Node:
    """The gradient of the kernel: the gradient over the image, batches summed as features are."""
    rank = image.shape.rank
    windows = []
    for number, dim in enumerate(dimensions):
        size = gradient.shape.dims[labels.output_spatial[number]]
        reach = (size - 1) * dim.stride
        wanted = (dim.size - 1) * dim.window_dilation + 1
        given = image.shape.dims[labels.input_spatial[number]]
        high = wanted + reach - given - dim.padding_low
        windows.append(
            WindowDimension(size, dim.window_dilation, dim.padding_low, high, 1, dim.stride)
        )
    spelled = (
        _labels(rank, {"f": labels.input_batch, "b": labels.input_feature}, labels.input_spatial)
        + "_"
        + _labels(
            rank, {"i": labels.output_batch, "o": labels.output_feature}, labels.output_spatial
        )
        + "->"
        + _labels(
            rank,
            {"b": labels.kernel_input_feature, "f": labels.kernel_output_feature},
            labels.kernel_spatial,
        )
    )
    return _make(nodes, (image, gradient), shape, spelled, windows)
