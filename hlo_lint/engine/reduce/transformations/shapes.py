"""Shrink equal dimensions together; simplify literals, trip counts, element types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod

from hlo_lint.engine.reduce.draft import Draft, DraftComputation, DraftInstruction
from hlo_lint.engine.reduce.transformations.base import (
    Anchor,
    InstructionReplacement,
    ReductionTarget,
    Transformation,
)
from hlo_lint.hlo.dtypes import is_float, is_integer
from hlo_lint.hlo.layouts import common_factors
from hlo_lint.text.source import whole_number

_dimensions = re.compile(r"\[[^\]]*\]")
_number = re.compile(r"\d+")
_SIZES_OF_SLICES = re.compile(r"(?<=\bslice_sizes=\{)[\d,]*|(?<=\bdynamic_slice_sizes=\{)[\d,]*")


class ShrinkDimensions(Transformation):
    """Shrink all dimensions of the same size together: most that must be equal are equal."""

    name = "shrink dimensions"

    def __init__(self, size: int) -> None:
        self._size = size

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[ReductionTarget]:
        sizes = {size for _, row in draft.places() for size in _sizes(row.type_text)}
        return [(size,) for size in sorted(sizes, reverse=True) if size > self._size]

    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        new = _with_equal_products(draft, {size: self._size for (size,) in chosen})
        if new is None:
            return None

        def shrunk(match: re.Match[str]) -> str:
            return _number.sub(lambda size: f"{new.get(int(size[0]), size[0])}", match[0])

        def resized(_: DraftComputation, row: DraftInstruction) -> DraftInstruction:
            shape = _dimensions.sub(shrunk, row.type_text)
            attributes = _SIZES_OF_SLICES.sub(shrunk, row.attributes_text)
            is_elided = row.opcode == "constant" and shape != row.type_text
            literal = "{...}" if is_elided else row.operands_text
            return row._replace(type_text=shape, operands_text=literal, attributes_text=attributes)

        return draft.with_rows(resized)


def _sizes(type_text: str) -> Iterator[int]:
    """The sizes of the dimensions of all arrays in a type."""
    for dimensions in _dimensions.findall(type_text):
        yield from map(int, _number.findall(dimensions))


def _with_equal_products(draft: Draft, chosen: Mapping[int, int]) -> dict[int, int] | None:
    """The new sizes by the old ones, with those that reshapes and bitcasts then need.

    None if a product cannot stay equal.
    """
    products: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for body, row in draft.places():
        if row.opcode in ("reshape", "bitcast") and row.references[0] in body.index:
            before = tuple(_sizes(body.row(row.references[0]).type_text))
            after = tuple(_sizes(row.type_text))
            if prod(before) == prod(after):  # else it is wrong already, and may be the problem
                cuts = pairwise(common_factors(before, after))
                products += [(before[i:k], after[j:n]) for (i, j), (k, n) in cuts]
    new = dict(chosen)
    # A round settles at least one product, or there is no solution.
    for _ in range(len(products) + 1):
        is_stable = True
        for sides in products:
            first, second = (prod(new.get(size, size) for size in side) for side in sides)
            if first == second:
                continue
            is_stable = False
            for side, product in zip(sides, (second, first), strict=True):
                if len(side) == 1 and side[0] not in chosen:
                    new[side[0]] = product
                    break
            else:
                return None
        if is_stable:
            return new
    return None


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
