"""Opcodes that draw random numbers."""

from __future__ import annotations

from hlo_lint.analysis.shape_inference.operation import Impossible, Inference, Operation, Table
from hlo_lint.analysis.shape_inference.types import apart, bare, brief, compatible, demand_known
from hlo_lint.hlo.dtypes import is_float, is_integer
from hlo_lint.hlo.shape import Shape, TupleShape


def _rng(operation: Operation, printed: Shape) -> None:
    first, second = operation.arrays()
    result = operation.as_array(printed, "the result")
    demand_known(result.dtype)
    if first.rank or second.rank:
        raise Impossible("the operands of rng have to be scalars")
    if not first.dtype == second.dtype == result.dtype:
        raise Impossible(f"rng draws {result.dtype} by {first.dtype} and {second.dtype}")
    distribution = operation.text("distribution")
    floats = is_float(result.dtype)
    if not floats and distribution == "rng_normal":
        raise Impossible(f"rng_normal draws no {result.dtype}")
    if not floats and not is_integer(result.dtype) and result.dtype != "pred":
        raise Impossible(f"rng draws no {result.dtype}")


def _rng_bit_generator(operation: Operation, printed: Shape) -> None:
    if not isinstance(printed, TupleShape):
        return  # ShapeVerifier::HandleRngBitGenerator: the bits alone, without the state
    if len(printed.elements) != 2:
        raise Impossible(f"rng-bit-generator gives a state and bits, and not {brief(printed)}")
    state = operation.shape(0)
    if not compatible(printed.elements[0], state):
        ours, theirs = apart(state, printed.elements[0])
        raise Impossible(f"rng-bit-generator takes {ours} as its state, and gives {theirs}")


def _rng_get_and_update_state(operation: Operation) -> Shape:
    return bare("u64", (2,))


OPCODES: Table = {
    "rng": Inference(None, _rng, arity=2, attributes=True),
    "rng-bit-generator": Inference(None, _rng_bit_generator, arity=1),
    "rng-get-and-update-state": Inference(_rng_get_and_update_state, arity=0),
}
