"""The parts of a call that `steps.txt` leaves open: attributes, indices, fillers, types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from hlo_lint.apps.hunt.draft import ATTRIBUTES, DrawnValue, ModuleDraft, NotDrawn, neutral_element
from hlo_lint.hlo.dtypes import BITS
from hlo_lint.hlo.shape import ArrayShape, Shape

_SCATTER_NAMES: Final = {
    "offset_dims": "update_window_dims",
    "collapsed_slice_dims": "inserted_window_dims",
    "start_index_map": "scatter_dims_to_operand_dims",
}
INDEX_TYPES: Final = ("s32", "s32", "s64", "u32", "s8", "u8", "u64", "s16")
_word = re.compile(r"\b[A-Z]{3,}\b")
_repeated = re.compile(r"\(([^()]*)\)\*(.)")


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

    def spelled(self, text: str, dims: Sequence[int]) -> str:
        """Attributes, drawn: a word in capitals by the method of that name."""
        while part := _repeated.search(text):
            sides = (part[1].replace("SIDE", f"{n}").replace("HALF", f"{n // 2}") for n in dims)
            text = text.replace(part[0], part[2].join(sides), 1)
        text = self.draft.choose(text)
        return _word.sub(lambda word: getattr(self, f"_{word[0].lower()}")(), text).strip()

    def _all(self) -> str:
        return _listed(range(self.x.rank))

    def _some(self) -> str:
        return _listed(self.draft.some(self.x.rank))

    def _order(self) -> str:
        return _listed(self.draft.random.sample(range(self.x.rank), self.x.rank))

    def _callee(self) -> str:
        return f"%{self.callees.pop(0)}"

    def _callees(self) -> str:
        return _listed(f"%{name}" for name in self.callees)

    def _direction(self) -> str:
        return self.variant or self.draft.random.choice("EQ NE LT LE GT GE".split())

    def _combiner(self, of: str = "commutative", *, reduces: bool = False) -> str:
        """A computation that is associative; what reduces begins with its identity."""
        draft, dtype, opcode = self.draft, self.x.dtype, self.draft.opcode(of, self.x.dtype)
        body = draft.called([self.of(())] * 2, lambda inner, values: inner.add(opcode, values))
        if reduces:
            self.operands.append(draft.scalar(dtype, neutral_element(dtype, opcode)))
        return f"to_apply=%{body}"

    def _reducer(self) -> str:
        return self._combiner(reduces=True)

    def _one(self) -> str:
        if not self.x.rank:
            raise NotDrawn
        return str(self.draft.random.randrange(self.x.rank))

    def _reshape(self) -> str:
        left = self.x.elements
        dims = [] if left else [0]
        while left > 1:
            dims.append(self.one_of(*(n for n in range(2, left + 1) if left % n == 0)))
            left //= dims[-1]
        for _ in range(self.one_of(0, 1, 2)):
            dims.insert(self.draft.random.randint(0, len(dims)), 1)
        self.type = str(self.of(dims))
        return ""

    def _broadcast(self) -> str:
        size, at = self.one_of(0, 1, 1, 2, 3, 4), self.draft.random.randint(0, self.x.rank)
        self.type = str(self.of([*self.x.dims[:at], size, *self.x.dims[at:]]))
        return _listed(number for number in range(self.x.rank + 1) if number != at)

    def _typed(self) -> str:
        self.type = str(self.of(self.x.dims, self.variant))
        return ""

    def _bits(self) -> str:
        width, dims = BITS[self.x.dtype], self.x.dims
        other = self.one_of(8, 16, 32, 64) if width >= 8 else width
        if other > width and dims[-1:] != (other // width,):
            other = width
        if other != width:
            dims = (*dims, width // other) if other < width else dims[:-1]
        self.type = str(self.of(dims, f"{self.draft.random.choice('su')}{other}"))
        return ""

    def _variant(self) -> str:
        return self.variant

    def _part(self, sizes: Sequence[int] = ()) -> str:
        """Add indices of a part: constants, and values of other kinds; zeros where one is given."""
        draft, dtype = self.draft, self.draft.random.choice(INDEX_TYPES)
        sizes = sizes or [*map(self.draft.upto, self.x.dims)]
        if len(self.operands) == 2:
            zero = draft.scalar(self.operands[1].array.dtype, 0)
            self.operands += [zero for _ in sizes[1:]]
            return _listed([1, *self.x.dims[1:]])
        for _ in sizes:
            is_constant, scalar = draft.chance(2), ArrayShape(dtype, ())
            self.operands.append(draft.scalar(dtype) if is_constant else draft.partner(scalar))
        return _listed(sizes)

    def _update(self) -> str:
        """Add an update and its indices."""
        array, update, *given = self.operands
        self.operands = [array, *given]
        self._part(update.array.dims)
        self.operands.insert(1, update)
        return ""

    def _gather(self, *, is_scatter: bool = False) -> str:
        """Any dimension numbers of a gather, and indices; of a scatter, with its updates, too."""
        draft = self.draft
        if not self.x.rank or not self.x.elements:
            raise NotDrawn
        batch = [self.one_of(1, 2, 3) for _ in range(self.one_of(0, 1, 2))]
        places, gone = draft.some(self.x.rank, 1), draft.some(self.x.rank)
        draft.random.shuffle(places)
        sizes = [1 if at in gone else self.draft.upto(size) for at, size in enumerate(self.x.dims)]
        rank = len(batch) + self.x.rank - len(gone)
        own = sorted(draft.random.sample(range(rank), self.x.rank - len(gone)))
        at = draft.random.randint(0, len(batch))
        dims = [*batch[:at], len(places), *batch[at:]]
        if len(places) == 1 and draft.chance(2):
            dims, at = batch, len(batch)
        shape = self.of(dims, draft.random.choice(INDEX_TYPES))
        self.operands.append(draft.source(shape))
        text = f"offset_dims={{{_listed(own)}}}, collapsed_slice_dims={{{_listed(gone)}}}"
        text += f", start_index_map={{{_listed(places)}}}, index_vector_dim={at}"
        slices = f", slice_sizes={{{_listed(sizes)}}}"
        if not is_scatter:
            return text + slices
        # A scatter writes what a gather of the same numbers would read.
        updates = draft.inferred("gather", self.operands, text + slices)
        self.operands.append(draft.source(DrawnValue("", updates).array))
        for name, of_scatter in _SCATTER_NAMES.items():
            text = text.replace(name, of_scatter)
        return f"{text}, {self._combiner('unordered')}"

    def _scatter(self) -> str:
        return self._gather(is_scatter=True)

    def _size(self) -> str:
        at = self._one()
        if self.x.is_dynamic(int(at)):
            raise NotDrawn  # what lay beyond the first size may come back
        low, high = (self.draft.scalar("s32", number) for number in (0, self.x.dims[int(at)]))
        size = self.draft.parameter(ArrayShape("s32", ()))
        self.operands.append(self.draft.add("clamp", (low, size, high)))
        return at

    def _window(self, kind: str = "window", dims: Sequence[int] = ()) -> str:
        return self.spelled(ATTRIBUTES[kind], dims or self.x.dims)

    def _pooling(self) -> str:
        """A window, and the updates of a pooling by it."""
        window, (select, scatter) = f"window={{{self._window('pooling')}}}", self.callees
        given = (*self.operands, self.draft.scalar(self.x.dtype, 0))
        pooled = self.draft.inferred("reduce-window", given, f"{window}, to_apply=%{scatter}")
        self.operands.insert(1, self.draft.source(DrawnValue("", pooled).array))
        self.operands.append(given[1])
        return f"{window}, select=%{select}, scatter=%{scatter}"

    def _product(self) -> str:
        """Any batch and contracting dimensions, and another operand for them."""
        draft, roles = self.draft, [self.draft.random.choice("bck") for _ in self.x.dims]
        own = draft.shape("s32", self.one_of(0, 1, 2), 24).dims
        items = [*(("", size) for size in own), *zip(roles, range(self.x.rank), strict=True)]
        items = [item for item in items if item[0] != "k"]
        draft.random.shuffle(items)
        dims = (self.x.dims[at] if role else at for role, at in items)
        self.operands.append(draft.source(self.of(dims)))
        parts = []
        for of, name in (("b", "batch"), ("c", "contracting")):
            places = [at for role, at in items if role == of]
            draft.random.shuffle(places)
            theirs = _listed(items.index((of, at)) for at in places)
            if places:
                parts.append(f"lhs_{name}_dims={{{_listed(places)}}}, rhs_{name}_dims={{{theirs}}}")
        return _listed(parts, ", ")

    def _convolution(self) -> str:
        """Any dilation, padding and groups, and labels in any order, for operands of its own."""
        dtype = self.x.dtype if self.x.dtype in ("s32", "s8", "f64") else "f32"
        features = self.one_of(1, 1, 1, 2, 3)
        batches = self.one_of(1, 1, 2, 3) if features == 1 else 1
        sizes = [self.one_of(*range(1, 7)) for _ in range(self.one_of(1, 2))]
        window = self._window(dims=[min(size, 3) for size in sizes])
        widths = map(int, window.partition("size=")[2].partition(" ")[0].split("x"))
        batch, inputs = batches * self.one_of(1, 2), self.one_of(1, 2)
        outputs = self.one_of(1, 2) * features * batches
        labels, shapes = [], []
        for sides, extents in (
            ({"b": batch, "f": inputs * features}, sizes),
            ({"i": inputs, "o": outputs}, widths),
            ({"b": 0, "f": 0}, sizes),
        ):
            sides |= {str(at): size for at, size in enumerate(extents)}
            labels.append("".join(self.draft.random.sample([*sides], len(sides))))
            shapes.append(ArrayShape(dtype, tuple(sides[side] for side in labels[-1])))
        self.operands = [*map(self.draft.source, shapes[:2])]
        window += f" rhs_reversal={_listed((self.one_of(0, 1) for _ in sizes), 'x')}"
        more = f"window={{{window}}}, dim_labels={labels[0]}_{labels[1]}->{labels[2]}"
        return f"{more}, feature_group_count={features}, batch_group_count={batches}"

    def _groups(self) -> str:
        """Groups of the replicas, all of one size; of one device XLA infers no gathered shape."""
        order = self._replicas()
        size = self.one_of(*(n for n in (1, 2, 4) if n <= len(order)))
        self.type = str(self.x) if size == 1 else ""
        return _listed(f"{{{_listed(order[at : at + size])}}}" for at in range(0, len(order), size))

    def _pairs(self) -> str:
        pairs = zip(self._replicas(), self._replicas(), strict=True)
        return _listed(f"{{{one},{other}}}" for one, other in pairs if not self.draft.chance(4))

    def _replicas(self) -> list[int]:
        """The replicas in any order; groups of partitions have another spelling."""
        if self.draft.partitions > 1:
            raise NotDrawn
        return self.draft.random.sample(range(self.draft.replicas), self.draft.replicas)


def draw_call(
    draft: ModuleDraft, opcode: str, variant: str, operands: list[DrawnValue], callees: list[str]
) -> DrawnValue:
    """Add a call with what its opcode needs.

    Raises:
        NotDrawn: XLA would refuse it.
    """
    text = ATTRIBUTES.get(f"{opcode}:{variant}", ATTRIBUTES.get(opcode, ""))
    call = DrawnCall(draft, operands, variant, callees)
    attributes = call.spelled(text, call.x.dims if "*" in text else ())
    return draft.add(opcode, call.operands if opcode != "iota" else (), attributes, call.type)


def called_shapes(opcode: str, operands: list[DrawnValue], number: int) -> list[Shape]:
    """The parameters of a computation that is called, of several that with a number."""
    if opcode in ("call", "while"):
        return [operand.shape for operand in operands]
    if opcode == "conditional":
        return [operands[number + 1].shape]
    times = 1 + (opcode in ("sort", "select-and-scatter"))
    return [ArrayShape(one.array.dtype, ()) for one in operands for _ in range(times)]


def _listed(items: Iterable[object], separator: str = ",") -> str:
    return separator.join(map(str, items))
