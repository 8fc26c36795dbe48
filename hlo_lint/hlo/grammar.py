"""The grammars of the package, as parsers created on demand.

The grammars specify the syntax; the readers beside this module are faster and give the same values,
as `tests/hlo/test_grammars.py` checks. This module imports lark late: most runs never need it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lark import Lark, Token, Tree, UnexpectedInput

_LONGEST = 20
"""Digits of the largest integers of XLA."""
_PACKAGE = Path(__file__).resolve().parents[1]

PLACES = (_PACKAGE / "grammars", _PACKAGE.parent / "grammars")
"""Folders of the grammars: inside the package in a wheel, beside it in a checkout."""


def grammar_file(name: str) -> Path:
    """The file of the grammar called `name`.

    >>> grammar_file("shape").name
    'shape.lark'

    Raises:
        FileNotFoundError: if it is missing; the message lists the searched folders.
    """
    for place in PLACES:
        path = place / f"{name}.lark"
        if path.is_file():
            return path
    looked = " or ".join(str(place) for place in PLACES)
    raise FileNotFoundError(f"no grammar {name}.lark in {looked}")


@cache
def grammar_parser(name: str) -> Lark:
    """The parser for the grammar `name`: LALR, contextual lexer, positions in every tree.

    Grammars import from each other with `%import .common (NAME)`: lark resolves the dot to the
    folder of the importing file.
    """
    from lark import Lark

    return Lark.open(
        str(grammar_file(name)),
        parser="lalr",
        lexer="contextual",
        propagate_positions=True,
        maybe_placeholders=False,
    )


def int64(text: str) -> int:
    """An integer as XLA's lexer reads it: from 2⁶³ on, the signed number of the same bits.

    >>> int64("18446744073709551615")
    -1

    Raises:
        OverflowError: if it has more than 64 bits.
    """
    if len(text) > _LONGEST and len(text.lstrip("-0")) > _LONGEST:
        raise OverflowError
    number = int(text)
    if not -1 << 63 <= number < 1 << 64:
        raise OverflowError
    return number if number < 1 << 63 else number - (1 << 64)


def trees(tree: Tree[Token]) -> list[Tree[Token]]:
    """The children that are rules."""
    return [child for child in tree.children if not isinstance(child, str)]


def terminals(tree: Tree[Token]) -> list[Token]:
    """The children that are terminals."""
    return [child for child in tree.children if isinstance(child, str)]


def offset_of(error: UnexpectedInput, text: str) -> int:
    """The offset in `text` at which the parser failed: its length if more was expected."""
    token: Token | None = getattr(error, "token", None)
    offset: int | None = getattr(error, "pos_in_stream", None)
    ended = token is not None and token.type == "$END"
    return len(text) if offset is None or ended else offset
