"""The ends of pieces of hand-written HLO: white space, brackets, shapes, values.

A piece may span several lines and contain comments.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_white_before_returns = re.compile(
    r"(?:[ \t\r\n\f\v\ufeff]+|//[^\n\r]*|^#(?![(\d])[^\n]*)*", re.M
).match
"""White space and comments; a `//` comment also ends at a carriage return."""
_white = re.compile(
    r"[ \t\r\n\f\v\ufeff]*+(?:(?://|^#(?![(\d])).*+[ \t\r\n\f\v\ufeff]*+)*+", re.M
).match
"""White space and comments of a text in which each carriage return precedes a line break: `.` is
several times faster than a class of characters."""
_SKIPPED = frozenset(" \t\r\n\f\v\ufeff/#")
"""The first characters of white space and comments."""
_blank = re.compile(r"(?:[ \t\f\v]+|/\*[^\n*]*\*/)*").match
_string = re.compile(r'"(?:[^"\\]|\\.)*"', re.S).match
_quoted = re.compile(r"'(?:[^'\\\n]|\\.)*'").match
_bracket = re.compile(r"[(){}\[\]\"']|/\*|//").search


def _pairs() -> str:
    """A pattern of paired brackets, up to three deep, without strings and comments in them."""
    flat = r"[^(){}\[\]\"'/]*+"
    inside = flat
    for _ in range(3):
        pairs = rf"\({inside}\)|\{{{inside}\}}|\[{inside}\]"
        inside = rf"{flat}(?:(?:{pairs}){flat})*+"
    return pairs


_shallow_brackets = re.compile(_pairs()).match
_part_mark = re.compile(r"[({\[\",/#]").search
"""The beginnings of comments, and of text whose commas do not end a part."""
_atom = re.compile(r"[^\s,(){}\[\]\"'/]+|/(?![/*])").match
_SIZES = r"\[(?:[^\[\]=]|<=)*\]"
ARRAY = rf"[a-z][a-z0-9]*[ \t]*{_SIZES}"
_array = re.compile(ARRAY).match
_element_type = re.compile(r"[a-z][a-z0-9]*(?=\s|/)").match
_sizes = re.compile(_SIZES).match
_in_layout = re.compile(r"[-\d:?}]").match
_another_statement = re.compile(r"(?:ROOT|ENTRY)\b|%?[A-Za-z_][\w.\-]*\s*=(?!=)", re.A).match
_Match = Callable[[str, int, int], re.Match[str] | None]
_CLOSES = {"(": ")", "{": "}", "[": "]"}
DEEP = 8
"""The depth below which the ends of brackets are cached: each level is scanned again."""


class Unreadable(Exception):
    """A place where the text is not HLO; the statement around it stays text."""

    def __init__(self, message: str, offset: int, *, ran_out: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.at = offset
        self.ran_out = ran_out
        """True if the text ended before a bracket, string or comment did."""


class TextPieces:
    """The positions in a text at which its pieces end, at most `end`."""

    def __init__(self, text: str) -> None:
        self.text = text
        has_lines = "\r" not in text or text.count("\r") == text.count("\r\n")
        self._white = _white if has_lines else _white_before_returns
        self.end = len(text)
        """End of the text that the current statement may use."""
        self._ends: dict[int, int] = {}
        """The ends of deeply nested brackets, by their starts."""
        self._last_comment_end: int | None = None

    def _parts(self, start: int, end: int) -> list[tuple[int, int]]:
        parts = []
        offset = begin = start
        while mark := _part_mark(self.text, offset, end):
            offset = mark.start()
            character = mark[0]
            if character in _CLOSES:
                offset = self._balanced(offset)
            elif character == '"':
                offset = self._quoted(offset)
            elif character == ",":
                parts.append((begin, offset))
                offset = begin = offset + 1
            else:
                offset = max(self.skip(offset), offset + 1)
        if parts or self.skip(begin) < end:
            parts.append((begin, end))
        return parts

    def _value(self, offset: int) -> int:
        begin = offset
        text = self.text
        while offset < self.end:
            character = text[offset]
            if character in _CLOSES:
                offset = self._balanced(offset)
            elif character in "\"'":
                offset = self._quoted(offset)
            else:
                atom = _atom(text, offset, self.end)
                if atom is None:
                    break
                offset = atom.end()
            # A value may contain spaces (`mesh['x'=2] {'x'}`) but ends with its line.
            blank = _blank(text, offset)
            after = blank.end() if blank else offset
            ends = text[after : after + 1] in ("", ",", "\n", "\r", "}", ")")
            if ends or text.startswith("//", after) or _another_statement(text, after):
                break
            offset = after
        if offset == begin:
            raise Unreadable("an attribute needs a value", offset)
        return offset

    def _shape_end(self, offset: int) -> int:
        """The end of the shape at `offset`, or `offset` without a shape."""
        text = self.text
        if text.startswith("(", offset):
            return self._balanced(offset)
        if text.startswith("b(", offset):
            return self._balanced(offset + 1)
        array = _array(text, offset, self.end)
        if array is None and (element_type := _element_type(text, offset, self.end)):
            # White space or a comment may follow the element type.
            array = _sizes(text, self.skip(element_type.end()), self.end)
        if array is None:
            return offset
        end = array.end()
        brace = self.skip(end)
        if text.startswith("{", brace) and _in_layout(text, self.skip(brace + 1), self.end):
            return self._balanced(brace)
        return end

    def _balanced(self, start: int) -> int:
        text = self.text
        end = self._ends.get(start)
        if end is not None and end <= self.end:
            return end
        if shallow := _shallow_brackets(text, start, self.end):
            return shallow.end()
        open_brackets: list[str] = []
        starts: list[int] = []
        offset = start
        while True:
            bracket = _bracket(text, offset, self.end)
            if bracket is None:
                raise Unreadable(f"`{text[start]}` is never closed", start, ran_out=True)
            offset = bracket.start()
            mark = bracket[0]
            if mark in _CLOSES:
                open_brackets.append(_CLOSES[mark])
                starts.append(offset)
                offset += 1
            elif mark in ")}]":
                if open_brackets.pop() != mark:
                    raise Unreadable(f"`{mark}` closes nothing that is open", offset)
                offset += 1
                opened = starts.pop()
                if len(starts) > DEEP:
                    self._ends[opened] = offset
                if not open_brackets:
                    return offset
            elif mark in "\"'":
                offset = self._quoted(offset)
            else:
                after = self.skip(offset)
                if after == offset:
                    raise Unreadable("the comment never ends", offset, ran_out=True)
                offset = after

    def _quoted(self, offset: int) -> int:
        if self.text[offset] == "'":  # mesh['x'=2]; elsewhere an apostrophe is only a character
            quoted = _quoted(self.text, offset, self.end)
            return quoted.end() if quoted else offset + 1
        quoted = _string(self.text, offset, self.end)
        if quoted is None:
            raise Unreadable("the string never ends", offset, ran_out=True)
        return quoted.end()

    def skip(self, offset: int) -> int:
        """The end of the white space and comments at `offset`."""
        text = self.text
        if text[offset : offset + 1] not in _SKIPPED:  # most often: no need for a pattern
            return offset
        while True:
            white = self._white(text, offset)
            assert white is not None  # the pattern matches the empty text
            offset = white.end()
            if not text.startswith("/*", offset):
                return offset
            if self._last_comment_end is None:
                self._last_comment_end = text.rfind("*/")
            if offset + 2 > self._last_comment_end:
                return offset
            offset = text.index("*/", offset + 2) + 2

    def _expect(self, match: _Match, offset: int, message: str) -> re.Match[str]:
        token = match(self.text, offset, self.end)
        if token is None:
            raise Unreadable(message, offset)
        return token

    def _back(self, offset: int) -> int:
        while offset and self.text[offset - 1].isspace():
            offset -= 1
        return offset
