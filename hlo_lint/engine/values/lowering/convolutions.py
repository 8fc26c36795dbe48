"""Convolutions, to which calls of cuDNN are lowered, too.

The window and the labels of a backward call are those of the forward one
(`xla/service/gpu/transforms/conv_rewriter.cc`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

from hlo_lint.engine.values.lowering.gemms import ACTIVATIONS, times
from hlo_lint.engine.values.lowering.graph import Node, Nodes, NotLowered
from hlo_lint.hlo.attributes.plain import Padding
from hlo_lint.hlo.attributes.windows import (
    ConvolutionDimensionNumbers,
    WindowDimension,
    read_dim_labels,
    read_window,
    spelled_dim_labels,
    spelled_window,
)
from hlo_lint.hlo.dtypes import is_float
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import ArrayShape, spelled_index

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.lower import Lowering

MAX_DOTS: Final = 64
"""The most dots that a convolution is expanded to."""
MAX_MEETINGS: Final = 1 << 20
"""The most pairs of a result element and a kernel element along a dimension of a possible dot."""


class _Convolution(NamedTuple):
    """A convolution of HLO."""

    left: Node
    right: Node
    shape: ArrayShape
    """The shape of the result."""
    labels: ConvolutionDimensionNumbers
    window: Sequence[WindowDimension]
    feature_groups: int = 1
    batch_groups: int = 1


def convolution(
    lowering: Lowering,
    call: Instruction,
    target: str,
    operands: Sequence[Node],
    results: Sequence[ArrayShape],
) -> list[Node] | None:
    """The results of a cuDNN convolution without its scratch memory; None if it has to be cut."""
    nodes, result = lowering.nodes, results[0]
    left, right, *rest = operands
    bare = ArrayShape(left.shape.dtype if is_float(result.dtype) else result.dtype, result.dims)
    forward = _read(call, left, right, bare)._replace(batch_groups=1)
    # conv-padding-legalization spells out the holes of a forward call, which has HLO's window.
    is_plain = not any(dim.is_reversed or dim.base_dilation != 1 for dim in forward.window)
    match target.removeprefix("__cudnn$conv"):
        case "Forward" | "BiasActivationForward":
            node = _made(nodes, forward)
        case "BackwardInput" if is_plain and forward.feature_groups == 1:
            node = _made(nodes, _input_gradient(forward))
        case "BackwardFilter" if is_plain:
            node = _made(nodes, _filter_gradient(forward))
        case _:
            return None
    config = call.backend_config()
    inner = config.get("cudnn_conv_backend_config", config)
    settings = inner if isinstance(inner, Mapping) else {}
    dtype = result.dtype if target.endswith("BiasActivationForward") else node.shape.dtype
    node = nodes.convert(node, dtype)
    node = times(nodes, node, _number(settings, "conv_result_scale", 1.0))
    if rest:
        feature = (forward.labels.output_feature,)
        bias = nodes.broadcast(nodes.convert(rest[0], dtype), result.dims, feature)
        node = nodes.binary("add", node, bias)
    if len(rest) > 1:
        scale = _number(settings, "side_input_scale", 0.0)
        side = times(nodes, nodes.convert(rest[1], dtype), scale)
        node = nodes.binary("add", node, side)
    # kNone, kRelu6 … (`CudnnConvBackendConfig.activation_mode`)
    mode = str(settings.get("activation_mode", "kNone")).removeprefix("k").upper()
    if mode == "LEAKYRELU":
        zero, slope = nodes.filled(0, node.shape), _number(settings, "leakyrelu_alpha", 0.0)
        below = times(nodes, nodes.binary("minimum", node, zero), slope)
        node = nodes.binary("add", nodes.binary("maximum", node, zero), below)
    elif mode in ACTIVATIONS:
        node = ACTIVATIONS[mode](nodes, node)
    elif mode != "NONE":
        return None
    return [nodes.convert(node, result.dtype)]


def plain(nodes: Nodes, call: Instruction, operands: Sequence[Node], shape: ArrayShape) -> Node:
    """A convolution of HLO."""
    left, right = operands
    return _made(nodes, _read(call, left, right, shape))


def _read(call: Instruction, left: Node, right: Node, shape: ArrayShape) -> _Convolution:
    labels, window = call.attribute("dim_labels"), call.attribute("window")
    if not isinstance(labels, ConvolutionDimensionNumbers):
        raise NotLowered(f"%{call.name} has no labels of dimensions")
    parts = window if isinstance(window, tuple) else ()
    dimensions = [dim for dim in parts if isinstance(dim, WindowDimension)]
    dimensions = dimensions or [WindowDimension(1)] * len(labels.input_spatial)
    features, batches = (call.attribute(f"{name}_group_count") for name in ("feature", "batch"))
    groups = [count if isinstance(count, int) else 1 for count in (features, batches)]
    return _Convolution(left, right, shape, labels, dimensions, *groups)


def _number(settings: Mapping[str, object], name: str, default: float) -> float:
    value = settings.get(name, default)
    return float(value) if isinstance(value, int | float) else default


def _made(nodes: Nodes, given: _Convolution) -> Node:
    """A convolution, or a dot where it is equivalent. XLA:TPU spells dots as convolutions."""
    dot = _as_dot(nodes, given) if given.feature_groups == given.batch_groups == 1 else None
    if dot is not None:
        return dot
    attributes = {
        "batch_group_count": given.batch_groups,
        "dim_labels": spelled_dim_labels(given.labels),
        "feature_group_count": given.feature_groups,
        "window": spelled_window(given.window),
    }
    kept = tuple((name, str(value)) for name, value in attributes.items() if value not in (1, ""))
    return nodes.make("convolution", given.shape, (given.left, given.right), kept)


class _Role(Enum):
    """The role of a spatial dimension of a convolution in an equivalent dot."""

    BATCH = "batch"
    CONTRACTING = "contracting"
    LEFT = "of the image alone"
    RIGHT = "of the kernel alone"


def _role(image: int, kernel: int, result: int, window: WindowDimension) -> _Role | None:
    """The role of a dimension with these sizes in an equivalent dot; None without such a dot.

    The triples of result, image and kernel elements that meet decide: equal indices in all three
    make a batch dimension, a single result element makes a contraction, and a single kernel (or
    image) element a dimension of the image (or kernel) alone.
    """
    import numpy as np

    if result * kernel > MAX_MEETINGS:
        return None
    places, elements = np.indices((result, kernel))
    position = places * window.stride + elements * window.window_dilation - window.padding_low
    pixels, rest = np.divmod(position, window.base_dilation)
    meets = (rest == 0) & (pixels >= 0) & (pixels < image)
    if window.is_reversed:
        elements = kernel - 1 - elements
    meetings = set(
        zip(*(numbers[meets].tolist() for numbers in (places, pixels, elements)), strict=True)
    )
    size = max(image, kernel, result)
    for role, is_long in (
        (_Role.LEFT, (1, 1, 0)),
        (_Role.RIGHT, (1, 0, 1)),
        (_Role.CONTRACTING, (0, 1, 1)),
        (_Role.BATCH, (1, 1, 1)),
    ):
        sizes = tuple(size if flag else 1 for flag in is_long)
        if (result, image, kernel) == sizes and meetings == {
            tuple(number * flag for flag in is_long) for number in range(size)
        }:
            return role
    return None


def _as_dot(nodes: Nodes, given: _Convolution) -> Node | None:
    left, right, shape, labels, window, *_ = given
    batch: list[tuple[int, int]] = []
    contracting = [(labels.input_feature, labels.kernel_input_feature)]
    image = {labels.input_batch: labels.output_batch}
    kernel = {labels.kernel_output_feature: labels.output_feature}
    axes = zip(labels.input_spatial, labels.kernel_spatial, labels.output_spatial, strict=True)
    for (ours, theirs, result), dimension in zip(axes, window, strict=True):
        sizes = left.shape.dims[ours], right.shape.dims[theirs], shape.dims[result]
        if sizes == (1, 1, 1) and not dimension.padding_low:
            continue
        match _role(*sizes, dimension):
            case _Role.LEFT:
                image[ours] = result
            case _Role.RIGHT:
                kernel[theirs] = result
            case _Role.CONTRACTING:
                contracting.append((ours, theirs))
            case _Role.BATCH:
                batch.append((ours, theirs))
                image[ours] = result
            case None:
                return None
    # Dimensions that are left out have size 1.
    of_left = sorted({*image, *(axis for axis, _ in contracting)})
    of_right = sorted({*kernel, *(axis for _, axis in (*batch, *contracting))})

    def kept(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(of_left.index(ours), of_right.index(theirs)) for ours, theirs in pairs]

    dot = nodes.dot(
        nodes.reshape(left, tuple(left.shape.dims[axis] for axis in of_left)),
        nodes.reshape(right, tuple(right.shape.dims[axis] for axis in of_right)),
        shape.dtype,
        batch=kept(batch),
        contracting=sorted(kept(contracting)),
    )
    shared = [axis for axis, _ in batch]
    order = [image[axis] for axis in (*shared, *sorted(image.keys() - set(shared)))]
    order += [kernel[axis] for axis in sorted(kernel)]
    moved = nodes.transpose(dot, sorted(range(len(order)), key=order.__getitem__))
    return nodes.reshape(moved, shape.dims)


def _input_gradient(forward: _Convolution) -> _Convolution:
    """The gradient of the image: the mirrored kernel over the dilated gradient."""
    gradient, kernel, shape, labels, dimensions, *_ = forward
    windows = []
    for number, dim in enumerate(dimensions):
        reach = (dim.size - 1) * dim.window_dilation
        given = (gradient.shape.dims[labels.output_spatial[number]] - 1) * dim.stride + 1
        wanted = shape.dims[labels.input_spatial[number]]
        low = reach - dim.padding_low
        high = wanted + reach - given - low
        windows.append(
            WindowDimension(dim.size, 1, low, high, dim.stride, dim.window_dilation, True)
        )
    turned = ConvolutionDimensionNumbers(
        *labels[6:],
        labels.kernel_output_feature,
        labels.kernel_input_feature,
        labels.kernel_spatial,
        *labels[:3],
    )
    return _Convolution(gradient, kernel, shape, turned, windows)


def _filter_gradient(forward: _Convolution) -> _Convolution:
    """The gradient of the kernel: the gradient over the image, with batches as input features."""
    image, gradient, shape, labels, dimensions, *_ = forward
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
    turned = ConvolutionDimensionNumbers(
        labels.input_feature,
        labels.input_batch,
        labels.input_spatial,
        *labels[6:],
        labels.kernel_input_feature,
        labels.kernel_output_feature,
        labels.kernel_spatial,
    )
    groups = forward.feature_groups  # features become batches here
    return _Convolution(image, gradient, shape, turned, windows, batch_groups=groups)


# ---- convolutions that run


def as_dots(node: Node) -> Node | None:
    """A float convolution as dots, with its operands as parameters; None for too many dots.

    XLA:CPU has no library for f64 convolutions, and its loop takes ten times as long as dots. There
    is a dot for each element of the window, and they are added, or a dot for each position of the
    result.
    """
    attributes = dict(node.attributes)
    is_grouped = not attributes.keys().isdisjoint(("batch_group_count", "feature_group_count"))
    left, right = (operand.shape for operand in node.operands)
    labels, window = (
        read_dim_labels(attributes["dim_labels"]),
        read_window(attributes.get("window", "{}")),
    )
    places = [node.shape.dims[axis] for axis in labels.output_spatial]
    is_empty = 0 in (*left.dims, *right.dims, *node.shape.dims)
    count = min(prod(dimension.size for dimension in window), prod(places))
    if is_grouped or is_empty or count > MAX_DOTS or not is_float(node.shape.dtype):
        return None
    nodes = Nodes()
    paddings = [Padding(0, 0)] * left.rank
    for axis, dimension in zip(labels.input_spatial, window, strict=True):
        low, high = dimension.padding_low, dimension.padding_high
        paddings[axis] = Padding(low, high, dimension.base_dilation - 1)
    image = nodes.pad(nodes.parameter(0, left), nodes.scalar(0, left.dtype), paddings)
    kernel = nodes.parameter(1, right)
    mirrored = [
        axis
        for axis, dimension in zip(labels.kernel_spatial, window, strict=True)
        if dimension.is_reversed
    ]
    if mirrored:
        order = (("dimensions", spelled_index(mirrored)),)
        kernel = nodes.make("reverse", right, (kernel,), order)
    strides = [dimension.stride for dimension in window]
    dilations = [dimension.window_dilation for dimension in window]
    dots = _Dots(nodes, image, kernel, node, labels, window, places, strides, dilations)
    return dots.by_place() if prod(places) == count else dots.by_weight()


class _Dots(NamedTuple):
    """A convolution of a padded image."""

    nodes: Nodes
    image: Node
    kernel: Node
    node: Node
    labels: ConvolutionDimensionNumbers
    window: Sequence[WindowDimension]
    places: Sequence[int]
    """The spatial sizes of the result."""
    strides: Sequence[int]
    """The distances in the image between neighbouring positions of the window."""
    dilations: Sequence[int]
    """The distances in the image between neighbouring elements of the window."""

    def seen(self, begin: Sequence[int], counts: Sequence[int], steps: Sequence[int]) -> Node:
        """The image elements from `begin` on, `counts` per spatial dimension, `steps` apart."""
        dims = self.image.shape.dims
        starts, limits, strides = [0] * len(dims), list(dims), [1] * len(dims)
        spatial = self.labels.input_spatial
        for axis, start, size, step in zip(spatial, begin, counts, steps, strict=True):
            starts[axis], limits[axis] = start, start + (size - 1) * step + 1
            strides[axis] = step
        return self.nodes.slice(self.image, starts, limits, strides)

    def dot(self, left: Node, right: Node, contracting: Sequence[tuple[int, int]]) -> Node:
        """A dot of the type of the result."""
        return self.nodes.dot(left, right, self.node.shape.dtype, (), contracting)

    def by_place(self) -> Node:
        """A dot for each result position, between the whole kernel and the image under it."""
        nodes, labels = self.nodes, self.labels
        sizes = [dimension.size for dimension in self.window]
        contracting = [(labels.input_feature, labels.kernel_input_feature)]
        contracting += zip(labels.input_spatial, labels.kernel_spatial, strict=True)
        results = []
        for place in product(*map(range, self.places)):
            begin = [index * step for index, step in zip(place, self.strides, strict=True)]
            dot = self.dot(self.seen(begin, sizes, self.dilations), self.kernel, contracting)
            results.append(nodes.reshape(dot, (1, *dot.shape.dims)))
        joined = nodes.concatenate(results, 0)
        total = nodes.reshape(joined, (*self.places, *joined.shape.dims[1:]))
        return self.ordered(
            total, [*labels.output_spatial, labels.output_batch, labels.output_feature]
        )

    def by_weight(self) -> Node:
        """The sum of a dot per window element, between its weights and the image under them."""
        nodes, labels, dims = self.nodes, self.labels, self.kernel.shape.dims
        # The kernel without its window dimensions: each dot has one element of the window.
        rest = sorted((labels.kernel_input_feature, labels.kernel_output_feature))
        contracting = [(labels.input_feature, rest.index(labels.kernel_input_feature))]
        sums: list[Node] = []
        for place in product(*(range(dimension.size) for dimension in self.window)):
            fixed = dict(zip(labels.kernel_spatial, place, strict=True))
            starts = [fixed.get(axis, 0) for axis in range(len(dims))]
            limits = [fixed.get(axis, size - 1) + 1 for axis, size in enumerate(dims)]
            weights = nodes.slice(self.kernel, starts, limits)
            weights = nodes.reshape(weights, tuple(dims[axis] for axis in rest))
            begin = [index * step for index, step in zip(place, self.dilations, strict=True)]
            dot = self.dot(self.seen(begin, self.places, self.strides), weights, contracting)
            sums = [nodes.binary("add", sums[0], dot) if sums else dot]
        (total,) = sums
        places_of = {labels.input_batch: labels.output_batch}
        places_of |= zip(labels.input_spatial, labels.output_spatial, strict=True)
        order = [places_of[axis] for axis in sorted(places_of)]
        return self.ordered(total, [*order, labels.output_feature])

    def ordered(self, total: Node, order: Sequence[int]) -> Node:
        """The result with its dimensions moved to the order of the convolution's shape."""
        return self.nodes.transpose(total, sorted(range(len(order)), key=order.__getitem__))
