"""Operands with their shapes, `add(f32[2]{0} %a, f32[2]{0} %b)`, as older releases print."""

from __future__ import annotations

from hlo_lint.hlo.dialects.text_editor import TextEditor, referenced_type, statements
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.records import opcode_of


def typed_operands(module: Module, editor: TextEditor) -> None:
    """Print the shape of each operand before it."""
    for computation, instructions in statements(module):
        for statement in instructions:
            for reference, place in statement.named_operands():
                if place.shape_start < place.start:
                    continue
                shape = referenced_type(computation, reference)
                if shape is None:
                    editor.note("operands without a shape: the text does not say theirs")
                    continue
                editor.replace(place.start, place.start, f"{shape} ")


def untyped_operands(module: Module, editor: TextEditor) -> None:
    """Leave out the shapes of operands."""
    for computation, instructions in statements(module):
        if any(opcode_of(computation.rows[at]) == "parameter" for at in computation.nested):
            continue  # a single instruction: its operands' shapes are those of parameters
        for statement in instructions:
            for _, place in statement.named_operands():
                if place.shape_start < place.start:
                    editor.replace(place.shape_start, place.start, "")
