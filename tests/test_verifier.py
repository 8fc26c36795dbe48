"""Every row of XLA's verifier: which rule has it, and that only this rule finds its example."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlo_lint
from hlo_lint.analysis.verifier.rows import ELSEWHERE, LEFT_OUT, ROWS, WITH
from hlo_lint.registry import all_rules
from hlo_lint.rule import Bad, Rule

RULES = [rule for rule in all_rules() if rule.family() == "verifier"]
DECLARED = [(row, rule, bad) for rule in RULES for row, bad in getattr(rule, "rows", {}).items()]


def _path(bad: Bad, folder: Path) -> Path:
    stem = "module_0001.example.sm_9.0_gpu_after_optimizations" if bad.artefacts else "example"
    path = folder / f"{stem}.txt"
    path.write_text(bad.source)
    return path


@pytest.mark.parametrize(("row", "rule", "bad"), DECLARED, ids=[row for row, _, _ in DECLARED])
def test_only_one_rule_finds_the_example_of_a_row(
    row: str, rule: Rule, bad: Bad, tmp_path: Path
) -> None:
    found = hlo_lint.lint(_path(bad, tmp_path), ["verifier"]).findings
    assert {finding.rule for finding in found} == {rule.name()}
    assert [finding.line for finding in found] == bad.marked


def test_every_row_is_in_one_place() -> None:
    places = [*(row for row, _, _ in DECLARED), *ELSEWHERE, *WITH, *LEFT_OUT]
    assert sorted(places) == sorted(ROWS)


def test_rows_that_other_rules_have_name_rules_there_are() -> None:
    assert set(ELSEWHERE.values()) <= {rule.name() for rule in all_rules()}
    assert set(WITH.values()) <= {row for row, _, _ in DECLARED}
