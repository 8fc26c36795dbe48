"""Open texts, with positions as the protocol counts them."""

from __future__ import annotations

import re
from bisect import bisect_right

from lsprotocol import types
from pygls.workspace import TextDocument, Workspace

from hlo_lint.text.source import Span

Encoding = types.PositionEncodingKind | str

_line_end = re.compile(r"\r\n?|\n")


def line_starts(text: str) -> list[int]:
    r"""The start of each line; the protocol ends a line at `\n`, `\r\n` and `\r` alone.

    >>> line_starts("a\r\nb\rc\n\x0bd")
    [0, 3, 5, 7]
    """
    if "\r" in text:
        return [0, *(line_end.end() for line_end in _line_end.finditer(text))]
    starts = [0]
    find, end = text.find, text.find("\n")
    while end >= 0:
        starts.append(end + 1)
        end = find("\n", end + 1)
    return starts


def width(text: str, encoding: Encoding) -> int:
    """The number of code units of a text.

    >>> width("𝔘x", "utf-16"), width("𝔘x", "utf-8"), width("𝔘x", "utf-32")
    (3, 5, 2)
    """
    if text.isascii() or encoding == types.PositionEncodingKind.Utf32:
        return len(text)
    if encoding == types.PositionEncodingKind.Utf8:
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text) + sum(character > "\uffff" for character in text)


def characters(text: str, units: int, encoding: Encoding) -> int:
    """The number of characters in `units` code units; a cut character counts.

    >>> characters("𝔘x", 2, "utf-16")
    1
    """
    if text.isascii() or encoding == types.PositionEncodingKind.Utf32:
        return min(units, len(text))
    count = 0
    while units > 0 and count < len(text):
        units -= width(text[count], encoding)
        count += 1
    return count


class Text(TextDocument):
    """An open text.

    pygls' TextDocument ends lines where Python does, also at form feeds and U+2028, so it misplaces
    edits of texts with these characters; it also splits all lines at each keystroke.
    """

    def __init__(
        self, uri: str, source: str, version: int | None, language_id: str | None, codec: Encoding
    ) -> None:
        super().__init__(uri, source=source, version=version, language_id=language_id)
        self.encoding = codec
        self._starts: list[int] | None = None

    @property
    def starts(self) -> list[int]:
        """The start of each line, in characters."""
        if self._starts is None:
            self._starts = line_starts(self.source)
        return self._starts

    def apply_change(self, change: types.TextDocumentContentChangeEvent) -> None:
        """Apply a change of the client."""
        if isinstance(change, types.TextDocumentContentChangePartial):
            start, end = self.offset(change.range.start), self.offset(change.range.end)
            self._replace(start, max(start, end), change.text)
        else:
            self._source, self._starts = change.text, None

    def _replace(self, start: int, end: int, text: str) -> None:
        source, starts = self.source, self._starts
        self._source = "".join((source[:start], text, source[end:]))
        if starts is None or "\r" in text or "\r" in source:
            self._starts = None
            return
        first, after = bisect_right(starts, start), bisect_right(starts, end)
        moved = len(text) - (end - start)
        inner = [start + offset for offset in line_starts(text)[1:]]
        self._starts = [*starts[:first], *inner, *(offset + moved for offset in starts[after:])]

    def frozen(self) -> Text:
        """A copy of this version that later edits do not change."""
        copy = Text(self.uri, self.source, self.version, self.language_id, self.encoding)
        copy._starts = self._starts
        return copy

    def offset(self, position: types.Position) -> int:
        """The offset of a position, at most the end of its line."""
        if position.line >= len(self.starts):
            return len(self.source)
        start, *following = self.starts[position.line : position.line + 2]
        line = self.source[start : following[0] if following else None].rstrip("\r\n")
        return start + characters(line, position.character, self.encoding)

    def position(self, offset: int) -> types.Position:
        """The position of an offset."""
        line = self.line_of(offset)
        before = self.source[self.starts[line] : offset]
        return types.Position(line, width(before, self.encoding))

    def range(self, span: Span) -> types.Range:
        """The range of a span."""
        return types.Range(self.position(span.start), self.position(span.end))

    def line_of(self, offset: int) -> int:
        """The line number of an offset, from 0."""
        return bisect_right(self.starts, offset) - 1


class Texts(Workspace):
    """A workspace whose texts are `Text`."""

    def _create_text_document(
        self,
        doc_uri: str,
        source: str | None = None,
        version: int | None = None,
        language_id: str | None = None,
    ) -> Text:
        encoding = self.position_encoding or types.PositionEncodingKind.Utf16
        return Text(doc_uri, source or "", version, language_id, encoding)

    @classmethod
    def like(cls, initial: Workspace) -> Texts:
        """A workspace with the root, folders and encoding of `initial`."""
        folders, encoding = list(initial.folders.values()), initial.position_encoding
        return cls(initial.root_uri, workspace_folders=folders, position_encoding=encoding)
