"""Reduce, windows, sort and top-k, with any computation as reducer or comparator.

A reducer is run on whole arrays: it is lifted from scalars. A sum or product of floats that the
reducer spells as one instruction is kept as doubles and rounded once; any other reducer combines
neighbours in pairs, in order, which HLO allows (it demands that a reducer is associative).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod

import numpy as np

from hlo_lint.engine.values.evaluator.arrays import Array, Unsupported, Value, accumulator
from hlo_lint.engine.values.evaluator.contraction import positions, window_at
from hlo_lint.engine.values.evaluator.movement import padded
from hlo_lint.engine.values.evaluator.site import Kernel, Site
from hlo_lint.hlo.attributes.plain import Padding
from hlo_lint.hlo.attributes.windows import Window
from hlo_lint.hlo.dtypes import is_complex, is_float
from hlo_lint.hlo.ir import Computation

Arrays = tuple[Array, ...]


def simple_reducer(computation: Computation) -> str:
    """The opcode of a reducer that is one instruction of its two parameters; empty for others."""
    if computation.root is None or len(computation.rows) != 3:
        return ""
    root = computation.root
    read = {operand.name for operand in root.operands}
    parameters = {parameter.name for parameter in computation.parameters}
    return root.opcode if read == parameters and len(read) == 2 else ""


def _reduce(site: Site) -> Kernel:
    dimensions = site.integers("dimensions")
    count = len(site.operand_shapes) // 2
    name = site.callee("to_apply")
    reduce_along = _reducer(site, name)

    def reduce(*operands: Array) -> Value:
        values, starts = operands[:count], operands[count:]
        kept = [n for n in range(values[0].ndim) if n not in dimensions]
        order = [*dimensions, *kept]
        shape = [values[0].shape[n] for n in kept]
        lines = tuple(
            value.transpose(order).reshape(prod(value.shape[n] for n in dimensions), *shape)
            for value in values
        )
        site.spend(lines[0].size)
        return site.returned(reduce_along(lines, starts))

    return reduce


def _reducer(site: Site, name: str) -> Callable[[Arrays, Arrays], Arrays]:
    """A function that folds arrays along their first dimension."""
    opcode = simple_reducer(site.computation(name))
    shapes = site.results
    dtype = shapes[0].dtype
    numbers = site.numbers
    if (
        len(shapes) == 1
        and opcode in ("add", "multiply")
        and (is_float(dtype) or is_complex(dtype))
    ):
        ufunc = np.add if opcode == "add" else np.multiply
        kind = accumulator(dtype)

        def accumulate(lines: Arrays, starts: Arrays) -> Arrays:
            total = ufunc.reduce(lines[0].astype(kind), axis=0)
            return (numbers.cast(np.asarray(ufunc(total, starts[0].astype(kind))), dtype),)

        return accumulate
    combine = site.lift(name)

    def fold(lines: Arrays, starts: Arrays) -> Arrays:
        shape = lines[0].shape[1:]
        begun = tuple(np.broadcast_to(start, shape) for start in starts)
        while lines[0].shape[0] > 1:
            length = lines[0].shape[0]
            even = length // 2 * 2
            pairs = combine(
                *(line[0:even:2] for line in lines), *(line[1:even:2] for line in lines)
            )
            pairs = tuple(np.broadcast_to(pair, (even // 2, *shape)) for pair in pairs)
            if length > even:
                pairs = tuple(
                    np.concatenate([pair, line[even:]])
                    for pair, line in zip(pairs, lines, strict=True)
                )
            lines = pairs
        if not lines[0].shape[0]:
            return begun
        folded = combine(*begun, *(line[0] for line in lines))
        return tuple(np.broadcast_to(array, shape) for array in folded)

    return fold


# Windows ----------------------------------------------------------------------------------------


def _windows(
    value: Array, start: Array, window: Window
) -> tuple[Array, list[tuple[slice, ...]], tuple[int, ...]]:
    """The padded array, and for each place in the window what all windows have there."""
    edges = tuple(Padding(d.padding_low, d.padding_high, d.base_dilation - 1) for d in window)
    base = padded(value, start, edges)
    sizes = tuple(positions(n, d) for n, d in zip(base.shape, window, strict=True))
    places = [
        window_at(place, sizes, window) for place in product(*(range(d.size) for d in window))
    ]
    return base, places, sizes


def _reduce_window(site: Site) -> Kernel:
    window: Window = site.attribute("window", ())
    count = len(site.operand_shapes) // 2
    reduce_along = _reducer(site, site.callee("to_apply"))

    def reduce(*operands: Array) -> Value:
        values, starts = operands[:count], operands[count:]
        if not window:
            return site.returned(reduce_along(tuple(v[np.newaxis] for v in values), starts))
        lines = []
        for value, start in zip(values, starts, strict=True):
            base, places, sizes = _windows(value, start, window)
            site.spend(len(places) * prod(sizes))
            lines.append(np.stack([base[place] for place in places]))
        return site.returned(reduce_along(tuple(lines), starts))

    return reduce


def _select_and_scatter(site: Site) -> Kernel:
    window: Window = site.attribute("window", ())
    select, scatter = site.lift(site.callee("select")), site.callee("scatter")
    combine = site.lift(scatter)

    def run(operand: Array, source: Array, start: Array) -> Array:
        # The padding of the window is never selected: only places inside the operand are.
        numbered = np.arange(operand.size).reshape(operand.shape)
        base, places, sizes = _windows(operand, np.zeros((), operand.dtype), window)
        where, _, _ = _windows(numbered, np.array(-1), window)
        site.spend(len(places) * prod(sizes))
        best = np.zeros(sizes, operand.dtype)
        chosen = np.full(sizes, -1)
        for place in places:
            value, number = base[place], where[place]
            (keep,) = select(best, value)
            take = (number >= 0) & ((chosen < 0) | ~np.broadcast_to(keep, sizes))
            best, chosen = np.where(take, value, best), np.where(take, number, chosen)
        result = np.full(operand.size, start, operand.dtype)
        inside = chosen.reshape(-1) >= 0
        updates = source.reshape(-1)[inside]
        in_rounds((result,), chosen.reshape(-1)[inside], (updates,), combine)
        return result.reshape(operand.shape)

    return run


def in_rounds(
    results: Arrays, where: Array, updates: Arrays, combine: Callable[..., Arrays]
) -> None:
    """Combine updates into places of flat arrays, those of one place one after the other."""
    order = np.argsort(where, kind="stable")
    ordered = where[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]] if len(ordered) else np.zeros(0, bool)
    starts = np.flatnonzero(first)
    rank = np.arange(len(ordered)) - np.repeat(starts, np.diff(np.r_[starts, len(ordered)]))
    by_rank = order[np.argsort(rank, kind="stable")]
    at = 0
    for size in np.bincount(rank) if len(rank) else ():
        taken = by_rank[at : at + size]
        at += size
        places = where[taken]
        combined = combine(*(r[places] for r in results), *(u[taken] for u in updates))
        for result, value in zip(results, combined, strict=True):
            result[places] = value


# Sorting ----------------------------------------------------------------------------------------


def _sort(site: Site) -> Kernel:
    (dimension,) = site.integers("dimensions")
    compare = site.lift(site.callee("to_apply"))

    def sort(*operands: Array) -> Value:
        columns = tuple(np.moveaxis(operand, dimension, -1) for operand in operands)
        length = columns[0].shape[-1]
        rows = tuple(column.reshape(-1, length) for column in columns)
        site.spend(rows[0].size * max(1, length.bit_length()) ** 2)
        order = _merge_sorted(rows, lambda *pair: np.asarray(compare(*pair)[0]))
        shape = columns[0].shape
        placed = (np.take_along_axis(row, order, 1).reshape(shape) for row in rows)
        return site.returned(tuple(np.moveaxis(value, -1, dimension) for value in placed))

    return sort


def _merge_sorted(rows: Arrays, less: Callable[..., Array]) -> Array:
    """The stable order of each row: runs are merged, all at once, twice as long each time.

    `less` takes the left and right element of each operand: a0, b0, a1, b1 ...
    """
    count, length = rows[0].shape
    order = np.broadcast_to(np.arange(length), (count, length)).copy()

    def is_less(left: Array, right: Array) -> Array:
        pairs: list[Array] = []
        for row in rows:
            pairs += [np.take_along_axis(row, left, 1), np.take_along_axis(row, right, 1)]
        return np.broadcast_to(less(*pairs), left.shape)

    width = 1
    position = np.arange(length)
    while width < length:
        begin = position // (2 * width) * (2 * width)
        middle, end = np.minimum(begin + width, length), np.minimum(begin + 2 * width, length)
        in_left = position < middle
        # Each element counts those of the other run that go before it, by binary search.
        low = np.broadcast_to(np.where(in_left, middle, begin), (count, length)).copy()
        first = low.copy()
        high = np.broadcast_to(np.where(in_left, end, middle), (count, length)).copy()
        while (low < high).any():
            probe = (low + high) // 2
            at = np.minimum(probe, length - 1)
            other = np.take_along_axis(order, at, 1)
            # Of equal elements that of the left run goes first.
            before = np.where(in_left, is_less(other, order), ~is_less(order, other))
            searching = low < high
            low = np.where(searching & before, probe + 1, low)
            high = np.where(searching & ~before, probe, high)
        own = position - np.where(in_left, begin, middle)
        target = begin + own + (low - first)
        merged = np.full_like(order, -1)
        np.put_along_axis(merged, target, order, 1)
        if (merged < 0).any():
            raise Unsupported("a sort by what is not a strict weak order")
        order = merged
        width *= 2
    return order


def _top_k(site: Site) -> Kernel:
    count = site.attribute("k", 1)
    largest = site.attribute("largest", True)

    def top(x: Array) -> Value:
        from hlo_lint.engine.values.evaluator.elementwise import total_order

        name = site.operand(0).dtype
        key = total_order(x, name, site.numbers) if is_float(name) else x
        key = key.astype(np.float64) if key.dtype.itemsize < 8 else key
        wanted = -key if largest and key.dtype.kind == "f" else ~key if largest else key
        order = np.argsort(wanted, axis=-1, kind="stable")[..., :count]
        return np.take_along_axis(x, order, -1), order.astype(np.int32)

    return top


def _map(site: Site) -> Kernel:
    apply = site.lift(site.callee("to_apply"))
    dims = site.array.dims
    return lambda *operands: np.broadcast_to(apply(*operands)[0], dims)


BUILDERS: dict[str, Callable[[Site], Kernel]] = {
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "select-and-scatter": _select_and_scatter,
    "sort": _sort,
    "topk": _top_k,
    "map": _map,
}
