"""Constants that the operation which reads them cannot use."""

from __future__ import annotations

from math import inf, isnan
from typing import Final

from hlo_lint.analysis.kinds import instructions_where
from hlo_lint.hlo.arrays import operand_array, result_array
from hlo_lint.hlo.constants import constant_of, number_of
from hlo_lint.hlo.dtypes import ELEMENT_TYPES, integer_range, is_integer
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.kinds import RowKind
from hlo_lint.rules.base import Bad, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity

_OPERANDS: Final = {
    "convert": 0,
    "divide": 1,
    "remainder": 1,
    "set-dimension-size": 1,
}
"""The operand of each opcode that may not be any number."""


class ConstantDoesNotFit(Rule):
    """A constant that an operation cannot use: to convert it, to divide by it, or as a size.

    ## Why
    HLO defines a result for everything, and it is not what the program means. A conversion of a
    number that the type does not have wraps around, is cut off at the end of the type, or gives
    NaN; an integer divided by 0 is -1; a dynamic dimension of a negative size, or of more elements
    than its bound, is memory of others. None of that is an error when the program runs.
    """

    severity = Severity.WARNING
    opcodes = frozenset(_OPERANDS)
    examples = (
        Bad.entry("""
            big = s64[] constant(5000000000)
            ROOT c = s32[] convert(big)  // error
        """),
        Bad.entry("""
            big = f32[] constant(1000)
            ROOT c = f8e4m3fn[] convert(big)  // error
        """),
        Bad.entry("""
            p = s32[8]{0} parameter(0)
            zero = s32[] constant(0)
            zeros = s32[8]{0} broadcast(zero), dimensions={}
            ROOT d = s32[8]{0} divide(p, zeros)  // error
        """),
        Bad.entry("""
            p = f32[8]{0} parameter(0)
            size = s32[] constant(9)
            ROOT d = f32[<=8]{0} set-dimension-size(p, size), dimensions={0}  // error
        """),
        Good.entry("""
            p = f32[8]{0} parameter(0)
            size = s32[] constant(8)
            ROOT d = f32[<=8]{0} set-dimension-size(p, size), dimensions={0}
        """),
        Good.entry("""
            edge = f32[] constant(-inf)
            ROOT c = f16[] convert(edge)
        """),
    )

    def check(self, module: Module) -> Findings:
        """Each such operation, bodies of fusions included."""
        for opcode, operand in _OPERANDS.items():
            for instruction in instructions_where(module, opcode, _may_not_fit):
                value = number_of(constant_of(instruction.producer(operand)))
                reason = None if value is None else _misfit(instruction, value)
                if reason is not None:
                    yield Finding(instruction, reason, operand=operand)


def _may_not_fit(kind: RowKind) -> bool:
    """True for a size, and for a result of integers or of floats without infinities."""
    dtype = kind[1].partition("[")[0]
    element = ELEMENT_TYPES.get(dtype)
    saturates = element is not None and element.is_float and not element.has_infinity
    return kind[0] == "set-dimension-size" or is_integer(dtype) or saturates


def _misfit(instruction: Instruction, value: float) -> str | None:
    """The reason why a number is of no use; None if it fits."""
    opcode, shape = instruction.opcode, result_array(instruction)
    if shape is None:
        return None
    if opcode == "set-dimension-size":
        array = operand_array(instruction, 0)
        dimensions = array and instruction.dimensions_attribute("dimensions", array.rank)
        if array is None or not dimensions:
            return None
        bound = array.dims[dimensions[0]]
        if 0 <= value <= bound:
            return None
        return f"this size is {value:.0f}, and dimension {dimensions[0]} has room for 0 to {bound}"
    if opcode == "convert":
        return _lost(value, shape.dtype)
    return "this divides integers by 0" if value == 0 and is_integer(shape.dtype) else None


def _lost(value: float, dtype: str) -> str | None:
    if is_integer(dtype):
        values = integer_range(dtype)
        if values[0] - 1 < value < values[-1] + 1:
            return None
        return f"this converts {value:g} to {dtype}, which goes from {values[0]} to {values[-1]}"
    element = ELEMENT_TYPES.get(dtype)
    # A type with infinities takes a large number for infinity, as masks want it; one that is
    # narrower than a byte saturates.
    if element is None or not element.is_float or element.has_infinity or element.overflow == inf:
        return None
    if abs(value) < element.overflow or isnan(value):
        return None
    return f"this converts {value:g} to {dtype}, which has no such number: the result is NaN"
