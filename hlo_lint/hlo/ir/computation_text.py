"""The text of a computation, which its file or the lines of its directory may hold."""

from __future__ import annotations

from array import array
from operator import is_

from hlo_lint.hlo.records import InstructionRecord, SharedLines
from hlo_lint.text.source import Span


class ComputationText:
    """The text of a computation: its own, a part of its file's text, or released.

    A released text is restored from the shared lines of its directory.
    """

    __slots__ = ("_begin", "_end", "_ends", "_line_starts", "_lines", "_rows", "_text", "size")

    def __init__(
        self,
        text: str,
        rows: tuple[InstructionRecord, ...],
        part: tuple[int, int] | None = None,
        lines: SharedLines | None = None,
    ) -> None:
        """Create it from its own text.

        Args:
            rows: the records that were read from it.
            part: its place in `text` if that is the text of a whole file.
            lines: the shared lines of its directory, if each record was read from such a line.
        """
        self._text = text
        self._begin, self._end = part or (0, len(text))
        self._rows = rows
        self._lines = lines
        self._ends: tuple[str, str] | None = None
        """Its first and its last line, once it is released."""
        self._line_starts: array[int] | None = None
        self.size = self._end - self._begin

    def read(self) -> str:
        """The characters, cut from the text of the file."""
        if self._ends is not None and self._lines is not None:
            head, last = self._ends
            return "\n".join([head, *self._lines.of(self._rows), last])
        if self.size < len(self._text):
            self._text = self._text[self._begin : self._end]
            self._begin, self._end = 0, self.size
        return self._text

    def release(self) -> None:
        """Drop the characters if the shared lines can restore them."""
        if self._lines is not None and self._ends is None:
            text = self._text
            self._ends = text[: text.index("\n")], text[text.rindex("\n") + 1 :]
            self._text = ""

    def excerpt(self, span: Span) -> str:
        """The characters of a span, without a copy of all others."""
        self._restore()
        return self._text[self._begin + span.start : self._begin + span.end]

    def mentions(self, word: str) -> bool:
        """True if it contains a word, without a copy."""
        if self._ends is not None:
            return word in self.read()
        return self._text.find(word, self._begin, self._end) >= 0

    def is_as(self, other: ComputationText) -> bool:
        """True if both have the same characters."""
        if self.size != other.size:
            return False
        if self._ends is None or other._ends is None or self._lines is not other._lines:
            return self.read() == other.read()
        return self._ends == other._ends and all(map(is_, self._rows, other._rows))

    def instruction_span(self, number: int) -> Span:
        """The place of an instruction where a head and an instruction per line follow."""
        starts = self._line_starts
        if starts is None:
            self._restore()
            find = self._text.find
            self._line_starts = starts = array("Q")
            offset = find("\n", self._begin, self._end)
            while offset >= 0:
                starts.append(offset + 1 - self._begin)
                offset = find("\n", offset + 1, self._end)
        return Span(starts[number] + 2, starts[number + 1] - 1)

    def _restore(self) -> None:
        if self._ends is not None:
            self._text, self._ends = self.read(), None
