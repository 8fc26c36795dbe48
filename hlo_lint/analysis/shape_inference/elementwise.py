"""Opcodes that treat each element on its own, or draw each at random."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from hlo_lint.analysis.shape_inference.operation import (
    Impossible,
    ImpossibleMix,
    Inference,
    Operation,
    Table,
    known,
)
from hlo_lint.analysis.shape_inference.reduction import demand_operand_types, demand_parameters
from hlo_lint.analysis.shape_inference.types import (
    array_without_layout,
    brief,
    demand_compatible,
    demand_elements,
    demand_known,
    flags,
    part_of,
    promote_types,
    same_dims,
    same_size,
    same_type,
)
from hlo_lint.hlo.dtypes import (
    BITS,
    COMPLEX_OF_PART,
    is_complex,
    is_float,
    is_inexact,
    is_integer,
    is_signed,
)
from hlo_lint.hlo.shape import UNBOUNDED, ArrayShape, BufferShape, Shape, TupleShape

_TypeTest = Callable[[str], bool]


def _number(dtype: str) -> bool:
    return dtype != "pred"


def _bits(dtype: str) -> bool:
    return dtype == "pred" or is_integer(dtype)


_UNARY: Final[dict[_TypeTest, str]] = {
    is_inexact: "acos acosh asin asinh atanh cosine cosh exp2 exponential "
    "exponential-minus-one log log-plus-one log2 logistic rsqrt sine sinh sqrt tan tanh real imag",
    is_float: "cbrt ceil erf floor is-finite round-nearest-afz round-nearest-even",
    is_integer: "count-leading-zeros popcnt",
    _number: "negate",
    lambda dtype: is_signed(dtype) or is_inexact(dtype): "abs sign",
    _bits: "not",
}
"""The element types that an opcode takes."""

_BINARY: Final[dict[_TypeTest, str]] = {
    lambda _: True: "add maximum minimum mulhi multiply",
    _bits: "and or xor",
    is_inexact: "atan2",
    _number: "divide power remainder shift-left shift-right-arithmetic shift-right-logical "
    "subtract",
}
"""The element types that an opcode takes, once both operands agree."""

_TAKES: Final = {
    opcode: takes
    for table in (_UNARY, _BINARY)
    for takes, opcodes in table.items()
    for opcode in opcodes.split()
}


def _unary(operation: Operation) -> Shape:
    if isinstance(operation.shape(0), BufferShape):
        raise Impossible(f"operand 0 of {operation.opcode} has to be an array, got a buffer")
    operand = operation.array(0).with_layout(None)
    demand_elements(operation, operand.dtype, _TAKES[operation.opcode])
    if operation.opcode in ("abs", "real", "imag"):
        return operand._replace(dtype=part_of(operand.dtype))
    return operand._replace(dtype="pred") if operation.opcode == "is-finite" else operand


def _arrays(operation: Operation) -> Iterator[ArrayShape]:
    """The operands, without layouts."""
    return (array.with_layout(None) for array in operation.arrays())


def _binary(operation: Operation) -> Shape:
    left, right = _arrays(operation)
    together = _together(operation, left, right)
    if operation.opcode == "compare":
        return together._replace(dtype="pred")
    demand_elements(operation, left.dtype, _TAKES[operation.opcode])
    return together._replace(dtype=promote_types(left.dtype, right.dtype))


def _together(operation: Operation, left: ArrayShape, right: ArrayShape) -> ArrayShape:
    """Sizes of an operation on two arrays: a scalar and sizes of 1 stretch, as XLA infers."""
    if not same_type(left.dtype, right.dtype):
        raise Impossible(
            f"the operands of {operation.opcode} have the types {left.dtype} and {right.dtype}"
        )
    if left.dims == right.dims and not (left.dynamic or right.dynamic):
        return left
    if left.rank != right.rank:
        # XLA's inference stretches a scalar to the other array.
        if not left.rank or not right.rank:
            return left if left.rank else right
        raise Impossible(f"{operation.opcode} of arrays of {left.rank} and {right.rank} dimensions")
    pairs = zip(left.dims, flags(left), right.dims, flags(right), strict=True)
    sizes = [_stretched(operation, *pair) for pair in pairs]
    return array_without_layout(
        left.dtype, [size for size, _ in sizes], [dynamic for _, dynamic in sizes]
    )


def _stretched(
    operation: Operation, left: int, is_left_dynamic: bool, right: int, is_right_dynamic: bool
) -> tuple[int, bool]:
    if left == right:
        return left, is_left_dynamic or is_right_dynamic
    for stretched in (1, UNBOUNDED):
        if stretched in (left, right):
            return (right, is_right_dynamic) if left == stretched else (left, is_left_dynamic)
    raise Impossible(f"{operation.opcode} of arrays whose sizes differ: {left} and {right}")


def _no_stretching(operation: Operation, printed: Shape) -> None:
    """HLO has no implicit broadcast: XLA's inference stretches operands, its verifier does not."""
    if not isinstance(printed, ArrayShape):
        return
    for number, operand in enumerate(_arrays(operation)):
        if not same_dims(operand, printed):
            raise Impossible(
                f"operand {number} of {operation.opcode} is {operand}, the result "
                f"{printed.with_layout(None)}: HLO has no implicit broadcast"
            )


def _complex(operation: Operation) -> Shape:
    left, right = _arrays(operation)
    together = _together(operation, left, right)
    demand_known(left.dtype, right.dtype)
    if left.dtype != right.dtype or left.dtype not in COMPLEX_OF_PART:
        raise Impossible(f"there is no complex type of {left.dtype} and {right.dtype}")
    return together._replace(dtype=COMPLEX_OF_PART[left.dtype])


def _clamp(operation: Operation) -> Shape:
    low, operand, high = _arrays(operation)
    for number, bound in ((0, low), (2, high)):
        if not same_type(bound.dtype, operand.dtype):
            raise Impossible(
                f"operand {number} of clamp has the type {bound.dtype}, operand 1 has "
                f"{operand.dtype}"
            )
        if bound.rank and not same_dims(bound, operand):
            raise Impossible(f"operand {number} of clamp is {bound}, operand 1 is {operand}")
    return operand


def _select(operation: Operation) -> Shape:
    predicate, true, false = _arrays(operation)
    if not (same_type(true.dtype, false.dtype) and same_dims(true, false)):
        raise Impossible(f"select chooses between {true} and {false}")
    if predicate.dtype != "pred":
        raise Impossible(f"select chooses by a pred, got {predicate.dtype}")
    if predicate.rank and not same_dims(predicate, true):
        raise Impossible(f"select chooses by {predicate} among {true}")
    of_predicate = flags(predicate) if predicate.rank else flags(true)
    dynamic = list(map(any, zip(flags(true), flags(false), of_predicate, strict=True)))
    dims = [b if a == UNBOUNDED else a for a, b in zip(true.dims, false.dims, strict=True)]
    return array_without_layout(promote_types(true.dtype, false.dtype), dims, dynamic)


def _reduce_precision(operation: Operation) -> Shape:
    operand = operation.array(0)
    demand_elements(operation, operand.dtype, is_float)
    for name, least in (("exponent_bits", 1), ("mantissa_bits", 0)):
        if operation.integer(name) < least:
            raise Impossible(f"{name} of reduce-precision has to be at least {least}")
    return operand.with_layout(None)


def _converted(operation: Operation, printed: Shape) -> None:
    (operand,) = _arrays(operation)
    result = operation.as_array(printed, "the result").with_layout(None)
    if not same_dims(operand, result):
        raise Impossible(f"convert of {operand} cannot give {result}")


def _reinterpreted(operation: Operation, printed: Shape) -> None:
    """A narrower type adds a last dimension for the parts; a wider type removes it."""
    (operand,) = _arrays(operation)
    result = operation.as_array(printed, "the result").with_layout(None)
    demand_known(operand.dtype, result.dtype)
    if is_complex(operand.dtype) != is_complex(result.dtype):
        raise Impossible(f"bitcast-convert of {operand.dtype} cannot give {result.dtype}")
    for before in _widths(operand.dtype):
        for after in _widths(result.dtype):
            dims = _reinterpreted_dims(operand.dims, before, after)
            if dims is not None and same_dims(array_without_layout(result.dtype, dims), result):
                return
    raise Impossible(f"bitcast-convert of {operand} cannot give {result}")


def _widths(dtype: str) -> tuple[int, ...]:
    """Bits of an element: XLA counts those of a pred as 1 or as 8."""
    return (1, 8) if dtype == "pred" else (BITS[dtype],)


def _reinterpreted_dims(dims: tuple[int, ...], before: int, after: int) -> tuple[int, ...] | None:
    if before >= after:
        return dims if before == after else (*dims, before // after)
    if not dims or not same_size(dims[-1], after // before):
        return None
    return dims[:-1]


def _rounded_at_random(operation: Operation, printed: Shape) -> None:
    operand, random = operation.array(0), operation.array(1)
    result = operation.as_array(printed, "the result")
    demand_known(random.dtype)
    demand_elements(operation, operand.dtype, is_float)
    if not is_integer(random.dtype) or is_signed(random.dtype):
        raise Impossible(f"stochastic-convert rounds by the signed {random.dtype}")
    if BITS[operand.dtype] != BITS[random.dtype]:
        raise Impossible(f"stochastic-convert rounds {operand.dtype} by {random.dtype}")
    if not same_dims(operand, random) or not same_dims(operand, result):
        raise Impossible("the operands and the result of stochastic-convert differ in their sizes")


def _map(operation: Operation) -> Shape:
    called = operation.callee()
    arrays = operation.arrays()
    if not arrays:
        raise Impossible("map needs an operand")
    first = next((array for array in arrays if array.rank), arrays[0])
    for number, array in enumerate(arrays):
        if array.rank and not same_dims(array, first):
            raise Impossible(f"operands 0 and {number} of map differ in their sizes")
    dims = operation.integers("dimensions", ())
    # The verifier infers with all dimensions, whatever the attribute says (HandleMap).
    if not operation.is_typed and dims != tuple(range(first.rank)):
        raise Impossible(f"map has to name all dimensions in their order, {first.rank} of them")
    demand_parameters("the computation that map calls", called, arrays)
    result = operation.as_array(known(called.root), "the result of the computation")
    if result.rank:
        raise Impossible(
            f"the computation that map calls returns a scalar, got {result.with_layout(None)}"
        )
    return array_without_layout(result.dtype, first.dims, first.dynamic)


def _rng(operation: Operation, printed: Shape) -> None:
    first, second = operation.arrays()
    result = operation.as_array(printed, "the result")
    demand_known(result.dtype)
    if first.rank or second.rank:
        raise Impossible("the operands of rng have to be scalars")
    mixed = not first.dtype == second.dtype == result.dtype
    bounds = f"{first.dtype} and {second.dtype}"
    if mixed and not all(same_type(bound.dtype, result.dtype) for bound in (first, second)):
        raise Impossible(f"rng of {result.dtype} has operands of {bounds}")
    distribution = operation.text("distribution")
    floats = is_float(result.dtype)
    if not floats and distribution == "rng_normal":
        raise Impossible(f"rng_normal cannot give {result.dtype}")
    if not floats and not is_integer(result.dtype) and result.dtype != "pred":
        raise Impossible(f"rng cannot give {result.dtype}")
    if mixed:
        raise ImpossibleMix(f"rng of {result.dtype} has operands of {bounds}")


def _rng_bit_generator(operation: Operation, printed: Shape) -> None:
    if isinstance(printed, ArrayShape):
        return  # without the state, as HandleRngBitGenerator allows
    if not isinstance(printed, TupleShape) or len(printed.elements) != 2:
        raise Impossible(f"rng-bit-generator returns a state and bits, not {brief(printed)}")
    message = "rng-bit-generator takes {} as its state, and returns {}"
    demand_compatible(operation.shape(0), printed.elements[0], message)


OPCODES: Table = {
    **dict.fromkeys(" ".join(_UNARY.values()).split(), Inference(_unary, _no_stretching, 1)),
    **dict.fromkeys(" ".join(_BINARY.values()).split(), Inference(_binary, _no_stretching, 2)),
    "compare": Inference(_binary, _no_stretching, arity=2),
    "complex": Inference(_complex, _no_stretching, arity=2),
    "clamp": Inference(_clamp, arity=3),
    "select": Inference(_select, arity=3),
    "reduce-precision": Inference(_reduce_precision, arity=1, attributes=True),
    "convert": Inference(None, _converted, arity=1),
    "bitcast-convert": Inference(None, _reinterpreted, arity=1),
    "stochastic-convert": Inference(None, _rounded_at_random, arity=2),
    "map": Inference(_map, demand_operand_types, attributes=True, calls=True),
    "rng": Inference(None, _rng, arity=2, attributes=True),
    "rng-bit-generator": Inference(None, _rng_bit_generator, arity=1),
    "rng-get-and-update-state": Inference(lambda _: ArrayShape("u64", (2,)), arity=0),
}
