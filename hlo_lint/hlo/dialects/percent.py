"""Names with `%` before them, as dumps print them, or without, as `as_hlo_text()` does."""

from __future__ import annotations

import re

from hlo_lint.hlo.comments import COMMENT
from hlo_lint.hlo.dialects.text_editor import TextEditor, head_of, statements
from hlo_lint.hlo.ir import CALLING_ATTRIBUTES, Module

_find_signs = re.compile(
    rf'"(?:[^"\\]|\\.)*+"|{COMMENT}|%(?=([A-Za-z_][\w.\-]*)(=?))', re.S
).finditer
_find_bare_names = re.compile(r"(?<![%\w.\-])(?=[A-Za-z_])[\w.\-]+").finditer
_name = re.compile(r"[\w.\-]+(:?)").match
KEYWORDS = frozenset(
    "true false nan inf HloModule ENTRY ROOT maximal replicated manual unreduced unknown"
    " last_tile_dim_replicate shard_as shard_like"
    " FileNames FunctionNames FileLocations StackFrames".split()
)
"""Words that XLA's lexer does not take for names."""
HOLDS_NAMES = {*CALLING_ATTRIBUTES, "control-predecessors"}
"""Attributes whose values are names of computations or instructions."""


def without_percent(module: Module, editor: TextEditor) -> None:
    """Take the `%` away from names."""
    for number, computation in enumerate(module.computations):
        head = head_of(computation)
        if head and head[1] and head[2] not in KEYWORDS:
            at = module.offset(number) + head.start(1)
            editor.replace(at, at + 1, "")
    for _, instructions in statements(module):
        for statement in instructions:
            if statement.is_nested or "%" not in statement.text:
                continue
            for match in _find_signs(statement.text):
                if match[0] != "%":
                    continue
                if match[1] in KEYWORDS:
                    editor.note(f"%{match[1]} stays: without % it is a keyword")
                    continue
                at = statement.start + match.start()
                editor.replace(at, at + 1, "")
                if match[2]:  # `name=` without a blank is the beginning of an attribute
                    equals = statement.start + match.start(2)
                    editor.replace(equals, equals, " ")


def with_percent(module: Module, editor: TextEditor) -> None:
    """Put `%` before the names of instructions and computations."""
    text = editor.text
    for number, computation in enumerate(module.computations):
        head = head_of(computation)
        if head and not head[1]:
            _add(editor, module.offset(number) + head.start(1))
    for _, instructions in statements(module):
        for statement in instructions:
            sign = statement.sign
            bare = [sign[0]] if sign and sign[0] == sign[1] else []
            bare += [
                place.start for _, place in statement.named_operands() if text[place.start] != "%"
            ]
            for name, (start, end) in statement.values().items():
                if name in HOLDS_NAMES and "=" not in text[start:end]:
                    bare += [match.start() for match in _find_bare_names(text, start, end)]
            for at in bare:
                _add(editor, at)


def _add(editor: TextEditor, at: int) -> None:
    editor.replace(at, at, "%")
    name = _name(editor.text, at)
    if name and name[1]:  # `name:` is one token, `%name:` is two
        editor.replace(name.start(1), name.end(1), "")
