"""Transforms and solvers: `fft`, `cholesky`, `triangular-solve`, batch normalization."""

from __future__ import annotations

from hlo_lint.analysis.shape_inference.operation import (
    Impossible,
    Inference,
    Operation,
    Table,
    Unknowable,
)
from hlo_lint.analysis.shape_inference.types import (
    array_without_layout,
    demand_known,
    part_of,
    same_dims,
    same_size,
    same_type,
)
from hlo_lint.hlo.dtypes import COMPLEX_OF_PART, is_complex, is_float
from hlo_lint.hlo.shape import UNBOUNDED, ArrayShape, Shape, TupleShape
from hlo_lint.text.phrases import counted


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
        return array_without_layout(operand.dtype, operand.dims, operand.dynamic)
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
    """Demand that the last dimensions, before `after` further ones, have the lengths."""
    start = operand.rank - after - len(lengths)
    for dim, length in enumerate(lengths, start):
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


def _demand_field(operation: Operation, dtype: str) -> None:
    demand_known(dtype)
    if not is_float(dtype) and not is_complex(dtype):
        raise Impossible(f"{operation.opcode} takes no elements of type {dtype}")


def _cholesky(operation: Operation) -> Shape:
    operand = operation.array(0)
    _demand_field(operation, operand.dtype)
    _demand_square(operation, operand)
    return array_without_layout(operand.dtype, operand.dims, operand.dynamic)


def _triangular_solve(operation: Operation) -> Shape:
    matrix, right = operation.array(0), operation.array(1)
    _demand_field(operation, matrix.dtype)
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
    return array_without_layout(right.dtype, right.dims, right.dynamic)


def _batch_norm(operation: Operation) -> Shape:
    """The normalized operand, and vectors with an element for each feature, all of floats."""
    operand = operation.array(0)
    feature = operation.integer("feature_index")
    if not 0 <= feature < operand.rank:
        raise Impossible(f"feature_index={feature} is not a dimension of {operand}")
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
        _demand_gradient(operation, operand)
    whole = array_without_layout(operand.dtype, operand.dims, operand.dynamic)
    if operation.opcode == "batch-norm-inference":
        return whole
    vector = array_without_layout(operand.dtype, (features,), (operand.is_dynamic(feature),))
    return TupleShape((whole, vector, vector))


def _demand_gradient(operation: Operation, operand: ArrayShape) -> None:
    gradient = operation.array(len(operation.operands) - 1)
    if not same_dims(gradient, operand) or not same_type(gradient.dtype, operand.dtype):
        raise Impossible(f"batch-norm-grad of {operand} with the gradient {gradient}")


OPCODES: Table = {
    "fft": Inference(_fft, arity=1, attributes=True),
    "cholesky": Inference(_cholesky, arity=1),
    "triangular-solve": Inference(_triangular_solve, arity=2, attributes=True),
    "batch-norm-training": Inference(_batch_norm, arity=3, attributes=True),
    "batch-norm-inference": Inference(_batch_norm, arity=5, attributes=True),
    "batch-norm-grad": Inference(_batch_norm, arity=5, attributes=True),
}
