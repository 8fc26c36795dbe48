"""Opcodes that move elements without computing: slices, permutations, reshapes, gathers."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_lint.analysis.shape_inference.operation import (
    S32,
    Impossible,
    ImpossibleMix,
    Inference,
    Operation,
    Table,
    Unknowable,
)
from hlo_lint.analysis.shape_inference.reduction import demand_reducer
from hlo_lint.analysis.shape_inference.types import (
    array_of,
    array_without_layout,
    demand_array_sizes,
    demand_in_range,
    demand_known,
    flags,
    other_dims,
    promote_types,
    same_dims,
    same_size,
    same_type,
)
from hlo_lint.hlo.attributes.plain import Padding, Slice
from hlo_lint.hlo.dtypes import BITS, is_integer
from hlo_lint.hlo.shape import UNBOUNDED, ArrayShape, Shape, TupleShape, spelled_index
from hlo_lint.text.phrases import counted


def _untyped_broadcast(operation: Operation) -> Shape:
    """The shape of a broadcast without a type: XLA's parser reads `dimensions` as sizes."""
    if operation.is_typed:
        raise Unknowable
    operand = operation.array(0)
    sizes = operation.integers("dimensions", ())
    demand_array_sizes(sizes, "dimensions of broadcast")
    dynamic = (*[False] * len(sizes), *flags(operand))
    return array_without_layout(operand.dtype, (*sizes, *operand.dims), dynamic)


def _broadcast(operation: Operation, printed: Shape) -> None:
    operand = operation.array(0)
    result = operation.as_array(printed, "the result")
    dims = operation.integers("dimensions", () if not operand.rank else None)
    _demand_same_type(operation, operand, result)
    if len(dims) != operand.rank:
        raise Impossible(f"dimensions of broadcast has {len(dims)} numbers for {operand}")
    for number, (dim, size) in enumerate(zip(dims, operand.dims, strict=True)):
        if not 0 <= dim < result.rank:
            raise Impossible(f"dimensions={dim} is not a dimension of the result {result}")
        if not same_size(result.dims[dim], size):
            raise Impossible(
                f"dimension {number} of the operand has {size} elements, dimension {dim} of "
                f"the result has {result.dims[dim]}"
            )


def _demand_same_type(operation: Operation, operand: ArrayShape, result: ArrayShape) -> None:
    if operand.dtype != result.dtype:
        error = ImpossibleMix if same_type(operand.dtype, result.dtype) else Impossible
        raise error(f"{operation.opcode} of {operand.dtype} cannot give {result.dtype}")


def _reshape(operation: Operation, printed: Shape) -> None:
    operand = operation.array(0)
    result = operation.as_array(printed, "the result")
    _demand_same_type(operation, operand, result)
    before, after = _count(operand), _count(result)
    if before != after:
        raise Impossible(f"{operation.opcode} of {before} elements cannot give {after}")


def _count(shape: ArrayShape) -> int:
    # XLA's integers have 64 bits.
    if UNBOUNDED in shape.dims or shape.elements >= 1 << 63:
        raise Unknowable
    return shape.elements


def _dynamic_reshape(operation: Operation, printed: Shape) -> None:
    _reshape(operation, printed)
    result = operation.as_array(printed, "the result")
    if len(operation.operands) != result.rank + 1:
        raise Impossible(f"dynamic-reshape needs {result.rank} sizes after its operand")
    for number in range(1, len(operation.operands)):
        if operation.array(number).with_layout(None) != S32:
            raise Impossible(f"operand {number} of dynamic-reshape has to be an s32[]")


def _bitcast(operation: Operation, printed: Shape) -> None:
    operand, result = operation.shape(0), printed
    if not isinstance(operand, ArrayShape) or not isinstance(result, ArrayShape):
        return
    demand_known(operand.dtype, result.dtype)
    before, after = BITS[operand.dtype] * _count(operand), BITS[result.dtype] * _count(result)
    if before != after and operand.byte_size != result.byte_size:
        raise Impossible(
            f"bitcast of {operand.byte_size} bytes cannot give {result.byte_size}: "
            f"{operand} and {result}"
        )


def _iota(operation: Operation, printed: Shape) -> None:
    result = operation.as_array(printed, "the result")
    if result.dtype == "pred":
        raise Impossible("iota cannot give pred")
    operation.dimension(result.rank, "iota_dimension")


def _transpose(operation: Operation) -> Shape:
    operand = operation.array(0)
    dims = operation.integers("dimensions")
    if sorted(dims) != list(range(operand.rank)):
        raise Impossible(f"dimensions={spelled_index(dims)} is not a permutation for {operand}")
    return array_of(operand.dtype, [(operand, dim) for dim in dims])


def _reverse(operation: Operation) -> Shape:
    operand = operation.array(0)
    dims = operation.integers("dimensions")
    if len(set(dims)) != len(dims):
        raise Impossible("dimensions of reverse names a dimension twice")
    demand_in_range(dims, operand, "dimensions={} of reverse is not a dimension of {}")
    return operand.with_layout(None)


def _slice(operation: Operation) -> Shape:
    operand = operation.array(0)
    slices = operation.parts("slice", Slice)
    if len(slices) != operand.rank:
        raise Impossible(f"slice names {len(slices)} ranges for {operand}")
    sizes = []
    for dim, ((start, limit, stride), size) in enumerate(zip(slices, operand.dims, strict=True)):
        if not 0 <= start <= limit or (size != UNBOUNDED and limit > size):
            raise Impossible(f"slice of [{start}:{limit}] out of {size} in dimension {dim}")
        if stride <= 0:
            raise Impossible(f"slice with a stride of {stride} in dimension {dim}")
        sizes.append(-(-(limit - start) // stride))
    return array_without_layout(operand.dtype, sizes, operand.dynamic)


def _pad(operation: Operation) -> Shape:
    operand, value = operation.array(0), operation.array(1)
    paddings = operation.parts("padding", Padding)
    if value.rank:
        raise Impossible(f"pad fills with a scalar, got {value}")
    if len(paddings) != operand.rank:
        raise Impossible(f"padding names {counted(len(paddings), 'dimension')} for {operand}")
    if not same_type(operand.dtype, value.dtype):
        raise Impossible(f"pad fills {operand.dtype} with {value.dtype}")
    sizes = []
    for (low, high, interior), size in zip(paddings, operand.dims, strict=True):
        if interior < 0:
            raise Impossible(f"pad with an interior of {interior}")
        padded = size + low + high + max(size - 1, 0) * interior
        sizes.append(UNBOUNDED if size == UNBOUNDED else padded)
        if size != UNBOUNDED:
            demand_array_sizes([padded], "the result of pad")
    return array_without_layout(promote_types(operand.dtype, value.dtype), sizes, operand.dynamic)


def _concatenate(operation: Operation) -> Shape:
    arrays = operation.arrays()
    if not arrays:
        raise Impossible("concatenate needs an operand")
    first = arrays[0]
    along = operation.dimension(first.rank)
    dtype, sizes, dynamic = first.dtype, list(first.dims), list(flags(first))
    for number, array in enumerate(arrays[1:], 1):
        if array.rank != first.rank:
            raise Impossible(f"operands 0 and {number} of concatenate differ in rank")
        if not same_type(array.dtype, first.dtype):
            raise Impossible(f"concatenate of {first.dtype} and {array.dtype}")
        for dim, size in enumerate(array.dims):
            if dim == along:
                is_bounded = UNBOUNDED not in (size, sizes[dim])
                sizes[dim] = sizes[dim] + size if is_bounded else UNBOUNDED
            elif not same_size(size, sizes[dim]):
                raise Impossible(
                    f"dimension {dim} of the operands 0 and {number} of concatenate differs: "
                    f"{sizes[dim]} and {size}"
                )
            dynamic[dim] |= array.is_dynamic(dim)
        dtype = promote_types(first.dtype, array.dtype)  # XLA, too, forgets those in between
    return array_without_layout(dtype, sizes, dynamic)


def _demand_starts(operation: Operation, first: int, rank: int) -> None:
    """Demand start indices: a scalar for each dimension, or an array as in early releases."""
    starts = operation.arrays(first)
    for number, start in enumerate(starts, first):
        demand_known(start.dtype)
        if not is_integer(start.dtype):
            raise Impossible(f"operand {number} of {operation.opcode} has to be an integer")
    if starts and starts[0].rank == 1:
        if len(starts) != 1 or starts[0].dims[0] != rank:
            raise Impossible(f"{operation.opcode} needs {rank} start indices")
        return
    if len(starts) != rank:
        raise Impossible(f"{operation.opcode} needs {rank} start indices, got {len(starts)}")
    for number, start in enumerate(starts, first):
        if start.rank or start.dtype != starts[0].dtype:
            raise Impossible(f"operand {number} of {operation.opcode} has to be a scalar")


def _dynamic_slice(operation: Operation) -> Shape:
    operand = operation.array(0)
    sizes = operation.integers("dynamic_slice_sizes")
    _demand_starts(operation, 1, operand.rank)
    if len(sizes) != operand.rank:
        raise Impossible(f"dynamic_slice_sizes names {len(sizes)} sizes for {operand}")
    for dim, (size, whole) in enumerate(zip(sizes, operand.dims, strict=True)):
        if size < 0 or (whole != UNBOUNDED and size > whole):
            raise Impossible(f"dynamic-slice of {size} out of {whole} in dimension {dim}")
    return _sliced(operand, sizes)


def _sliced(operand: ArrayShape, sizes: Sequence[int]) -> ArrayShape:
    """A slice of these sizes; a dimension that is taken whole stays dynamic."""
    dynamic = [
        flag and size == whole
        for flag, size, whole in zip(flags(operand), sizes, operand.dims, strict=True)
    ]
    return array_without_layout(operand.dtype, sizes, dynamic)


def _dynamic_update_slice(operation: Operation) -> Shape:
    operand, update = operation.array(0), operation.array(1)
    _demand_starts(operation, 2, operand.rank)
    if update.rank != operand.rank:
        raise Impossible(f"dynamic-update-slice writes {update} into {operand}")
    if not same_type(operand.dtype, update.dtype):
        raise Impossible(f"dynamic-update-slice writes {update.dtype} into {operand.dtype}")
    for dim, (size, whole) in enumerate(zip(update.dims, operand.dims, strict=True)):
        if size > whole != UNBOUNDED:
            raise Impossible(f"dynamic-update-slice of {size} into {whole} in dimension {dim}")
    dynamic = [
        flag or (update.is_dynamic(dim) and update.dims[dim] == operand.dims[dim])
        for dim, flag in enumerate(flags(operand))
    ]
    return array_without_layout(operand.dtype, operand.dims, dynamic).with_layout(operand.layout)


def _get_dimension_size(operation: Operation) -> Shape:
    operation.dimension(operation.array(0).rank)
    return S32


def _set_dimension_size(operation: Operation) -> Shape:
    operand, size = operation.array(0), operation.array(1)
    dimension = operation.dimension(operand.rank)
    if size.with_layout(None) != S32:
        raise Impossible(f"operand 1 of set-dimension-size has to be an s32[], got {size}")
    dynamic = [flag or dim == dimension for dim, flag in enumerate(flags(operand))]
    return array_without_layout(operand.dtype, operand.dims, dynamic)


def _demand_dims(name: str, dims: Sequence[int], rank: int, *, ordered: bool = True) -> None:
    if ordered and list(dims) != sorted(dims):
        raise Impossible(f"{name} has to be in ascending order")
    if len(set(dims)) != len(dims):
        raise Impossible(f"{name} names a dimension twice")
    demand_in_range(dims, rank, name + " names {}, there are {} dimensions")


def _demand_indices(operation: Operation, indices: ArrayShape) -> int:
    demand_known(indices.dtype)
    if not is_integer(indices.dtype):
        raise Impossible(f"the indices of {operation.opcode} are {indices.dtype}, not integers")
    vector = operation.integer("index_vector_dim")
    if not 0 <= vector <= indices.rank:
        raise Impossible(f"index_vector_dim={vector} for indices of {indices.rank} dimensions")
    return vector


def _demand_index_map(
    name: str, operation: Operation, indices: ArrayShape, vector: int, rank: int
) -> None:
    mapped = operation.integers(name, ())
    size = indices.dims[vector] if vector < indices.rank else 1
    if not same_size(len(mapped), size):
        raise Impossible(f"{name} has {len(mapped)} numbers, each index has {size}")
    _demand_dims(name, mapped, rank, ordered=False)


def _demand_batching(
    names: tuple[str, str], operation: Operation, indices: ArrayShape, vector: int
) -> None:
    of_operand, of_indices = (operation.integers(name, ()) for name in names)
    _demand_dims(names[1], of_indices, indices.rank, ordered=False)
    if vector in of_indices:
        raise Impossible(f"{names[1]} names index_vector_dim")
    if len(of_operand) != len(of_indices):
        raise Impossible(f"{names[0]} and {names[1]} differ in length")


def _gather(operation: Operation) -> Shape:
    operand, indices = operation.array(0), operation.array(1)
    vector = _demand_indices(operation, indices)
    offsets = operation.integers("offset_dims", ())
    collapsed = operation.integers("collapsed_slice_dims", ())
    batching = operation.integers("operand_batching_dims", ())
    sizes = operation.integers("slice_sizes")

    from_indices = other_dims(indices.rank, [vector])
    result_rank = len(offsets) + len(from_indices)
    _demand_dims("offset_dims", offsets, result_rank)
    _demand_index_map("start_index_map", operation, indices, vector, operand.rank)
    _demand_dims("collapsed_slice_dims", collapsed, operand.rank)
    _demand_dims("operand_batching_dims", batching, operand.rank)
    names = ("operand_batching_dims", "start_indices_batching_dims")
    _demand_batching(names, operation, indices, vector)
    if len(sizes) != operand.rank:
        raise Impossible(f"slice_sizes has {len(sizes)} numbers for {operand}")
    if len(offsets) + len(collapsed) + len(batching) != operand.rank:
        raise Impossible(
            f"offset_dims, collapsed_slice_dims and operand_batching_dims have to be "
            f"{operand.rank} numbers together"
        )
    gone = {*collapsed, *batching}
    for dim, (size, whole) in enumerate(zip(sizes, operand.dims, strict=True)):
        if size < 0 or (whole >= 0 and size > whole):
            raise Impossible(f"slice_sizes takes {size} out of {whole} in dimension {dim}")
        if dim in gone and size > 1:
            raise Impossible(f"slice_sizes takes {size} in dimension {dim}, which the result drops")

    window = _sliced(operand, sizes)
    of_window = [(window, dim) for dim in other_dims(operand.rank, collapsed, batching)]
    dims = dict(zip(offsets, of_window, strict=False))
    of_indices = [(indices, dim) for dim in from_indices]
    dims |= zip(other_dims(result_rank, offsets), of_indices, strict=True)
    return array_of(operand.dtype, [dims[place] for place in range(result_rank)])


def _scatter(operation: Operation) -> Shape:
    if len(operation.operands) % 2 == 0 or len(operation.operands) < 3:
        raise Impossible("scatter needs operands, indices and as many updates as operands")
    count = len(operation.operands) // 2
    operands, updates = operation.arrays(0, count), operation.arrays(count + 1)
    indices = operation.array(count)
    vector = _demand_indices(operation, indices)
    for number, operand in enumerate(operands):
        if not same_dims(operand, operands[0]) or not same_dims(updates[number], updates[0]):
            raise Impossible(f"operands or updates 0 and {number} of scatter differ in their sizes")
        if not same_type(operand.dtype, updates[number].dtype):
            raise Impossible(
                f"scatter writes {updates[number].dtype} into operand {number}, {operand.dtype}"
            )
    demand_reducer(
        operation, [array_without_layout(target.dtype, ()) for target in operands], updates
    )
    _demand_scatter_dims(operation, operands[0], indices, updates[0], vector)
    results = [target.with_layout(None) for target in operands]
    return results[0] if count == 1 else TupleShape(tuple(results))


def _demand_scatter_dims(
    operation: Operation, operand: ArrayShape, indices: ArrayShape, update: ArrayShape, vector: int
) -> None:
    windows = operation.integers("update_window_dims", ())
    inserted = operation.integers("inserted_window_dims", ())
    batching = operation.integers("input_batching_dims", ())
    scattered = other_dims(indices.rank, [vector])

    if len(scattered) + len(windows) != update.rank:
        raise Impossible(
            f"the updates of scatter need {len(scattered) + len(windows)} dimensions, got "
            f"{update.rank}"
        )
    # XLA:GPU's layout_normalization turns the updates, and scatter_simplifier sorts them again.
    _demand_dims("update_window_dims", windows, update.rank, ordered=update.layout is None)
    _demand_dims("inserted_window_dims", inserted, operand.rank)
    _demand_dims("input_batching_dims", batching, operand.rank)
    if len(windows) + len(inserted) + len(batching) != operand.rank:
        raise Impossible(
            f"update_window_dims, inserted_window_dims and input_batching_dims have to be "
            f"{operand.rank} numbers together"
        )
    _demand_index_map("scatter_dims_to_operand_dims", operation, indices, vector, operand.rank)
    names = ("input_batching_dims", "scatter_indices_batching_dims")
    _demand_batching(names, operation, indices, vector)

    into = other_dims(operand.rank, inserted, batching)
    # XLA counts a dimension twice that is inserted and a batch.
    for ours, theirs in zip(windows, into, strict=False):
        if update.dims[ours] > operand.dims[theirs] >= 0:
            raise Impossible(
                f"dimension {ours} of the updates has {update.dims[ours]} elements, dimension "
                f"{theirs} of the operand {operand.dims[theirs]}"
            )
    free = other_dims(update.rank, windows)
    for ours, theirs in zip(free, scattered, strict=True):
        if not same_size(update.dims[ours], indices.dims[theirs]):
            raise Impossible(
                f"dimension {ours} of the updates has {update.dims[ours]} elements, dimension "
                f"{theirs} of the indices {indices.dims[theirs]}"
            )


OPCODES: Table = {
    "broadcast": Inference(_untyped_broadcast, _broadcast, arity=1, attributes=True),
    "reshape": Inference(None, _reshape, arity=1),
    "dynamic-reshape": Inference(None, _dynamic_reshape),
    "bitcast": Inference(None, _bitcast, arity=1),
    "iota": Inference(None, _iota, arity=0, attributes=True),
    "copy": Inference(lambda operation: operation.shape(0), arity=1),
    "transpose": Inference(_transpose, arity=1, attributes=True),
    "reverse": Inference(_reverse, arity=1, attributes=True),
    "shuffle": Inference(lambda operation: operation.array(0).with_layout(None), arity=1),
    "slice": Inference(_slice, arity=1, attributes=True),
    "pad": Inference(_pad, arity=2, attributes=True),
    "concatenate": Inference(_concatenate, attributes=True),
    "dynamic-slice": Inference(_dynamic_slice, attributes=True),
    "dynamic-update-slice": Inference(_dynamic_update_slice, keeps_layout=True),
    "get-dimension-size": Inference(_get_dimension_size, arity=1, attributes=True),
    "set-dimension-size": Inference(_set_dimension_size, arity=2, attributes=True),
    "gather": Inference(_gather, arity=2, attributes=True),
    "scatter": Inference(_scatter, attributes=True, calls=True),
}
