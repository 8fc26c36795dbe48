"""The dimensions that an operation moves in memory, and those out of order: two arrays side by
side, each in its physical order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import mul
from typing import TypedDict

from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.layouts import common_factors
from hlo_lint.hlo.shape import UNBOUNDED, ArrayShape, Layout

_MOVERS = frozenset({"reshape", "transpose", "copy"})


_Pieces = tuple[list[int], list[list[int]], list[list[int]]]
"""The size of each piece; the pieces of each dimension of the operand, and of the result."""


class DimensionPieces(TypedDict):
    """A dimension of an array."""

    number: int
    size: int
    pieces: list[int]
    """Numbers of the pieces that it is made of, outermost first; none where its size is 1."""


class Side(TypedDict):
    """An array as it lies in memory."""

    name: str
    shape: str
    dimensions: list[DimensionPieces]
    """The slowest varying one first."""


class Rearrangement(TypedDict):
    """Two arrays of the same elements, by the pieces that both are made of."""

    title: str
    operand: Side
    result: Side
    sizes: list[int]
    """Of each piece, in elements."""
    moved: list[int]
    """The pieces that lie elsewhere in the result: as few elements as explain the difference."""


def move(instruction: Instruction, module: Module) -> Rearrangement | None:
    """The rearrangement of an instruction that only arranges elements; None for any other.

    A fusion that holds nothing else is one, too.
    """
    mover = _mover(instruction, module)
    if mover is None or len(mover.operands) != 1:
        return None
    operand, result = mover.operands[0].shape, mover.shape_or_none
    if not isinstance(operand, ArrayShape) or not isinstance(result, ArrayShape):
        return None
    if not all(_is_plain(shape) for shape in (operand, result)):
        return None
    pieces = _pieces(mover, operand, result)
    if pieces is None:
        return None
    names = f"%{instruction.operands[0].name}", f"%{instruction.name}"
    return _drawn("What moves in memory", names, (operand, result), pieces)


def order(instruction: Instruction) -> Rearrangement | None:
    """The first array without the default layout, and that layout; None if all have it."""
    read = [(f"%{operand.name}", operand.shape) for operand in instruction.operands]
    for name, shape in (*read, (f"%{instruction.name}", instruction.shape_or_none)):
        if isinstance(shape, ArrayShape) and _is_plain(shape) and shape.layout is not None:
            straight = Layout(tuple(range(shape.rank - 1, -1, -1)))
            if shape.layout.is_descending:
                continue
            sides = shape, shape.with_layout(straight)
            pieces = _whole(shape.dims, range(shape.rank))
            return _drawn("How it lies in memory", (name, "descending:"), sides, pieces)
    return None


def _drawn(
    title: str, names: tuple[str, str], shapes: tuple[ArrayShape, ArrayShape], pieces: _Pieces
) -> Rearrangement:
    sizes, *both = pieces
    lies, lands = (
        [piece for number in shape.minor_to_major[::-1] for piece in made_of[number]]
        for shape, made_of in zip(shapes, both, strict=True)
    )
    sides = [_side(*side) for side in zip(names, shapes, both, strict=True)]
    return Rearrangement(
        title=title,
        operand=sides[0],
        result=sides[1],
        sizes=sizes,
        moved=_moved(lies, lands, sizes),
    )


def _mover(instruction: Instruction, module: Module) -> Instruction | None:
    if instruction.opcode in _MOVERS:
        return instruction
    if instruction.opcode != "fusion" or len(instruction.called_computations) != 1:
        return None
    body = module.computation(instruction.called_computations[0])
    if body is None or len(body.rows) != 2 or len(instruction.operands) != 1:
        return None
    root = body.root
    return root if root is not None and root.opcode in _MOVERS else None


def _is_plain(shape: ArrayShape) -> bool:
    tiled = shape.layout is not None and bool(shape.layout.tiles or shape.layout.rest)
    return (
        shape.has_valid_layout and not tiled and UNBOUNDED not in shape.dims and shape.elements > 0
    )


def _pieces(mover: Instruction, operand: ArrayShape, result: ArrayShape) -> _Pieces | None:
    match mover.opcode:
        case "transpose":
            turned = mover.integers_attribute("dimensions")
            if turned is None or sorted(turned) != list(range(operand.rank)):
                return None
            if any(result.dims[at] != operand.dims[number] for at, number in enumerate(turned)):
                return None
            return _whole(operand.dims, [turned.index(number) for number in range(operand.rank)])
        case "copy" if operand.dims == result.dims:
            return _whole(operand.dims, range(operand.rank))
        case "reshape" if operand.elements == result.elements:
            return _cut(operand.dims, result.dims)
        case _:
            return None


def _whole(dims: Sequence[int], target: Sequence[int]) -> _Pieces:
    """Each dimension of the operand is one of the result: `target` says which."""
    sizes: list[int] = []
    ours: list[list[int]] = [[] for _ in dims]
    theirs: list[list[int]] = [[] for _ in dims]
    for number, size in enumerate(dims):
        if size != 1:
            ours[number].append(len(sizes))
            theirs[target[number]].append(len(sizes))
            sizes.append(size)
    return sizes, ours, theirs


def _cut(dims: Sequence[int], others: Sequence[int]) -> _Pieces | None:
    """Both lists of sizes cut into the same pieces, where each piece is part of one dimension.

    >>> _cut((16, 128), (2, 8, 128))
    ([2, 8, 128], [[0, 1], [2]], [[0], [1], [2]])
    >>> _cut((4, 6), (6, 4)) is None  # there is no such piece
    True
    """
    sizes: list[int] = []
    cuts = common_factors(dims, others)
    ours: list[list[int]] = [[] for _ in dims]
    theirs: list[list[int]] = [[] for _ in others]
    for (one, other), (one_end, other_end) in pairwise(cuts):
        steps = [_ends(dims[one:one_end]), _ends(others[other:other_end])]
        marks = sorted({*steps[0], *steps[1], 1})
        if any(greater % less for less, greater in pairwise(marks)):
            return None
        first = len(sizes)
        below = [greater // less for less, greater in pairwise(marks)]
        sizes += below[::-1]  # the outermost piece first
        for lists, ends, begin in ((ours, steps[0], one), (theirs, steps[1], other)):
            for at, end in enumerate(ends):
                inner = ends[at + 1] if at + 1 < len(ends) else 1
                high, low = bisect_left(marks, end), bisect_left(marks, inner)
                lists[begin + at] += range(first + len(below) - high, first + len(below) - low)
    return sizes, ours, theirs


def _ends(sizes: Sequence[int]) -> list[int]:
    """The elements in a step of the dimension outside each one: `(2, 8)` gives 16, 8."""
    return list(accumulate(reversed(sizes), mul))[::-1]


def _side(name: str, shape: ArrayShape, pieces: list[list[int]]) -> Side:
    dimensions = [
        DimensionPieces(number=number, size=shape.dims[number], pieces=pieces[number])
        for number in reversed(shape.minor_to_major)
    ]
    return Side(name=name, shape=str(shape), dimensions=dimensions)


def _moved(lies: list[int], lands: list[int], sizes: list[int]) -> list[int]:
    """The members out of order: all but the heaviest sequence in order.

    >>> _moved([0, 1, 2], [0, 2, 1], [16, 128, 32])
    [2]
    """
    place = {piece: at for at, piece in enumerate(lands)}
    best: list[tuple[int, tuple[int, ...]]] = []
    for at, piece in enumerate(lies):
        before = [best[earlier] for earlier in range(at) if place[lies[earlier]] < place[piece]]
        weight, kept = max(before, default=(0, ()))
        best.append((weight + sizes[piece], (*kept, piece)))
    _, kept = max(best, default=(0, ()))
    return [piece for piece in lies if piece not in kept]
