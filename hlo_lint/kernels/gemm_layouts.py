"""Layouts that cuBLASLt supports: batches of row-major or column-major matrices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from hlo_lint.hlo.shape import ArrayShape

if TYPE_CHECKING:  # loaded where a module has such a call
    from hlo_lint.kernels.custom_calls.gemm import DotDimensions


def unsupported(
    shape: ArrayShape, batch: Sequence[int], rows: Sequence[int], columns: Sequence[int]
) -> str:
    """The reason that cuBLASLt cannot read an array as a batch of matrices; empty if it can.

    The dimensions of each group must be adjacent and in order, and a batch must not be most minor
    (`GetBatchRowColumnShape` and `MatrixLayout::For`, `matmul_utils.cc:62-197`). Sizes do not
    matter, as in XLA.

    >>> from hlo_lint.hlo.shape import parse_array
    >>> unsupported(parse_array("f32[4,8,16]{2,1,0}"), (0,), (1,), (2,))
    ''
    >>> unsupported(parse_array("f32[4,8,16]{0,2,1}"), (0,), (1,), (2,))
    'its batch dimension 0 is most minor'
    >>> unsupported(parse_array("f32[4,8,16]{2,0,1}"), (0, 1), (2,), ())
    'its dimensions 0, 1 are not adjacent and in order'
    """
    groups = {group[-1]: tuple(group) for group in (batch, rows, columns) if group}
    remaining = list(shape.minor_to_major)
    if sorted(chain(batch, rows, columns)) != list(range(shape.rank)):
        return ""  # not a valid product: another rule reports it
    if batch and remaining[0] == batch[-1]:
        return f"its batch dimension {batch[-1]} is most minor"
    while remaining:
        group = groups.get(remaining[0])
        if group is None:
            apart = next(dims for dims in groups.values() if remaining[0] in dims)
        elif tuple(remaining[: len(group)]) != group[::-1]:
            apart = group
        else:
            del remaining[: len(group)]
            continue
        return f"its dimensions {', '.join(map(str, apart))} are not adjacent and in order"
    return ""


def dot_groups(
    dimensions: DotDimensions, lhs: ArrayShape, rhs: ArrayShape
) -> tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...]:
    """The batch, row and column dimensions of lhs, rhs and product."""
    lhs_free = _free(lhs, dimensions.lhs_batch, dimensions.lhs_contracting)
    rhs_free = _free(rhs, dimensions.rhs_batch, dimensions.rhs_contracting)
    batches = len(dimensions.lhs_batch)
    numbers = tuple(range(batches + len(lhs_free) + len(rhs_free)))
    ends = batches, batches + len(lhs_free)
    return (
        (dimensions.lhs_batch, lhs_free, dimensions.lhs_contracting),
        (dimensions.rhs_batch, dimensions.rhs_contracting, rhs_free),
        (numbers[: ends[0]], numbers[ends[0] : ends[1]], numbers[ends[1] :]),
    )


def _free(shape: ArrayShape, batch: Sequence[int], contracting: Sequence[int]) -> tuple[int, ...]:
    return tuple(d for d in range(shape.rank) if d not in batch and d not in contracting)
