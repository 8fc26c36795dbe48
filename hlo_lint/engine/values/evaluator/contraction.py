"""Dot and convolution. Floats are summed as doubles and rounded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from hlo_lint.engine.values.evaluator.arrays import Array, Unsupported, accumulator
from hlo_lint.engine.values.evaluator.movement import padded
from hlo_lint.engine.values.evaluator.site import Kernel, Site
from hlo_lint.hlo.attributes.plain import Padding
from hlo_lint.hlo.attributes.windows import ConvolutionDimensionNumbers, Window, WindowDimension


def _dot(site: Site) -> Kernel:
    if len(site.operand_shapes) != 2:
        raise Unsupported("a dot with sparsity metadata")
    name, numbers = site.array.dtype, site.numbers
    kind = accumulator(name)
    lhs_batch = site.integers("lhs_batch_dims")
    rhs_batch = site.integers("rhs_batch_dims")
    lhs_contracted = site.integers("lhs_contracting_dims")
    rhs_contracted = site.integers("rhs_contracting_dims")
    dims = site.array.dims

    def dot(x: Array, y: Array) -> Array:
        left = _grouped(x.astype(kind), lhs_batch, lhs_contracted, contracted_last=True)
        right = _grouped(y.astype(kind), rhs_batch, rhs_contracted, contracted_last=False)
        site.spend(left.size * right.shape[2])
        return numbers.cast(np.matmul(left, right).reshape(dims), name)

    return dot


def _grouped(
    x: Array, batch: tuple[int, ...], contracted: tuple[int, ...], contracted_last: bool
) -> Array:
    """As batch, free, contracted dimensions, or batch, contracted, free: three of them."""
    free = [n for n in range(x.ndim) if n not in batch and n not in contracted]
    ends = [free, contracted] if contracted_last else [contracted, free]
    groups = [batch, *ends]
    order = [number for group in groups for number in group]
    return x.transpose(order).reshape([prod(x.shape[n] for n in group) for group in groups])


def _convolution(site: Site) -> Kernel:
    if len(site.operand_shapes) != 2:
        raise Unsupported("a convolution with sparsity or scales")
    labels = site.instruction.attribute("dim_labels")
    if not isinstance(labels, ConvolutionDimensionNumbers):
        raise Unsupported("a convolution without dim_labels")
    spatial = len(labels.input_spatial)
    window: Window = site.attribute("window", ()) or (WindowDimension(1),) * spatial
    features = site.attribute("feature_group_count", 1)
    batches = site.attribute("batch_group_count", 1)
    name, numbers = site.array.dtype, site.numbers
    kind = accumulator(name)

    def convolve(lhs: Array, rhs: Array) -> Array:
        x = lhs.astype(kind).transpose(
            labels.input_batch, labels.input_feature, *labels.input_spatial
        )
        k = rhs.astype(kind).transpose(
            labels.kernel_output_feature, labels.kernel_input_feature, *labels.kernel_spatial
        )
        for axis, dimension in enumerate(window, 2):
            if dimension.is_reversed:
                k = np.flip(k, axis)
        still = (Padding(0, 0), Padding(0, 0))
        edges = (Padding(d.padding_low, d.padding_high, d.base_dilation - 1) for d in window)
        x = padded(x, np.zeros((), kind), (*still, *edges))
        sizes = [positions(n, d) for n, d in zip(x.shape[2:], window, strict=True)]
        groups = features * batches
        # Groups of features divide the input's features, groups of batches its batch; both divide
        # the output's features.
        if features > 1:
            x = x.reshape(x.shape[0], features, -1, *x.shape[2:])
        else:
            x = x.reshape(batches, -1, *x.shape[1:]).swapaxes(0, 1)
        k = k.reshape(groups, -1, *k.shape[1:])
        if x.shape[1] != groups or x.shape[2] != k.shape[2]:
            raise Unsupported("a convolution whose features do not fit its groups")
        total = np.zeros((x.shape[0], groups, k.shape[1], *sizes), kind)
        for place in np.ndindex(*k.shape[3:]):
            taken = window_at(place, sizes, window)
            patch = x[(slice(None), slice(None), slice(None), *taken)]
            factor = k[(slice(None), slice(None), slice(None), *place)]
            site.spend(patch.size * factor.shape[1])
            total += np.einsum("bgi...,goi->bgo...", patch, factor)
        result = total.reshape(total.shape[0], -1, *sizes)
        placed = [0] * result.ndim
        for axis, number in enumerate(
            (labels.output_batch, labels.output_feature, *labels.output_spatial)
        ):
            placed[number] = axis
        return numbers.cast(result.transpose(placed), name)

    return convolve


def window_at(place: tuple[int, ...], sizes: Sequence[int], window: Window) -> tuple[slice, ...]:
    """The elements that all windows have at one of their places."""
    return tuple(
        slice(n * d.window_dilation, n * d.window_dilation + (size - 1) * d.stride + 1, d.stride)
        if size
        else slice(0, 0)
        for n, size, d in zip(place, sizes, window, strict=True)
    )


def positions(size: int, window: WindowDimension) -> int:
    """Number of positions of a window along a padded dimension."""
    reach = (window.size - 1) * window.window_dilation + 1
    return max(0, (size - reach) // window.stride + 1) if size >= reach else 0


BUILDERS: dict[str, Callable[[Site], Kernel]] = {"dot": _dot, "convolution": _convolution}
