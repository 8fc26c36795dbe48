"""A finding is known again in another dump of the same program, and differs from all others."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

import hlo_lint
from hlo_lint.engine.fingerprints import IDENTITY_DIGITS
from tests.conftest import DUMPS, FIXTURES
from tests.renumbering import another_run, renumbered
from tests.texts import entry

TWO = entry("""
  %p = f32[8,3]{1,0} parameter(0)
  %b = f32[4,2,3]{0,1,2} reshape(%p)
  ROOT %c = f32[4,2,3]{0,1,2} reshape(%p)
""")


@cache
def prints(target: Path | str) -> list[str]:
    return [found.fingerprint for found in hlo_lint.lint(target, resolved=True).findings]


DIRECTORIES = sorted(path for path in DUMPS.glob("*/*") if path.is_dir())


@pytest.mark.parametrize("dump", DIRECTORIES, ids=lambda path: path.name)
def test_every_dump_keeps_its_fingerprints(dump: Path, tmp_path: Path) -> None:
    other = another_run(dump, tmp_path / "x", lambda number: number * 3 + 100, 7)
    assert prints(other) == prints(dump)


@pytest.mark.slow
def test_some_dumps_have_findings_to_keep() -> None:
    assert sum(bool(prints(dump)) for dump in DIRECTORIES) > 5


@pytest.mark.slow
def test_no_two_findings_of_a_report_share_one() -> None:
    for folder in ("dumps", "payloads", "autotune"):
        found = prints(FIXTURES / folder)
        assert len(set(found)) == len(found) > 0
        assert all(int(each, 16) >= 0 and len(each) == IDENTITY_DIGITS + 4 for each in found)


def test_equal_findings_are_numbered_in_the_order_of_the_text() -> None:
    first, second = prints(TWO)
    assert first[:IDENTITY_DIGITS] == second[:IDENTITY_DIGITS]
    assert (first[IDENTITY_DIGITS:], second[IDENTITY_DIGITS:]) == ("0000", "0001")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("f32[8,3]", "f32[4,6]"),
        ("HloModule m", "HloModule n"),
        ("{0,1,2} reshape(%p)\n}", '{0,1,2} reshape(%p), metadata={op_name="f/reshape"}\n}'),
    ],
)
def test_another_defect_has_another(old: str, new: str) -> None:
    assert old in TWO
    assert prints(TWO.replace(old, new))[-1] != prints(TWO)[-1]


def test_a_line_of_python_that_moved_changes_nothing() -> None:
    line = (
        '  %c = f32[4,2,3]{{0,1,2}} reshape(%p), metadata={{source_file="{}" source_line={}}}\n}}'
    )
    ends = [line.format("/a/model.py", 40), line.format("/home/b/model.py", 41)]
    one, other = (prints(TWO.partition("  ROOT")[0] + end) for end in ends)
    assert one == other


def test_a_choice_that_was_timed_again_is_the_same_choice(tmp_path: Path) -> None:
    one, other = FIXTURES / "autotune/new.textproto", tmp_path / "again.textproto"
    again = one.read_text("utf-8").replace("nanos: 3360", "nanos: 3391")
    other.write_text(again.replace("nanos: 3520", "nanos: 3544"), "utf-8")
    messages = [[f.message for f in hlo_lint.lint(each).findings] for each in (one, other)]
    assert messages[0] != messages[1]
    assert prints(one) == prints(other) != []


def test_a_kernel_that_was_compiled_again_has_the_same_finding(tmp_path: Path) -> None:
    folder = FIXTURES / "ptx/last_wait_removed"
    text = (folder / "triton_sm80_three_stages.ptx").read_text("utf-8")
    other = tmp_path / "again.ptx"
    other.write_text("// another line\n" + re.sub(r"(%r\w*?)(\d+)", r"\g<1>9\2", text), "utf-8")
    assert prints(folder / "triton_sm80_three_stages.ptx") == prints(other) != []


def test_a_renumbered_text_is_another_text() -> None:
    """The changes that the tests above make to a dump are real."""
    assert renumbered("%a.1 = add(%b.2, %c)", lambda number: number + 9) == "%a.10 = add(%b.11, %c)"
