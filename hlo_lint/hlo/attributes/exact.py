"""The exact way: a text through its grammar, and what is said where the grammar refuses it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from hlo_lint.hlo.attributes.errors import AttributeSyntaxError
from hlo_lint.hlo.grammar import int64, load, offset_of
from hlo_lint.text.patterns import late

if TYPE_CHECKING:
    from lark import Token, Tree, UnexpectedInput

MAX_DEPTH = 100
"""Maximum depth of brackets: real values stay below five, Python's own limit is near 1000."""

MAX_DIGITS = 18
"""XLA's integers have 64 bits: so many digits always fit."""

_find_structure = late(r"\"(?:[^\"\\]|\\.)*\"|/\*.*?\*/|[(){}\[\]]", re.S).finditer


class Language(NamedTuple):
    """A small language of attributes, and the error for a text that is not in it."""

    grammar: str
    """The name of the file, without `.lark`."""
    expected: str
    """The message if no example fits."""
    examples: Mapping[str, Sequence[str]] = {}
    """Malformed texts: whatever fails in the same state of the parser says what they say."""


def parse_text(language: Language, text: str) -> Tree[Token]:
    """Parse a text by the grammar.

    Raises:
        AttributeSyntaxError: where it takes no such text.
    """
    from lark import UnexpectedInput

    _check_depth(text)
    try:
        return load(language.grammar).parse(text)
    except UnexpectedInput as error:
        message = _explain(error, language, text)
        raise AttributeSyntaxError(message, text, offset_of(error, text)) from None


def _check_depth(text: str) -> None:
    depth = 0
    for sign in _find_structure(text):
        depth += (sign[0] in "([{") - (sign[0] in ")]}")
        if depth > MAX_DEPTH:
            message = f"brackets nest deeper than {MAX_DEPTH}"
            raise AttributeSyntaxError(message, text, sign.start())


def _explain(error: UnexpectedInput, language: Language, text: str) -> str:
    from lark import UnexpectedToken

    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        signs = [match[0] for match in _find_structure(text)]
        if sum(sign in "([{" for sign in signs) > sum(sign in ")]}" for sign in signs):
            return "a bracket never closes"
        return language.expected
    if not language.examples:
        return language.expected
    wanted = error.match_examples(
        load(language.grammar).parse, language.examples, use_accepts=False
    )
    return wanted or language.expected


def integer(token: Token, text: str) -> int:
    """The number that a token spells.

    Raises:
        AttributeSyntaxError: where it has more than 64 bits.
    """
    try:
        return int64(token)
    except OverflowError:
        raise AttributeSyntaxError("a number does not fit", text, token.start_pos or 0) from None


def refuse(message: str, text: str, tree: Tree[Token]) -> NoReturn:
    """Says what is wrong with a part that the grammar takes.

    Raises:
        AttributeSyntaxError: always.
    """
    raise AttributeSyntaxError(message, text, getattr(tree.meta, "start_pos", 0))
