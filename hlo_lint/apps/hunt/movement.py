"""Data movement: shapes, slices, pads, windows, gathers and scatters, with dims of 0 and 1."""

from __future__ import annotations

from typing import Final

from hlo_lint.apps.hunt.draft import MAX_ELEMENTS, DrawnValue, ModuleDraft, call, numbers
from hlo_lint.apps.hunt.elementwise import binary, binary_opcodes
from hlo_lint.hlo.dtypes import is_complex, is_float, is_integer

INDEX_TYPES: Final = ("s32", "s32", "s64", "u32", "s8", "u8", "u64", "s16")


def reshape(d: ModuleDraft, x: DrawnValue) -> DrawnValue:
    """The same elements in other dimensions, some of them 1."""
    dims: list[int] = []
    left = x.size
    while left > 1:
        dims.append(d.random.choice([n for n in range(2, left + 1) if left % n == 0]))
        left //= dims[-1]
    if not x.size:
        dims = d.shuffled([0, *(d.random.choice((1, 2, 3)) for _ in range(d.random.randrange(3)))])
    for _ in range(d.random.randrange(3)):
        dims.insert(d.random.randint(0, len(dims)), 1)
    return d.add(x.dtype, dims, call("reshape", x))


def transposition(d: ModuleDraft, x: DrawnValue) -> DrawnValue:
    """A permutation of the dimensions."""
    order = d.shuffled(range(x.rank))
    dims = [x.dims[at] for at in order]
    return d.add(x.dtype, dims, f"{call('transpose', x)}, dimensions={{{numbers(order)}}}")


def broadcasting(d: ModuleDraft, x: DrawnValue) -> DrawnValue | None:
    """New dimensions, in between or around."""
    size, at = d.random.choice((0, 1, 1, 2, 3, 4)), d.random.randint(0, x.rank)
    if x.size * size > MAX_ELEMENTS or x.rank > 4:
        return None
    dims = (*x.dims[:at], size, *x.dims[at:])
    kept = numbers(number for number in range(len(dims)) if number != at)
    return d.add(x.dtype, dims, f"{call('broadcast', x)}, dimensions={{{kept}}}")


def reverse(d: ModuleDraft, x: DrawnValue) -> DrawnValue:
    """Some dimensions backwards."""
    return d.like(x, "reverse", more=f", dimensions={{{numbers(d.subset(range(x.rank)))}}}")


def slice_(d: ModuleDraft, x: DrawnValue) -> DrawnValue:
    """A part, also with strides, also an empty one."""
    ranges, dims = [], []
    for size in x.dims:
        begin, stride = d.random.randint(0, size), d.random.choice((1, 1, 1, 2, 3))
        end = d.random.randint(begin, size)
        if not d.chance(12) and begin == end:
            begin, end = 0, size
        ranges.append(f"[{begin}:{end}{f':{stride}' if stride > 1 else ''}]")
        dims.append(-(-(end - begin) // stride))
    return d.add(x.dtype, dims, f"{call('slice', x)}, slice={{{numbers(ranges)}}}")


def pad(d: ModuleDraft, x: DrawnValue) -> DrawnValue | None:
    """Padding at the edges and in between; a negative one cuts off."""
    spelled, dims = [], []
    for size in x.dims:
        inner = d.random.choice((0, 0, 0, 1, 2))
        whole = size + max(size - 1, 0) * inner
        low, high = (d.random.choice((0, 0, 1, 2, -1, -2)) for _ in range(2))
        if whole + low + high < 0 or whole + min(low, 0) < 0 or whole + min(high, 0) < 0:
            low = high = 0
        spelled.append(f"{low}_{high}{f'_{inner}' if inner else ''}")
        dims.append(whole + low + high)
    value = DrawnValue("", x.dtype, tuple(dims))
    if value.size > MAX_ELEMENTS or not x.rank:
        return None
    filler = d.constant(x.dtype) if not d.chance(3) else d.parameter(x.dtype, ())
    return d.add(x.dtype, dims, f"{call('pad', x, filler)}, padding={'x'.join(spelled)}")


def concatenate(d: ModuleDraft, x: DrawnValue) -> DrawnValue | None:
    """Several values of one rank, among them slices of the first and constants."""
    if not x.rank or x.size > MAX_ELEMENTS // 4:
        return None
    at = d.random.randrange(x.rank)
    parts = [x]
    for _ in range(d.random.randint(1, 3)):
        like = [
            other
            for other in d.values
            if other.dtype == x.dtype
            and other.rank == x.rank
            and other.dims[:at] + other.dims[at + 1 :] == x.dims[:at] + x.dims[at + 1 :]
        ]
        parts.append(d.random.choice(like) if not d.chance(4) else d.splat(x))
    parts = [parts[number] for number in d.shuffled(range(len(parts)))]
    size = sum(part.dims[at] for part in parts)
    dims = (*x.dims[:at], size, *x.dims[at + 1 :])
    if DrawnValue("", x.dtype, dims).size > MAX_ELEMENTS:
        return None
    return d.add(x.dtype, dims, f"{call('concatenate', *parts)}, dimensions={{{at}}}")


def index(d: ModuleDraft, dtype: str, size: int) -> DrawnValue:
    """A scalar index: a constant about the border, a parameter, or what is computed from one."""
    if d.chance(2):
        return d.constant(dtype, (), [_index(d, dtype, size)])
    value = d.parameter(dtype, ())
    return binary(d, value) if d.chance(3) else value


def _index(d: ModuleDraft, dtype: str, size: int) -> str:
    low = 0 if dtype.startswith("u") else -2
    return str(
        d.random.choice((d.random.randint(low, size + 1), 0, max(size - 1, 0), max(low, -1)))
    )


def dynamic_slice(d: ModuleDraft, x: DrawnValue) -> DrawnValue:
    """A part that begins where scalars say; XLA moves the begin until it is inside."""
    dtype = d.random.choice(INDEX_TYPES)
    sizes = [d.random.randint(min(1, size), size) for size in x.dims]
    starts = [index(d, dtype, size - part + 1) for size, part in zip(x.dims, sizes, strict=True)]
    more = f", dynamic_slice_sizes={{{numbers(sizes)}}}"
    return d.add(x.dtype, sizes, call("dynamic-slice", x, *starts) + more)


def dynamic_update_slice(d: ModuleDraft, x: DrawnValue) -> DrawnValue:
    """An update where scalars say, and perhaps another one or a slice after it."""
    dtype = d.random.choice(INDEX_TYPES)
    sizes = [d.random.randint(min(1, size), size) for size in x.dims]
    starts = [index(d, dtype, size - part + 1) for size, part in zip(x.dims, sizes, strict=True)]
    update = d.source(x.dtype, sizes)
    result = d.like(x, "dynamic-update-slice", update, *starts)
    if d.chance(2):
        if d.chance(2):
            starts = [index(d, dtype, size) for size in x.dims]
        more = f", dynamic_slice_sizes={{{numbers(sizes)}}}"
        result = d.add(x.dtype, sizes, call("dynamic-slice", result, *starts) + more)
    return result


def _indices(
    d: ModuleDraft, batch: tuple[int, ...], places: list[int], x: DrawnValue
) -> tuple[DrawnValue, int]:
    """Indices of `places`, and the dimension that holds them."""
    at = d.random.randint(0, len(batch))
    dims = (*batch[:at], len(places), *batch[at:])
    if len(places) == 1 and d.chance(2):
        dims, at = batch, len(batch)
    dtype = d.random.choice(INDEX_TYPES)
    value = DrawnValue("", dtype, dims)
    if d.chance(2) and value.size <= 64:
        most = max((x.dims[place] for place in places), default=1)
        texts = [_index(d, dtype, most) for _ in range(value.size)]
        return d.constant(dtype, dims, texts or ["0"]), at
    if d.chance(4) and dims:
        return d.add(dtype, dims, f"iota(), iota_dimension={d.random.randrange(len(dims))}"), at
    return d.parameter(dtype, dims), at


def gather(d: ModuleDraft, x: DrawnValue) -> DrawnValue | None:
    """A gather with any dimension numbers; indices may be out of range, where XLA clamps them."""
    if not x.rank or 0 in x.dims:
        return None
    batch = tuple(d.random.choice((1, 2, 3)) for _ in range(d.random.randrange(3)))
    places = d.shuffled(d.subset(range(x.rank), d.random.randint(1, x.rank)))
    sizes = [1 if d.chance(2) else d.random.randint(1, size) for size in x.dims]
    collapsed = [at for at in d.subset(range(x.rank)) if sizes[at] == 1]
    kept = [size for at, size in enumerate(sizes) if at not in collapsed]
    offsets = d.subset(range(len(batch) + len(kept)), len(kept))
    left, inner = list(batch), list(kept)
    dims = [(inner if at in offsets else left).pop(0) for at in range(len(batch) + len(kept))]
    if DrawnValue("", x.dtype, tuple(dims)).size > MAX_ELEMENTS:
        return None
    indices, at = _indices(d, batch, places, x)
    more = (
        f", offset_dims={{{numbers(offsets)}}}, collapsed_slice_dims={{{numbers(collapsed)}}}, "
        f"start_index_map={{{numbers(places)}}}, index_vector_dim={at}, "
        f"slice_sizes={{{numbers(sizes)}}}"
    )
    return d.add(x.dtype, dims, call("gather", x, indices) + more)


COMMUTATIVE: Final = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")


def scatter(d: ModuleDraft, x: DrawnValue) -> DrawnValue | None:
    """A scatter with any dimension numbers, and a combiner that takes updates in any order."""
    if not x.rank or 0 in x.dims or is_complex(x.dtype):
        return None
    opcodes = [opcode for opcode in COMMUTATIVE if opcode in binary_opcodes(x.dtype)]
    if is_float(x.dtype):
        opcodes = ["maximum", "minimum"]
    batch = tuple(d.random.choice((1, 2, 3)) for _ in range(d.random.randrange(3)))
    places = d.shuffled(d.subset(range(x.rank), d.random.randint(1, x.rank)))
    inserted = d.subset(range(x.rank))
    window = [d.random.randint(1, size) for at, size in enumerate(x.dims) if at not in inserted]
    own = d.subset(range(len(batch) + len(window)), len(window))
    left, inner = list(batch), list(window)
    dims = [(inner if at in own else left).pop(0) for at in range(len(batch) + len(window))]
    indices, at = _indices(d, batch, places, x)
    updates = d.source(x.dtype, dims)
    body = d.combiner(x.dtype, d.random.choice(opcodes))
    more = (
        f", update_window_dims={{{numbers(own)}}}, inserted_window_dims={{{numbers(inserted)}}}, "
        f"scatter_dims_to_operand_dims={{{numbers(places)}}}, index_vector_dim={at}, "
        f"to_apply=%{body}"
    )
    return d.like(x, "scatter", indices, updates, more=more)


def iota(d: ModuleDraft, x: DrawnValue) -> DrawnValue | None:
    """An iota of the value's shape, combined with it."""
    if not is_integer(x.dtype) or not x.rank:
        return None
    at = d.random.randrange(x.rank)
    counted = d.add(x.dtype, x.dims, f"iota(), iota_dimension={at}")
    if d.chance(2):
        counted = binary(d, counted)
    return d.like(x, d.random.choice(binary_opcodes(x.dtype)), counted)
