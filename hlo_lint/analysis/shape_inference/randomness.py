"""Opcodes that draw random numbers."""

from __future__ import annotations

from hlo_lint.analysis.shape_inference.operation import (
    Impossible,
    ImpossibleMix,
    Inference,
    Operation,
    Table,
)
from hlo_lint.analysis.shape_inference.types import (
    brief,
    demand_compatible,
    demand_known,
    same_type,
)
from hlo_lint.hlo.dtypes import is_float, is_integer
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape


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
    "rng": Inference(None, _rng, arity=2, attributes=True),
    "rng-bit-generator": Inference(None, _rng_bit_generator, arity=1),
    "rng-get-and-update-state": Inference(lambda _: ArrayShape("u64", (2,)), arity=0),
}
