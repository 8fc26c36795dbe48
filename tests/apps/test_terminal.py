"""Output on a terminal of 80 and of 120 columns: a real pty, read by pyte."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.apps.test_cli import environment, run, write
from tests.conftest import CRASH, DUMPS
from tests.terminal import Screen, on_terminal, program
from tests.texts import CLEAN, LOOSE

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("here")]

WIDTHS = (80, 120)


def screen(columns: int, *arguments: str, **extra: str) -> Screen:
    return on_terminal(program(*arguments), columns, environment(TERM="xterm-256color", **extra))


def marked(seen: Screen) -> list[str]:
    """The text above each row of carets."""
    return [
        "".join(cell for cell, mark in zip(above, below, strict=True) if mark == "^")
        for above, below in pairwise(seen.cells)
        if "^" in below and not "".join(below).strip(" |^")
    ]


# Excerpts, and the carets below them


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_caret_stands_under_its_target_at_any_width(columns: int) -> None:
    seen = screen(columns, "check", str(CRASH))
    assert marked(seen) == ["%get-tuple-element"]
    (excerpt,) = (line for line in seen.lines if line.startswith("43 |"))
    assert excerpt.startswith("43 |   %reshape.15 = f32[2,8,128,32]{2,3,1,0} reshape(")
    assert excerpt.endswith("…")
    assert columns - 1 <= len(excerpt) <= columns


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("length", [40, 70, 200])
def test_a_caret_is_no_longer_than_what_is_shown(columns: int, length: int) -> None:
    name = "p" * length
    metadata = ', metadata={op_name="' + "x" * 300 + '"}'
    text = LOOSE.replace("reshape(%p)", f"reshape(%p){metadata}")
    write("long.hlo", text.replace("%p", f"%{name}"))
    seen = screen(columns, "check", "long.hlo")
    (target,) = marked(seen)
    (row,) = (line for line in seen.lines if line.startswith("5 |"))
    assert len(row) <= columns
    if length < columns - 10:
        assert target == f"%{name}"
    else:
        assert set(target.removeprefix("%")) == {"p"}
        assert row.endswith("…")


@pytest.mark.parametrize("name", ["変数" * 30, "\x1b[31m" * 9, "e\u0301" * 60, "é" * 100])
def test_the_caret_counts_columns_not_characters(name: str) -> None:
    write("odd.hlo", LOOSE.replace("ROOT", f"/*{name}*/ ROOT"))
    seen = screen(80, "check", "odd.hlo")
    assert marked(seen) == ["%p"]


@pytest.mark.parametrize("data", [bytes(range(256)) * 20, b"\x7fELF\x02\x01" + bytes(500)])
def test_binary_input_is_named_and_not_spelled_out(data: bytes) -> None:
    write("x.hlo", data.replace(b"\n", b""))
    seen = screen(80, "check", "x.hlo")
    assert "1 | binary data, " in seen.text
    assert "\\x" not in seen.text
    assert not re.search(rb"\x1b[^\[]|[\x00-\x06\x0e-\x1a]", seen.data)


def test_a_watching_terminal_is_cleared_and_says_when_it_looked() -> None:
    write("x.hlo")
    command = program("check", "--watch", "x.hlo")
    seen = on_terminal(command, 80, environment(), until=b"watching; Ctrl-C ends it")
    assert b"\x1b[2J" in seen.data
    assert re.search(r"\d\d:\d\d:\d\d: watching; Ctrl-C ends it", seen.text)


def test_a_report_says_which_module_it_draws() -> None:
    seen = on_terminal(program("report", str(CRASH), "-o", "x.html"), 80, environment())
    assert b"drawing module 1 of 1: module_0001.jit_batched_dot" in seen.data


# Text


@pytest.mark.parametrize("columns", [60, 120])
def test_messages_and_notes_are_folded_between_words(columns: int) -> None:
    seen = screen(columns, "check", str(CRASH), "--select", "reshape-moves-data")
    plain = run("check", str(CRASH), "--select", "reshape-moves-data").out
    note = next(line for line in plain.splitlines() if "the pass split" in line)
    start = next(at for at, line in enumerate(seen.lines) if "the pass split" in line)
    folded = [seen.lines[start]]
    for line in seen.lines[start + 1 :]:
        if not line.startswith("        "):
            break
        assert line.startswith("           ")  # below the first word of the note
        folded.append(line)
    assert " ".join(line.strip() for line in folded) == note.strip()
    assert max(map(len, folded)) <= columns


def test_no_path_is_broken() -> None:
    """In what was printed; a terminal shows the rest of a long one on its next row."""
    folder = Path("a-folder-of-dumps-with-a-name-that-is-longer-than-a-row-of-the-terminal")
    folder.mkdir()
    write(str(folder / "module_0001.jit_f.cpu_after_optimizations.txt"), CLEAN)
    seen = screen(60, "check", str(folder))
    assert f"{folder}:".encode() in seen.data


def test_a_path_is_not_folded_so_that_it_can_be_clicked() -> None:
    seen = screen(80, "check", str(CRASH))
    assert f"--> {CRASH}/module_0001.jit_batched_dot.0030." in seen.data.decode().replace(
        "\x1b[0m", ""
    ).replace("\x1b[34m", "")


# The order, and the summary


def several() -> None:
    write("a.hlo", LOOSE + "\n" + LOOSE.replace("HloModule m", "HloModule n"))
    write("b.hlo", CLEAN)
    write("c.hlo", "HloModule c\n\nENTRY e {\n  ROOT p = f32[2]{0} add(q, q)\n}\n")


def test_the_error_is_last_before_the_summary() -> None:
    several()
    seen = screen(80, "check", ".", "--before", "layout_normalization")
    heads = [line for line in seen.lines if re.match(r"(info|warning|error)\[", line)]
    ranks = [("info", "warning", "error").index(head.partition("[")[0]) for head in heads]
    assert ranks == sorted(ranks)
    assert "error" in heads[-1]


def test_the_summary_counts_and_says_what_can_be_fixed_and_how_long_it_took() -> None:
    several()
    seen = screen(80, "check", "a.hlo", "b.hlo")
    assert re.fullmatch(r"2 warnings in 2 files, 3 modules of HLO; \d+\.\d s", seen.lines[-2]), (
        seen.text
    )
    assert seen.lines[-1] == "2 fixable with `hlo-lint fix`"


def test_infos_are_called_infos() -> None:
    write("x.hlo")
    ran = run("check", "--min-severity=info", "--severity", "layout=info", "x.hlo")
    assert "1 info in 1 file" in ran.out


# Tables


@pytest.mark.parametrize("columns", WIDTHS)
def test_passes_cuts_no_name_and_folds_what_changed(columns: int) -> None:
    module = "module_0001.jit_f"
    name = "an-exceedingly-long-name-of-a-pass-that-nobody-would-write-but-somebody-will"
    write(f"d/{module}.before_optimizations.txt")
    changed = LOOSE.replace("  ROOT", "  %a = f32[8,3]{1,0} add(%p, %p)\n  ROOT")
    write(f"d/{module}.0001.fusion.after_{name}.before_dce.txt", changed)
    seen = screen(columns, "passes", "d")
    assert name in "".join(seen.lines)
    assert "…" not in seen.text
    assert "+1 add" in seen.text


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_changes_of_a_pass_stand_whole_on_the_terminal(columns: int) -> None:
    arguments = ("passes", str(DUMPS / "gpu-jax0.11.2" / "attention"), "--changed")
    seen = screen(columns, *arguments)
    words = seen.text.split()
    for line in run(*arguments).out.splitlines()[2:]:
        changes = line[line.index("+") :].split() if "+" in line else []
        assert all(word in words for word in changes)
    assert max(map(len, seen.lines)) <= columns
    fusion = next(at for at, line in enumerate(seen.lines) if " priority-fusion " in line)
    assert seen.lines[fusion + 1].startswith("      ")


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_list_of_rules_fits(columns: int) -> None:
    seen = screen(columns, "rules")
    assert max(map(len, seen.lines)) <= columns
    assert "gemm-breaks-on-backend-flip" in seen.text


# Links


@pytest.mark.parametrize(
    ("variables", "linked"),
    [
        ({"TERM_PROGRAM": "WezTerm"}, True), ({"VTE_VERSION": "7200"}, True),
        ({"VTE_VERSION": "4200"}, False), ({"FORCE_HYPERLINK": "1"}, True),
        ({"TERM_PROGRAM": "WezTerm", "FORCE_HYPERLINK": "0"}, False),
        ({"TERM_PROGRAM": "WezTerm", "CI": "true"}, False), ({}, False),
    ],
)  # fmt: skip
def test_a_rule_links_to_its_page_where_the_terminal_shows_links(
    variables: dict[str, str], linked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CI", "TERM_PROGRAM", "VTE_VERSION", "KONSOLE_VERSION", "WT_SESSION"):
        monkeypatch.delenv(name, raising=False)
    write("x.hlo")
    seen = screen(80, "check", "x.hlo", **variables)
    page = b"https://hlo-lint.readthedocs.io/en/stable/rules/reshape-moves-data.html"
    assert (b"\x1b]8;" in seen.data) == linked
    assert (page in seen.data) == linked
    assert seen.lines[0].startswith("warning[reshape-moves-data]: this reshape")
    assert b"\x1b]8;" not in run("check", "x.hlo", FORCE_HYPERLINK="1").output
