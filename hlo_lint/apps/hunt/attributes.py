"""The parts of a call that `steps.txt` leaves open: attributes, indices, fillers, types."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hlo_lint.apps.hunt.draft import (
    ATTRIBUTES,
    DrawnValue,
    ModuleDraft,
    NotDrawn,
    neutral_element,
    opcode_set,
)
from hlo_lint.hlo.dtypes import BITS
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape

INDEX_TYPES: Final = ("s32", "s32", "s64", "u32", "s8", "u8", "u64", "s16")
_word = re.compile(r"\b[A-Z]{3,}\b")


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

    def upto(self, size: int) -> int:
        """A number from 1, or 0 where there is no other."""
        return self.draft.random.randint(min(1, size), size)

    def of(self, dims: Iterable[int], dtype: str = "") -> ArrayShape:
        """An array of the type of the first operand."""
        return ArrayShape(dtype or self.x.dtype, tuple(dims))


def call(
    draft: ModuleDraft, opcode: str, variant: str, operands: list[DrawnValue], bodies: list[str]
) -> DrawnValue:
    """Add a call with what its opcode needs.

    Raises:
        NotDrawn: XLA would refuse it.
    """
    callees = [
        draft.body(_parameters(opcode, operands, at), text) for at, text in enumerate(bodies)
    ]
    c = DrawnCall(draft, operands, variant, callees)
    shape = operands[0].shape
    dtype = shape.dtype if isinstance(shape, ArrayShape) else ""
    kinds = (f":{variant}", ":called" * bool(callees), f":{dtype}", "")
    text = next((ATTRIBUTES[opcode + kind] for kind in kinds if opcode + kind in ATTRIBUTES), "")
    attributes = _word.sub(lambda word: _WORDS[word[0]](c), text)
    return draft.add(opcode, c.operands, attributes, c.type)


def _parameters(opcode: str, operands: list[DrawnValue], at: int) -> list[Shape]:
    """The parameters of a computation that is called."""
    if opcode in ("call", "while"):
        return [operand.shape for operand in operands]
    if opcode == "conditional":
        return [operands[at + 1].shape]
    scalars: list[Shape] = [ArrayShape(operand.array.dtype, ()) for operand in operands]
    doubled = opcode in ("sort", "select-and-scatter")
    return [shape for shape in scalars for _ in range(1 + doubled)]


def _listed(items: Iterable[object], separator: str = ",") -> str:
    return separator.join(map(str, items))


def _combiner(c: DrawnCall, opcodes: str = "commutative", *, reduces: bool = False) -> str:
    """A computation that is associative; what reduces begins with its identity."""
    opcode = c.draft.random.choice(opcode_set(opcodes, c.x.dtype) or [""])
    if not opcode:
        raise NotDrawn
    body = c.draft.body([c.of(()), c.of(())], f"{opcode}(p0, p1)")
    if reduces:
        c.operands.append(c.draft.scalar(c.x.dtype, neutral_element(c.x.dtype, opcode)))
    return f"to_apply=%{body}"


def _one(c: DrawnCall) -> str:
    if not c.x.rank:
        raise NotDrawn
    return str(c.draft.random.randrange(c.x.rank))


# ---- types that are printed


def _reshaped(c: DrawnCall) -> str:
    dims, left = [], c.x.elements
    while left > 1:
        dims.append(c.one_of(*(n for n in range(2, left + 1) if left % n == 0)))
        left //= dims[-1]
    if not c.x.elements:
        dims = c.draft.shuffled([0, *(c.one_of(1, 2, 3) for _ in range(c.one_of(0, 1, 2)))])
    for _ in range(c.one_of(0, 1, 2)):
        dims.insert(c.draft.random.randint(0, len(dims)), 1)
    c.type = str(c.of(dims))
    return ""


def _broadcast(c: DrawnCall) -> str:
    size, at = c.one_of(0, 1, 1, 2, 3, 4), c.draft.random.randint(0, c.x.rank)
    c.type = str(c.of([*c.x.dims[:at], size, *c.x.dims[at:]]))
    return _listed(number for number in range(c.x.rank + 1) if number != at)


def _same_dims(c: DrawnCall) -> str:
    c.type = str(c.of(c.x.dims, c.variant))
    return ""


def _counted(c: DrawnCall) -> str:
    at, _ = _one(c), _same_dims(c)
    c.operands = []
    return at


def _bits(c: DrawnCall) -> str:
    width, dims = BITS[c.x.dtype], c.x.dims
    other = c.one_of(8, 16, 32, 64) if width >= 8 else width
    if other > width and dims[-1:] != (other // width,):
        other = width
    if other != width:
        dims = (*dims, width // other) if other < width else dims[:-1]
    c.type = str(c.of(dims, f"{c.draft.random.choice('su')}{other}"))
    return ""


def _index_in_tuple(c: DrawnCall) -> str:
    shape = c.operands[0].shape
    assert isinstance(shape, TupleShape)
    return c.variant or str(c.draft.random.randrange(len(shape.elements)))


# ---- parts and places


def _slices(c: DrawnCall) -> str:
    ranges = []
    for size in c.x.dims:
        begin, end = sorted(c.draft.random.choices(range(size + 1), k=2))
        if begin == end and not c.draft.chance(12):
            begin, end = 0, size
        ranges.append(f"[{begin}:{end}:{c.one_of(1, 1, 1, 2, 3)}]")
    return _listed(ranges)


def _padding(c: DrawnCall) -> str:
    if not c.x.rank:
        raise NotDrawn
    edges = ([c.one_of(0, 0, 1, 2, -1, -2) for _ in range(2)] for _ in c.x.dims)
    return _listed((_listed([*ends, c.one_of(0, 0, 0, 1, 2)], "_") for ends in edges), "x")


def _number_near(c: DrawnCall, dtype: str, size: int) -> str:
    """A number about the border of so many elements."""
    low = 0 if dtype.startswith("u") else -2
    anywhere = c.draft.random.randint(low, size + 1)
    return str(c.one_of(anywhere, 0, max(size - 1, 0), max(low, -1)))


def _place(c: DrawnCall, sizes: Sequence[int]) -> str:
    """Add indices of a part: constants, values that are there, new parameters; or one of a row."""
    draft, dtype = c.draft, c.draft.random.choice(INDEX_TYPES)
    if len(c.operands) == 2:
        zero = draft.scalar(c.operands[1].array.dtype, 0)
        c.operands += [zero for _ in sizes[1:]]
        return _listed([1, *c.x.dims[1:]])
    for size, part in zip(c.x.dims, sizes, strict=True):
        if draft.chance(2):
            place = draft.scalar(dtype, _number_near(c, dtype, size - part + 1))
        else:
            place = draft.partner(ArrayShape(dtype, ()))
            place = draft.evaluate("$binary(x, c)", place) if draft.chance(4) else place
        c.operands.append(place)
    return _listed(sizes)


def _update(c: DrawnCall) -> str:
    """Add an update and its indices."""
    array, *given = c.operands
    update = given.pop(0) if given else c.draft.source(c.of(map(c.upto, c.x.dims)))
    c.operands = [array, *given]
    _place(c, update.array.dims)
    c.operands.insert(1, update)
    return ""


def _vector(c: DrawnCall, batch: list[int], places: list[int]) -> str:
    """Add indices of `places` as an operand, and say which dimension holds them."""
    draft, at = c.draft, c.draft.random.randint(0, len(batch))
    dims = [*batch[:at], len(places), *batch[at:]]
    if len(places) == 1 and draft.chance(2):
        dims, at = batch, len(batch)
    shape = c.of(dims, draft.random.choice(INDEX_TYPES))
    if draft.chance(2) and shape.elements <= 64:
        most = max(c.x.dims[place] for place in places)
        texts = [_number_near(c, shape.dtype, most) for _ in range(shape.elements)]
        c.operands.append(draft.constant(shape, texts))
    else:
        c.operands.append(draft.source(shape))
    return f"index_vector_dim={at}"


def _numbers(c: DrawnCall, *, is_scatter: bool = False) -> str:
    """Any dimension numbers of a gather, or of a scatter, with its updates."""
    draft = c.draft
    if not c.x.rank or not c.x.elements:
        raise NotDrawn
    batch = [c.one_of(1, 2, 3) for _ in range(c.one_of(0, 1, 2))]
    places = draft.shuffled(draft.some(c.x.rank, 1))
    gone = draft.some(c.x.rank)
    sizes = [1 if at in gone else c.upto(size) for at, size in enumerate(c.x.dims)]
    window = [size for at, size in enumerate(sizes) if at not in gone]
    rank = len(batch) + len(window)
    own = sorted(draft.random.sample(range(rank), len(window)))
    parts = [_listed(own), _listed(gone), _listed(places), _vector(c, batch, places)]
    if is_scatter:
        rest, inner = iter(batch), iter(window)
        dims = [next(inner if at in own else rest) for at in range(rank)]
        c.operands.append(draft.source(c.of(dims)))
        names = "update_window_dims inserted_window_dims scatter_dims_to_operand_dims"
    else:
        parts[-1] += f", slice_sizes={{{_listed(sizes)}}}"
        names = "offset_dims collapsed_slice_dims start_index_map"
    named = (f"{name}={{{part}}}" for name, part in zip(names.split(), parts, strict=False))
    return _listed([*named, parts[-1]], ", ")


def _clamped_size(c: DrawnCall) -> str:
    at = _one(c)
    if c.x.is_dynamic(int(at)):
        raise NotDrawn  # what lay beyond the first size may come back
    ends = (c.draft.scalar("s32", number) for number in (0, c.x.dims[int(at)]))
    low, high = ends
    size = c.draft.parameter(ArrayShape("s32", ()))
    c.operands.append(c.draft.add("clamp", (low, size, high)))
    return at


# ---- windows and products


def _window(c: DrawnCall, dims: Iterable[int] = (), *, dilated: bool = True) -> str:
    parts: list[tuple[object, ...]] = []
    for size in dims or c.x.dims:
        width, step = c.one_of(1, 1, 2, 3, size or 1), c.one_of(1, 1, 2, 3)
        low, high = (c.one_of(0, 0, 1, 2, width - 1) for _ in range(2))
        inner, outer = (c.one_of(1, 1, 1, 2, 3) for _ in range(2))
        if not dilated:
            low, high, inner, outer = min(low, width - 1), min(high, width - 1), 1, 1
        parts.append((width, step, f"{low}_{high}", outer, inner))
    if not parts or not c.x.elements:
        raise NotDrawn
    names = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate")
    fields = zip(names, zip(*parts, strict=True), strict=True)
    return " ".join(f"{name}={_listed(numbers, 'x')}" for name, numbers in fields)


def _pooling(c: DrawnCall) -> str:
    """A window, and the updates of a pooling by it."""
    window = f"window={{{_window(c, dilated=False)}}}"
    select, scatter = c.callees
    zero = c.draft.scalar(c.x.dtype, 0)
    pooled = c.draft.add("reduce-window", (*c.operands, zero), f"{window}, to_apply=%{scatter}")
    if not pooled.array.elements:
        raise NotDrawn
    c.operands += [c.draft.source(pooled.array), zero]
    return f"{window}, select=%{select}, scatter=%{scatter}"


def _product(c: DrawnCall) -> str:
    """Any batch and contracting dimensions, and another operand for them."""
    roles = [c.draft.random.choice("bck") for _ in c.x.dims]
    items: list[tuple[str, int]] = [
        ("", n) for n in c.draft.shape("s32", c.one_of(0, 1, 2), 24).dims
    ]
    items += [(role, at) for at, role in enumerate(roles) if role != "k"]
    c.draft.random.shuffle(items)
    dims = (c.x.dims[at] if role else at for role, at in items)
    c.operands.append(c.draft.source(c.of(dims)))
    parts = []
    for of, name in (("b", "batch"), ("c", "contracting")):
        places = c.draft.shuffled(at for role, at in items if role == of)
        theirs = _listed(items.index((of, at)) for at in places)
        if places:
            parts.append(f"lhs_{name}_dims={{{_listed(places)}}}, rhs_{name}_dims={{{theirs}}}")
    return _listed(parts, ", ")


def _convolution(c: DrawnCall) -> str:
    """Any dilation, padding and groups, and labels in any order, for operands of its own."""
    dtype = c.x.dtype if c.x.dtype in ("s32", "s8", "f64") else "f32"
    groups = c.draft.random.choice(((1, 1), (1, 1), (2, 1), (3, 1), (1, 2), (1, 3)))
    sizes = [c.one_of(*range(1, 7)) for _ in range(c.one_of(1, 2))]
    window = _window(c, [min(size, 3) for size in sizes])
    widths = map(int, window.partition("size=")[2].partition(" ")[0].split("x"))
    facts: tuple[dict[str, int], ...] = (
        {"b": groups[1] * c.one_of(1, 2), "f": c.one_of(1, 2) * groups[0]},
        {"i": 0, "o": c.one_of(1, 2) * groups[0] * groups[1]},
        {"b": 0, "f": 0},
    )
    facts[1]["i"] = facts[0]["f"] // groups[0]
    for fact, extents in zip(facts, (sizes, widths, sizes), strict=True):
        fact.update((str(at), size) for at, size in enumerate(extents))
    labels = ["".join(c.draft.random.sample([*fact], len(fact))) for fact in facts]
    shapes = [[fact[key] for key in order] for fact, order in zip(facts, labels, strict=True)]
    c.operands = [c.draft.source(ArrayShape(dtype, tuple(dims))) for dims in shapes[:2]]
    window += f" rhs_reversal={_listed((c.one_of(0, 1) for _ in sizes), 'x')}"
    more = f"window={{{window}}}, dim_labels={labels[0]}_{labels[1]}->{labels[2]}"
    return f"{more}, feature_group_count={groups[0]}, batch_group_count={groups[1]}"


# ---- several devices


def _groups(c: DrawnCall) -> str:
    """Groups of the replicas, all of one size; of one device XLA infers no gathered shape."""
    if c.draft.partitions > 1:
        raise NotDrawn  # their groups are of partitions, by another spelling
    order = c.draft.shuffled(range(c.draft.replicas))
    size = c.one_of(*(n for n in (1, 2, 4) if n <= len(order)))
    c.type = str(c.x) if size == 1 else ""
    return _listed(f"{{{_listed(order[at : at + size])}}}" for at in range(0, len(order), size))


def _pairs(c: DrawnCall) -> str:
    if c.draft.partitions > 1:
        raise NotDrawn
    ids = range(c.draft.replicas)
    pairs = zip(c.draft.shuffled(ids), c.draft.shuffled(ids), strict=True)
    return _listed(f"{{{one},{other}}}" for one, other in pairs if not c.draft.chance(4))


_WORDS: Final[Mapping[str, Callable[[DrawnCall], str]]] = {
    "ALL": lambda c: _listed(range(c.x.rank)),
    "BITS": _bits,
    "BRANCHES": lambda c: _listed(f"%{name}" for name in c.callees),
    "CALLEE": lambda c: c.callees.pop(0),
    "COMBINER": _combiner,
    "CONVOLUTION": _convolution,
    "COUNTED": _counted,
    "DIRECTION": lambda c: c.variant or c.draft.random.choice("EQ NE LT LE GT GE".split()),
    "DIMS": _same_dims,
    "GROUPS": _groups,
    "INDEX": _index_in_tuple,
    "GATHERED": _numbers,
    "OFFSET": _broadcast,
    "ONE": _one,
    "ORDER": lambda c: _listed(c.draft.shuffled(range(c.x.rank))),
    "PADDING": _padding,
    "PAIRS": _pairs,
    "PART": lambda c: _place(c, list(map(c.upto, c.x.dims))),
    "POOLING": _pooling,
    "PRODUCT": _product,
    "REDUCER": lambda c: _combiner(c, reduces=True),
    "RESHAPED": _reshaped,
    "SCATTERED": lambda c: _numbers(c, is_scatter=True),
    "SIZE": _clamped_size,
    "SLICES": _slices,
    "SOME": lambda c: _listed(c.draft.some(c.x.rank)),
    "UNORDERED": lambda c: _combiner(c, "unordered"),
    "UPDATE": _update,
    "WINDOW": _window,
}
