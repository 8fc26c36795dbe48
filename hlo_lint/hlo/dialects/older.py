"""Text for the parsers of jax 0.4.38 to 0.9: metadata with the fields that each of them knows.

stack_frame_id=3                         a row of the tables of jax 0.9.1 and later
source_file="model.py" source_line=12    the same place as older releases print it
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from typing import Final

from hlo_lint.hlo.dialects.short_text import drop_tables
from hlo_lint.hlo.dialects.text_editor import Statement, TextEditor, drop_attributes, statements
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.records import InstructionRecord, attributes_of, opcode_of, references_of, type_of
from hlo_lint.text.source import whole_number

# Found by asking the parsers: the fields that they say they allow, the words that they refuse.
_METADATA_OF_0_5: Final = frozenset(
    "deduplicated_name op_name op_type profile_type scheduling_name source_file source_line".split()
)
_METADATA_OF_0_7: Final = _METADATA_OF_0_5 | {
    "source_column",
    "source_end_column",
    "source_end_line",
}
_METADATA_OF_0_9: Final = _METADATA_OF_0_7 | {"stack_frame_id"}
_NEW_IN_0_9: Final = frozenset({"asinh", "scan"})
_NEW_IN_0_8: Final = frozenset({"asin", "atanh", "cosh", "sinh"})
_NEW_IN_0_7: Final = frozenset({"acos", "acosh", "scaled-dot"})
_NEW_TYPES_IN_0_5: Final = frozenset({"f4e2m1fn", "f8e8m0fnu"})
_NEW_TYPES_IN_0_6: Final = frozenset({"b"})
_field = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\{[^{}]*\}|[^\s{}"]+)')
_types = re.compile(r"\b([a-z]\w*)[\[(]").findall


@dataclass(frozen=True, slots=True)
class Parser:
    """The syntax of one release's parser, as its differences from that of jaxlib 0.10.0."""

    release: str
    opcodes: Set[str]
    """Opcodes that it refuses."""
    types: Set[str] = frozenset()
    """Element types that it refuses."""
    attributes: Set[str] = frozenset()
    """Attributes that it refuses."""
    metadata: Set[str] = _METADATA_OF_0_5
    """Fields of metadata that it allows."""
    permutes_several: bool = True
    """True if a collective-permute may have several operands."""

    def __call__(self, module: Module, editor: TextEditor) -> None:
        """Say lines in the metadata, leave out what it refuses, and note what it needs."""
        if "stack_frame_id" not in self.metadata and drop_tables(module, editor):
            editor.note("stack frames: the innermost is in metadata, the others are left out")
        for computation, instructions in statements(module):
            for row in computation.rows:
                self._note_unknown(row, editor)
            for statement in instructions.mentioning("="):
                dropped = self.attributes & statement.values().keys()
                for name in sorted(dropped):
                    opcode = opcode_of(statement.record)
                    editor.note(f"{name} of {opcode}: jaxlib {self.release} does not know it")
                if dropped:
                    drop_attributes(editor, statement, dropped)
                self._respell_metadata(module, statement, editor)

    def _note_unknown(self, row: InstructionRecord, editor: TextEditor) -> None:
        refuses = f"jaxlib {self.release} has no such"
        several = not self.permutes_several and len(references_of(row)) not in (1, 4)
        if several and opcode_of(row) in ("collective-permute", "collective-permute-start"):
            editor.note(f"{opcode_of(row)} of several arrays stays: {refuses} form")
        if opcode_of(row) in self.opcodes:
            editor.note(f"{opcode_of(row)} stays: {refuses} opcode and refuses the text")
        for name in self.types & set(_types(type_of(row))) if self.types else ():
            editor.note(f"{name} stays: {refuses} type and refuses the text")
        if "unreduced" in attributes_of(row) and "source_column" not in self.metadata:
            editor.note(f"unreduced stays: {refuses} sharding and refuses the text")

    def _respell_metadata(self, module: Module, statement: Statement, editor: TextEditor) -> None:
        place = statement.values().get("metadata")
        if place is None:
            return
        fields = dict(_field.findall(editor.text, *place))
        frames = module.stack_frames.stack(whole_number(fields.get("stack_frame_id", "")) or 0)
        if frames and "source_file" not in fields and "stack_frame_id" not in self.metadata:
            name = frames[0].file.replace("\\", "\\\\").replace('"', '\\"')
            fields |= {"source_file": f'"{name}"', "source_line": str(frames[0].line)}
        kept = {name: value for name, value in fields.items() if name in self.metadata}
        for name in sorted(fields.keys() - kept.keys() - {"stack_frame_id"}):
            editor.note(f"{name} of metadata: jaxlib {self.release} does not know it")
        if kept.keys() != fields.keys():
            text = " ".join(f"{name}={value}" for name, value in kept.items())
            editor.replace(*place, "{" + text + "}")


_ORIGIN: Final = frozenset({"origin"})
PARSERS: Final = {
    "jax0.9": Parser("0.9", frozenset({"scan"}), metadata=_METADATA_OF_0_9),
    "jax0.8": Parser("0.8", _NEW_IN_0_9, attributes=_ORIGIN, metadata=_METADATA_OF_0_7),
    "jax0.7": Parser(
        "0.7", _NEW_IN_0_9 | _NEW_IN_0_8, attributes=_ORIGIN, metadata=_METADATA_OF_0_7
    ),
    "jax0.6": Parser("0.6", _NEW_IN_0_9 | _NEW_IN_0_8 | _NEW_IN_0_7, attributes=_ORIGIN | {"mode"}),
    "jax0.5": Parser(
        "0.5",
        _NEW_IN_0_9 | _NEW_IN_0_8 | _NEW_IN_0_7,
        _NEW_TYPES_IN_0_6,
        _ORIGIN | {"mode"},
    ),
    "jax0.4.38": Parser(
        "0.4.38",
        _NEW_IN_0_9 | _NEW_IN_0_8 | _NEW_IN_0_7,
        _NEW_TYPES_IN_0_6 | _NEW_TYPES_IN_0_5,
        _ORIGIN | {"mode", "result_accuracy"},
        permutes_several=False,
    ),
}
"""The parsers by the name of their dialect."""
