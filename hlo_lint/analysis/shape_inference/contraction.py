"""`dot` and its relatives: batch dimensions, then the free dimensions of each side."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_lint.analysis.shape_inference.operation import (
    Impossible,
    Inference,
    Operation,
    Table,
    Unknowable,
)
from hlo_lint.analysis.shape_inference.types import array_without_layout, promote_types, same_size
from hlo_lint.hlo.shape import ArrayShape, Shape


def _demand_dims(name: str, dims: Sequence[int], shape: ArrayShape) -> None:
    for dim in dims:
        if not 0 <= dim < shape.rank:
            raise Impossible(f"{name} names dimension {dim} of {shape}")


def _sides(
    operation: Operation, left: ArrayShape, right: ArrayShape
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Batch and contracting dimensions of either side, each in range and named once."""
    sides = []
    for side, shape in (("lhs", left), ("rhs", right)):
        batch = operation.integers(f"{side}_batch_dims", ())
        contracting = operation.integers(f"{side}_contracting_dims", ())
        _demand_dims(f"{side}_batch_dims", batch, shape)
        _demand_dims(f"{side}_contracting_dims", contracting, shape)
        together = (*batch, *contracting)
        if len(set(together)) != len(together):
            raise Impossible(f"the {side} has a batch or contracting dimension twice")
        sides += [batch, contracting]
    left_batch, left_contracting, right_batch, right_contracting = sides
    return left_batch, left_contracting, right_batch, right_contracting


def _demand_pairs(
    what: str, left: ArrayShape, ours: Sequence[int], right: ArrayShape, theirs: Sequence[int]
) -> None:
    if len(ours) != len(theirs):
        raise Impossible(f"{len(ours)} {what} dimensions of the lhs, {len(theirs)} of the rhs")
    for a, b in zip(ours, theirs, strict=True):
        if not same_size(left.dims[a], right.dims[b]):
            raise Impossible(
                f"{what} dimensions differ: {a} of the lhs has {left.dims[a]} elements, {b} of the "
                f"rhs {right.dims[b]}"
            )


def _dot(operation: Operation) -> Shape:
    if operation.text("sparsity") is not None:
        raise Unknowable  # of few releases
    left, right = operation.array(0), operation.array(1)
    return _product(operation, left, right)


def _product(operation: Operation, left: ArrayShape, right: ArrayShape) -> ArrayShape:
    left_batch, left_contracting, right_batch, right_contracting = _sides(operation, left, right)
    _demand_pairs("contracting", left, left_contracting, right, right_contracting)
    _demand_pairs("batch", left, left_batch, right, right_batch)
    gone = {*left_batch, *left_contracting}
    places = [(left, dim) for dim in left_batch]
    places += [(left, dim) for dim in range(left.rank) if dim not in gone]
    gone = {*right_batch, *right_contracting}
    places += [(right, dim) for dim in range(right.rank) if dim not in gone]
    return array_without_layout(
        promote_types(left.dtype, right.dtype),
        [shape.dims[dim] for shape, dim in places],
        [shape.is_dynamic(dim) for shape, dim in places],
    )


def _scaled_dot(operation: Operation) -> Shape:
    # The operands are lhs, rhs, lhs_scale, rhs_scale (CreateScaledDot); where the type is left
    # out, XLA's parser takes operand 2 for the rhs.
    return _product(operation, operation.array(0), operation.array(1 if operation.is_typed else 2))


def _scaled(operation: Operation, printed: Shape) -> None:
    """Demands scales that repeat over their operand: each follows the operand that it scales."""
    left, right, left_scale, right_scale = operation.arrays()
    for side, shape, scale in (("lhs", left, left_scale), ("rhs", right, right_scale)):
        if not scale.rank:
            continue
        if scale.rank != shape.rank:
            raise Impossible(
                f"the scale of the {side} takes {shape.rank} dimensions, got {scale.rank}"
            )
        for dim, (size, count) in enumerate(zip(shape.dims, scale.dims, strict=True)):
            if count and size % count:
                raise Impossible(
                    f"dimension {dim} of the {side} has {size} elements, its scale {count}"
                )
    if not left_scale.rank and not right_scale.rank:
        raise Impossible("both scales of scaled-dot are scalars")


def _ragged_dot(operation: Operation) -> Shape:
    """Rows, contracted dimensions or batches come in groups; operand 2 holds their sizes.

    With ragged rows, each group has a right side of its own; with a ragged contraction each group
    has a result of its own; ragged batches are a plain dot.
    """
    left, right, groups = operation.arrays()
    ragged = operation.integers("lhs_ragged_dims")
    group_dims = operation.integers("rhs_group_dims", ())
    if len(ragged) != 1:
        raise Impossible(f"ragged-dot has one ragged dimension, got {len(ragged)}")
    _demand_dims("lhs_ragged_dims", ragged, left)
    _demand_dims("rhs_group_dims", group_dims, right)
    if not groups.rank:
        raise Impossible("the sizes of groups of ragged-dot need a dimension")
    left_batch, left_contracting, right_batch, right_contracting = _sides(operation, left, right)
    _demand_pairs("contracting", left, left_contracting, right, right_contracting)
    _demand_pairs("batch", left, left_batch, right, right_batch)
    if set(group_dims) & {*right_batch, *right_contracting}:
        raise Impossible("rhs_group_dims names a batch or contracting dimension")
    count = groups.dims[-1]
    rows = ragged[0] not in left_batch and ragged[0] not in left_contracting
    if rows != (len(group_dims) == 1):
        raise Impossible(f"ragged-dot has {len(group_dims)} dimensions of groups")
    if rows and not same_size(right.dims[group_dims[0]], count):
        raise Impossible(
            f"ragged-dot has {right.dims[group_dims[0]]} right sides for {count} groups"
        )
    taken = {*left_batch, *left_contracting}
    free = [dim for dim in range(left.rank) if dim not in taken]
    before = dims_before_ragged(ragged[0], left_batch, free, left_contracting)
    wanted = (*(left.dims[dim] for dim in before), count)
    if groups.rank > 1 and groups.dims != wanted:
        raise Impossible(f"ragged-dot takes sizes of groups of {wanted}, got {groups.dims}")
    gone = {*right_batch, *right_contracting, *group_dims}
    places = [(left, dim) for dim in (*left_batch, *free)]
    places += [(right, dim) for dim in range(right.rank) if dim not in gone]
    if ragged[0] in left_contracting:
        places.insert(0, (groups, groups.rank - 1))
    return array_without_layout(
        promote_types(left.dtype, right.dtype),
        [shape.dims[dim] for shape, dim in places],
        [shape.is_dynamic(dim) for shape, dim in places],
    )


def dims_before_ragged(
    ragged: int, batch: Sequence[int], free: Sequence[int], contracting: Sequence[int]
) -> list[int]:
    """The dimensions of the left side over which the sizes of groups may vary."""
    if ragged in batch:
        return list(batch[: batch.index(ragged)])
    dims = free if ragged in free else contracting
    return [*batch, *dims[: dims.index(ragged)]]


OPCODES: Table = {
    "dot": Inference(_dot, attributes=True, free_type=True),
    "scaled-dot": Inference(_scaled_dot, _scaled, arity=4, attributes=True, free_type=True),
    "ragged-dot": Inference(_ragged_dot, arity=3, attributes=True, free_type=True),
}
