"""The pieces of HLO as people write it: where white space, a bracket, a shape or a value ends.

A piece may stand on several lines and have comments in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_white_before_returns = re.compile(
    r"(?:[ \t\r\n\f\v\ufeff]+|//[^\n\r]*|^#(?![(\d])[^\n]*)*", re.M
).match
"""White space and comments, which end at a carriage return, too."""
_white = re.compile(
    r"[ \t\r\n\f\v\ufeff]*+(?:(?://|^#(?![(\d])).*+[ \t\r\n\f\v\ufeff]*+)*+", re.M
).match
"""White space and comments of a text in which each carriage return stands before a line break:
`.` is several times faster than a class of characters."""
_SKIPPED = frozenset(" \t\r\n\f\v\ufeff/#")
"""The characters that white space and comments begin with."""
_blank = re.compile(r"(?:[ \t\f\v]+|/\*[^\n*]*\*/)*").match
_string = re.compile(r'"(?:[^"\\]|\\.)*"', re.S).match
_quoted = re.compile(r"'(?:[^'\\\n]|\\.)*'").match
_bracket = re.compile(r"[(){}\[\]\"']|/\*|//").search


def _pairs() -> str:
    """A pattern of brackets in pairs, three deep, and of no strings and comments in them."""
    flat = r"[^(){}\[\]\"'/]*+"
    inside = flat
    for _ in range(3):
        pairs = rf"\({inside}\)|\{{{inside}\}}|\[{inside}\]"
        inside = rf"{flat}(?:(?:{pairs}){flat})*+"
    return pairs


_shallow_brackets = re.compile(_pairs()).match
_part_mark = re.compile(r"[({\[\",/#]").search
"""The beginnings of comments, and of text in which a comma ends no part."""
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
"""Levels of brackets below which the end of each is noted: each level is looked at again."""


class Unreadable(Exception):
    """A place where the text is not HLO; the statement around it stays text."""

    def __init__(self, message: str, at: int, *, ran_out: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.at = at
        self.ran_out = ran_out
        """True if the text ended before a bracket, string or comment did."""


class TextPieces:
    """The positions in a text at which its pieces end; none goes beyond `end`."""

    def __init__(self, text: str) -> None:
        self.text = text
        has_lines = "\r" not in text or text.count("\r") == text.count("\r\n")
        self._white = _white if has_lines else _white_before_returns
        self.end = len(text)
        """End of the text that the current statement may use."""
        self._ends: dict[int, int] = {}
        """The ends of brackets that stand deep in others, by their starts."""
        self._last_comment_end: int | None = None

    def _parts(self, start: int, end: int) -> list[tuple[int, int]]:
        """Positions of the parts between top-level commas."""
        parts = []
        at = begin = start
        while mark := _part_mark(self.text, at, end):
            at = mark.start()
            character = mark[0]
            if character in _CLOSES:
                at = self._balanced(at)
            elif character == '"':
                at = self._quoted(at)
            elif character == ",":
                parts.append((begin, at))
                at = begin = at + 1
            else:
                at = max(self.skip(at), at + 1)
        if parts or self.skip(begin) < end:
            parts.append((begin, end))
        return parts

    def _value(self, at: int) -> int:
        begin = at
        text = self.text
        while at < self.end:
            character = text[at]
            if character in _CLOSES:
                at = self._balanced(at)
            elif character in "\"'":
                at = self._quoted(at)
            else:
                atom = _atom(text, at, self.end)
                if atom is None:
                    break
                at = atom.end()
            # A value may hold spaces (`mesh['x'=2] {'x'}`) but goes on to no other line.
            after = _end(_blank(text, at))
            ends = text[after : after + 1] in ("", ",", "\n", "\r", "}", ")")
            if ends or text.startswith("//", after) or _another_statement(text, after):
                break
            at = after
        if at == begin:
            raise Unreadable("an attribute needs a value", at)
        return at

    def _shape(self, at: int) -> int:
        end = self._shape_end(at)
        if end == at:
            raise Unreadable("expected a shape", at)
        return end

    def _shape_end(self, at: int) -> int:
        """The end of the shape at `at`, or `at` where there is none."""
        text = self.text
        if text.startswith("(", at):
            return self._balanced(at)
        if text.startswith("b(", at):
            return self._balanced(at + 1)
        array = _array(text, at, self.end) or self._apart(at)
        if array is None:
            return at
        end = array.end()
        brace = self.skip(end)
        if text.startswith("{", brace) and _in_layout(text, self.skip(brace + 1), self.end):
            return self._balanced(brace)
        return end

    def _apart(self, at: int) -> re.Match[str] | None:
        """The sizes of an array that white space or comments part from its element type."""
        element_type = _element_type(self.text, at, self.end)
        return element_type and _sizes(self.text, self.skip(element_type.end()), self.end)

    def _balanced(self, start: int) -> int:
        """The end of the bracket that opens at `start`."""
        text = self.text
        end = self._ends.get(start)
        if end is not None and end <= self.end:
            return end
        if shallow := _shallow_brackets(text, start, self.end):
            return shallow.end()
        open_brackets: list[str] = []
        starts: list[int] = []
        at = start
        while True:
            bracket = _bracket(text, at, self.end)
            if bracket is None:
                raise Unreadable(f"`{text[start]}` is never closed", start, ran_out=True)
            at = bracket.start()
            mark = bracket[0]
            if mark in _CLOSES:
                open_brackets.append(_CLOSES[mark])
                starts.append(at)
                at += 1
            elif mark in ")}]":
                if open_brackets.pop() != mark:
                    raise Unreadable(f"`{mark}` closes nothing that is open", at)
                at += 1
                opened = starts.pop()
                if len(starts) > DEEP:
                    self._ends[opened] = at
                if not open_brackets:
                    return at
            elif mark in "\"'":
                at = self._quoted(at)
            else:
                after = self.skip(at)
                if after == at:
                    raise Unreadable("the comment never ends", at, ran_out=True)
                at = after

    def _quoted(self, at: int) -> int:
        if self.text[at] == "'":  # mesh['x'=2]; elsewhere an apostrophe is only a character
            quoted = _quoted(self.text, at, self.end)
            return quoted.end() if quoted else at + 1
        quoted = _string(self.text, at, self.end)
        if quoted is None:
            raise Unreadable("the string never ends", at, ran_out=True)
        return quoted.end()

    def skip(self, at: int) -> int:
        """The end of the white space and comments at `at`."""
        text = self.text
        if text[at : at + 1] not in _SKIPPED:  # most often: no need for a pattern
            return at
        while True:
            white = self._white(text, at)
            assert white is not None  # the pattern matches the empty text
            at = white.end()
            if not text.startswith("/*", at) or at + 2 > self._comments_end():
                return at
            at = text.index("*/", at + 2) + 2

    def _comments_end(self) -> int:
        """The last `*/`; -1 if there is none."""
        if self._last_comment_end is None:
            self._last_comment_end = self.text.rfind("*/")
        return self._last_comment_end

    def _expect(self, match: _Match, at: int, message: str) -> re.Match[str]:
        token = match(self.text, at, self.end)
        if token is None:
            raise Unreadable(message, at)
        return token

    def _back(self, at: int) -> int:
        """Start of the white space before `at`."""
        while at and self.text[at - 1].isspace():
            at -= 1
        return at


def _end(match: re.Match[str] | None) -> int:
    assert match is not None  # the patterns match the empty text
    return match.end()
