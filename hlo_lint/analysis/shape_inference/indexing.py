"""`gather` and `scatter`: which dimensions of the indices, the operand and the windows meet."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_lint.analysis.shape_inference.operation import Impossible, Inference, Operation, Table
from hlo_lint.analysis.shape_inference.reduction import demand_reducer
from hlo_lint.analysis.shape_inference.types import (
    array_without_layout,
    demand_known,
    same_dims,
    same_size,
    same_type,
)
from hlo_lint.hlo.dtypes import is_integer
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape


def _demand_dims(name: str, dims: Sequence[int], rank: int, *, ordered: bool = True) -> None:
    if ordered and list(dims) != sorted(dims):
        raise Impossible(f"{name} has to be in ascending order")
    if len(set(dims)) != len(dims):
        raise Impossible(f"{name} names a dimension twice")
    for dim in dims:
        if not 0 <= dim < rank:
            raise Impossible(f"{name} names {dim}, there are {rank} dimensions")


def _index_dims(indices: ArrayShape, vector: int) -> list[int]:
    """The dimensions of the indices without `vector`, that of the index vectors."""
    return [dim for dim in range(indices.rank) if dim != vector]


def _demand_indices(operation: Operation, indices: ArrayShape) -> int:
    """Demand integers; return `index_vector_dim`."""
    demand_known(indices.dtype)
    if not is_integer(indices.dtype):
        raise Impossible(f"the indices of {operation.opcode} are {indices.dtype}, not integers")
    vector = operation.integer("index_vector_dim")
    if not 0 <= vector <= indices.rank:
        raise Impossible(f"index_vector_dim={vector} for indices of {indices.rank} dimensions")
    return vector


def _demand_index_map(
    name: str, mapped: Sequence[int], indices: ArrayShape, vector: int, operand: ArrayShape
) -> None:
    size = indices.dims[vector] if vector < indices.rank else 1
    if not same_size(len(mapped), size):
        raise Impossible(f"{name} has {len(mapped)} numbers, each index has {size}")
    _demand_dims(name, mapped, operand.rank, ordered=False)


def _demand_batching(
    indices: ArrayShape,
    vector: int,
    names: tuple[str, str],
    pairs: tuple[Sequence[int], Sequence[int]],
) -> None:
    of_operand, of_indices = pairs
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
    index_batching = operation.integers("start_indices_batching_dims", ())
    mapped = operation.integers("start_index_map", ())
    sizes = operation.integers("slice_sizes")

    result_rank = len(offsets) + len(_index_dims(indices, vector))
    _demand_dims("offset_dims", offsets, result_rank)
    _demand_index_map("start_index_map", mapped, indices, vector, operand)
    _demand_dims("collapsed_slice_dims", collapsed, operand.rank)
    _demand_dims("operand_batching_dims", batching, operand.rank)
    names = ("operand_batching_dims", "start_indices_batching_dims")
    _demand_batching(indices, vector, names, (batching, index_batching))
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

    windows = [dim for dim in range(operand.rank) if dim not in gone]
    return _assembled(operand, indices, vector, offsets, windows, sizes)


def _assembled(
    operand: ArrayShape,
    indices: ArrayShape,
    vector: int,
    offsets: Sequence[int],
    windows: Sequence[int],
    sizes: Sequence[int],
) -> Shape:
    from_window, from_indices = iter(windows), iter(_index_dims(indices, vector))
    dims, dynamic = [], []
    places = set(offsets)
    for place in range(len(offsets) + len(_index_dims(indices, vector))):
        if place in places:
            dim = next(from_window)
            dims.append(sizes[dim])
            dynamic.append(operand.is_dynamic(dim) and sizes[dim] == operand.dims[dim])
        else:
            dim = next(from_indices)
            dims.append(indices.dims[dim])
            dynamic.append(indices.is_dynamic(dim))
    return array_without_layout(operand.dtype, dims, dynamic)


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
    results = [
        array_without_layout(target.dtype, target.dims, target.dynamic) for target in operands
    ]
    return results[0] if count == 1 else TupleShape(tuple(results))


def _demand_scatter_dims(
    operation: Operation, operand: ArrayShape, indices: ArrayShape, update: ArrayShape, vector: int
) -> None:
    windows = operation.integers("update_window_dims", ())
    inserted = operation.integers("inserted_window_dims", ())
    batching = operation.integers("input_batching_dims", ())
    index_batching = operation.integers("scatter_indices_batching_dims", ())
    mapped = operation.integers("scatter_dims_to_operand_dims", ())
    scattered = _index_dims(indices, vector)

    if len(scattered) + len(windows) != update.rank:
        raise Impossible(
            f"the updates of scatter need {len(scattered) + len(windows)} dimensions, got "
            f"{update.rank}"
        )
    _demand_dims("update_window_dims", windows, update.rank)
    _demand_dims("inserted_window_dims", inserted, operand.rank)
    _demand_dims("input_batching_dims", batching, operand.rank)
    if len(windows) + len(inserted) + len(batching) != operand.rank:
        raise Impossible(
            f"update_window_dims, inserted_window_dims and input_batching_dims have to be "
            f"{operand.rank} numbers together"
        )
    _demand_index_map("scatter_dims_to_operand_dims", mapped, indices, vector, operand)
    names = ("input_batching_dims", "scatter_indices_batching_dims")
    _demand_batching(indices, vector, names, (batching, index_batching))

    gone = {*inserted, *batching}
    into = [dim for dim in range(operand.rank) if dim not in gone]
    for ours, theirs in zip(windows, into, strict=True):
        if update.dims[ours] > operand.dims[theirs] >= 0:
            raise Impossible(
                f"dimension {ours} of the updates has {update.dims[ours]} elements, dimension "
                f"{theirs} of the operand {operand.dims[theirs]}"
            )
    of_window = set(windows)
    free = [dim for dim in range(update.rank) if dim not in of_window]
    for ours, theirs in zip(free, scattered, strict=True):
        if not same_size(update.dims[ours], indices.dims[theirs]):
            raise Impossible(
                f"dimension {ours} of the updates has {update.dims[ours]} elements, dimension "
                f"{theirs} of the indices {indices.dims[theirs]}"
            )


OPCODES: Table = {
    "gather": Inference(_gather, arity=2, attributes=True),
    "scatter": Inference(_scatter, attributes=True, calls=True),
}
