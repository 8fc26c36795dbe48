"""The dimensions that an operation moves in memory: two arrays, each in physical order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, count, pairwise
from operator import mul
from typing import TypedDict

from hlo_lint.analysis.data_movement import is_dense
from hlo_lint.hlo.ir import Instruction, Module, Operand
from hlo_lint.hlo.layouts import common_factors
from hlo_lint.hlo.shape import ArrayShape

_MOVERS = frozenset({"reshape", "transpose", "copy"})


_Pieces = tuple[list[int], list[list[int]], list[list[int]]]
"""The size of each piece; the pieces of each dimension of the operand, and of the result."""


class DimensionPieces(TypedDict):
    """A dimension of an array."""

    number: int
    size: int
    pieces: list[int]
    """Numbers of its pieces, outermost first; empty if its size is 1."""


class Side(TypedDict):
    """An array in memory order."""

    name: str
    shape: str
    dimensions: list[DimensionPieces]
    """The slowest-varying dimension first."""


class Rearrangement(TypedDict):
    """Two arrays of the same elements, divided into common pieces."""

    operand: Side
    result: Side
    sizes: list[int]
    """Size of each piece, in elements."""
    moved: list[int]
    """The pieces that move: the fewest elements that explain the difference."""


def move(instruction: Instruction, module: Module) -> Rearrangement | None:
    """The rearrangement of a reshape, transpose or copy; None for other instructions.

    A fusion of a single such instruction counts as that instruction.
    """
    mover = _mover(instruction, module)
    if mover is None or len(mover.operands) != 1:
        return None
    operand, result = mover.operands[0].shape, mover.shape_or_none
    if not is_dense(operand) or not is_dense(result):
        return None
    pieces = _pieces(mover, operand, result)
    if pieces is None:
        return None
    sizes, ours, theirs = pieces
    return Rearrangement(
        operand=_side(instruction.operands[0], operand, ours),
        result=_side(instruction, result, theirs),
        sizes=sizes,
        moved=_moved(_in_memory(operand, ours), _in_memory(result, theirs), sizes),
    )


def _side(named: Operand | Instruction, shape: ArrayShape, pieces: list[list[int]]) -> Side:
    return Side(
        name=f"%{named.name}",
        shape=str(shape),
        dimensions=[
            DimensionPieces(number=number, size=shape.dims[number], pieces=pieces[number])
            for number in reversed(shape.minor_to_major)
        ],
    )


def _in_memory(shape: ArrayShape, pieces: list[list[int]]) -> list[int]:
    """The pieces of all dimensions, the slowest-varying first."""
    return [piece for number in reversed(shape.minor_to_major) for piece in pieces[number]]


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


def _pieces(mover: Instruction, operand: ArrayShape, result: ArrayShape) -> _Pieces | None:
    match mover.opcode:
        case "transpose":
            turned = mover.integers_attribute("dimensions")
            if turned is None or sorted(turned) != list(range(operand.rank)):
                return None
            if result.dims != tuple(operand.dims[number] for number in turned):
                return None
            return _whole(operand.dims, turned)
        case "copy" if operand.dims == result.dims:
            return _whole(operand.dims, range(operand.rank))
        case "reshape" if operand.elements == result.elements:
            return _cut(operand.dims, result.dims)
        case _:
            return None


def _whole(dims: Sequence[int], order: Sequence[int]) -> _Pieces:
    """The pieces of an operation that permutes dimensions: `order[i]` of them becomes `i`."""
    numbers = count()
    ours = [[next(numbers)] if size != 1 else [] for size in dims]
    return [size for size in dims if size != 1], ours, [ours[number] for number in order]


def _cut(dims: Sequence[int], others: Sequence[int]) -> _Pieces | None:
    """Two lists of sizes cut into common pieces, each within a single dimension.

    >>> _cut((16, 128), (2, 8, 128))
    ([2, 8, 128], [[0, 1], [2]], [[0], [1], [2]])
    >>> _cut((4, 6), (6, 4)) is None  # no common pieces
    True
    """
    sizes: list[int] = []
    cuts = common_factors(dims, others)
    ours: list[list[int]] = [[] for _ in dims]
    theirs: list[list[int]] = [[] for _ in others]
    for (start, other_start), (end, other_end) in pairwise(cuts):
        steps = [_ends(dims[start:end]), _ends(others[other_start:other_end])]
        marks = sorted({*steps[0], *steps[1], 1})
        if any(greater % less for less, greater in pairwise(marks)):
            return None
        first = len(sizes)
        below = [greater // less for less, greater in pairwise(marks)]
        sizes += below[::-1]  # the outermost piece first
        for lists, ends, begin in ((ours, steps[0], start), (theirs, steps[1], other_start)):
            for dimension, (outer, inner) in enumerate(pairwise((*ends, 1)), begin):
                high, low = bisect_left(marks, outer), bisect_left(marks, inner)
                lists[dimension] += range(first + len(below) - high, first + len(below) - low)
    return sizes, ours, theirs


def _ends(sizes: Sequence[int]) -> list[int]:
    """The product of each size and those after it: `(2, 8)` gives 16, 8."""
    return list(accumulate(reversed(sizes), mul))[::-1]


def _moved(lies: list[int], lands: list[int], sizes: list[int]) -> list[int]:
    """The pieces outside the heaviest common subsequence.

    >>> _moved([0, 1, 2], [0, 2, 1], [16, 128, 32])
    [2]
    """
    place = {piece: index for index, piece in enumerate(lands)}
    best: list[tuple[int, tuple[int, ...]]] = []
    for piece in lies:
        before = [
            held for held, last in zip(best, lies, strict=False) if place[last] < place[piece]
        ]
        weight, kept = max(before, default=(0, ()))
        best.append((weight + sizes[piece], (*kept, piece)))
    _, kept = max(best, default=(0, ()))
    return [piece for piece in lies if piece not in kept]
