"""Any bytes in, the same bytes out; what cannot be read is said, and the rest is read."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

import hlo_lint
from hlo_lint.text.source import decode, encode
from tests.conftest import BROKEN, DUMPS, FIXTURES, ROUNDTRIP, UNSOUND, calls_of, hlo_files, present
from tests.mutations import mutate
from tests.texts import entry

FOLDERS = (ROUNDTRIP, BROKEN, UNSOUND)
ODDITIES = [path for folder in FOLDERS for path in sorted(folder.glob("*.hlo"))]


@pytest.mark.parametrize("path", ODDITIES, ids=lambda path: path.stem)
def test_the_bytes_of_odd_texts_survive(path: Path) -> None:
    data = path.read_bytes()
    assert hlo_lint.emit(hlo_lint.parse(data)).encode("utf-8", "surrogateescape") == data


def test_the_bytes_of_every_dump_survive_and_nothing_in_them_is_unreadable() -> None:
    paths = hlo_files(DUMPS)
    assert len(paths) > 300
    for path in paths:
        data = path.read_bytes()
        modules = hlo_lint.parse_all(data)
        assert hlo_lint.emit(modules[0]).encode("utf-8", "surrogateescape") == data, path
        assert [module.problems for module in modules] == [()], path


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_the_bytes_of_damaged_texts_survive_and_nothing_raises(seed: int) -> None:
    texts = [path.read_bytes() for path in hlo_files(FIXTURES)]
    chance = random.Random(seed)
    for _ in range(50):
        data = mutate(chance.choice(texts), texts, chance)
        module = hlo_lint.parse(data)
        assert hlo_lint.emit(module).encode("utf-8", "surrogateescape") == data
        report = hlo_lint.lint(data, before="layout_normalization")
        assert str(report)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\n", b"\xef\xbb\xbf", b"\x00", b"// nothing", b"}{", b"\xff", b",\n}", b"noise"),
        *(b"HloModule", b"}" * 50, b"HloModule m\n\n{"),
    ],
)
def test_what_is_no_hlo_is_one_problem(data: bytes) -> None:
    module = hlo_lint.parse(data)
    assert encode(hlo_lint.emit(module)) == data
    assert module.problems
    assert module.entry is None


ODD_LINES = """\
HloModule m

%f (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  ROOT %n = f32[8]{0} negate(%a)
}

ENTRY %e (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %q = f32[8]{0} negate(%p
  %r = f32[8]{0} add(%p, %p)
  what is this
  and this
  ROOT %s = f32[8]{0} call(%r), to_apply=%f
}
"""


def test_one_odd_line_hides_nothing_else() -> None:
    module = hlo_lint.parse(ODD_LINES)
    assert [(p.start.line, p.start.column) for p in module.problems] == [(10, 24), (12, 8)]
    assert [p.end.line for p in module.problems] == [10, 13]
    assert [i.name for i in present(module.entry).instructions] == ["p", "r", "s"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "  %x = f32[8]{0} add(%a, %b", '  %x = f32[8]{0} add(%a), metadata={op_name="',
        "  %x = f32[8]{0} add(%a), backend_config={", "  /* never closed", "  %x = ((((((((",
        "ENTRY %e (", "  ROOT", "%f (a: f32[8]) -> f32[8] {", "(",
    ],
)  # fmt: skip
def test_ten_times_the_damage_takes_about_ten_times_as_long(line: str) -> None:
    head = "HloModule m\n\nENTRY %e (a: f32[8]) -> f32[8] {\n"
    texts = [head + f"{line}\n" * lines for lines in (500, 5_000)]
    few, many = (calls_of(partial(hlo_lint.parse, text)) for text in texts)
    assert many < 15 * few


def test_several_modules_of_a_file_are_all_there() -> None:
    one = "HloModule a\n\nENTRY e {\n  ROOT p = f32[8]{0} parameter(0)\n}\n"
    text = one + "// -----\n" + one.replace("HloModule a", "HloModule b") + one.replace("a", "c", 1)
    modules = hlo_lint.parse_all(text)
    assert [module.name for module in modules[:2]] == ["a", "b"]
    assert len(modules) == 3
    assert all(hlo_lint.emit(module) == text for module in modules)


def test_a_text_decodes_and_encodes_to_itself_whatever_it_holds() -> None:
    data = bytes(range(256)) * 3
    assert encode(decode(data)) == data


@pytest.mark.parametrize("reference", ["%a#", "%a#b", "%a#0x", "#0", "%a##0", "%a#١"])
def test_an_index_that_is_no_number_is_said(reference: str) -> None:
    text = entry(f"  %a = f32[8]{{0}} parameter(0)\n  ROOT %n = f32[8]{{0}} negate({reference})")
    assert [problem.start.line for problem in hlo_lint.parse(text).problems][:1] == [5]
    assert str(hlo_lint.lint(text, before="layout_normalization"))


def test_a_log_is_one_problem_though_it_has_separators() -> None:
    text = "// -----// IR Dump Before X //----- //\nmodule @m {\n}\n" * 20
    assert len(hlo_lint.parse(text).problems) == 1


def test_a_page_of_html_is_one_problem_though_its_scripts_have_braces() -> None:
    text = "<!DOCTYPE html>\n<script>\nfunction f() {\n  a = 1\n}\n</script>\n"
    module = hlo_lint.parse(text)
    assert hlo_lint.emit(module) == text
    assert [problem.message for problem in module.problems] == [
        "this is not HLO: it has neither HloModule nor a computation"
    ]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_file_in_utf_16_is_told(encoding: str) -> None:
    data = entry("  ROOT p = f32[] parameter(0)").encode(encoding)
    module = hlo_lint.parse(data)
    assert encode(hlo_lint.emit(module)) == data
    assert [problem.message.partition(";")[0] for problem in module.problems] == ["this is UTF-16"]
