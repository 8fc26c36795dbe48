"""Opcodes that fold elements, of dimensions or of a moving window, or put them in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hlo_lint.analysis.shape_inference.operation import (
    Impossible,
    ImpossibleMix,
    Inference,
    Operation,
    Signature,
    Table,
    Unknowable,
    known,
)
from hlo_lint.analysis.shape_inference.types import (
    array_of,
    array_without_layout,
    brief,
    compatible,
    demand_compatible,
    demand_in_range,
    demand_known,
    demand_pred,
    flags,
    other_dims,
    promote_types,
    same_dims,
    same_size,
    wrong_result,
)
from hlo_lint.hlo.shape import UNBOUNDED, ArrayShape, Shape, TupleShape
from hlo_lint.text.phrases import counted

if TYPE_CHECKING:
    from hlo_lint.hlo.attributes.windows import ConvolutionDimensionNumbers, WindowDimension


def demand_parameters(what: str, called: Signature, wanted: Sequence[ArrayShape]) -> None:
    """Demand a computation of scalars, each of the type of an array."""
    if len(called.parameters) != len(wanted):
        parameters = counted(len(wanted), "parameter")
        raise Impossible(f"{what} takes {parameters}, got {len(called.parameters)}")
    for number, (text, array) in enumerate(zip(called.parameters, wanted, strict=True)):
        taken, scalar = known(text), array_without_layout(array.dtype, ())
        if not compatible(taken, scalar, any_precision=True):
            message = f"parameter {number} of {what} is {brief(taken)}, expected {scalar}"
            raise Impossible(message)


def demand_reducer(
    operation: Operation,
    initial: Sequence[ArrayShape],
    inputs: Sequence[ArrayShape],
    number: int = 0,
) -> tuple[ArrayShape, ...]:
    """Demand a scalar computation that folds `inputs` into `initial`; return its results."""
    called = operation.callee(number)
    count = len(inputs)
    what = f"the computation that {operation.opcode} calls"
    if len(called.parameters) != 2 * count:
        raise Impossible(f"{what} takes {2 * count} parameters, got {len(called.parameters)}")
    root = known(called.root)
    given = root.elements if isinstance(root, TupleShape) else (root,)
    if len(given) != count or (count > 1 and not isinstance(root, TupleShape)):
        raise Impossible(f"{what} returns {counted(count, 'scalar')}, got {brief(root)}")
    scalars = tuple(operation.as_array(text, "a result of the computation") for text in given)
    parameters = tuple(map(known, called.parameters))
    for index, scalar in enumerate(scalars):
        accumulated, taken = parameters[index], parameters[count + index]
        if scalar.rank:
            raise Impossible(f"{what} returns {scalar.with_layout(None)}, expected a scalar")
        if not compatible(accumulated, scalar):
            raise Impossible(
                f"{what} returns {scalar} and takes {accumulated} as parameter {index}"
            )
        element = array_without_layout(inputs[index].dtype, ())
        for of, shape, against in (
            ("starts with", initial[index], scalar),
            ("folds", element, taken),
        ):
            if not compatible(against, shape.with_layout(None), any_precision=True):
                raise Impossible(f"{operation.opcode} {of} {shape}, its computation has {against}")
        if not compatible(scalar, taken, any_precision=True):
            raise Impossible(
                f"{what} returns {scalar} and takes {taken} as parameter {count + index}"
            )
    return scalars


def as_folded(operation: Operation, results: tuple[ArrayShape, ...]) -> Shape:
    """The results; a tuple if the computation returns a tuple, even of a single element."""
    is_tuple = isinstance(known(operation.callee().root), TupleShape)
    return TupleShape(results) if is_tuple else results[0]


def demand_operand_types(operation: Operation, _printed: Shape) -> None:
    """Demand that each parameter of a computation has its operand's element type.

    `SameElementTypesForOperandsAndToApplyParameters`, which XLA skips where types may mix.
    """
    parameters = operation.callee().parameters
    for number, (text, array) in enumerate(zip(parameters, operation.arrays(), strict=False)):
        taken = known(text)
        if isinstance(taken, ArrayShape) and taken.dtype != array.dtype:
            raise ImpossibleMix(
                f"operand {number} of {operation.opcode} is {array.dtype}, parameter {number} "
                f"of its computation {taken.dtype}"
            )


def _demand_same_sizes(operation: Operation, arrays: Sequence[ArrayShape]) -> None:
    for number, array in enumerate(arrays):
        if not same_dims(array, arrays[0]):
            raise Impossible(f"operands 0 and {number} of {operation.opcode} differ in their sizes")


def _inputs(operation: Operation) -> tuple[tuple[ArrayShape, ...], tuple[ArrayShape, ...]]:
    if not operation.operands or len(operation.operands) % 2:
        raise Impossible(f"{operation.opcode} needs an initial value for each operand")
    count = len(operation.operands) // 2
    arrays, initial = operation.arrays(0, count), operation.arrays(count)
    _demand_same_sizes(operation, arrays)
    return arrays, initial


def _reduce(operation: Operation) -> Shape:
    arrays, initial = _inputs(operation)
    first = arrays[0]
    folded = demand_reducer(operation, initial, arrays)
    dims = operation.integers("dimensions")
    demand_in_range(dims, first, "dimensions={} of reduce is not a dimension of {}")
    if len(set(dims)) != len(dims):
        raise Impossible("dimensions of reduce names a dimension twice")
    kept = [(first, dim) for dim in other_dims(first.rank, dims)]
    results = tuple(array_of(array.dtype, kept) for array in folded)
    return as_folded(operation, results)


def _sort(operation: Operation) -> Shape:
    arrays = operation.arrays()
    if not arrays:
        raise Impossible("sort needs an operand")
    _demand_same_sizes(operation, arrays)
    if len(operation.integers("dimensions")) != 1:
        raise Impossible("sort goes along one dimension")
    results = tuple(array.with_layout(None) for array in arrays)
    return results[0] if len(results) == 1 else TupleShape(results)


def _compared(operation: Operation, printed: Shape) -> None:
    """Demands a comparator of two elements of each operand."""
    arrays = operation.arrays()
    operation.dimension(arrays[0].rank)
    what, called = "the computation that sort calls", operation.callee()
    demand_parameters(what, called, [array for array in arrays for _ in range(2)])
    demand_pred(what, called.root)


def _topk(operation: Operation) -> Shape:
    operand = operation.array(0)
    count = operation.integer("k")
    last = operand.dims[-1] if operand.rank else 0
    if count < 0 or (last != UNBOUNDED and count > last):
        raise Impossible(f"topk of {count} out of {last}")
    dims = (*operand.dims[:-1], count)
    values = array_without_layout(operand.dtype, dims, (*flags(operand)[:-1], False))
    return TupleShape((values, values._replace(dtype="s32")))


def _scan(operation: Operation, printed: Shape) -> None:
    """Demand the type of a scan: stacked outputs, then carries; a single result may be an array.

    Carries come last among operands and results; the others have the scan's dimension.
    `to_apply` takes a slice of each input and the carries, and gives a slice of each output and the
    carries.
    """
    carried, results = _scan_results(operation)
    inputs = operation.arrays(0, len(operation.operands) - carried)
    dimension = operation.integers("dimensions")
    if len(dimension) != 1:
        raise Impossible(f"scan goes along one dimension, got {len(dimension)}")
    if not inputs:
        raise Unknowable  # XLA then takes the printed length
    for number, array in enumerate(inputs):
        if not 0 <= dimension[0] < array.rank:
            raise Impossible(f"operand {number} of scan has no dimension {dimension[0]}: {array}")
        if array.dims[dimension[0]] != inputs[0].dims[dimension[0]]:
            raise Impossible(f"the operands of scan differ in dimension {dimension[0]}")
    length = inputs[0].dims[dimension[0]]
    outputs = len(results) - carried
    stacked = [
        _stacked(operation.as_array(result, "a result"), dimension[0], length)
        for result in results[:outputs]
    ]
    expected = TupleShape((*stacked, *results[outputs:]))
    if isinstance(printed, ArrayShape):
        printed = TupleShape((printed,))
    demand_compatible(expected, printed, wrong_result(operation.opcode))
    _demand_step(operation, carried, results)


def _scan_results(operation: Operation) -> tuple[int, tuple[Shape, ...]]:
    """The number of carried operands, which come last, and the results of a step."""
    called, carried = operation.callee(), operation.integer("num_carries")
    root = known(called.root)
    results = root.elements if isinstance(root, TupleShape) else (root,)
    most = min(len(operation.operands), len(results))
    if len(called.parameters) != len(operation.operands) or not 0 <= carried <= most:
        raise Impossible(
            f"scan reads {len(operation.operands)} operands, {carried} of them carried; its "
            f"computation has {len(called.parameters)} parameters and {len(results)} results"
        )
    return carried, results


def _stacked(shape: ArrayShape, dimension: int, length: int) -> ArrayShape:
    if dimension > shape.rank:
        raise Impossible(f"scan cannot stack {shape} along dimension {dimension}")
    return array_without_layout(
        shape.dtype, (*shape.dims[:dimension], length, *shape.dims[dimension:])
    )


def _demand_step(operation: Operation, carried: int, results: tuple[Shape, ...]) -> None:
    """Demand that a step takes slices of the inputs, and returns the carries that it takes."""
    dimension = operation.integers("dimensions")[0]
    taken = tuple(map(known, operation.callee().parameters))
    first = len(operation.operands) - carried
    for number, array in enumerate(operation.arrays(0, first)):
        sliced = array_without_layout(
            array.dtype, array.dims[:dimension] + array.dims[dimension + 1 :]
        )
        if not compatible(taken[number], sliced):
            raise Impossible(f"scan takes slices of operand {number}, {array}, as {taken[number]}")
    for number in range(first, len(operation.operands)):
        carry, given = operation.shape(number), results[number - len(operation.operands)]
        if not (compatible(carry, taken[number]) and compatible(carry, given)):
            names = (brief(carry), brief(taken[number]), brief(given))
            raise Impossible("scan carries {} as {}, and returns it as {}".format(*names))


def _window(operation: Operation, rank: int) -> tuple[WindowDimension, ...]:
    from hlo_lint.hlo.attributes.windows import WindowDimension  # with the first window

    is_there = operation.attribute("window") is not None
    window = operation.parts("window", WindowDimension) if is_there else ()
    if len(window) != rank:
        raise Impossible(f"{operation.opcode} takes a window of rank {rank}, got {len(window)}")
    return window


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


def _moved_over(operation: Operation, array: ArrayShape) -> tuple[int, ...]:
    return tuple(map(_places, array.dims, _window(operation, array.rank)))


def _reduce_window(operation: Operation) -> Shape:
    arrays, initial = _inputs(operation)
    demand_reducer(operation, initial, arrays)
    dims = _moved_over(operation, arrays[0])
    results = tuple(array_without_layout(array.dtype, dims, flags(arrays[0])) for array in initial)
    return as_folded(operation, results)


def _select_and_scatter(operation: Operation) -> Shape:
    operand, source, initial = operation.arrays()
    select_last = 0 <= operation.tail.find("scatter=") < operation.tail.find("select=")
    select = operation.callee(int(select_last))
    demand_parameters("select", select, [operand, operand])
    demand_pred("select", select.root)
    demand_reducer(operation, [initial], [source], 1 - select_last)
    places = array_without_layout(operand.dtype, _moved_over(operation, operand))
    if not compatible(source, places, any_precision=True):
        raise Impossible(f"the window of select-and-scatter takes {places}, operand 1 is {source}")
    return operand.with_layout(None)


def _convolution(operation: Operation) -> Shape:
    from hlo_lint.hlo.attributes.windows import ConvolutionDimensionNumbers

    if len(operation.operands) > 2:
        raise Unknowable  # sparse or scaled block by block, in few releases
    left, right = operation.array(0), operation.array(1)
    numbers = operation.attribute("dim_labels")
    if not isinstance(numbers, ConvolutionDimensionNumbers):
        raise Unknowable
    demand_known(left.dtype, right.dtype)
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
    "reduce": Inference(_reduce, demand_operand_types, attributes=True, calls=True),
    "sort": Inference(_sort, _compared, attributes=True, calls=True),
    "topk": Inference(_topk, arity=1, attributes=True),
    "scan": Inference(None, _scan, attributes=True, calls=True),
    "convolution": Inference(_convolution, attributes=True, free_type=True),
    "reduce-window": Inference(_reduce_window, demand_operand_types, attributes=True, calls=True),
    "select-and-scatter": Inference(_select_and_scatter, arity=3, attributes=True, calls=True),
}
