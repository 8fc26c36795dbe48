"""The parts of a call that `steps.txt` leaves open: attributes, indices, fillers, types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hlo_lint.apps.hunt.draft import ATTRIBUTES, DrawnValue, ModuleDraft, NotDrawn, neutral_element
from hlo_lint.hlo.dtypes import BITS
from hlo_lint.hlo.shape import ArrayShape

_word = re.compile(r"\b[A-Z]{3,}\b")
_repeated = re.compile(r"\(([^()]*)\)\*(.)")


@dataclass
class DrawnCall:
    """A call while it is drawn.

    A word of `steps.txt` is one of `words`, or what the method of its name gives, which may add
    operands, a type, and words.
    """

    draft: ModuleDraft
    operands: list[DrawnValue]
    words: dict[str, Sequence[object]]
    type: str = ""
    """Printed where it cannot be inferred."""
    combiner: str = ""
    """The opcode of the last combiner."""

    def add(self, opcode: str) -> DrawnValue:
        """Add the call with what its opcode needs.

        Raises:
            NotDrawn: XLA would refuse it.
        """
        text = ATTRIBUTES.get(f"{opcode}:{self.words['VARIANT']}", ATTRIBUTES.get(opcode, ""))
        tail = self._spelled(text, self.x.dims if "*" in text else ())
        return self.draft.add(opcode, self.operands if opcode != "iota" else (), tail, self.type)

    @property
    def x(self) -> ArrayShape:
        """The shape of the first operand."""
        return self.operands[0].array

    def _one_of(self, *choices: int) -> int:
        return self.draft.random.choice(choices)

    def _any(self, dims: Iterable[int], dtype: str = "") -> None:
        """Add an operand of the type of the first one."""
        self.operands.append(self.draft.source(ArrayShape(dtype or self.x.dtype, tuple(dims))))

    def _like(self, opcode: str, operands: Sequence[DrawnValue], attributes: str) -> None:
        """Add an operand like what another call makes."""
        shape = self.draft.inferred(opcode, operands, attributes)
        self._any(DrawnValue("", shape, "").array.dims)

    def _spelled(self, text: str, dims: Sequence[int] = ()) -> str:
        while part := _repeated.search(text):
            sides = (part[1].replace("SIDE", f"{n}").replace("HALF", f"{n // 2}") for n in dims)
            text = text.replace(part[0], part[2].join(sides), 1)
        return _word.sub(self._drawn, self.draft.choose(text)).strip()

    def _drawn(self, word: re.Match[str]) -> str:
        name = word[0]
        made = self.words[name] if name in self.words else getattr(self, f"_{name.lower()}")()
        return made if isinstance(made, str) else ",".join(map(str, made or ()))

    # ---- words: dimensions and types

    def _all(self) -> Sequence[int]:
        return range(self.x.rank)

    def _some(self) -> list[int]:
        return self.draft.some(self.x.rank)

    def _order(self) -> list[int]:
        return self.draft.random.sample(range(self.x.rank), self.x.rank)

    def _one(self) -> list[int]:
        if not self.x.rank:
            raise NotDrawn
        return self._order()[:1]

    def _typed(self, dims: Iterable[int] | None = None, dtype: str = "") -> None:
        dtype = dtype or str(self.words["VARIANT"]) or self.x.dtype
        self.type = str(ArrayShape(dtype, self.x.dims if dims is None else tuple(dims)))

    def _reshape(self) -> None:
        left = self.x.elements
        dims = [] if left else [0]
        while left > 1:
            dims.append(self._one_of(*(n for n in range(2, left + 1) if left % n == 0)))
            left //= dims[-1]
        for _ in range(self._one_of(0, 1, 2)):
            dims.insert(self.draft.random.randint(0, len(dims)), 1)
        self._typed(dims)

    def _broadcast(self) -> list[int]:
        dims, at = [*self.x.dims], self._one_of(*range(self.x.rank + 1))
        dims.insert(at, self._one_of(0, 1, 1, 2, 3, 4))
        self._typed(dims)
        return [number for number in range(len(dims)) if number != at]

    def _bits(self) -> None:
        width, dims = BITS[self.x.dtype], self.x.dims
        wider = [n for n in (16, 32, 64) if n > width >= 8 and dims[-1:] == (n // width,)]
        other = self._one_of(width, *(n for n in (8, 16, 32) if n < width), *wider)
        if other != width:
            dims = (*dims, width // other) if other < width else dims[:-1]
        self._typed(dims, f"{self.draft.random.choice('su')}{other}")

    # ---- parts

    def _part(self, sizes: Sequence[int] = ()) -> Sequence[int]:
        """Add indices of a part: constants, and values of other kinds; zeros where one is given."""
        draft, index = self.draft, ArrayShape(self.draft.one_of("index", "s32"), ())
        if len(self.operands) == 2:
            zero = draft.scalar(self.operands[1].array.dtype, 0)
            self.operands += [zero] * (self.x.rank - 1)
            return [1, *self.x.dims[1:]]
        sizes = sizes or [*map(draft.upto, self.x.dims)]
        self.operands += [draft.leaf(draft.random.choice("ky"), index) for _ in sizes]
        return sizes

    def _update(self) -> None:
        """Add the indices of an update."""
        update = self.operands.pop(1)
        self._part(update.array.dims)
        self.operands.insert(1, update)

    def _gather(self) -> None:
        """Draw any dimension numbers of a gather, and add indices."""
        draft, random, rank = self.draft, self.draft.random, self.x.rank
        if not rank or not self.x.elements:
            raise NotDrawn
        dims = [self._one_of(1, 2, 3) for _ in range(self._one_of(0, 1, 2))]
        places, gone, at = self._order(), draft.some(rank), random.randint(0, len(dims))
        places = places[: self.draft.upto(rank)]
        sizes = [1 if at in gone else draft.upto(size) for at, size in enumerate(self.x.dims)]
        offsets = random.sample(range(len(dims) + rank - len(gone)), rank - len(gone))
        if len(places) > 1 or draft.chance(2):
            dims.insert(at, len(places))
        else:
            at = len(dims)
        self._any(dims, draft.one_of("index", "s32"))
        self.words |= {"OFFSETS": sorted(offsets), "GONE": gone, "PLACES": places}
        self.words |= {"VECTOR": [at], "SIZES": sizes}

    def _scatter(self) -> None:
        """Draw the numbers of a gather, and add what that would read, which is written."""
        self._like("gather", self.operands, self._spelled(ATTRIBUTES["gather"]))

    def _size(self) -> list[int]:
        (at,) = self._one()
        if self.x.is_dynamic(at):
            raise NotDrawn  # what lay beyond the first size may come back
        low, high = (self.draft.scalar("s32", number) for number in (0, self.x.dims[at]))
        size = self.draft.parameter(ArrayShape("s32", ()))
        self.operands.append(self.draft.add("clamp", (low, size, high)))
        return [at]

    # ---- computations, windows, products

    def _combiner(self, of: str = "commutative") -> str:
        """A computation that is associative."""
        dtype, draft = self.x.dtype, self.draft
        opcode = self.combiner = draft.one_of(of, dtype)
        scalars = [ArrayShape(dtype, ())] * 2
        return draft.called(scalars, lambda body, _: body.add(opcode, [*body.values.values()]))

    def _unordered(self) -> str:
        return self._combiner("unordered")

    def _reducer(self) -> str:
        """A computation, which begins with its identity."""
        body, dtype = self._combiner(), self.x.dtype
        self.operands.append(self.draft.scalar(dtype, neutral_element(dtype, self.combiner)))
        return body

    def _window(self) -> str:
        return self._spelled(ATTRIBUTES["window"], self.x.dims)

    def _pooling(self) -> str:
        """A window, and the updates of a pooling by it."""
        window = self._spelled(ATTRIBUTES["pooling"], self.x.dims)
        given = [*self.operands, self.draft.scalar(self.x.dtype, 0)]
        self._like("reduce-window", given, f"window={{{window}}}, to_apply={self.words['SECOND']}")
        self.operands.append(given[1])
        return window

    def _product(self) -> None:
        """Draw batch and contracting dimensions, and add another operand for them."""
        roles = [self.draft.random.choice("BCK") for _ in self.x.dims]
        own = self.draft.shape("s32", self._one_of(0, 1, 2), 24).dims
        items = [(at, self.x.dims[at]) for at, role in enumerate(roles) if role != "K"]
        items += [(-1, size) for size in own]
        self.draft.random.shuffle(items)
        self._any(size for _, size in items)
        places = [at for at, _ in items]
        for role in "BC":
            ours = [at for at in self._order() if roles[at] == role]
            self.words |= {f"LHS{role}": ours, f"RHS{role}": [*map(places.index, ours)]}

    def _convolution(self) -> str:
        """A window, with any dilation, padding and groups; labels, and operands of its own."""
        dtype = self.x.dtype if self.x.dtype in ("s32", "s8", "f64") else "f32"
        features, batches = self._one_of(1, 1, 1, 2, 3), self._one_of(1, 1, 2, 3)
        batches = batches if features == 1 else 1
        sizes = [self._one_of(*range(1, 7)) for _ in range(self._one_of(1, 2))]
        window = self._spelled(ATTRIBUTES["window"], [min(size, 3) for size in sizes])
        widths = map(int, re.findall(r"\d+", window.partition(" ")[0]))
        inputs, outputs = self._one_of(1, 2), self._one_of(1, 2) * features * batches
        labels, self.operands = [], []
        for sides, extents in (
            ({"b": batches * self._one_of(1, 2), "f": inputs * features}, sizes),
            ({"i": inputs, "o": outputs}, widths),
            ({"b": 0, "f": 0}, sizes),
        ):
            sides |= {str(at): size for at, size in enumerate(extents)}
            labels.append("".join(self.draft.random.sample([*sides], len(sides))))
            if len(labels) < 3:
                self._any((sides[side] for side in labels[-1]), dtype)
        self.words |= {"LABELS": "{}_{}->{}".format(*labels)}
        self.words |= {"FEATURES": [features], "BATCHES": [batches]}
        return f"{window} rhs_reversal={'x'.join(str(self._one_of(0, 1)) for _ in sizes)}"

    # ---- devices

    def _replicas(self) -> list[int]:
        """The replicas in any order; groups of partitions have another spelling."""
        if self.draft.partitions > 1:
            raise NotDrawn
        return self.draft.random.sample(range(self.draft.replicas), self.draft.replicas)

    def _groups(self) -> list[str]:
        """Groups of the replicas, all of one size; of one device XLA infers no gathered shape."""
        order = [*map(str, self._replicas())]
        size = self._one_of(*(n for n in (1, 2, 4) if n <= len(order)))
        self.type = str(self.x) if size == 1 else ""
        return [f"{{{','.join(order[at : at + size])}}}" for at in range(0, len(order), size)]

    def _pairs(self) -> list[str]:
        pairs = zip(self._replicas(), self._replicas(), strict=True)
        return [f"{{{one},{other}}}" for one, other in pairs if not self.draft.chance(4)]
