"""The tokens of the language server agree with the parser."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("pygls", reason="the language server needs hlo-lint[lsp]")

from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types

from hlo_lint.apps.lsp.documents import Document
from hlo_lint.apps.lsp.texts import Text
from hlo_lint.hlo.ir import called_names
from hlo_lint.hlo.parser.general import SINGLE
from hlo_lint.hlo.parser.module import Memo
from hlo_lint.hlo.parser.tokens import Role
from hlo_lint.hlo.records import attributes_of, name_of, opcode_of, references_of
from hlo_lint.text.source import Span, decode
from tests.conftest import BROKEN, DUMPS, FIXTURES, ROUNDTRIP, hlo_files, present

pytestmark = pytest.mark.slow

FILES = [*hlo_files(DUMPS)[::8], *hlo_files(ROUNDTRIP), *hlo_files(FIXTURES / "flips")]
ENCODINGS = ["utf-8", "utf-16", "utf-32"]


def document(source: str) -> Document:
    return Document(Text("file:///nowhere/a.hlo", source, 1, "hlo", "utf-16"), Memo())


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_each_word_of_an_instruction_is_what_the_parser_took_it_for(path: Path) -> None:
    read = document(decode(path.read_bytes()))
    source = read.text.source
    for place in read.places:
        assert source[place.begin : place.end] == place.computation.text
        for number, row in enumerate(place.computation.rows):
            start, end = read.span(place, number)
            begin = place.begin
            assert Span(start - begin, end - begin) == place.computation.spans[number]
            if number in place.computation.nested:
                continue
            tokens = read.statement(place, number).tokens
            named = [token.name for token in tokens if token.role is Role.NAME]
            assert named == [name_of(row)] or (name_of(row), named) == (SINGLE, [])
            assert [token.text for token in tokens if token.role is Role.OPCODE] == [opcode_of(row)]
            if not place.computation.nested:
                operands = [token.text for token in tokens if token.role is Role.OPERAND]
                assert {*references_of(row)} <= {operand.removeprefix("%") for operand in operands}
            called = [token.name for token in tokens if token.role is Role.CALLED]
            if number not in place.computation.inline:
                assert called == [name for name in called_names(attributes_of(row)) if name]


_TYPED = [
    *("", "%", "#1", "{", "}", "(", ")", "=", ", ", "\n", "\n\n", "\r", '"', "/*", "*/", "//"),
    *(" ROOT ", "ENTRY ", "HloModule x\n", "// -----\n", "%add", "to_apply=", "f32[2]", "𝔘"),
]


@pytest.mark.parametrize("path", FILES[::25], ids=lambda path: str(path.relative_to(FIXTURES)))
def test_a_text_that_is_edited_is_read_as_a_new_one(path: Path) -> None:
    """Positions by the lines of the text equal those of the parser."""
    chance = random.Random(path.name)
    text = Text("file:///nowhere/a.hlo", decode(path.read_bytes()), 1, "hlo", "utf-16")
    memo = Memo()
    Document(text.frozen(), memo)
    for _ in range(6):
        size = len(text.source)
        start = chance.randrange(size + 1)
        gone = Span(start, min(size, start + chance.choice([0, 1, 3, 40, 400])))
        copied = text.source[chance.randrange(size + 1) :][: chance.choice([0, 60, 500])]
        typed = chance.choice([copied, chance.choice(_TYPED)])
        text.apply_change(types.TextDocumentContentChangePartial(text.range(gone), typed))
        again, anew = Document(text.frozen(), memo), Document(text.frozen(), Memo())
        by_lines = [
            [again.span(place, number) for number in range(len(place.computation.rows))]
            for place in again.places
        ]
        assert _read(again) == _read(anew)
        for place, spans in zip(again.places, by_lines, strict=True):
            begin, parsed = place.begin, place.computation.spans
            assert spans == [Span(begin + at, begin + end) for at, end in parsed]


def _read(document: Document) -> object:
    return (
        [module.name for module in document.file.modules],
        [problem for module in document.file.modules for problem in module.problems],
        [
            (place.begin, place.computation.name, place.computation.text, place.computation.rows)
            for place in document.places
        ],
    )


@pytest.mark.parametrize("path", FILES[::7], ids=lambda path: str(path.relative_to(FIXTURES)))
def test_each_name_leads_to_its_instruction_and_back(path: Path) -> None:
    read = document(decode(path.read_bytes()))
    for place in read.places:
        for number in range(len(place.computation.rows))[:40]:
            if number in place.computation.nested or place.computation.name == SINGLE:
                continue
            name = name_of(place.computation.rows[number])
            if place.computation.index[name] != number:
                continue  # a doubled name leads to the first
            statement = read.statement(place, number)
            token = next(token for token in statement.tokens if token.role is Role.NAME)
            symbol = present(read.symbol_at(statement.begin + token.name_start))
            assert (symbol.place.begin, symbol.number, symbol.defines) == (
                place.begin,
                number,
                True,
            )
            for each in read.occurrences(symbol):
                assert read.text.source[each.span.start : each.span.end] == name
                back = present(read.symbol_at(each.span.start))
                defined = present(read.definition(back))
                assert defined.span == symbol.span


@pytest.mark.parametrize(
    "path", [*sorted(BROKEN.glob("*.hlo")), *sorted(ROUNDTRIP.glob("*.hlo"))], ids=lambda p: p.name
)
def test_no_character_of_a_broken_text_is_asked_in_vain(path: Path) -> None:
    from hlo_lint.apps.lsp.hover import hover
    from hlo_lint.apps.lsp.outline import folds, symbols

    source = decode(path.read_bytes())
    for text in (source, source[: len(source) // 2]):
        read = document(text)
        asked = 300 if len(text) < 5_000 else 20
        for offset in range(0, len(text) + 1, max(1, len(text) // asked)):
            hover(read, offset)
            symbol = read.symbol_at(offset)
            if symbol is not None:
                list(read.occurrences(symbol))
        symbols(read)
        folds(read)


_pieces = st.sampled_from([*"aé𝔘", "\udce9", "\n", "\r", "\r\n", "\x0b", "\x0c", "\u2028"])
_texts = st.lists(_pieces, max_size=12).map("".join)


def _lines(text: str) -> list[str]:
    r"""The lines of the protocol with their ends: `\n`, `\r\n`, `\r`."""
    lines, line = [], ""
    for at, character in enumerate(text):
        line += character
        if character == "\n" or (character == "\r" and text[at + 1 : at + 2] != "\n"):
            lines.append(line)
            line = ""
    return [*lines, line]


def _units(text: str, encoding: str) -> int:
    size = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[encoding]
    codec = {"utf-8": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}[encoding]
    return len(text.encode(codec, "surrogatepass")) // size


@given(_texts, st.sampled_from(ENCODINGS), st.data())
def test_places_are_counted_as_by_a_client(source: str, encoding: str, data: st.DataObject) -> None:
    text = Text("file:///a.hlo", source, 1, "hlo", encoding)
    offset = data.draw(st.integers(0, len(source)))
    before = _lines(source[:offset])
    if source[offset - 1 : offset + 1] == "\r\n":
        return  # within the end of a line is not a place
    expected = types.Position(len(before) - 1, _units(before[-1], encoding))
    assert text.position(offset) == expected
    assert text.offset(expected) == offset


@given(_texts, st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), _texts), max_size=4))
def test_an_edit_leaves_the_clients_text(source: str, edits: list[tuple[int, int, str]]) -> None:
    text = Text("file:///a.hlo", source, 1, "hlo", "utf-16")
    mirror = source
    for first, second, typed in edits:
        start, end = sorted((min(first, len(mirror)), min(second, len(mirror))))
        if "\r\n" in (mirror[start - 1 : start + 1], mirror[end - 1 : end + 1]):
            continue
        where = text.range(Span(start, end))
        text.apply_change(types.TextDocumentContentChangePartial(where, typed))
        mirror = mirror[:start] + typed + mirror[end:]
        assert text.source == mirror
        assert text.starts == Text("file:///b.hlo", mirror, 1, "hlo", "utf-16").starts
