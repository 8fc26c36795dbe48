"""Opcodes that move a window: `convolution`, `reduce-window`, `select-and-scatter`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hlo_lint.analysis.shape_inference.operation import (
    PRED,
    Impossible,
    Inference,
    Operation,
    Table,
    Unknowable,
    known,
)
from hlo_lint.analysis.shape_inference.reduction import (
    as_folded,
    demand_operand_types,
    demand_reducer,
)
from hlo_lint.analysis.shape_inference.types import (
    array_without_layout,
    compatible,
    demand_known,
    flags,
    promote_types,
    same_dims,
    same_size,
)
from hlo_lint.hlo.shape import UNBOUNDED, ArrayShape, Shape
from hlo_lint.text.phrases import counted

if TYPE_CHECKING:
    from hlo_lint.hlo.attributes.windows import ConvolutionDimensionNumbers, WindowDimension


def _window(operation: Operation, rank: int) -> tuple[WindowDimension, ...]:
    from hlo_lint.hlo.attributes.windows import WindowDimension  # with the first window

    window = operation.attribute("window")
    if window is None:
        window = ()
    if not isinstance(window, tuple):
        raise Unknowable
    if len(window) != rank:
        raise Impossible(f"{operation.opcode} takes a window of rank {rank}, got {len(window)}")
    dimensions = []
    for dimension in window:
        if not isinstance(dimension, WindowDimension):
            raise Unknowable
        dimensions.append(dimension)
    return tuple(dimensions)


def _spread(size: int, distance: int) -> int:
    """The extent of `size` elements, each `distance` after the previous."""
    return (size - 1) * distance + 1 if size else 0


def _places(size: int, window: WindowDimension) -> int:
    """The number of positions of the window along a dimension."""
    if size == UNBOUNDED:
        return UNBOUNDED
    if window.size <= 0 or window.stride <= 0:
        raise Impossible(f"a window of size {window.size} and stride {window.stride}")
    if window.base_dilation < 1 or window.window_dilation < 1:
        raise Impossible("the dilations of a window have to be at least 1")
    whole = window.padding_low + _spread(size, window.base_dilation) + window.padding_high
    taken = _spread(window.size, window.window_dilation)
    return 0 if whole < taken or whole <= 0 else (whole - taken) // window.stride + 1


def _moved_over(array: ArrayShape, window: Sequence[WindowDimension]) -> tuple[int, ...]:
    return tuple(
        _places(size, dimension) for size, dimension in zip(array.dims, window, strict=True)
    )


def _reduce_window(operation: Operation) -> Shape:
    if not operation.operands or len(operation.operands) % 2:
        raise Impossible("reduce-window needs an initial value for each operand")
    count = len(operation.operands) // 2
    arrays, initial = operation.arrays(0, count), operation.arrays(count)
    for number, array in enumerate(arrays):
        if not same_dims(array, arrays[0]):
            raise Impossible(f"operands 0 and {number} of reduce-window differ in their sizes")
    demand_reducer(operation, initial, arrays)
    dims = _moved_over(arrays[0], _window(operation, arrays[0].rank))
    results = tuple(array_without_layout(array.dtype, dims, flags(arrays[0])) for array in initial)
    return as_folded(operation, results)


def _select_and_scatter(operation: Operation) -> Shape:
    operand, source, initial = operation.arrays()
    select_last = 0 <= operation.tail.find("scatter=") < operation.tail.find("select=")
    select = operation.callee(int(select_last))
    if len(select.parameters) != 2:
        raise Impossible(f"select takes 2 parameters, got {len(select.parameters)}")
    if not compatible(known(select.root), PRED):
        raise Impossible(f"select returns {select.root}, expected pred[]")
    wanted = array_without_layout(operand.dtype, ())
    for number, text in enumerate(select.parameters):
        if not compatible(known(text), wanted, any_precision=True):
            raise Impossible(f"parameter {number} of select is {text}, expected {wanted}")
    demand_reducer(operation, [initial], [source], 1 - select_last)
    places = array_without_layout(
        operand.dtype, _moved_over(operand, _window(operation, operand.rank))
    )
    if not compatible(source, places, any_precision=True):
        raise Impossible(f"the window of select-and-scatter takes {places}, operand 1 is {source}")
    return array_without_layout(operand.dtype, operand.dims, operand.dynamic)


def _convolution(operation: Operation) -> Shape:
    from hlo_lint.hlo.attributes.windows import ConvolutionDimensionNumbers

    if len(operation.operands) > 2:
        raise Unknowable  # sparse or scaled block by block, in few releases
    left, right = operation.array(0), operation.array(1)
    numbers = operation.attribute("dim_labels")
    if not isinstance(numbers, ConvolutionDimensionNumbers):
        raise Unknowable
    demand_known(left.dtype)
    demand_known(right.dtype)
    rank = len(numbers.input_spatial) + 2
    for number, array in ((0, left), (1, right)):
        if array.rank != rank:
            dimensions = counted(array.rank, "dimension")
            raise Impossible(f"operand {number} of convolution has {dimensions}")
    window = _window(operation, rank - 2)
    batch, features = _grouped(operation, left, right, numbers)

    dims, dynamic = [0] * rank, [False] * rank
    dims[numbers.output_batch] = batch
    dynamic[numbers.output_batch] = left.is_dynamic(numbers.input_batch)
    dims[numbers.output_feature] = features
    if right.is_dynamic(numbers.kernel_output_feature):
        raise Impossible("the output features of convolution may not be dynamic")
    for index, along in enumerate(window):
        size = right.dims[numbers.kernel_spatial[index]]
        if not same_size(along.size, size):
            raise Impossible(f"the window has size {along.size}, the kernel {size} elements")
        dim = numbers.input_spatial[index]
        dims[numbers.output_spatial[index]] = _places(left.dims[dim], along)
        spread = left.is_dynamic(dim) or right.is_dynamic(numbers.kernel_spatial[index])
        dynamic[numbers.output_spatial[index]] = spread
    return array_without_layout(promote_types(left.dtype, right.dtype), dims, dynamic)


def _grouped(
    operation: Operation, left: ArrayShape, right: ArrayShape, numbers: ConvolutionDimensionNumbers
) -> tuple[int, int]:
    """Sizes of the result's batch and feature dimensions."""
    feature_groups = operation.integer("feature_group_count", 1)
    batch_groups = operation.integer("batch_group_count", 1)
    if feature_groups <= 0 or batch_groups <= 0:
        raise Impossible("feature_group_count and batch_group_count have to be at least 1")
    if feature_groups > 1 and batch_groups > 1:
        raise Impossible("feature_group_count and batch_group_count are both more than 1")
    batch, features = left.dims[numbers.input_batch], left.dims[numbers.input_feature]
    taken = right.dims[numbers.kernel_input_feature]
    output_features = right.dims[numbers.kernel_output_feature]
    if UNBOUNDED in (features, taken, output_features, batch):
        raise Unknowable
    if features % feature_groups or features // feature_groups != taken:
        raise Impossible(
            f"convolution of {features} features in {feature_groups} groups, the kernel takes "
            f"{taken}"
        )
    if batch % batch_groups:
        raise Impossible(f"convolution of {batch} batches in {batch_groups} groups")
    for name, groups in (("feature", feature_groups), ("batch", batch_groups)):
        if output_features % groups:
            raise Impossible(
                f"convolution of {output_features} output features in {groups} {name} groups"
            )
    return batch // batch_groups, output_features


OPCODES: Table = {
    "convolution": Inference(_convolution, attributes=True, free_type=True),
    "reduce-window": Inference(_reduce_window, demand_operand_types, attributes=True, calls=True),
    "select-and-scatter": Inference(_select_and_scatter, arity=3, attributes=True, calls=True),
}
