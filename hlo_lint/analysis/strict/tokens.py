"""The tokens of XLA's lexer (`hlo_lexer.cc`), where our scanner is more lenient.

White space is blank, tab and line break, and comments are `//` and `/* */`; a name without `%` is
neither a keyword nor a type, and no `=` follows it directly (`p=` is the name of an attribute).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hlo_lint.hlo.attributes import attribute_span
from hlo_lint.hlo.dtypes import ELEMENT_TYPES
from hlo_lint.hlo.records import InstructionRecord, attributes_of
from hlo_lint.text.source import ParseError

BLANK = r"(?:[ \t\r\n]|//[^\n\r]*|/\*(?:[^*]|\*(?!/))*+\*/)*+"
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


def attribute_text(record: InstructionRecord, name: str) -> str:
    """The value of an attribute; empty if there is none."""
    text = attributes_of(record)
    span = attribute_span(text, name) if name in text else None
    return text[slice(*span)] if span else ""


class Unmade(ParseError):
    """An error of `CreateInstruction`: the whole instruction was read, and cannot be made."""


class Refused(Exception):
    """The first error in a value; what comes after it is not read."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.message = message
        self.at = at


def blank_errors(text: str, start: int, end: int) -> Iterator[ParseError]:
    """An error if anything but white space and comments stands between `start` and `end`."""
    blank = blank_end(text, start, end)
    at = blank.end() if blank else start
    if at < end:
        excerpt = text[at : min(end, at + 20)].split("\n")[0].rstrip()
        if text[at] in "\f\v\ufeff\0":
            yield ParseError(f"U+{ord(text[at]):04X} is not white space in HLO", at, at + 1)
        else:
            yield ParseError(f"unexpected text: `{excerpt}`", at, end)


def name_errors(text: str, at: int, owner: str) -> Iterator[ParseError]:
    """The error if no name of `owner` (an instruction, a computation, a module) stands at `at`."""
    match = _name(text, at)
    if match is None:
        yield ParseError(f"expected the name of {owner}", at, at + 1)
        return
    percent, name, colon = match.groups()
    if percent:
        if colon:
            yield ParseError("unexpected `:` after a name with `%`", match.start(3), match.end())
        if name in TYPES and owner == "an instruction":
            yield ParseError(
                f"an instruction cannot have the name of a type: {name}", at, match.end()
            )
        return
    if name in TYPES or name in _KEYWORDS:
        kind = "a type" if name in TYPES else "a keyword"
        yield ParseError(f"{name} is {kind}: write %{name} or another name", at, match.end())
    elif not colon and text.startswith("=", match.end()):
        message = f"expected a blank between {name} and `=`: XLA reads `{name}=` as an attribute"
        yield ParseError(message, at, match.end() + 1)
