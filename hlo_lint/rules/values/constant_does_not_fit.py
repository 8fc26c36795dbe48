"""Constants that are invalid operands of the operation that reads them."""

from __future__ import annotations

from math import inf, isnan
from typing import Final

from hlo_lint.analysis.kinds import instructions_where
from hlo_lint.hlo.arrays import operand_array, result_array
from hlo_lint.hlo.constants import constant_of, number_of
from hlo_lint.hlo.dtypes import ELEMENT_TYPES, integer_range, is_integer
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.kinds import OPCODE, TYPE, RowKind
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity, WrongValues

_OPERANDS: Final = {"convert": 0, "divide": 1, "remainder": 1, "set-dimension-size": 1}
"""The restricted operand of each opcode."""


class ConstantDoesNotFit(Rule):
    """A constant that its operation cannot convert, divide by, or use as a size.

    ## Why
    HLO defines a result in these cases, but not the intended result. A conversion of a number
    outside the range of the type wraps around, saturates or returns NaN; an integer divided by 0 is
    -1; a dynamic dimension with a negative size, or a size above its bound, reads foreign memory.
    None of these is an error at run time.
    """

    severity = Severity.WARNING
    opcodes = frozenset(_OPERANDS)
    evidence = (WrongValues(),)
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
            zero = s32[] constant(0)
            zeros = s32[8]{0} broadcast(zero), dimensions={}
            ROOT d = s32[8]{0} divide(s32[8]{0} p, zeros)  // error
        """),
        Bad.entry("""
            size = s32[] constant(9)
            ROOT d = f32[<=8]{0} set-dimension-size(f32[8]{0} p, size), dimensions={0}  // error
        """),
        Good.entry("""
            size = s32[] constant(8)
            ROOT d = f32[<=8]{0} set-dimension-size(f32[8]{0} p, size), dimensions={0}
        """),
        Good.entry("""
            edge = f32[] constant(-inf)
            ROOT c = f16[] convert(edge)
        """),
    )

    def check(self, module: Module) -> Findings:
        """Operations with an invalid constant, including fusion bodies."""
        for opcode, operand in _OPERANDS.items():
            for instruction in instructions_where(module, opcode, _may_not_fit):
                value = number_of(constant_of(instruction.producer(operand)))
                reason = None if value is None else _misfit(instruction, value)
                if reason is not None:
                    yield Finding(instruction, reason, operand=operand)


def _may_not_fit(kind: RowKind) -> bool:
    """True for set-dimension-size, and for integer results or float results without infinity."""
    dtype = kind[TYPE].partition("[")[0]
    element = ELEMENT_TYPES.get(dtype)
    saturates = element is not None and element.is_float and not element.has_infinity
    return kind[OPCODE] == "set-dimension-size" or is_integer(dtype) or saturates


def _misfit(instruction: Instruction, value: float) -> str | None:
    """The reason that a number is invalid; None if it is valid."""
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
        return f"this size is {value:.0f}, expected 0 to {bound} for dimension {dimensions[0]}"
    if opcode == "convert":
        return _lost(value, shape.dtype)
    return "this divides integers by 0" if value == 0 and is_integer(shape.dtype) else None


def _lost(value: float, dtype: str) -> str | None:
    if is_integer(dtype):
        values = integer_range(dtype)
        # XLA truncates: 255.9 becomes 255 in u8, and -0.9 becomes 0.
        if values[0] - 1 < value < values[-1] + 1:
            return None
        return f"this converts {value:g} to {dtype}, whose range is {values[0]} to {values[-1]}"
    element = ELEMENT_TYPES.get(dtype)
    # In a type with infinities, large numbers become infinity, as masks intend. Types narrower
    # than a byte saturate.
    if element is None or not element.is_float or element.has_infinity or element.overflow == inf:
        return None
    # A NaN stays a NaN in a type without infinities.
    if abs(value) < element.overflow or isnan(value):
        return None
    return f"this converts {value:g} to {dtype}, which is out of range: the result is NaN"
