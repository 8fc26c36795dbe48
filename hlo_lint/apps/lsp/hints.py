"""Inlay hints: the shapes of operands, which most dumps do not print."""

from __future__ import annotations

from collections.abc import Iterator

from lsprotocol import types

from hlo_lint.apps.lsp.documents import Document
from hlo_lint.hlo.parser.tokens import Role
from hlo_lint.hlo.records import type_of
from hlo_lint.hlo.shape import part, shape_or_none
from hlo_lint.text.phrases import shortened
from hlo_lint.text.source import Span, shown

WIDTH = 40
"""The maximum length of a shape in characters."""
_TYPED = ("] ", "} ", ") ")
"""The text before an operand whose shape is printed."""


def hints(document: Document, span: Span) -> Iterator[types.InlayHint]:
    """The shapes of operands in a span, unless the text prints them."""
    source = document.text.source
    for statement in document.statements(span):
        for token in statement.tokens:
            start = statement.begin + token.start
            if token.role is not Role.OPERAND or source[start - 2 : start] in _TYPED:
                continue
            symbol = document.resolve(statement, token)
            if symbol is None or symbol.number is None:
                continue
            shape = shape_or_none(type_of(symbol.place.computation.rows[symbol.number]))
            shape = part(shape, symbol.element)
            if shape is None:
                continue
            yield types.InlayHint(
                position=document.text.position(start),
                label=shortened(shown(str(shape)), WIDTH),
                kind=types.InlayHintKind.Type,
                padding_right=True,
            )
