"""The index of rules is what the rules say, and no rule finds anything that its entry rules out."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlo_lint.dumps.directory import open_dump
from hlo_lint.engine.runner import Checker, Task
from hlo_lint.rules import index
from hlo_lint.rules.entry import ChosenRule, ChosenRules, contents_of
from hlo_lint.rules.registry import rule_entries
from tests.conftest import ROOT
from tests.docs import index_text

TEXTS = sorted((ROOT / "fixtures" / "roundtrip").glob("*.hlo"))


def test_the_index_is_fresh() -> None:
    assert Path(index.__file__).read_text("utf-8") == index_text(), "run `make docs`"


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_a_rule_that_is_not_imported_finds_nothing(path: Path) -> None:
    dump = open_dump(path)
    contents = contents_of([module for p in dump for d in p.dumps for module in d.file.modules])
    left_out = [entry for entry in rule_entries() if not entry.applies(contents)]
    always = [entry._replace(opcodes=None, mentions=None) for entry in left_out]
    checker = Checker(Task(ChosenRules([ChosenRule(entry) for entry in always]), resolved=True))
    assert checker.check_dump(dump).diagnostics == []
