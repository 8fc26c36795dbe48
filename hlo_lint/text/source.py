"""Lossless text: any bytes in, the same bytes out."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import NamedTuple


class Position(NamedTuple):
    """A place in a text, as in editors: lines and columns from 1, columns in characters."""

    line: int
    column: int


class Span(NamedTuple):
    """A half-open range of characters in a file."""

    start: int
    end: int


class ParseError(NamedTuple):
    """An unreadable stretch of text, in characters of the parsed text."""

    message: str
    start: int
    end: int


class ParseDiagnostic(NamedTuple):
    """An unreadable stretch of a file, with its lines; it is kept as text."""

    message: str
    span: Span
    """In characters of the file."""
    start: Position
    end: Position


DIRECTIVE = "hlo-lint:"
"""The beginning of every comment for hlo-lint."""


def decode(data: bytes) -> str:
    """The text of a file; bytes that are not UTF-8 are kept as surrogate escapes.

    >>> encode(decode(b"caf\\xe9"))
    b'caf\\xe9'
    """
    return data.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    """The bytes of a text from `decode`, or of any other text."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate without a byte: a str from elsewhere
        return text.encode("utf-8", "surrogatepass")


def whole_number(text: str) -> int | None:
    """The number in a text of at most 18 decimal digits; None for any other text.

    Python reads at most 4,300 digits, and fields of HLO have at most 64 bits.

    >>> whole_number("-42"), whole_number("4.2"), whole_number("9" * 5000)
    (-42, None, None)
    """
    digits = text.removeprefix("-")
    return int(text) if len(digits) <= 18 and digits.isascii() and digits.isdecimal() else None


def is_utf8(text: str) -> bool:
    """True if a text can be encoded as UTF-8: it has no surrogate escapes.

    >>> is_utf8("café"), is_utf8(decode(b"caf\\xe9"))
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Lines:
    r"""A text by its lines: the position of an offset, and the text of a line.

    >>> lines = Lines("ab\ncd")
    >>> lines.position(4), lines.line(2)
    (Position(line=2, column=2), 'cd')
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._line = 0, ""
        """The number and the text of the last requested line: a hundred findings on a long line
        then share a single copy of it."""
        self._part = Span(0, 0), ""
        """The last requested span and its text, for the same reason."""
        self._starts = array("Q", [0])  # a list would take four times as much
        offset = text.find("\n")
        while offset >= 0:
            self._starts.append(offset + 1)
            offset = text.find("\n", offset + 1)

    def position(self, offset: int) -> Position:
        """Line and column of an offset."""
        line = bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1)

    def part(self, span: Span) -> str:
        """The characters of a span: the same object for repeated requests."""
        if self._part[0] != span:
            self._part = span, self.text[span.start : span.end]
        return self._part[1]

    def diagnostic(self, error: ParseError, begin: int = 0) -> ParseDiagnostic:
        """The error with its place in the file; the parsed text starts at `begin`."""
        message, start, end = error
        span = Span(begin + start, begin + end)
        return ParseDiagnostic(message, span, self.position(span.start), self.position(span.end))

    def offset(self, position: Position) -> int:
        """The number of characters before a position."""
        return self._starts[position.line - 1] + position.column - 1

    def line(self, number: int) -> str:
        """The line with a number, without its line end."""
        if number != self._line[0]:
            start = self._starts[number - 1]
            end = self._starts[number] if number < len(self._starts) else len(self.text) + 1
            self._line = number, self.text[start : end - 1].removesuffix("\r")
        return self._line[1]


def shown(text: str) -> str:
    """Text made safe for a terminal: control characters and surrogates are escaped.

    >>> shown("a\\x1b[31m\\udce9\\tb")
    'a\\\\x1b[31m\\\\udce9 b'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable()
        else " "
        if character == "\t"
        else character.encode("ascii", "backslashreplace").decode()
        if ord(character) > 0x7F
        else f"\\x{ord(character):02x}"
        for character in text
    )


def shown_lines(text: str) -> str:
    r"""Text of several lines made safe for a terminal, and for the log of a CI job.

    GitHub obeys lines that begin with two colons, after any blanks: a name may have a line feed.

    >>> shown_lines("a\x1b: no file\n ::error::b")
    'a\\x1b: no file\n|  ::error::b'
    """
    lines = map(shown, text.split("\n"))
    return "\n".join(f"| {line}" if line.lstrip().startswith("::") else line for line in lines)


def indent_before(text: str, start: int) -> str:
    """The indentation of a line before `start`; two blanks if other text precedes `start`.

    >>> indent_before("ENTRY e {\\n    a = f32[] parameter(0)", 14)
    '    '
    """
    line = text[text.rfind("\n", 0, start) + 1 : start]
    return line if not line.strip() else "  "
