"""Semantic tokens: syntax colours for editors without a grammar of HLO."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from lsprotocol import types

from hlo_lint.apps.lsp.documents import Document
from hlo_lint.apps.lsp.texts import width
from hlo_lint.hlo.parser.tokens import Role, Token
from hlo_lint.hlo.symbols import Statement
from hlo_lint.text.source import Span

INSTRUCTIONS = 5_000
"""The most instructions for colouring a whole file; of larger files only visible ranges are."""

_KINDS = {
    Role.KEYWORD: types.SemanticTokenTypes.Keyword,
    Role.NAME: types.SemanticTokenTypes.Variable,
    Role.TYPE: types.SemanticTokenTypes.Type,
    Role.OPCODE: types.SemanticTokenTypes.Function,
    Role.OPERAND: types.SemanticTokenTypes.Variable,
    Role.ATTRIBUTE: types.SemanticTokenTypes.Property,
    Role.CALLED: types.SemanticTokenTypes.Class,
    Role.PREDECESSOR: types.SemanticTokenTypes.Variable,
    Role.PARAMETER: types.SemanticTokenTypes.Parameter,
    Role.STRING: types.SemanticTokenTypes.String,
    Role.COMMENT: types.SemanticTokenTypes.Comment,
}
_ORDER = list(dict.fromkeys(_KINDS.values()))
LEGEND = types.SemanticTokensLegend(
    token_types=[kind.value for kind in _ORDER],
    token_modifiers=[types.SemanticTokenModifiers.Definition.value],
)


def semantic_tokens(document: Document, span: Span | None = None) -> types.SemanticTokens:
    """The tokens in a span; by default in the whole file, unless it is too large."""
    if span is None:
        if sum(len(place.computation.rows) for place in document.places) > INSTRUCTIONS:
            return types.SemanticTokens(data=[])
        span = Span(0, len(document.text.source))
    typed = [
        (statement.begin + token.start, token, _kind(statement, token))
        for statement in document.statements(span)
        for token in statement.tokens
        if token.role in _KINDS and "\n" not in token.text
    ]
    typed.sort(key=itemgetter(0))  # an inline computation comes after its caller's tokens
    return types.SemanticTokens(data=list(_encoded(document, typed)))


def _kind(statement: Statement, token: Token) -> tuple[types.SemanticTokenTypes, bool]:
    """The type of a token, and True if it is a definition."""
    if token.role is Role.NAME and statement.number is None:
        return _KINDS[Role.CALLED], True
    return _KINDS[token.role], token.role is Role.NAME


def _encoded(
    document: Document, typed: list[tuple[int, Token, tuple[types.SemanticTokenTypes, bool]]]
) -> Iterator[int]:
    """Encode tokens in five numbers: relative line and column, length, type, modifiers."""
    line, column = 0, 0
    for start, token, (kind, defines) in typed:
        place = document.text.position(start)
        yield place.line - line
        yield place.character - (column if place.line == line else 0)
        yield width(token.text, document.text.encoding)
        yield _ORDER.index(kind)
        yield int(defines)
        line, column = place.line, place.character
