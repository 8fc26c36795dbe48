"""How XLA's lexer cuts a text into tokens, where our scanner is more lenient.

White space is blank, tab and line break, and comments are `//` and `/* */`; a name without `%` is
no keyword and no type, and no `=` follows it directly (`p=` is the name of an attribute).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hlo_lint.hlo.dtypes import ELEMENT_TYPES
from hlo_lint.text.source import ParseError

BLANK = r"(?:[ \t\r\n]|//[^\n]*|/\*(?:[^*]|\*(?!/))*+\*/)*+"
"""White space and comments."""
blank_end = re.compile(BLANK).match
NAME = r"[A-Za-z_][A-Za-z0-9_.\-]*+"

TYPES = frozenset(ELEMENT_TYPES) | {"token", "opaque"}
"""Words that XLA's lexer takes for types."""
_KEYWORDS = frozenset(
    "true false inf nan HloModule ENTRY ROOT maximal replicated manual last_tile_dim_replicate "
    "shard_as shard_like unknown unreduced".split()
)

_name = re.compile(rf"(%?)({NAME})(:?)").match


def blank_trouble(text: str, start: int, end: int) -> Iterator[ParseError]:
    """Says what stands between `start` and `end`, if it is neither white space nor a comment."""
    found = blank_end(text, start, end)
    at = found.end() if found else start
    if at < end:
        shown = text[at : min(end, at + 20)].split("\n")[0].rstrip()
        if text[at] in "\f\v\ufeff\0":
            yield ParseError(f"U+{ord(text[at]):04X} is no white space in HLO", at, at + 1)
        else:
            yield ParseError(f"nothing may stand here: `{shown}`", at, end)


def name_trouble(text: str, at: int, what: str) -> Iterator[ParseError]:
    """Says why no name of an instruction, a computation or a module stands at `at`."""
    found = _name(text, at)
    if found is None:
        yield ParseError(f"expected the name of {what}", at, at + 1)
        return
    percent, name, colon = found.groups()
    if percent:
        if colon:
            yield ParseError("a name with `%` has no colon behind it", found.start(3), found.end())
        if name in TYPES and what == "an instruction":
            yield ParseError(f"no instruction may be named like the type {name}", at, found.end())
        return
    if name in TYPES or name in _KEYWORDS:
        kind = "a type" if name in TYPES else "a word of the syntax"
        yield ParseError(f"{name} is {kind}; write %{name} or another name", at, found.end())
    elif not colon and text.startswith("=", found.end()):
        said = f"put a blank between {name} and `=`: XLA reads `{name}=` as an attribute"
        yield ParseError(said, at, found.end() + 1)
