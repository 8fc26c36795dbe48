"""Colours for code blocks: `hlo`, and `console` as `hlo-lint` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pygments.lexer import RegexLexer, bygroups
from pygments.token import Comment, Generic, Keyword, Name, Number, Punctuation, String, Text

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
        "dimensions": [(r"[^\]]+", Number), (r"\](?:\{[^}]*\})?", Keyword.Type, "#pop")],
    }


class ConsoleLexer(RegexLexer):
    """Commands and what they print; `%` begins a name of HLO, it is not a prompt."""

    name = "Commands of hlo-lint"
    aliases: ClassVar[list[str]] = ["console"]
    tokens: ClassVar = {
        "root": [
            (r"^(\$ )(.*\n)", bygroups(Generic.Prompt, Generic.Strong)),
            (r"^(?:error|Error)\b", Name.Variable),
            (r"^(?:warning|info|note|help|skipped)\b", Keyword),
            (r"^ *\^+\n|(?<=\| )\s*\^+\n", Name.Variable),
            (r"^ *\+.*\n", String),
            (r"^ *-(?!->).*\n", Name.Variable),
            (r"^@@.*\n", Comment),
            (r".+?(?=\s*\^+\n)|.*\n", Text),
        ]
    }


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers both."""
    app.add_lexer("hlo", HloLexer)
    app.add_lexer("console", ConsoleLexer)
    return {"parallel_read_safe": True}
