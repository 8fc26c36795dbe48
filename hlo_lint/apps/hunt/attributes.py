"""The parts of a call that `steps.txt` leaves open: attributes, indices, fillers, types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from hlo_lint.apps.hunt.draft import ATTRIBUTES, DrawnValue, ModuleDraft, NotDrawn, neutral_element
from hlo_lint.hlo.dtypes import BITS
from hlo_lint.hlo.shape import ArrayShape

_word = re.compile(r"\b[A-Z]{3,}\b")
_repeated = re.compile(r"\(([^()]*)\)\*(.)")


@dataclass
class DrawnCall:
    """A call while it is drawn.

    A word of `steps.txt` is one of `words`, a template of its name, or what the method of its name
    gives, which may add operands, a type, and words.
    """

    draft: ModuleDraft
    opcode: str
    operands: list[DrawnValue]
    words: dict[str, Sequence[Any]]
    type: str = ""
    """Printed where it cannot be inferred."""

    def add(self) -> DrawnValue:
        """Add the call with what its opcode needs, or raise NotDrawn where XLA would refuse it."""
        variants = (f"{self.opcode}:{self.words['VARIANT']}", self.opcode)
        text = next((ATTRIBUTES[name] for name in variants if name in ATTRIBUTES), "")
        if isinstance(self.operands[0].shape, ArrayShape):
            order = self.draft.random.sample(range(self.x.rank), self.x.rank)
            self.words |= {"ALL": range(self.x.rank), "SOME": self.draft.some(self.x.rank)}
            self.words |= {"ORDER": order} | ({"ONE": order[:1]} if order else {})
        tail = self._spelled(text, self.x.dims if "*" in text else ())
        operands = self.operands if self.opcode != "iota" else ()
        return self.draft.add(self.opcode, operands, tail, self.type)

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

    def _drawn(self, match: re.Match[str]) -> str:
        word, name = match[0], match[0].lower()
        if name in ATTRIBUTES:
            return self._spelled(ATTRIBUTES[name], self.x.dims)
        if word == "ONE" and word not in self.words:
            raise NotDrawn  # a scalar has no dimension
        made = self.words[word] if word in self.words else getattr(self, f"_{name}")()
        return made if isinstance(made, str) else ",".join(map(str, made or ()))

    # ---- words: dimensions and types

    def _typed(self, dims: Sequence[int] | None = None, dtype: str = "") -> None:
        dtype = dtype or str(self.words["VARIANT"]) or self.x.dtype
        self.type = str(ArrayShape(dtype, self.x.dims if dims is None else tuple(dims)))

    def _reshaped(self) -> None:
        """Merge two dimensions, or add one of 1, and split one."""
        dims, at = [*self.x.dims], self._one_of(*range(self.x.rank + 1))
        dims[at : at + 2] = [prod(dims[at : at + 2])]
        at = self._one_of(*range(len(dims)))
        outer = self._one_of(*(n for n in range(1, dims[at] + 1) if dims[at] % n == 0), 1)
        dims[at : at + 1] = [outer, dims[at] // outer]
        self._typed(dims)

    def _kept(self) -> list[int]:
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

    def _gathered(self) -> None:
        """Draw any dimension numbers of a gather, and add indices."""
        draft, random, rank = self.draft, self.draft.random, self.x.rank
        if not rank or not self.x.elements:
            raise NotDrawn
        dims = [self._one_of(1, 2, 3) for _ in range(self._one_of(0, 1, 2))]
        gone, at = draft.some(rank), random.randint(0, len(dims))
        places = random.sample(range(rank), draft.upto(rank))
        sizes = [1 if at in gone else draft.upto(size) for at, size in enumerate(self.x.dims)]
        offsets = random.sample(range(len(dims) + rank - len(gone)), rank - len(gone))
        if len(places) > 1 or draft.chance(2):
            dims.insert(at, len(places))
        else:
            at = len(dims)
        self._any(dims, draft.one_of("index", "s32"))
        self.words |= {"OFFSETS": sorted(offsets), "GONE": gone, "PLACES": places}
        self.words |= {"VECTOR": [at], "SIZES": sizes}

    def _scattered(self) -> None:
        """Draw the numbers of a gather, and add what that would read, which is written."""
        self._like("gather", self.operands, self._spelled(ATTRIBUTES["gather"]))

    def _sized(self) -> None:
        """Add a size in range: what lay beyond a first size may come back with a second one."""
        (at,) = self.words.get("ONE", [0])
        if not self.x.rank or self.x.is_dynamic(at):
            raise NotDrawn
        low, high = (self.draft.scalar("s32", number) for number in (0, self.x.dims[at]))
        size = self.draft.parameter(ArrayShape("s32", ()))
        self.operands.append(self.draft.add("clamp", (low, size, high)))

    # ---- computations, windows, products

    def _combiner(self, *, reduces: bool = False) -> str:
        """A computation that is associative; what reduces begins with its identity."""
        draft, dtype = self.draft, self.x.dtype
        opcode = draft.one_of("unordered" if self.opcode == "scatter" else "commutative", dtype)
        if reduces:
            self.operands.append(draft.scalar(dtype, neutral_element(dtype, opcode)))
        scalars = [ArrayShape(dtype, ())] * 2
        return draft.called(scalars, lambda body, _: body.add(opcode, [*body.values.values()]))

    def _reducer(self) -> str:
        return self._combiner(reduces=True)

    def _pooled(self) -> str:
        """A window, and the updates of a pooling by it."""
        window = self._spelled(ATTRIBUTES["pooling"], self.x.dims)
        given = [*self.operands, self.draft.scalar(self.x.dtype, 0)]
        self._like("reduce-window", given, f"window={{{window}}}, to_apply={self.words['SECOND']}")
        self.operands.append(given[1])
        return window

    def _product(self) -> None:
        """Draw batch and contracting dimensions, and add another operand for them."""
        rank, random = self.x.rank, self.draft.random
        order, ends = random.sample(range(rank), rank), [random.randint(0, rank) for _ in range(2)]
        own = self.draft.shape("s32", self._one_of(0, 1, 2), 24).dims
        items = [*((at, self.x.dims[at]) for at in order[: max(ends)]), *((-1, n) for n in own)]
        random.shuffle(items)
        self._any(size for _, size in items)
        for role, ours in (("B", order[: min(ends)]), ("C", order[min(ends) : max(ends)])):
            theirs = [next(n for n, (of, _) in enumerate(items) if of == at) for at in ours]
            self.words |= {f"LHS{role}": ours, f"RHS{role}": theirs}

    def _convolved(self) -> str:
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
