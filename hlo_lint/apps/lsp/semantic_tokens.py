"""Semantic tokens: syntax colours for editors without a grammar of HLO."""

from __future__ import annotations

from operator import itemgetter

from lsprotocol import types

from hlo_lint.apps.lsp.documents import Document
from hlo_lint.apps.lsp.texts import width
from hlo_lint.hlo.parser.tokens import Role
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
    tokens = [
        (statement.begin + token.start, statement, token)
        for statement in document.statements(span)
        for token in statement.tokens
        if token.role in _KINDS and "\n" not in token.text
    ]
    tokens.sort(key=itemgetter(0))  # an inline computation comes after its caller's tokens
    # A token is five numbers: relative line and column, length, type, modifiers.
    data: list[int] = []
    line, column = 0, 0
    for start, statement, token in tokens:
        place = document.text.position(start)
        defines = token.role is Role.NAME
        role = Role.CALLED if defines and statement.number is None else token.role
        data += (place.line - line, place.character - (column if place.line == line else 0))
        data += (width(token.text, document.text.encoding), _ORDER.index(_KINDS[role]), defines)
        line, column = place.line, place.character
    return types.SemanticTokens(data=data)
