"""Opcodes of linear algebra: products, transforms, solvers, batch normalization."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_lint.analysis.shape_inference.operation import (
    Impossible,
    Inference,
    Operation,
    Table,
    Unknowable,
)
from hlo_lint.analysis.shape_inference.types import (
    array_of,
    array_without_layout,
    demand_elements,
    demand_in_range,
    demand_known,
    other_dims,
    part_of,
    promote_types,
    same_dims,
    same_size,
    same_type,
)
from hlo_lint.hlo.dtypes import COMPLEX_OF_PART, is_complex, is_float, is_inexact
from hlo_lint.hlo.shape import UNBOUNDED, ArrayShape, Shape, TupleShape
from hlo_lint.text.phrases import counted


def _sides(operation: Operation, left: ArrayShape, right: ArrayShape) -> list[tuple[int, ...]]:
    """Batch and contracting dimensions of either side, each in range and named once; in pairs."""
    sides: list[tuple[int, ...]] = []
    for side, shape in (("lhs", left), ("rhs", right)):
        batch = operation.integers(f"{side}_batch_dims", ())
        contracting = operation.integers(f"{side}_contracting_dims", ())
        demand_in_range(batch, shape, f"{side}_batch_dims names dimension {{}} of {{}}")
        demand_in_range(contracting, shape, f"{side}_contracting_dims names dimension {{}} of {{}}")
        together = (*batch, *contracting)
        if len(set(together)) != len(together):
            raise Impossible(f"the {side} has a batch or contracting dimension twice")
        sides += [batch, contracting]
    _demand_pairs("contracting", left, sides[1], right, sides[3])
    _demand_pairs("batch", left, sides[0], right, sides[2])
    return sides


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
    return _product(operation, operation.array(0), operation.array(1))


def _product(operation: Operation, left: ArrayShape, right: ArrayShape) -> ArrayShape:
    left_batch, left_contracting, right_batch, right_contracting = _sides(operation, left, right)
    free = other_dims(left.rank, left_batch, left_contracting)
    places = [(left, dim) for dim in (*left_batch, *free)]
    free = other_dims(right.rank, right_batch, right_contracting)
    places += [(right, dim) for dim in free]
    return array_of(promote_types(left.dtype, right.dtype), places)


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
    demand_in_range(ragged, left, "lhs_ragged_dims names dimension {} of {}")
    demand_in_range(group_dims, right, "rhs_group_dims names dimension {} of {}")
    if not groups.rank:
        raise Impossible("the sizes of groups of ragged-dot need a dimension")
    left_batch, left_contracting, right_batch, right_contracting = _sides(operation, left, right)
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
    free = other_dims(left.rank, left_batch, left_contracting)
    before = dims_before_ragged(ragged[0], left_batch, free, left_contracting)
    wanted = (*(left.dims[dim] for dim in before), count)
    if groups.rank > 1 and groups.dims != wanted:
        raise Impossible(f"ragged-dot takes sizes of groups of {wanted}, got {groups.dims}")
    places = [(left, dim) for dim in (*left_batch, *free)]
    free = other_dims(right.rank, right_batch, right_contracting, group_dims)
    places += [(right, dim) for dim in free]
    if ragged[0] in left_contracting:
        places.insert(0, (groups, groups.rank - 1))
    return array_of(promote_types(left.dtype, right.dtype), places)


def dims_before_ragged(
    ragged: int, batch: Sequence[int], free: Sequence[int], contracting: Sequence[int]
) -> list[int]:
    """The dimensions of the left side over which the sizes of groups may vary."""
    if ragged in batch:
        return list(batch[: batch.index(ragged)])
    dims = free if ragged in free else contracting
    return [*batch, *dims[: dims.index(ragged)]]


def _fft(operation: Operation) -> Shape:
    operand = operation.array(0)
    fft_type, lengths = operation.text("fft_type"), operation.integers("fft_length")
    if fft_type is None:
        raise Unknowable
    rank = len(lengths)
    if not 1 <= rank <= 3:
        raise Impossible(f"fft transforms one to three dimensions, got {rank}")
    if operand.rank < rank:
        raise Impossible(f"fft of {counted(rank, 'dimension')} of {operand}")
    demand_known(operand.dtype)
    last = operand.dims[-1]
    if fft_type in ("FFT", "IFFT"):
        if not is_complex(operand.dtype):
            raise Impossible(f"{fft_type} takes complex numbers, got {operand.dtype}")
        return operand.with_layout(None)
    if fft_type == "RFFT":
        if operand.dtype not in COMPLEX_OF_PART:
            raise Impossible(f"RFFT takes f32 or f64, got {operand.dtype}")
        _demand_lengths(fft_type, operand, lengths)
        halved = last // 2 + 1 if last > 0 else last
        return array_without_layout(
            COMPLEX_OF_PART[operand.dtype], (*operand.dims[:-1], halved), operand.dynamic
        )
    if fft_type != "IRFFT":
        raise Unknowable
    if not is_complex(operand.dtype):
        raise Impossible(f"IRFFT takes complex numbers, got {operand.dtype}")
    _demand_lengths(fft_type, operand, lengths[:-1], after=1)
    half = lengths[-1] // 2 + 1 if lengths[-1] else 0
    if not same_size(last, half):
        raise Impossible(f"IRFFT of {last} elements, fft_length needs {half}")
    return array_without_layout(
        part_of(operand.dtype), (*operand.dims[:-1], lengths[-1]), operand.dynamic
    )


def _demand_lengths(
    fft_type: str, operand: ArrayShape, lengths: tuple[int, ...], after: int = 0
) -> None:
    for dim, length in enumerate(lengths, operand.rank - after - len(lengths)):
        if operand.dims[dim] not in (length, UNBOUNDED):
            raise Impossible(
                f"{fft_type} of {operand.dims[dim]} elements in dimension {dim}, fft_length "
                f"needs {length}"
            )


def _demand_square(operation: Operation, matrix: ArrayShape) -> None:
    if matrix.rank < 2:
        raise Impossible(f"{operation.opcode} takes matrices, got {matrix}")
    if not same_size(*matrix.dims[-2:]):
        raise Impossible(f"{operation.opcode} takes square matrices, got {matrix}")


def _cholesky(operation: Operation) -> Shape:
    operand = operation.array(0)
    demand_elements(operation, operand.dtype, is_inexact)
    _demand_square(operation, operand)
    return operand.with_layout(None)


def _triangular_solve(operation: Operation) -> Shape:
    matrix, right = operation.array(0), operation.array(1)
    demand_elements(operation, matrix.dtype, is_inexact)
    if matrix.dtype != right.dtype:
        raise Impossible(f"triangular-solve of {matrix.dtype} and {right.dtype}")
    _demand_square(operation, matrix)
    if matrix.rank != right.rank:
        raise Impossible("the operands of triangular-solve differ in rank")
    left = operation.attribute("left_side") is True
    shared = right.dims[-2 if left else -1]
    if not same_size(matrix.dims[-1], shared):
        raise Impossible(f"triangular-solve of {matrix.dims[-1]} unknowns with {shared} values")
    batches = [
        array_without_layout(matrix_.dtype, matrix_.dims[:-2]) for matrix_ in (matrix, right)
    ]
    if not same_dims(*batches):
        raise Impossible("the batch dimensions of triangular-solve differ")
    if operation.text("transpose_a") not in ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"):
        raise Impossible("triangular-solve needs transpose_a")
    return right.with_layout(None)


def _batch_norm(operation: Operation) -> Shape:
    """The normalized operand, and vectors with an element for each feature, all of floats."""
    operand = operation.array(0)
    feature = operation.integer("feature_index")
    demand_in_range([feature], operand, "feature_index={} is not a dimension of {}")
    grad = operation.opcode == "batch-norm-grad"
    per_feature = operation.arrays(1, len(operation.operands) - grad)
    for number, array in enumerate((operand, *per_feature)):
        demand_known(array.dtype)
        if not is_float(array.dtype):
            raise Impossible(f"operand {number} of {operation.opcode} has to be floats")
    features = operand.dims[feature]
    for number, array in enumerate(per_feature, 1):
        if array.rank != 1:
            raise Impossible(f"operand {number} of {operation.opcode} has to have one dimension")
        if not same_type(array.dtype, operand.dtype):
            raise Impossible(f"operands 0 and {number} of {operation.opcode} differ in type")
        if not same_size(array.dims[0], features) and UNBOUNDED not in array.dims:
            raise Impossible(
                f"operand {number} of {operation.opcode} has {array.dims[0]} elements for "
                f"{features} features"
            )
    if grad:
        gradient = operation.array(4)
        if not same_dims(gradient, operand) or not same_type(gradient.dtype, operand.dtype):
            raise Impossible(f"batch-norm-grad of {operand} with the gradient {gradient}")
    whole = operand.with_layout(None)
    if operation.opcode == "batch-norm-inference":
        return whole
    vector = array_without_layout(operand.dtype, (features,), (operand.is_dynamic(feature),))
    return TupleShape((whole, vector, vector))


OPCODES: Table = {
    "dot": Inference(_dot, attributes=True, free_type=True),
    "scaled-dot": Inference(_scaled_dot, _scaled, arity=4, attributes=True, free_type=True),
    "ragged-dot": Inference(_ragged_dot, arity=3, attributes=True, free_type=True),
    "fft": Inference(_fft, arity=1, attributes=True),
    "cholesky": Inference(_cholesky, arity=1),
    "triangular-solve": Inference(_triangular_solve, arity=2, attributes=True),
    "batch-norm-training": Inference(_batch_norm, arity=3, attributes=True),
    "batch-norm-inference": Inference(_batch_norm, arity=5, attributes=True),
    "batch-norm-grad": Inference(_batch_norm, arity=5, attributes=True),
}
