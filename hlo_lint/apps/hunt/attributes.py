"""The parts of a call beside the operands in `steps.txt`: attributes, indices, fillers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hlo_lint.apps.hunt.draft import DrawnValue, ModuleDraft, NotDrawn, neutral_element, opcode_set
from hlo_lint.hlo.dtypes import BITS
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape

INDEX_TYPES: Final = ("s32", "s32", "s64", "u32", "s8", "u8", "u64", "s16")


@dataclass
class DrawnCall:
    """A call while it is drawn."""

    draft: ModuleDraft
    operands: list[DrawnValue]
    variant: str
    callees: list[str]
    type: str = ""
    """Printed where it cannot be inferred."""

    @property
    def x(self) -> ArrayShape:
        """The shape of the first operand."""
        return self.operands[0].array

    def one_of(self, *choices: int) -> int:
        """One of some numbers."""
        return self.draft.random.choice(choices)

    def of(self, dims: Iterable[int], dtype: str = "") -> ArrayShape:
        """An array of the type of the first operand."""
        return ArrayShape(dtype or self.x.dtype, tuple(dims))


def call(
    draft: ModuleDraft, opcode: str, variant: str, operands: list[DrawnValue], bodies: list[str]
) -> DrawnValue:
    """Add a call with the attributes that its opcode needs.

    Raises:
        NotDrawn: XLA would refuse it.
    """
    callees = [
        draft.body(_parameters(opcode, operands, at), text) for at, text in enumerate(bodies)
    ]
    drawn = DrawnCall(draft, operands, variant, callees)
    attributes = _ATTRIBUTES[opcode](drawn) if opcode in _ATTRIBUTES else ""
    return draft.add(opcode, drawn.operands, attributes, drawn.type)


def _parameters(opcode: str, operands: list[DrawnValue], at: int) -> list[Shape]:
    """The parameters of a computation that is called."""
    if opcode in ("call", "while"):
        return [operand.shape for operand in operands]
    if opcode == "conditional":
        return [operands[at + 1].shape]
    scalars: list[Shape] = [ArrayShape(operand.array.dtype, ()) for operand in operands]
    doubled = opcode in ("sort", "select-and-scatter")
    return [shape for shape in scalars for _ in range(1 + doubled)]


def _listed(items: Iterable[object], name: str = "dimensions") -> str:
    return f"{name}={{{','.join(map(str, items))}}}"


def _combiner(c: DrawnCall, opcodes: str) -> tuple[str, str]:
    """A computation that is associative, and its opcode."""
    opcode = c.draft.random.choice(opcode_set(opcodes, c.x.dtype) or [""])
    if not opcode:
        raise NotDrawn
    scalar = c.of(())
    return f"to_apply=%{c.draft.body([scalar, scalar], f'{opcode}(p0, p1)')}", opcode


# ---- shapes


def _reshape(c: DrawnCall) -> str:
    dims, left = [], c.x.elements
    while left > 1:
        dims.append(c.one_of(*(n for n in range(2, left + 1) if left % n == 0)))
        left //= dims[-1]
    if not c.x.elements:
        sizes = (c.one_of(1, 2, 3) for _ in range(c.one_of(0, 1, 2)))
        dims = c.draft.shuffled([0, *sizes])
    for _ in range(c.one_of(0, 1, 2)):
        dims.insert(c.draft.random.randint(0, len(dims)), 1)
    c.type = str(c.of(dims))
    return ""


def _broadcast(c: DrawnCall) -> str:
    size, at = c.one_of(0, 1, 1, 2, 3, 4), c.draft.random.randint(0, c.x.rank)
    c.type = str(c.of([*c.x.dims[:at], size, *c.x.dims[at:]]))
    return _listed(number for number in range(c.x.rank + 1) if number != at)


def _slice(c: DrawnCall) -> str:
    ranges = []
    for size in c.x.dims:
        begin = c.draft.random.randint(0, size)
        end = c.draft.random.randint(begin, size)
        if begin == end and not c.draft.chance(12):
            begin, end = 0, size
        stride = c.one_of(1, 1, 1, 2, 3)
        ranges.append(f"[{begin}:{end}{f':{stride}' if stride > 1 else ''}]")
    return _listed(ranges, "slice")


def _pad(c: DrawnCall) -> str:
    edges = ("_".join(str(c.one_of(0, 0, 1, 2, -1, -2)) for _ in range(2)) for _ in c.x.dims)
    inner = ("" if (size := c.one_of(0, 0, 0, 1, 2)) == 0 else f"_{size}" for _ in c.x.dims)
    return f"padding={'x'.join(map(str.__add__, edges, inner))}"


def _one_dimension(c: DrawnCall) -> str:
    if not c.x.rank:
        raise NotDrawn
    return _listed([c.draft.random.randrange(c.x.rank)])


def _iota(c: DrawnCall) -> str:
    shape = c.of(c.x.dims, c.variant)
    attribute = _one_dimension(c).replace("dimensions={", "iota_dimension=").rstrip("}")
    c.type, c.operands = str(shape), []
    return attribute


def _convert(c: DrawnCall) -> str:
    c.type = str(c.of(c.x.dims, c.variant))
    return ""


def _bitcast_convert(c: DrawnCall) -> str:
    width, dims = BITS[c.x.dtype], c.x.dims
    other = c.one_of(8, 16, 32, 64) if width >= 8 else width
    if other < width:
        dims = (*dims, width // other)
    elif other > width:
        if dims[-1:] != (other // width,):
            other = width
        else:
            dims = dims[:-1]
    c.type = str(c.of(dims, f"{c.draft.random.choice('su')}{other}"))
    return ""


def _get_tuple_element(c: DrawnCall) -> str:
    shape = c.operands[0].shape
    assert isinstance(shape, TupleShape)
    return f"index={c.variant or c.draft.random.randrange(len(shape.elements))}"


# ---- indices


def _number_near(c: DrawnCall, dtype: str, size: int) -> str:
    """A number about the border of so many elements."""
    low = 0 if dtype.startswith("u") else -2
    any_one = c.draft.random.randint(low, size + 1)
    return str(c.one_of(any_one, 0, max(size - 1, 0), max(low, -1)))


def _index(c: DrawnCall, dtype: str, size: int) -> DrawnValue:
    """A scalar index: a constant, a value that is there, or a new parameter."""
    if c.draft.chance(2):
        return c.draft.scalar(dtype, _number_near(c, dtype, size))
    value = c.draft.partner(ArrayShape(dtype, ()))
    return c.draft.evaluate("$binary(x, c)", value) if c.draft.chance(4) else value


def _begins(c: DrawnCall, sizes: list[int]) -> Iterable[DrawnValue]:
    dtype = c.draft.random.choice(INDEX_TYPES)
    for size, part in zip(c.x.dims, sizes, strict=True):
        yield _index(c, dtype, size - part + 1)


def _row(c: DrawnCall) -> list[int]:
    """The sizes of one row, at an index that is given."""
    dtype = c.operands[-1].array.dtype
    c.operands += [c.draft.scalar(dtype, 0) for _ in c.x.dims[1:]]
    return [1, *c.x.dims[1:]]


def _dynamic_slice(c: DrawnCall) -> str:
    if len(c.operands) == 2:
        sizes = _row(c)
    else:
        sizes = [c.draft.random.randint(min(1, size), size) for size in c.x.dims]
        c.operands += _begins(c, sizes)
    return _listed(sizes, "dynamic_slice_sizes")


def _dynamic_update_slice(c: DrawnCall) -> str:
    if len(c.operands) == 3:
        _row(c)
    else:
        sizes = [c.draft.random.randint(min(1, size), size) for size in c.x.dims]
        c.operands += [c.draft.source(c.of(sizes)), *_begins(c, sizes)]
    return ""


def _indices(c: DrawnCall, batch: list[int], places: list[int]) -> str:
    """Add indices of `places` as an operand, and say which dimension holds them."""
    draft = c.draft
    at = draft.random.randint(0, len(batch))
    dims = [*batch[:at], len(places), *batch[at:]]
    if len(places) == 1 and draft.chance(2):
        dims, at = batch, len(batch)
    shape = c.of(dims, draft.random.choice(INDEX_TYPES))
    if draft.chance(2) and shape.elements <= 64:
        most = max((c.x.dims[place] for place in places), default=1)
        texts = [_number_near(c, shape.dtype, most) for _ in range(shape.elements)]
        c.operands.append(draft.constant(shape, texts))
    else:
        c.operands.append(draft.source(shape))
    return f"index_vector_dim={at}"


def _mixed(c: DrawnCall, batch: list[int], window: list[int]) -> tuple[list[int], list[int]]:
    """The places of a window's dimensions among those of a batch, and all sizes in order."""
    rank = len(batch) + len(window)
    own = sorted(c.draft.random.sample(range(rank), len(window)))
    rest, inner = iter(batch), iter(window)
    return own, [next(inner if at in own else rest) for at in range(rank)]


def _gather(c: DrawnCall) -> str:
    batch = [c.one_of(1, 2, 3) for _ in range(c.one_of(0, 1, 2))]
    places = c.draft.shuffled(c.draft.some(c.x.rank, 1))
    sizes = [1 if c.draft.chance(2) else c.one_of(*range(1, size + 1)) for size in c.x.dims if size]
    if len(sizes) < c.x.rank:
        raise NotDrawn
    collapsed = [at for at in c.draft.some(c.x.rank) if sizes[at] == 1]
    kept = [size for at, size in enumerate(sizes) if at not in collapsed]
    parts = (
        _listed(_mixed(c, batch, kept)[0], "offset_dims"),
        _listed(collapsed, "collapsed_slice_dims"),
        _listed(places, "start_index_map"),
        _indices(c, batch, places),
        _listed(sizes, "slice_sizes"),
    )
    return ", ".join(parts)


def _scatter(c: DrawnCall) -> str:
    if not c.x.elements:
        raise NotDrawn
    body, _ = _combiner(c, "unordered")
    batch = [c.one_of(1, 2, 3) for _ in range(c.one_of(0, 1, 2))]
    places = c.draft.shuffled(c.draft.some(c.x.rank, 1))
    inserted = c.draft.some(c.x.rank)
    window = [c.one_of(*range(1, n + 1)) for at, n in enumerate(c.x.dims) if at not in inserted]
    own, dims = _mixed(c, batch, window)
    vector = _indices(c, batch, places)
    c.operands.append(c.draft.source(c.of(dims)))
    parts = (
        _listed(own, "update_window_dims"),
        _listed(inserted, "inserted_window_dims"),
        _listed(places, "scatter_dims_to_operand_dims"),
        *(vector, body),
    )
    return ", ".join(parts)


# ---- reductions and windows


def _reduce(c: DrawnCall) -> str:
    if c.callees:
        return f"{_one_dimension(c)}, to_apply=%{c.callees[0]}"
    body, opcode = _combiner(c, "commutative")
    c.operands.append(c.draft.scalar(c.x.dtype, neutral_element(c.x.dtype, opcode)))
    over = range(c.x.rank) if c.variant == "all" else c.draft.some(c.x.rank)
    return f"{_listed(over)}, {body}"


def _set_dimension_size(c: DrawnCall) -> str:
    attribute = _one_dimension(c)
    most = c.x.dims[int(attribute.split("{")[1].rstrip("}"))]
    low, size = c.draft.scalar("s32", 0), c.draft.parameter(ArrayShape("s32", ()))
    high = c.draft.scalar("s32", most)
    c.operands.append(c.draft.add("clamp", (low, size, high)))
    return attribute


def _window(c: DrawnCall, dims: Iterable[int], *, dilated: bool = True) -> str:
    parts: list[tuple[object, ...]] = []
    for size in dims:
        width, step = c.one_of(1, 1, 2, 3, size or 1), c.one_of(1, 1, 2, 3)
        low, high = (c.one_of(0, 0, 1, 2, width - 1) for _ in range(2))
        inner, outer = (c.one_of(1, 1, 1, 2, 3) for _ in range(2))
        if not dilated:
            low, high, inner, outer = min(low, width - 1), min(high, width - 1), 1, 1
        parts.append((width, step, f"{low}_{high}", outer, inner))
    if not parts:
        raise NotDrawn
    names = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate")
    fields = zip(names, zip(*parts, strict=True), strict=True)
    return " ".join(f"{name}={'x'.join(map(str, numbers))}" for name, numbers in fields)


def _reduce_window(c: DrawnCall) -> str:
    if not c.x.elements:
        raise NotDrawn
    body, opcode = _combiner(c, "commutative")
    c.operands.append(c.draft.scalar(c.x.dtype, neutral_element(c.x.dtype, opcode)))
    return f"window={{{_window(c, c.x.dims)}}}, {body}"


def _select_and_scatter(c: DrawnCall) -> str:
    select, scatter = c.callees
    zero = c.draft.scalar(c.x.dtype, 0)
    window = f"window={{{_window(c, c.x.dims, dilated=False)}}}"
    pooled = c.draft.add("reduce-window", (*c.operands, zero), f"{window}, to_apply=%{scatter}")
    if not pooled.array.elements:
        raise NotDrawn
    c.operands += [c.draft.source(pooled.array), zero]
    return f"{window}, select=%{select}, scatter=%{scatter}"


def _dot(c: DrawnCall) -> str:
    roles = [c.draft.random.choice("bck") for _ in c.x.dims]
    shared = {
        role: c.draft.shuffled(at for at, of in enumerate(roles) if of == role) for role in "bc"
    }
    items = [("f", size) for size in c.draft.shape("s32", c.one_of(0, 1, 2), 24).dims]
    items += [(role, at) for role, places in shared.items() for at in places]
    c.draft.random.shuffle(items)
    dims = [at if role == "f" else c.x.dims[at] for role, at in items]
    c.operands.append(c.draft.source(c.of(dims)))
    parts = []
    for role, name in (("b", "batch"), ("c", "contracting")):
        if places := shared[role]:
            parts.append(_listed(places, f"lhs_{name}_dims"))
            theirs = (items.index((role, at)) for at in places)
            parts.append(_listed(theirs, f"rhs_{name}_dims"))
    return ", ".join(parts)


def _convolution(c: DrawnCall) -> str:
    """Any dilation, padding and groups, and labels in any order."""
    dtype = c.x.dtype if c.x.dtype in ("s32", "s8", "f64") else "f32"
    groups, batch_groups = c.draft.random.choice(((1, 1), (1, 1), (2, 1), (3, 1), (1, 2), (1, 3)))
    rank = c.one_of(1, 2)
    sizes = [c.one_of(*range(1, 7)) for _ in range(rank)]
    window = _window(c, [min(size, 3) for size in sizes])
    widths = [int(n) for n in window.partition("size=")[2].partition(" ")[0].split("x")]
    inputs, outputs = c.one_of(1, 2), c.one_of(1, 2) * groups * batch_groups
    facts = (
        {"b": batch_groups * c.one_of(1, 2), "f": inputs * groups, **_numbered(sizes)},
        {"i": inputs, "o": outputs, **_numbered(widths)},
        {"b": 0, "f": 0, **_numbered(sizes)},
    )
    labels = ["".join(c.draft.random.sample([*fact], len(fact))) for fact in facts]
    c.operands = [
        c.draft.source(ArrayShape(dtype, tuple(fact[label] for label in order)))
        for fact, order in zip(facts[:2], labels, strict=False)
    ]
    reversal = "x".join(str(c.one_of(0, 1)) for _ in sizes)
    more = f"window={{{window} rhs_reversal={reversal}}}, dim_labels={labels[0]}_{labels[1]}"
    more += f"->{labels[2]}" + f", feature_group_count={groups}" * (groups > 1)
    return more + f", batch_group_count={batch_groups}" * (batch_groups > 1)


def _numbered(sizes: list[int]) -> dict[str, int]:
    return {str(at): size for at, size in enumerate(sizes)}


# ---- several devices


def _groups(c: DrawnCall) -> str:
    """Groups of the replicas, all of one size."""
    order = c.draft.shuffled(range(c.draft.replicas))
    size = c.one_of(*(n for n in (1, 2, 4) if n <= len(order)))
    groups = (_listed(order[at : at + size], "") for at in range(0, len(order), size))
    return _listed((group[1:] for group in groups), "replica_groups")


def _all_gather(c: DrawnCall) -> str:
    dimension, groups = _one_dimension(c), _groups(c)
    c.type = "" if "," in groups.split("}")[0] else str(c.x)  # of one device XLA infers nothing
    return f"{dimension}, {groups}"


def _pairs(c: DrawnCall) -> str:
    ids = range(c.draft.replicas)
    pairs = zip(c.draft.shuffled(ids), c.draft.shuffled(ids), strict=True)
    chosen = [f"{{{one},{other}}}" for one, other in pairs if not c.draft.chance(4)]
    return _listed(chosen, "source_target_pairs")


# ---- calls


def _conditional(c: DrawnCall) -> str:
    names = [f"%{name}" for name in c.callees]
    if c.x.dtype == "pred":
        return f"true_computation={names[0]}, false_computation={names[1]}"
    return _listed(names, "branch_computations")


_ATTRIBUTES: Final[Mapping[str, Callable[[DrawnCall], str]]] = {
    "all-gather": _all_gather,
    "all-reduce": lambda c: f"{_groups(c)}, {_combiner(c, 'commutative')[0]}",
    "all-to-all": lambda c: f"{_groups(c)}, {_one_dimension(c)}",
    "bitcast-convert": _bitcast_convert,
    "broadcast": _broadcast,
    "call": lambda c: f"to_apply=%{c.callees[0]}",
    "collective-permute": _pairs,
    "compare": lambda c: (
        f"direction={c.variant or c.draft.random.choice('EQ NE LT LE GT GE'.split())}"
    ),
    "concatenate": _one_dimension,
    "conditional": _conditional,
    "convert": _convert,
    "convolution": _convolution,
    "dot": _dot,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    "get-tuple-element": _get_tuple_element,
    "iota": _iota,
    "map": lambda c: f"{_listed(range(c.x.rank))}, to_apply=%{c.callees[0]}",
    "pad": _pad,
    "reduce": _reduce,
    "reduce-scatter": lambda c: (
        f"{_groups(c)}, {_one_dimension(c)}, {_combiner(c, 'commutative')[0]}"
    ),
    "reduce-window": _reduce_window,
    "reshape": _reshape,
    "reverse": lambda c: _listed(c.draft.some(c.x.rank)),
    "scatter": _scatter,
    "select-and-scatter": _select_and_scatter,
    "set-dimension-size": _set_dimension_size,
    "slice": _slice,
    "sort": lambda c: f"{_one_dimension(c)}, is_stable=true, to_apply=%{c.callees[0]}",
    "transpose": lambda c: _listed(c.draft.shuffled(range(c.x.rank))),
    "while": lambda c: f"condition=%{c.callees[0]}, body=%{c.callees[1]}",
}
