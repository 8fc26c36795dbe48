"""The long text of dumps and the short one that `as_hlo_text()` prints.

    %main.4 (x.1: f32[2]) -> f32[2] {                main.4 {
      %x.1 = f32[2]{0} parameter(0), metadata={…}      x.1 = f32[2]{0} parameter(0)

Short text has neither signatures nor metadata nor control predecessors nor tables of stack frames,
and what it does not have the way back cannot restore.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from hlo_lint.hlo.dialects.percent import with_percent, without_percent
from hlo_lint.hlo.dialects.text_editor import (
    Statement,
    TextEditor,
    blank_lines,
    drop_attributes,
    head_of,
    statements,
)
from hlo_lint.hlo.ir import Computation, Module
from hlo_lint.hlo.records import InstructionRecord, operands_of, references_of

COUNTED: Final = 5
"""A comment stands before each operand whose number this divides."""
_index_comment = re.compile(r"/\*index=\d+\*/").search
_STRING = r'"(?:[^"\\]|\\.)*+"'
_FLAT = rf'(?:[^{{}}"]|{_STRING})*+'
_metadata = re.compile(rf",? ?\bmetadata=\{{{_FLAT}(?:\{{{_FLAT}\}}{_FLAT})*+\}}", re.S).finditer
_LONG_ONLY = {"metadata", "control-predecessors"}
_layout = re.compile(r"(?<=\])\{[^{}]*\}")


def short(module: Module, editor: TextEditor) -> None:
    """Print what `as_hlo_text()` prints, and no more."""
    without_percent(module, editor)
    for number, computation in enumerate(module.computations):
        head = head_of(computation)
        if computation.signature and head:
            begin = module.offset(number)
            place = computation.text.index(computation.signature, head.end())
            end = place + len(computation.signature)
            editor.replace(begin + head.end(), begin + end, "")
    for _, instructions in statements(module):
        for statement in instructions:
            for comment in _index_comments(statement, editor.text):
                editor.replace(*comment, "")
            if "metadata=" in statement.text or "control-predecessors=" in statement.text:
                for name in _LONG_ONLY & statement.values().keys():
                    editor.note(f"{name}: short text has none")
                drop_attributes(editor, statement, _LONG_ONLY)
                _drop_metadata_of_sharding(editor, statement)
    if drop_tables(module, editor):
        editor.note("stack frames: short text has none")


def drop_tables(module: Module, editor: TextEditor) -> bool:
    """Take out the tables of stack frames; False where there are none."""
    if not module.tables or not module.computations:
        return False
    start = editor.text.index(module.tables[0], len(module.header))
    last = editor.text.index(module.tables[-1], start) + len(module.tables[-1])
    editor.replace(start, blank_lines(editor.text, last), "")
    return True


def _drop_metadata_of_sharding(editor: TextEditor, statement: Statement) -> None:
    place = statement.values().get("sharding")
    if place is not None:
        for match in _metadata(editor.text, *place):
            editor.replace(*match.span(), "")
            editor.note("metadata of a sharding: short text has none")


def _index_comments(statement: Statement, text: str) -> Iterator[tuple[int, int]]:
    """The spans of `/*index=5*/` before operands."""
    if "/*index=" not in operands_of(statement.record):
        return
    before = statement.operands_start
    for _, place in statement.named_operands():
        if comment := _index_comment(text, before, place.shape_start):
            yield comment.span()
        before = place.end


def long(module: Module, editor: TextEditor) -> None:
    """Print `%` before names, signatures, and `/*index=5*/` before every fifth operand."""
    for _, instructions in statements(module):
        for statement in instructions.where(_lacks_comments):
            for number, (_, place) in enumerate(statement.named_operands()):
                if number and not number % COUNTED:
                    editor.replace(place.shape_start, place.shape_start, f"/*index={number}*/")
    with_percent(module, editor)
    for number, computation in enumerate(module.computations):
        head = head_of(computation)
        signature = "" if computation.signature or not head else signature_of(computation)
        if signature and head:
            at = module.offset(number) + head.end()
            editor.replace(at, at, f" {signature}")


def _lacks_comments(row: InstructionRecord) -> bool:
    return len(references_of(row)) > COUNTED and "/*" not in operands_of(row)


def signature_of(computation: Computation) -> str:
    """`(a: f32[8]) -> f32[8]` as its instructions say; empty where a shape is not printed."""
    root = computation.root
    shapes = [parameter.type_text for parameter in computation.parameters]
    if root is None or not all((root.type_text, *shapes)):
        return ""
    names = (parameter.name for parameter in computation.parameters)
    pairs = zip(names, map(without_layouts, shapes), strict=True)
    parameters = ", ".join(f"{name}: {shape}" for name, shape in pairs)
    return f"({parameters}) -> {without_layouts(root.type_text)}"


def without_layouts(type_text: str) -> str:
    """A shape as it is spelled, less its layouts.

    >>> without_layouts("(f32[2]{0:T(128)}, s32[])")
    '(f32[2], s32[])'
    """
    return _layout.sub("", type_text)
