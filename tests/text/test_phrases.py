"""Lists in messages: what is left out is counted."""

from __future__ import annotations

import shutil
from pathlib import Path

import hlo_lint
from hlo_lint.text.phrases import listed
from tests.conftest import FIXTURES


def test_a_list_says_how_many_more_there_are() -> None:
    assert listed("abc", 3) == "a, b, c"
    assert listed("abcd", 3) == "a, b, c and 1 more"


def test_more_logs_than_are_listed_are_counted(tmp_path: Path) -> None:
    for number in range(10):
        name = "new_again" if number % 2 else "new"
        source = FIXTURES / "autotune" / f"{name}.textproto"
        shutil.copy(source, tmp_path / f"{number}.textproto")
    report = hlo_lint.lint(tmp_path, select=["fragile-autotuner-winner"])
    (flip,) = [finding for finding in report.findings if "in 10 runs" in finding.message]
    assert flip.notes[7:] == ("7.textproto: BLOCK_LEVEL_EMITTER, 3488 ns", "2 more logs")
