"""One odd line hides nothing: lines read together are what reading each of them gives."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import hlo_lint
from hlo_lint.hlo.ir import Computation
from hlo_lint.hlo.parser import general
from hlo_lint.hlo.parser.fast import PrintedReader
from hlo_lint.hlo.parser.module import parse_file
from tests.conftest import DUMPS, FIXTURES, ROUNDTRIP, calls_of, hlo_files

ODD = (
    "  // a comment\n", "\n", "  \t\n", "# a comment of a script\n",
    "  /* a comment of\n  several lines */\n", "  what is this\n", "  , foo=bar\n", "\r\n", "\r",
    "}\n", '}, execution_thread="other"\n', "  x = f32[] add(b, c)\n",
    '  x = f32[] add(b,\n    c), metadata={op_name="a"\n    source_line=1}\n',
    '  y = f32[] custom-call(), custom_call_target="t", backend_config={"a":\n    {"b": [1]}}\n',
    "  z = f32[] call(), to_apply={ ROOT c = f32[] constant(1) }\n",
    "  z = f32[] fusion(), kind=kLoop, calls=\n  {\n    ROOT c = f32[] constant(1)\n  }\n",
    "  n = f32[] add(negate(f32[] a), b)\n",
    "  t = (f32[], /*index=1*/f32[2]{0:T(128)}) tuple(f32[] a,%b)\n", "ENTRY e {\n",
    "%f (a: f32[8]) -> f32[8] {\n", "(", "[", '"', "'", "/*", "%", ", calls={a=b}", "metadata={}",
    "\ufeff", "\0", "ROOT ",
)  # fmt: skip
"""Lines, and parts of lines, that people write into a dump or that editors make of one."""


def _short_texts(folder: Path) -> list[str]:
    texts = [path.read_text("utf-8", "surrogateescape") for path in hlo_files(folder)]
    return [text for text in texts if len(text) < 6000]


TEXTS = _short_texts(FIXTURES)
SOUND_TEXTS = [*_short_texts(ROUNDTRIP), *_short_texts(DUMPS)]
"""Texts that XLA reads: of an attribute that it refuses, a line that is read with others keeps all
that follows its operands."""


def _graph(text: str) -> object:
    """All that a reader made of a text."""

    def contents(computation: Computation) -> object:
        inline = computation.inline.values()
        return (
            computation.name, computation.text, computation.signature, computation.tail,
            computation.rows, computation.spans, computation.nested, computation.parse_errors,
            [[(each.start, contents(each.computation)) for each in row] for row in inline],
        )  # fmt: skip

    return [
        (
            module.name, module.header, module.problems,
            [contents(computation) for computation in module.computations],
            [module.offset(number) for number in range(len(module.computations))],
        )
        for module in parse_file(text).modules
    ]  # fmt: skip


def _one_by_one(text: str) -> object:
    """The graph of a text of which each statement is read by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrintedReader, "read", lambda self, at, computations: at)
        patch.setattr(general, "MAX_TOGETHER", len(text))
        return _graph(text)


def _by_line(text: str) -> object:
    """The graph of a text of which lines are read together, though it is short."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrintedReader, "read", lambda self, at, computations: at)
        patch.setattr(general, "MAX_TOGETHER", min(800, len(text) - 1))
        patch.setattr(general, "FEW", 100)
        return _graph(text)


def _with_odd_lines(text: str, chance: random.Random, odd_lines: Sequence[str]) -> str:
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(text) + 1)
        odd = chance.choice(odd_lines)
        if odd.endswith("\n"):
            at = text.find("\n", at) + 1
        text = text[:at] + odd + text[at:]
    return chance.choice((text, text, text.replace("\n", "\r\n"), text.replace("\n", "\n  ")))


def test_lines_that_are_read_together_are_what_reading_each_gives() -> None:
    for text in SOUND_TEXTS:
        assert _by_line(text) == _one_by_one(text)


@settings(max_examples=300)
@given(seed=st.integers(0, 1 << 32))
@example(seed=1430)  # an attribute without a value at the end of a line
def test_an_odd_line_changes_none_that_are_read_together(seed: int) -> None:
    chance = random.Random(seed)
    lines = [odd for odd in ODD if odd.endswith("\n")]
    text = _with_odd_lines(chance.choice(SOUND_TEXTS), chance, lines)
    assert _by_line(text) == _one_by_one(text)


@settings(max_examples=300)
@given(seed=st.integers(0, 1 << 32))
@example(seed=234217)  # a string that begins in the header and ends below it
@example(seed=81327)  # an instruction right after the metadata of another
def test_the_bytes_of_a_text_with_odd_lines_survive(seed: int) -> None:
    chance = random.Random(seed)
    text = _with_odd_lines(chance.choice(TEXTS), chance, ODD)
    assert hlo_lint.emit(hlo_lint.parse_all(text)[0]) == text


def _dump(lines: int) -> str:
    body = "".join(
        f'  %p.{n} = f32[8]{{0}} add(%p.{n - 1}, %p.{n - 2}), metadata={{op_name="a/b"}}\n'
        for n in range(2, lines)
    )
    return (
        "HloModule m, is_scheduled=true\n\n%f (a: f32[8]) -> f32[8] {\n"
        "  ROOT %a = f32[8]{0} parameter(0)\n}\n\nENTRY %e (p.0: f32[8]) -> f32[8] {\n"
        f"  %p.0 = f32[8]{{0}} parameter(0)\n  %p.1 = f32[8]{{0}} negate(%p.0)\n{body}"
        "  ROOT %r = f32[8]{0} call(%p.9), to_apply=%f\n}\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("odd", ["  // a comment\n", "\n", "  \n", "// -- a comment\n"])
def test_an_odd_line_of_a_large_dump_changes_no_row(odd: str) -> None:
    text = _dump(4_000)
    rows = [computation.rows for computation in parse_file(text).modules[0].computations]
    for at in (0, text.index("%f"), text.index("ENTRY"), text.index("  %p.2000 "), len(text) - 2):
        module = parse_file(text[:at] + odd + text[at:]).modules[0]
        assert not module.problems
        assert [computation.rows for computation in module.computations] == rows
        entry = module.computations[1]
        assert all(
            entry.text[start:end].lstrip("ROT ").startswith(f"%{row[1]} = ")
            and entry.text[start:end].endswith(row[5] or ")")
            for row, (start, end) in zip(entry.rows, entry.spans, strict=True)
        )


@pytest.mark.parametrize("odd", ["", "  // a comment\n", "\n", "  what is this\n", "  x = f32[]"])
@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\n    "])
def test_a_large_dump_is_not_read_line_by_line(odd: str, line_break: str) -> None:
    """An odd line of 1 MB may cost the lines around it: the calls are counted, not the time."""
    text = _dump(20_000)
    at = text.index("  %p.9000 ")
    text = (text[:at] + odd + text[at:]).replace("\n", line_break)
    assert len(text) > 1_000_000
    # Two calls of each line, and their ends, look for cycles; to read a line alone takes dozens.
    assert _calls(text) < 5 * 20_000


@pytest.mark.parametrize("place", ["%p.2 ", "%p.2000 ", "%r "])
@pytest.mark.parametrize(
    ("line", "row"),
    [
        ("%c = c64[] constant((1, -2))", ("c64[]", "constant", "(1, -2)", ())),
        ("%c = c64[2]{0} constant({(1, 2), 3})", ("c64[2]{0}", "constant", "{(1, 2), 3}", ())),
        (
            "%g = f32[] get-tuple-element((f32[], s32[]) %p.1), index=0",
            ("f32[]", "get-tuple-element", "(f32[], s32[]) %p.1", ("p.1",)),
        ),
    ],
)
def test_operands_with_parentheses_are_read_as_a_dump_spells_them(
    place: str, line: str, row: tuple[object, ...]
) -> None:
    text = _dump(4_000)
    rows = parse_file(text).modules[0].computations[1].rows
    at = text.index(place) - 2 - 5 * (place == "%r ")
    text = f"{text[:at]}  {line}\n{text[at:]}"
    computations: list[tuple[int, Computation]] = []
    assert PrintedReader(text, None).read(text.index("%f"), computations) == len(text)
    entry = computations[1][1]
    (new,) = [other for other in entry.rows if other[1] in {"c", "g"}]
    assert (*new[2:5], new[6]) == row
    assert [other for other in entry.rows if other is not new] == list(rows)


def test_odd_computations_are_not_read_with_those_after_them() -> None:
    odd = "\n".join(
        f"%f.{n} (p: f32[8]) -> f32[8] {{\n  %p = f32[8]{{0}} parameter(0)\n"
        "  // a comment\n  ROOT %r = f32[8]{0} negate(%p)\n}\n"
        for n in range(900)
    )
    text = f"HloModule m\n\n{odd}\nENTRY %e () -> f32[] {{\n  ROOT %c = f32[] constant(0)\n}}\n"
    assert _calls(text) < 1_000 * 900


def _calls(text: str) -> int:
    parse_file(text)  # patterns are compiled once
    return calls_of(lambda: parse_file(text))
