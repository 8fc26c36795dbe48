"""Operands with their shapes, `add(f32[2]{0} %a, f32[2]{0} %b)`, as older releases print."""

from __future__ import annotations

from hlo_lint.hlo.dialects.draft import Draft, referenced_type, statements
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.records import opcode_of


def typed_operands(module: Module, draft: Draft) -> None:
    """Print the shape of each operand before it."""
    for computation, instructions in statements(module):
        for statement in instructions:
            for reference, place in statement.operands():
                if place.type_start < place.start:
                    continue
                shape = referenced_type(computation, reference)
                if shape is None:
                    draft.note("operands without a shape: the text does not say theirs")
                    continue
                draft.replace(place.start, place.start, f"{shape} ")


def untyped_operands(module: Module, draft: Draft) -> None:
    """Leave out the shapes of operands."""
    for computation, instructions in statements(module):
        if any(opcode_of(computation.rows[at]) == "parameter" for at in computation.nested):
            continue  # a single instruction: its operands' shapes are those of parameters
        for statement in instructions:
            for _, place in statement.operands():
                if place.type_start < place.start:
                    draft.replace(place.type_start, place.start, "")
