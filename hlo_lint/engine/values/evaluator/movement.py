"""Opcodes that place elements elsewhere; a bitcast reads the bytes that the layouts describe."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from hlo_lint.engine.proof.physical_memory import Memory
from hlo_lint.engine.values.evaluator.arrays import Array, Numbers, Unsupported, Value
from hlo_lint.engine.values.evaluator.site import Kernel, Site
from hlo_lint.hlo.attributes.plain import Padding, Slice
from hlo_lint.hlo.dtypes import BITS, is_complex
from hlo_lint.hlo.shape import ArrayShape


def _identity(x: Value) -> Value:
    return x


def _reshape(site: Site) -> Kernel:
    if site.lifted:
        return _identity
    dims = site.array.dims
    return lambda x: x.reshape(dims)


def _transpose(site: Site) -> Kernel:
    order = site.integers("dimensions")
    return _identity if site.lifted else lambda x: x.transpose(order)


def _broadcast(site: Site) -> Kernel:
    dims, mapped = site.array.dims, site.integers("dimensions")
    if site.lifted:
        return _identity

    def broadcast(x: Array) -> Array:
        sizes = [1] * len(dims)
        for size, dimension in zip(x.shape, mapped, strict=True):
            sizes[dimension] = size
        order = sorted(range(len(mapped)), key=lambda n: mapped[n])
        return np.broadcast_to(x.transpose(order).reshape(sizes), dims)

    return broadcast


def _iota(site: Site) -> Kernel:
    shape, dimension, numbers = site.array, site.attribute("iota_dimension", 0), site.numbers

    def iota() -> Array:
        from hlo_lint.engine.values.evaluator.elementwise import convert

        count = convert(np.arange(shape.dims[dimension]), "s64", shape.dtype, numbers)
        rest = [1] * (shape.rank - 1 - dimension)
        return np.broadcast_to(count.reshape(-1, *rest), shape.dims)

    return iota


def _reverse(site: Site) -> Kernel:
    dimensions = site.integers("dimensions")
    return lambda x: np.flip(x, dimensions)


def _slice(site: Site) -> Kernel:
    taken: tuple[Slice, ...] = site.attribute("slice", ())
    where = tuple(slice(part.start, part.limit, part.stride) for part in taken)
    return lambda x: x[where]


def _concatenate(site: Site) -> Kernel:
    (dimension,) = site.integers("dimensions")
    return lambda *parts: np.concatenate(parts, dimension)


def padded(x: Array, value: Array, paddings: tuple[Padding, ...]) -> Array:
    """The elements apart by the interior padding, between edges; a negative edge takes away."""
    spread = [
        size + max(size - 1, 0) * p.interior for size, p in zip(x.shape, paddings, strict=True)
    ]
    sizes = [size + p.low + p.high for size, p in zip(spread, paddings, strict=True)]
    result = np.full([max(size, 0) for size in sizes], value, x.dtype)
    into, taken = [], []
    for count, p, size in zip(x.shape, paddings, sizes, strict=True):
        step = p.interior + 1
        first = max(0, -(p.low // step)) if p.low < 0 else 0
        # The elements n with 0 <= low + n * step < size.
        last = min(count, (size - 1 - p.low) // step + 1) if size > 0 else 0
        last = max(last, first)
        taken.append(slice(first, last))
        begin = p.low + first * step
        into.append(
            slice(
                begin,
                begin + max(0, (last - first - 1) * step + 1) if last > first else begin,
                step,
            )
        )
    result[tuple(into)] = x[tuple(taken)]
    return result


def _pad(site: Site) -> Kernel:
    paddings: tuple[Padding, ...] = site.attribute("padding", ())
    return lambda x, value: padded(x, value, paddings)


# Bitcast ----------------------------------------------------------------------------------------


def _bitcast(site: Site) -> Kernel:
    if site.lifted:
        return _identity
    source, target, numbers = site.operand(0), site.array, site.numbers
    return lambda x: bitcast(x, source, target, numbers)


def bitcast(x: Array, source: ArrayShape, target: ArrayShape, numbers: Numbers) -> Array:
    """The array that the bytes of another one spell."""
    if not (source.has_valid_layout and target.has_valid_layout):
        raise Unsupported(f"a layout that does not name each dimension once: {source}, {target}")
    if source.dtype == target.dtype and _is_plain(source) and _is_plain(target):
        if source.elements != target.elements:
            raise Unsupported(f"bitcast from {source} to {target}, of another size")
        return _from_physical(_to_physical(x, source), target)
    return _by_bytes(x, source, target, numbers)


def _is_plain(shape: ArrayShape) -> bool:
    """True if a layout is an order of the dimensions and no more."""
    layout = shape.layout
    return layout is None or not (layout.tiles or layout.element_size_in_bits or layout.rest)


def _to_physical(x: Array, shape: ArrayShape) -> Array:
    return np.ascontiguousarray(x.transpose(shape.minor_to_major[::-1])).reshape(-1)


def _from_physical(data: Array, shape: ArrayShape) -> Array:
    order = shape.minor_to_major[::-1]
    inverse = [order.index(number) for number in range(shape.rank)]
    return data.reshape([shape.dims[number] for number in order]).transpose(inverse)


def _by_bytes(x: Array, source: ArrayShape, target: ArrayShape, numbers: Numbers) -> Array:
    """By way of memory: tiles, packed elements, another element type. Padding reads as zeros."""
    words = _to_words(x, source, numbers)
    memory = Memory(target, Memory.holding(source, words).data)
    elements = memory.elements()
    if is_complex(target.dtype):
        bits = np.ascontiguousarray(elements).view(
            numbers.narrow(np.zeros((), numbers.dtype(target.dtype)), target.dtype).dtype
        )
        return bits.reshape(target.dims).astype(numbers.dtype(target.dtype))
    return numbers.of_bits(elements.reshape(target.dims), target.dtype)


def _to_words(x: Array, shape: ArrayShape, numbers: Numbers) -> Array:
    width = max(8, BITS[shape.dtype])
    if is_complex(shape.dtype):
        flat = np.ascontiguousarray(numbers.narrow(x, shape.dtype)).reshape(-1)
        return flat.view("<u8").reshape(prod(shape.dims), width // 64)
    return numbers.to_bits(x, shape.dtype).reshape(-1, 1)


# Tuples -----------------------------------------------------------------------------------------


def _get_tuple_element(site: Site) -> Kernel:
    index = site.attribute("index", 0)
    return lambda value: value[index]


def _get_dimension_size(site: Site) -> Kernel:
    (dimension,) = site.integers("dimensions")
    return lambda x: np.array(x.shape[dimension], np.int32)


def _set_dimension_size(site: Site) -> Kernel:
    (dimension,) = site.integers("dimensions")

    def check(x: Array, size: Array) -> Array:
        if int(size) != x.shape[dimension]:
            raise Unsupported("a dimension of dynamic size")
        return x

    return check


BUILDERS: dict[str, Callable[[Site], Kernel]] = {
    "reshape": _reshape,
    "copy": lambda _: _identity,
    "transpose": _transpose,
    "broadcast": _broadcast,
    "iota": _iota,
    "reverse": _reverse,
    "slice": _slice,
    "concatenate": _concatenate,
    "pad": _pad,
    "bitcast": _bitcast,
    "tuple": lambda _: lambda *parts: parts,
    "get-tuple-element": _get_tuple_element,
    "copy-start": lambda _: lambda x: (x, x, np.zeros((), np.uint32)),
    "copy-done": lambda _: lambda value: value[0],
    "after-all": lambda _: lambda *_: None,
    "get-dimension-size": _get_dimension_size,
    "set-dimension-size": _set_dimension_size,
}
