"""Shrink dimensions that must be equal together; simplify literals, trip counts, element types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod

from hlo_lint.engine.reduce.draft import Draft, DraftComputation, DraftInstruction
from hlo_lint.engine.reduce.transformations.base import (
    Anchor,
    InstructionReplacement,
    ReductionTarget,
    Transformation,
)
from hlo_lint.hlo.dtypes import is_float, is_integer
from hlo_lint.hlo.opcodes import KEEPS_LAYOUT
from hlo_lint.hlo.shape import ArrayShape, Index, Shape, TupleShape, leaves, part, shape_or_none
from hlo_lint.text.source import whole_number

_MAPS_SIZES = frozenset(
    "concatenate dynamic-slice dynamic-update-slice pad slice reduce-window select-and-scatter "
    "all-gather all-to-all reduce-scatter bitcast-convert scatter scan fft topk triangular-solve "
    "cholesky while map ragged-all-to-all add-dependency set-dimension-size".split()
)
_ALIKE = (KEEPS_LAYOUT | {"copy"}) - _MAPS_SIZES
"""Opcodes whose operands of the result's rank have the result's dimensions."""
_FREE = frozenset(
    {"parameter", "constant", "iota", "rng", "custom-call", "partition-id", "replica-id"}
)
"""Opcodes whose operands do not restrict the dimensions of the result."""
_INDICES = re.compile(r"\d+")

InstructionKey = tuple[str, str]
"""The computation and the instruction."""
Source = tuple[InstructionKey, Index]
"""An operand: the instruction, and the element of its tuple."""
DimensionKey = tuple[str, str, Index, int]
"""The computation, the instruction, the element of its tuple, and the number."""


class _DimensionClasses:
    """Classes of dimensions that must be equal, and pairs of products that must be equal."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._parent: dict[DimensionKey, DimensionKey] = {}
        self.size: dict[DimensionKey, int] = {}
        self._fixed: set[DimensionKey] = set()
        self._products: list[tuple[list[DimensionKey], list[DimensionKey]]] = []
        self._shapes: dict[InstructionKey, Shape | None] = {}
        for body, row in draft.places():
            shape = shape_or_none(row.type_text) if row.type_text else None
            self._shapes[body.name, row.name] = shape
            for index, leaf in leaves(shape) if shape else ():
                for number, size in enumerate(leaf.dims if isinstance(leaf, ArrayShape) else ()):
                    place = (body.name, row.name, index, number)
                    self._parent[place], self.size[place] = place, size
        for body, row in draft.places():
            self._relate(body, row)
        self.fixed = {self.find(place) for place in self._fixed}

    def find(self, place: DimensionKey) -> DimensionKey:
        """The representative of a dimension's class."""
        while self._parent[place] != place:
            self._parent[place] = self._parent[self._parent[place]]
            place = self._parent[place]
        return place

    def classes(self) -> list[DimensionKey]:
        """The classes that may shrink, largest first."""
        roots = {self.find(place) for place in self._parent} - self.fixed
        return sorted(roots, key=lambda place: (-self.size[place], place))

    def shrunk(self, wanted: Mapping[DimensionKey, int]) -> dict[DimensionKey, int] | None:
        """The size of each class, with some changed; None if products cannot stay equal."""
        size = {self.find(place): self.size[place] for place in self._parent}
        size.update({self.find(place): new for place, new in wanted.items()})
        chosen = {self.find(place) for place in wanted}
        # A round settles at least one product, or there is no solution.
        for _ in range(len(self._products) + 1):
            is_stable = True
            for left, right in self._products:
                first, second = ([self.find(place) for place in side] for side in (left, right))
                if prod(map(size.__getitem__, first)) == prod(map(size.__getitem__, second)):
                    continue
                is_stable = False
                for side, opposite in ((first, second), (second, first)):
                    if len(side) == 1 and side[0] not in chosen and side[0] not in self.fixed:
                        size[side[0]] = prod(map(size.__getitem__, opposite))
                        break
                else:
                    return None
            if is_stable:
                return size
        return None

    def _relate(self, body: DraftComputation, row: DraftInstruction) -> None:
        opcode, values = row.opcode, row.attributes
        me = body.name, row.name
        named = [reference.split("#") for reference in row.references]
        sources = [((body.name, name), tuple(map(int, index))) for name, *index in named]
        if opcode == "tuple":
            for number, (source, index) in enumerate(sources):
                self._same_leaves(source, index, me, (number,))
        elif opcode == "get-tuple-element":
            if row.element is not None:
                source, index = sources[0]
                self._same_leaves(source, (*index, row.element), me, ())
        elif opcode in ("call", "fusion", "while", "conditional"):
            self._relate_callees(me, row, sources)
        elif opcode not in _FREE:
            shape, pairs = self._shapes.get(me), [(sources, Index())]
            if isinstance(shape, TupleShape) and opcode in ("reduce", "sort"):
                results = enumerate(sources[: len(shape.elements)])
                pairs = [([source], (number,)) for number, source in results]
            if not all(
                self._relate_array(opcode, values, some, me, element) for some, element in pairs
            ):
                for place in ((me, ()), *sources):
                    self._fix(*place)

    def _relate_callees(
        self, me: InstructionKey, row: DraftInstruction, sources: Sequence[Source]
    ) -> None:
        opcode = row.opcode
        for branch, callee in enumerate(map(self.draft.body, row.callees)):
            if callee is None:
                continue
            for parameter in callee.parameters:
                number = parameter.parameter_number + (branch + 1) * (opcode == "conditional")
                if number < len(sources):
                    source, index = sources[number]
                    self._same_leaves(source, index, (callee.name, parameter.name), ())
                    if opcode == "while":
                        self._same_leaves(source, index, me, ())
            if opcode != "while" or callee.row(callee.root).type_text == row.type_text:
                self._same_leaves((callee.name, callee.root), (), me, ())

    def _relate_array(
        self,
        opcode: str,
        values: Mapping[str, str],
        sources: Sequence[Source],
        me: InstructionKey,
        index: Index,
    ) -> bool:
        """Relate the dimensions of an array to those of its operands; False for unknown opcodes."""
        ranks = [self._rank(*source) for source in sources]
        rank = self._rank(me, index)
        if rank is None or None in ranks:
            return False
        if opcode in _ALIKE:
            for source, source_rank in zip(sources, ranks, strict=True):
                if source_rank == rank:
                    for number in range(rank):
                        self._same((*source[0], source[1], number), (*me, index, number))
            return True
        numbers = [int(digits) for digits in _INDICES.findall(values.get("dimensions", ""))]
        if opcode in ("transpose", "broadcast", "reduce"):
            pairs = {
                "transpose": [(dimension, place) for place, dimension in enumerate(numbers)],
                "broadcast": list(enumerate(numbers)),
                "reduce": [
                    (dimension, place)
                    for place, dimension in enumerate(
                        n for n in range(ranks[0] or 0) if n not in numbers
                    )
                ],
            }[opcode]
            for of_operand, of_result in pairs:
                source = sources[0]
                self._same((*source[0], source[1], of_operand), (*me, index, of_result))
            return True
        if opcode in ("reshape", "bitcast"):
            return self._relate_groups(sources[0], ranks[0] or 0, me, rank)
        if opcode == "dot":
            return self._relate_dot(values, sources, ranks, me)
        return False

    def _relate_dot(
        self,
        values: Mapping[str, str],
        sources: Sequence[Source],
        ranks: Sequence[int | None],
        me: InstructionKey,
    ) -> bool:
        if len(sources) != 2:
            return False
        sides = [
            [(*place, index, n) for n in range(rank or 0)]
            for (place, index), rank in zip(sources, ranks, strict=True)
        ]
        named = [
            [
                [int(digits) for digits in _INDICES.findall(values.get(f"{side}_{role}_dims", ""))]
                for side in ("lhs", "rhs")
            ]
            for role in ("batch", "contracting")
        ]
        for left, right in named:
            for left_axis, right_axis in zip(left, right, strict=False):
                self._same(sides[0][left_axis], sides[1][right_axis])
        result = [sides[0][number] for number in named[0][0]]
        for side in (0, 1):
            taken = {*named[0][side], *named[1][side]}
            result += [place for number, place in enumerate(sides[side]) if number not in taken]
        for number, place in enumerate(result):
            self._same(place, (*me, (), number))
        return True

    def _relate_groups(self, source: Source, rank: int, me: InstructionKey, own: int) -> bool:
        """Group the dimensions of a reshape by equal products (`CommonFactors`, `util.cc`)."""
        ours: list[DimensionKey] = [(*source[0], source[1], number) for number in range(rank)]
        theirs: list[DimensionKey] = [(*me, (), number) for number in range(own)]
        if prod(map(self.size.__getitem__, ours)) != prod(map(self.size.__getitem__, theirs)):
            return True  # the reshape is wrong already, and may be the problem
        while ours or theirs:
            left, right = ours[:1], theirs[:1]
            products = [prod(map(self.size.__getitem__, side)) for side in (left, right)]
            while products[0] != products[1] or not (left and right):
                side, rest = (
                    (left, ours)
                    if (products[0] < products[1] and len(left) < len(ours))
                    or len(right) == len(theirs)
                    else (right, theirs)
                )
                if len(side) == len(rest):
                    break
                side.append(rest[len(side)])
                products = [prod(map(self.size.__getitem__, side)) for side in (left, right)]
            ours, theirs = ours[len(left) :], theirs[len(right) :]
            if len(left) == len(right) == 1:
                self._same(left[0], right[0])
            else:
                self._products.append((left, right))
        return True

    def _rank(self, place: InstructionKey, index: Index) -> int | None:
        shape = part(self._shapes.get(place), index)
        return len(shape.dims) if isinstance(shape, ArrayShape) else None

    def _same_leaves(
        self,
        source: InstructionKey,
        source_index: Index,
        target: InstructionKey,
        target_index: Index,
    ) -> None:
        shape = part(self._shapes.get(source), source_index)
        for index, leaf in leaves(shape) if shape else ():
            if isinstance(leaf, ArrayShape):
                for number in range(len(leaf.dims)):
                    self._same(
                        (*source, source_index + index, number),
                        (*target, target_index + index, number),
                    )

    def _same(self, left: DimensionKey, right: DimensionKey) -> None:
        if left in self._parent and right in self._parent:
            first, second = self.find(left), self.find(right)
            if self.size[first] == self.size[second]:
                self._parent[first] = second
            else:
                # They should be equal: the module is wrong here, which may be the problem.
                self._fixed |= {left, right}

    def _fix(self, place: InstructionKey, index: Index) -> None:
        shape = part(self._shapes.get(place), index)
        for inner, leaf in leaves(shape) if shape else ():
            if isinstance(leaf, ArrayShape):
                self._fixed |= {(*place, index + inner, number) for number in range(len(leaf.dims))}


class ShrinkDimensions(Transformation):
    """Shrink dimensions to a size, with all dimensions that must be equal to them."""

    name = "shrink dimensions"

    def __init__(self, size: int) -> None:
        self._size = size

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[ReductionTarget]:
        sizes = _DimensionClasses(draft)
        return [place for place in sizes.classes() if sizes.size[place] > self._size]

    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        sizes = _DimensionClasses(draft)
        new_sizes = sizes.shrunk({(*place,): self._size for place in chosen})
        if new_sizes is None:
            return None

        def resized(body: DraftComputation, row: DraftInstruction) -> DraftInstruction:
            shape = shape_or_none(row.type_text) if row.type_text else None
            if shape is None:
                return row
            new = _resized(shape, (body.name, row.name), (), sizes, new_sizes)
            if new == shape:
                return row
            literal = "{...}" if row.opcode == "constant" else row.operands_text
            return row._replace(type_text=str(new), operands_text=literal)

        return draft.with_rows(resized)


def _resized(
    shape: Shape,
    place: InstructionKey,
    index: Index,
    sizes: _DimensionClasses,
    new_sizes: Mapping[DimensionKey, int],
) -> Shape:
    if isinstance(shape, TupleShape):
        return TupleShape(
            tuple(
                _resized(element, place, (*index, number), sizes, new_sizes)
                for number, element in enumerate(shape.elements)
            )
        )
    if not isinstance(shape, ArrayShape):
        return shape
    dims = tuple(new_sizes[sizes.find((*place, index, number))] for number in range(shape.rank))
    return shape._replace(dims=dims)


class ShortenLiterals(InstructionReplacement):
    """Elide array constants as `{...}`, for which XLA's parser makes up a value."""

    name = "shorten literals"

    def is_target(self, body: DraftComputation, row: DraftInstruction) -> bool:
        literal = row.operands_text
        return row.opcode == "constant" and literal.startswith("{") and literal != "{...}"

    def changed(self, row: DraftInstruction) -> DraftInstruction:
        return row._replace(operands_text="{...}")


class LowerConstants(InstructionReplacement):
    """Lower scalar integer constants to 1, as trip counts of loops are among them."""

    name = "lower trip counts"

    def is_target(self, body: DraftComputation, row: DraftInstruction) -> bool:
        is_integer = row.opcode == "constant" and _is_scalar_integer(row.type_text)
        return bool(is_integer) and (whole_number(row.operands_text) or 0) > 1

    def changed(self, row: DraftInstruction) -> DraftInstruction:
        return row._replace(operands_text="1")


_is_scalar_integer = re.compile(r"[su]\d+\[\](?:\{.*\})?").fullmatch
_element_type = re.compile(r"\b([a-z][a-z0-9]*)(?=\[)")


class PlainElementTypes(Transformation):
    """Turn floats into f32 and integers into s32, each type in the whole module."""

    name = "use plain element types"

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[ReductionTarget]:
        types = {name for _, row in draft.places() for name in _element_type.findall(row.type_text)}
        return [(name, to) for name in sorted(types) for to in _plain(name)]

    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        instead: dict[str, str] = dict(chosen)

        def plain(_: DraftComputation, row: DraftInstruction) -> DraftInstruction:
            shape = _element_type.sub(lambda dtype: instead.get(dtype[1], dtype[1]), row.type_text)
            return row._replace(type_text=shape)

        return draft.with_rows(plain)


def _plain(name: str) -> Iterator[str]:
    if is_float(name) and name != "f32":
        yield "f32"
    elif is_integer(name) and name != "s32":
        yield "s32"
