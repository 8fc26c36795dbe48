"""Every row of XLA's verifier: which rule has it, and that only this rule finds its example."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlo_lint
from hlo_lint.registry import all_rules
from hlo_lint.rule import Bad, Rule

RULES = [rule for rule in all_rules() if rule.family() == "verifier"]
ROWS = [(row, rule, bad) for rule in RULES for row, bad in getattr(rule, "rows", {}).items()]


def _path(bad: Bad, folder: Path) -> Path:
    stem = "module_0001.example.sm_9.0_gpu_after_optimizations" if bad.artefacts else "example"
    path = folder / f"{stem}.txt"
    path.write_text(bad.source)
    return path


@pytest.mark.parametrize(("row", "rule", "bad"), ROWS, ids=[row for row, _, _ in ROWS])
def test_only_one_rule_finds_the_example_of_a_row(
    row: str, rule: Rule, bad: Bad, tmp_path: Path
) -> None:
    found = hlo_lint.lint(_path(bad, tmp_path), ["verifier"]).findings
    assert {finding.rule for finding in found} == {rule.name()}
    assert [finding.line for finding in found] == bad.marked
