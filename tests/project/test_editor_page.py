"""The page on editors: what it shows is what a client of the server gets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pygls", reason="the language server needs hlo-lint[lsp]")

from lsprotocol import types

from tests.conftest import CRASH, ROOT, present
from tests.editor import Editor

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "editor.md"
SESSION = re.compile(r"(?<=^````text\n).*?(?=^````$)", re.M | re.S)
WIDTH = 100


class Session:
    """An editor with one file open, and its answers as text."""

    def __init__(self, path: Path) -> None:
        self.editor = Editor()
        self.lines = path.read_text().split("\n")
        self.uri = self.editor.open(path.read_text(), str(path))
        self.named = types.TextDocumentIdentifier(self.uri)

    def answer(self, question: str) -> str:
        what, *rest = question.split()
        if not rest:
            return "\n".join(getattr(self, what)())
        line, column = map(int, rest[0].split(":"))
        place = types.Position(line - 1, column - 1)
        return "\n".join(getattr(self, what)(place, *rest[1:]))

    def _shown(self, place: types.Range) -> str:
        line = self.lines[place.start.line].strip()
        line = line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
        return f"{_spelled(place.start)}: {line}"

    def findings(self) -> Iterator[str]:
        for told in self.editor.findings(self.uri):
            yield f"{_spelled(told.range.start)}: {present(told.severity).name.lower()} {told.code}"
            yield from (f"  {line}" for line in told.message.split("\n"))
            for related in told.related_information or ():
                yield f"  {_spelled(related.location.range.start)}: {related.message}"

    def hover(self, place: types.Position) -> Iterator[str]:
        yield self.editor.hover(self.uri, place) or ""

    def definition(self, place: types.Position) -> Iterator[str]:
        yield self._shown(present(self.editor.definition(self.uri, place)))

    def references(self, place: types.Position) -> Iterator[str]:
        for found in self.editor.references(self.uri, place):
            yield self._shown(found)

    def actions(self, place: types.Position) -> Iterator[str]:
        for action in self.editor.actions(self.uri, types.Range(place, place)):
            yield f"{action.title} ({getattr(action.kind, 'value', action.kind)})"

    def outline(self) -> Iterator[str]:
        params = types.DocumentSymbolParams(self.named)
        found = self.editor.wait(self.editor.client.text_document_document_symbol_async(params))

        def told(symbol: types.DocumentSymbol, depth: int) -> Iterator[str]:
            yield f"{'  ' * depth}{symbol.name}: {symbol.detail}"
            children = symbol.children or ()
            for child in children[:4]:
                yield from told(child, depth + 1)
            if len(children) > 4:
                yield f"{'  ' * (depth + 1)}…"

        for symbol in found or ():
            assert isinstance(symbol, types.DocumentSymbol)
            yield from told(symbol, 0)


def _spelled(place: types.Position) -> str:
    return f"{place.line + 1}:{place.character + 1}"


def replayed(page: str) -> str:
    """The page, with the answers of today."""
    name = present(re.search(r"`crash/([^`]+)`", page))
    session = Session(CRASH / name[1])

    def run(block: re.Match[str]) -> str:
        questions = re.findall(r"^> (.+)$", block[0], re.M)
        return "\n".join(f"> {each}\n{session.answer(each)}\n" for each in questions)

    page = SESSION.sub(run, page)
    session.editor.close()
    return page


def test_the_page_shows_what_the_server_answers() -> None:
    page = PAGE.read_text("utf-8")
    assert replayed(page) == page
