"""Text protos: what the tolerant reader finds is what the grammar says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lark import Token, Tree

from hlo_lint.hlo.grammar import grammar_parser
from hlo_lint.hlo.text_format import Message, read_text_proto
from hlo_lint.text.source import decode
from tests.conftest import FIXTURES

ENDINGS = (".pbtxt", ".textproto", ".txtpb", ".debug_options")
FILES = [
    path
    for path in sorted(FIXTURES.rglob("*"))
    if path.name.endswith((*ENDINGS, "thunk_metadata.txt")) and path.stat().st_size < 40_000
]


def by_reader(message: Message) -> Iterator[str]:
    """Every field, depth first: its name, and `{` where a message follows."""
    for field in message.fields:
        if isinstance(field.value, Message):
            yield f"{field.name} {{"
            yield from by_reader(field.value)
        else:
            yield f"{field.name} {'string' if field.is_string else field.value}"


def by_grammar(tree: Tree[Token]) -> Iterator[str]:
    for child in tree.children:
        if not isinstance(child, Tree):
            continue
        name, *rest = (each for each in child.children if each is not None)
        value = next(each for each in rest if isinstance(each, Tree))
        for each in value.children if child.data == "list_field" else [value]:
            assert isinstance(each, Tree)
            if each.data == "message":
                yield f"{name} {{"
                yield from by_grammar(each)
            else:
                (first, *_) = each.children
                assert isinstance(first, Token)
                yield f"{name} {'string' if first.type == 'STRING' else first}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(path.parts[-2:]))
def test_the_reader_finds_the_fields_that_the_grammar_says(path: Path) -> None:
    text = decode(path.read_bytes())
    message, problems = read_text_proto(text)
    assert not problems
    assert list(by_reader(message)) == list(by_grammar(grammar_parser("text_proto").parse(text)))


def test_there_are_files_of_every_kind() -> None:
    assert len(FILES) > 40
    assert {ending for ending in ENDINGS for path in FILES if path.name.endswith(ending)} == {
        *ENDINGS
    }
