"""Colours for HLO: the language `hlo` of code blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pygments.lexer import RegexLexer, bygroups
from pygments.token import Comment, Keyword, Name, Number, Punctuation, String, Text

if TYPE_CHECKING:
    from sphinx.application import Sphinx


class HloLexer(RegexLexer):
    """Enough of the syntax to read it: names, types, opcodes, attributes."""

    name = "HLO"
    aliases: ClassVar[list[str]] = ["hlo"]
    tokens: ClassVar = {
        "root": [
            (r"//.*?$|/\*.*?\*/", Comment),
            (r'"(?:\\.|[^"\\])*"', String),
            (r"\b(?:HloModule|ENTRY|ROOT)\b", Keyword),
            (r"\b(?:pred|token|opaque|bf16|[sufc]\d+(?:e\w+)?)\[", Keyword.Type, "dimensions"),
            (r"[\w.-]+(?=\()", Name.Function),
            (r"([\w-]+)(=)(?=[^\s])", bygroups(Name.Attribute, Punctuation)),
            (r"%?[A-Za-z_][\w.#-]*", Name),
            (r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", Number),
            (r"[^\w\s\"/%]+", Punctuation),
            (r".|\n", Text),
        ],
        "dimensions": [
            (r"[^\]]+", Number),
            (r"\](?:\{[^}]*\})?", Keyword.Type, "#pop"),
        ],
    }


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the lexer."""
    app.add_lexer("hlo", HloLexer)
    return {"parallel_read_safe": True}
