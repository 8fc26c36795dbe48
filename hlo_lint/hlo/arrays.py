"""The shape of an operand or result that is an array with a layout."""

from __future__ import annotations

from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import ArrayShape


def operand_array(instruction: Instruction, number: int) -> ArrayShape | None:
    """An operand's shape if it is an array with a valid layout, else None."""
    shape = instruction.operand_shape(number)
    return shape if isinstance(shape, ArrayShape) and shape.has_valid_layout else None


def result_array(instruction: Instruction) -> ArrayShape | None:
    """A result's shape if it is an array with a valid layout, else None."""
    shape = instruction.shape_or_none
    return shape if isinstance(shape, ArrayShape) and shape.has_valid_layout else None
