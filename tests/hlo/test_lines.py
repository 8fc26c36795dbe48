"""Texts that a later dump replaced are kept as lines, and given back to the last character."""

from __future__ import annotations

from hlo_lint.hlo.parser.module import Memo, parse_file

_TEXT = """HloModule m

%f (p: f32[8]) -> f32[8] {{
  %p = f32[8]{{0}} parameter(0)
  ROOT %n = f32[8]{{0}} {opcode}(%p), metadata={{op_name="{opcode}"}}
}}, execution_thread="parallel"

ENTRY %e (x: f32[8]) -> f32[8] {{
  %x = f32[8]{{0}} parameter(0)
  ROOT %c = f32[8]{{0}} fusion(%x), kind=kLoop, calls=%f
}}
"""
OPCODES = ("negate", "abs", "sine")


def test_each_text_of_a_directory_is_given_back() -> None:
    memo = Memo()
    files = [parse_file(_TEXT.format(opcode=opcode), memo=memo) for opcode in OPCODES]
    memo.clear()  # what is held of it stays
    for file, opcode in zip(files, OPCODES, strict=True):
        (module,) = file.modules
        text = _TEXT.format(opcode=opcode)
        assert file.text == module.text == text
        assert module.size == len(text)
        assert module["f"].text in text
        assert module["f"].mentions(f'"{opcode}"')
        assert not module["f"].mentions("cosine")
        assert [text[slice(*module.span(i))] for i in module.instructions()] == [
            i.text for i in module.instructions()
        ]


def test_a_text_that_was_let_go_is_as_another_if_each_line_is() -> None:
    memo = Memo()
    texts = [_TEXT.format(opcode=opcode) for opcode in OPCODES]
    first, second, _ = (parse_file(text, memo=memo).modules[0]["f"] for text in texts)
    again = parse_file(texts[0]).modules[0]["f"]
    assert first.has_text_of(again)
    assert again.has_text_of(first)
    assert not first.has_text_of(second)
    assert first.has_text_of(first.copy())


def test_a_file_that_repeats_a_text_that_was_let_go_shares_its_computations() -> None:
    memo = Memo()
    texts = [_TEXT.format(opcode=opcode) for opcode in (*OPCODES, OPCODES[0])]
    modules = [parse_file(text, memo=memo).modules[0] for text in texts]
    assert modules[3].pieces is modules[0].pieces
