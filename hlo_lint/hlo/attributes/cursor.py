"""The tokens of an attribute's value, read from left to right.

A reader of a value is a function that takes tokens from a `Cursor` and returns the typed value;
it refuses an unexpected token, with its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Final, NoReturn, TypeVar

from hlo_lint.hlo.comments import COMMENT
from hlo_lint.hlo.grammar import int64
from hlo_lint.hlo.shape import TextError
from hlo_lint.text.patterns import late

Value = TypeVar("Value")
Accepts = Callable[[str], object]
"""A test of a token, such as the `fullmatch` of a pattern."""
FindTokens = Callable[[str], Iterator[re.Match[str]]]

STRING: Final = r"""(?:"(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+')"""
"""A text in double or single quotes: XLA reads both."""
find_tokens = late(rf"{STRING}|{COMMENT}|-?%?[\w.][\w.+\-]*|<=|[^ \t\r\n]", re.S | re.A).finditer
_is_word = late(r"[A-Za-z_][A-Za-z0-9_.\-]*").fullmatch
_is_name = late(r"%?[A-Za-z_][A-Za-z0-9_.\-]*").fullmatch
_is_scalar = late(r"%?[A-Za-z_][A-Za-z0-9_.\-]*|-?[0-9]+").fullmatch
_is_integer = late(r"-?[0-9]+").fullmatch
_is_count = late(r"[0-9]+").fullmatch
_is_number = late(r"-?(?:inf|nan|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)").fullmatch
_is_string = late(STRING, re.S).fullmatch
_OPENS, _CLOSES = ("(", "[", "{"), (")", "]", "}")
_QUOTES = ('"', "'")
NEVER_CLOSES: Final = "a bracket never closes"
_DIGITS = 19
"""Digits of the largest signed integer of 64 bits."""


class AttributeSyntaxError(TextError):
    """A text that is not a value of its attribute."""


def reads(expected: str) -> Callable[[Callable[[Cursor], Value]], Callable[[str], Value]]:
    """Make a reader of a cursor a reader of a whole text, of which `expected` is the description.

    The reader of the text raises AttributeSyntaxError if it is not a value of its attribute.
    """

    def decorate(read: Callable[[Cursor], Value]) -> Callable[[str], Value]:
        @wraps(read)
        def read_text(text: str) -> Value:
            cursor = Cursor(text, expected)
            value = read(cursor)
            cursor.finish()
            return value

        return read_text

    return decorate


class Cursor:
    """The tokens of a text without blanks and comments, and the position among them.

    Methods with a `message` raise it as the error; the default is what the whole value should be.
    """

    __slots__ = ("_find", "_starts", "at", "expected", "text", "tokens")

    def __init__(self, text: str, expected: str, find: FindTokens = find_tokens) -> None:
        self.text = text
        self.expected = expected
        self._find = find
        self.tokens = [match[0] for match in find(text)]
        if "/" in text:
            self.tokens = [token for token in self.tokens if token[:2] not in ("/*", "//")]
        self.tokens.append("")
        """The last token is empty."""
        self.at = 0
        """The number of the next token."""
        self._starts: list[int] = []

    @property
    def next(self) -> str:
        """The next token; empty at the end."""
        return self.tokens[self.at]

    def follows(self, *tokens: str) -> bool:
        """True if these are the next tokens."""
        return self.tokens[self.at : self.at + len(tokens)] == [*tokens]

    def take(self, *tokens: str) -> bool:
        """Read these tokens if they are next; True if they are."""
        if self.tokens[self.at : self.at + len(tokens)] == [*tokens]:
            self.at += len(tokens)
            return True
        return False

    def demand(self, *tokens: str, message: str = "") -> None:
        """Read these tokens.

        Raises:
            AttributeSyntaxError: if the next token differs; likewise in the methods below.
        """
        for token in tokens:
            if self.tokens[self.at] != token:
                self.refuse(message)
            self.at += 1

    def read(self, accepts: Accepts, message: str = "") -> str:
        """The next token, which `accepts` has to accept."""
        token = self.tokens[self.at]
        if not accepts(token):
            self.refuse(message)
        self.at += 1
        return token

    def word(self, message: str = "") -> str:
        """A word: `LT`."""
        return self.read(_is_word, message)

    def name(self, message: str = "") -> str:
        """A name without its `%`."""
        return self.read(_is_name, message).removeprefix("%")

    def string(self, message: str = "") -> str:
        """A text in quotes, without them and its escapes."""
        return unescape(self.read(_is_string, message)[1:-1])

    def scalar(self, message: str = "") -> str:
        """A name, an integer or a string, as text; a string without quotes and escapes."""
        return self.string(message) if self.next[:1] in _QUOTES else self.read(_is_scalar, message)

    def number(self, message: str = "") -> float:
        """A number with or without fraction and exponent."""
        return float(self.read(_is_number, message))

    def boolean(self, message: str = "") -> bool:
        """`true` or `false`."""
        return self.read(("true", "false").__contains__, message) == "true"

    def integer(self, message: str = "") -> int:
        """An integer of 64 bits; from 2⁶³ on it is negative, as XLA reads it."""
        token = self.read(_is_integer, message)
        try:
            return int64(token)
        except OverflowError:
            self.refuse("a number does not fit", self.at - 1)

    def count(self, message: str = "") -> int:
        """A number from 0 to 2⁶³ - 1."""
        return self._fitting(self.read(_is_count, message))

    def grid(self, accepts: Accepts, message: str = "") -> tuple[tuple[int, ...], ...]:
        """The numbers of a token: `1_0x2_-3` is two rows of two."""
        rows = self.read(accepts, message).split("x")
        return tuple(tuple(map(self._fitting, row.split("_"))) for row in rows)

    def _fitting(self, spelled: str) -> int:
        is_long = len(spelled) > _DIGITS and len(spelled.lstrip("-0")) > _DIGITS
        if is_long or not -1 << 63 <= int(spelled) < 1 << 63:
            self.refuse("a number does not fit", self.at - 1)
        return int(spelled)

    def listed(
        self, read: Callable[[str], Value], message: str = "", brackets: str = "{}"
    ) -> tuple[Value, ...]:
        """Values in brackets, separated by commas; `read` gets the message, too."""
        opening, closing = brackets[0], brackets[1]
        self.demand(opening, message=message)
        if self.take(closing):
            return ()
        values = [read(message)]
        while self.tokens[self.at] == ",":
            self.at += 1
            values.append(read(message))
        self.demand(closing, message=message)
        return tuple(values)

    def braces(self, message: str = "") -> str:
        """The text of balanced braces, with the braces and any contents."""
        begin, depth = self.at, 1
        self.demand("{", message=message)
        while depth:
            if not self.next:
                self.refuse(message)
            depth += (self.next == "{") - (self.next == "}")
            self.at += 1
        return self.text[self.offset(begin) : self.offset(self.at - 1) + 1]

    def finish(self) -> None:
        """Refuse any token after the value."""
        if self.next:
            self.refuse()

    def offset(self, number: int) -> int:
        """The offset of a token in the text."""
        if not self._starts:
            matches = self._find(self.text)
            self._starts = [m.start() for m in matches if m[0][:2] not in ("/*", "//")]
            self._starts.append(len(self.text))
        return self._starts[number]

    def refuse(self, message: str = "", number: int | None = None) -> NoReturn:
        """Raise AttributeSyntaxError at the next token, or at the token of a number."""
        number = self.at if number is None else number
        if number == len(self.tokens) - 1:
            left_open = sum((sign in _OPENS) - (sign in _CLOSES) for sign in self.tokens)
            message = NEVER_CLOSES if left_open > 0 else message
        raise AttributeSyntaxError(message or self.expected, self.text, self.offset(number))


def unescape(text: str) -> str:
    """The unescaped text of a string that XLA escaped by `absl::CEscape`, without its quotes.

    >>> unescape(r"caf\\303\\251")
    'café'
    """
    if "\\" not in text:
        return text
    from hlo_lint.hlo.parser.strings import c_unescape_all

    return c_unescape_all(text).decode("utf-8", "surrogateescape")
