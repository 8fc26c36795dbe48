"""Gather, scatter, and slices at places that are computed."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from hlo_lint.engine.values.evaluator.arrays import Array, Unsupported, Value
from hlo_lint.engine.values.evaluator.reduction import in_rounds
from hlo_lint.engine.values.evaluator.site import Kernel, Site


def _clamped(
    starts: tuple[Array, ...], sizes: tuple[int, ...], dims: tuple[int, ...]
) -> tuple[slice, ...]:
    """The slice at a place, moved inside: no XLA slice leaves its array."""
    if len(starts) == 1 and starts[0].ndim == 1:
        starts = tuple(starts[0])
    begins = [
        min(max(int(start), 0), size - taken)
        for start, taken, size in zip(starts, sizes, dims, strict=True)
    ]
    return tuple(slice(begin, begin + taken) for begin, taken in zip(begins, sizes, strict=True))


def _dynamic_slice(site: Site) -> Kernel:
    sizes = site.integers("dynamic_slice_sizes")
    return lambda x, *starts: x[_clamped(starts, sizes, x.shape)]


def _dynamic_update_slice(site: Site) -> Kernel:
    def update(x: Array, part: Array, *starts: Array) -> Array:
        result = x.copy()
        result[_clamped(starts, part.shape, x.shape)] = part
        return result

    return update


def _indices(indices: Array, vector: int) -> Array:
    """The index vectors along the last dimension."""
    return indices[..., np.newaxis] if vector == indices.ndim else np.moveaxis(indices, vector, -1)


def _starts(
    vectors: Array,
    rank: int,
    named: tuple[int, ...],
    batching: tuple[int, ...],
    batches: tuple[int, ...],
    vector: int,
) -> Array:
    """The start of each window: one row for each dimension of the operand."""
    around = vectors.shape[:-1]
    starts = np.zeros((rank, *around), np.int64)
    for number, dimension in enumerate(named):
        starts[dimension] = _as_int64(vectors[..., number])
    for dimension, batch in zip(batching, batches, strict=True):
        axis = batch if batch < vector else batch - 1
        starts[dimension] = _counted(around[axis], len(around) - 1 - axis)
    return starts


def _counted(size: int, trailing: int) -> Array:
    """0, 1, 2 ... along a dimension that has so many after it."""
    return np.arange(size).reshape(-1, *[1] * trailing)


def _as_int64(indices: Array) -> Array:
    """An unsigned index that no array has stays one."""
    if indices.dtype == np.uint64:
        return np.minimum(indices, np.uint64((1 << 63) - 1)).astype(np.int64)
    return indices.astype(np.int64)


def _gather(site: Site) -> Kernel:
    offsets = site.integers("offset_dims")
    collapsed = site.integers("collapsed_slice_dims")
    named = site.integers("start_index_map")
    batching = site.integers("operand_batching_dims")
    batches = site.integers("start_indices_batching_dims")
    vector = site.attribute("index_vector_dim", 0)
    sizes = site.integers("slice_sizes")

    def gather(x: Array, indices: Array) -> Array:
        vectors = _indices(indices, vector)
        around = vectors.shape[:-1]
        starts = _starts(vectors, x.ndim, named, batching, batches, vector)
        kept = [n for n in range(x.ndim) if n not in collapsed and n not in batching]
        where = []
        for dimension, (size, taken) in enumerate(zip(x.shape, sizes, strict=True)):
            place = np.clip(starts[dimension], 0, size - taken).reshape(*around, *[1] * len(kept))
            if dimension in kept:
                place = place + _counted(taken, len(kept) - 1 - kept.index(dimension))
            where.append(place)
        shape = (*around, *(sizes[n] for n in kept))
        gathered = np.broadcast_to(x[tuple(where)], shape)
        batch, window = iter(range(len(around))), iter(range(len(around), len(shape)))
        order = [next(window if number in offsets else batch) for number in range(len(shape))]
        return gathered.transpose(order)

    return gather


def _scatter(site: Site) -> Kernel:
    windows = site.integers("update_window_dims")
    inserted = site.integers("inserted_window_dims")
    named = site.integers("scatter_dims_to_operand_dims")
    batching = site.integers("input_batching_dims")
    batches = site.integers("scatter_indices_batching_dims")
    vector = site.attribute("index_vector_dim", 0)
    count = (len(site.operand_shapes) - 1) // 2
    combine = site.lift(site.callee("to_apply"))

    def scatter(*values: Array) -> Value:
        operands, indices, updates = values[:count], values[count], values[count + 1 :]
        dims = operands[0].shape
        vectors = _indices(indices, vector)
        around = vectors.shape[:-1]
        starts = _starts(vectors, len(dims), named, batching, batches, vector)
        kept = [n for n in range(len(dims)) if n not in inserted and n not in batching]
        spread = [n for n in range(updates[0].ndim) if n not in windows]
        order = [*spread, *windows]
        taken = [updates[0].shape[n] for n in windows]
        extent = dict(zip(kept, taken, strict=True))
        # A window that leaves the operand is dropped whole (`hlo_evaluator.cc`, HandleScatter).
        inside = np.ones(around, bool)
        flat = np.zeros((*around, *taken), np.int64)
        for dimension, size in enumerate(dims):
            start = starts[dimension]
            inside &= (start >= 0) & (start <= size - extent.get(dimension, 1))
            place = start.reshape(*around, *[1] * len(taken))
            if dimension in extent:
                place = place + _counted(extent[dimension], len(kept) - 1 - kept.index(dimension))
            flat = flat * size + place
        wanted = np.broadcast_to(inside.reshape(*around, *[1] * len(taken)), flat.shape).reshape(-1)
        where = flat.reshape(-1)[wanted]
        results = tuple(operand.reshape(-1).copy() for operand in operands)
        moved = tuple(update.transpose(order).reshape(-1)[wanted] for update in updates)
        site.spend(prod(flat.shape))
        in_rounds(results, where, moved, combine)
        return site.returned(tuple(result.reshape(dims) for result in results))

    if count < 1:
        raise Unsupported("a scatter without operands")
    return scatter


BUILDERS: dict[str, Callable[[Site], Kernel]] = {
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter,
}
