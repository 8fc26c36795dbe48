"""What XLA knows of custom calls: their layouts, and the targets that it makes itself."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis.shape_inference.types import apart, compatible
from hlo_lint.analysis.verifier.scope import (
    Checks,
    RowChecks,
    Scope,
    Violation,
    operand_shape,
    text_of,
    value_of,
)
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import ArrayShape, BufferShape, OpaqueShape, Shape, TupleShape, arrays

_FREE = ('"LayoutConstraint"', '"control_dep"')


def _constraints(scope: Scope, call: Instruction) -> Iterator[Violation]:
    if "operand_layout_constraints=" not in call.attributes_text:
        return
    if text_of(call, "custom_call_target") in _FREE:
        return
    wanted = value_of(call, "operand_layout_constraints")
    if not isinstance(wanted, tuple):
        return
    given = len(call.operand_names)
    if len(wanted) != given:
        message = f"operand_layout_constraints names {len(wanted)} operands, and there are {given}"
        yield Violation("S-82", call, message)
        return
    for number, shape in enumerate(wanted):
        operand = operand_shape(call, number)
        if not isinstance(shape, ArrayShape | TupleShape | BufferShape | OpaqueShape):
            return
        if operand is not None and not compatible(operand, shape):
            ours, theirs = apart(operand, shape)
            message = f"operand {number} is {ours}, and operand_layout_constraints says {theirs}"
            yield Violation("S-82", call, message, operand=number)
        elif any(array.rank and array.layout is None for array in arrays(shape)):
            yield Violation("S-82", call, f"operand_layout_constraints gives {shape} no layout")
    result = call.shape_or_none
    if any(array.rank and array.layout is None for array in arrays(result)):
        yield Violation(
            "S-82", call, "the layouts of the operands are constrained, and the result has none"
        )


def _rng_seed(scope: Scope, call: Instruction) -> Iterator[Violation]:
    if "GetRngSeed" not in call.attributes_text:
        return
    if text_of(call, "custom_call_target") != '"GetRngSeed"':
        return
    shape: Shape | None = call.shape_or_none
    if call.operand_names:
        yield Violation(
            "I-22", call, f"GetRngSeed reads nothing, and has {len(call.operand_names)} operands"
        )
    elif isinstance(shape, ArrayShape) and (shape.dtype != "u64" or shape.rank):
        yield Violation("I-22", call, f"GetRngSeed gives a u64[], and not {shape}")


CHECKS: Checks = {"custom-call": (_constraints, _rng_seed)}
OF_ROWS: RowChecks = {}
OF_COMPUTATIONS = ()
OF_MODULES = ()
