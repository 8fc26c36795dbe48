"""No filter hides a finding: where nothing is left out, each rule finds the same.

`opcodes` and `mentions` say where a rule is not imported and not asked, the marks of a check of
XLA's verifier which instructions it looks at.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from hlo_lint.analysis.verifier import Checks
from hlo_lint.analysis.verifier.checks import Mark
from hlo_lint.apps.testing import write_example
from hlo_lint.dumps.directory import open_dump
from hlo_lint.engine import timeline
from hlo_lint.engine.findings import Diagnostic
from hlo_lint.engine.memo import RunMemo
from hlo_lint.engine.runner import Checker, Task
from hlo_lint.engine.verifier import Verifier
from hlo_lint.hlo.ir import Module
from hlo_lint.rules import entry
from hlo_lint.rules.base import Rule
from hlo_lint.rules.entry import ChosenRule, ChosenRules
from hlo_lint.rules.registry import all_rules, rule_entries, select_rules
from tests.conftest import FIXTURES, new_folder

pytestmark = pytest.mark.slow

_CheckT = TypeVar("_CheckT")
FOLDERS = sorted({path.parent for path in FIXTURES.rglob("*") if path.suffix in {".hlo", ".txt"}})
UNFILTERED = tuple(rule._replace(opcodes=None, mentions=None) for rule in rule_entries())
DEFAULT = select_rules()


class UnfilteredVerifier(Verifier):
    """Runs every check at every place that its mark does not rule out by opcode or attribute."""

    def __init__(self) -> None:
        super().__init__(UNFILTERED)

    def checks(self, module: Module) -> Checks:
        """All checks, with marks that leave nothing out and call nothing equal."""
        checks = super().checks(module)
        return checks._replace(
            opcodes={opcode: _everywhere(held) for opcode, held in checks.opcodes.items()},
            attributes=_everywhere(checks.attributes),
            computations=_everywhere(checks.computations),
        )


def _everywhere(held: Sequence[tuple[_CheckT, Mark]]) -> tuple[tuple[_CheckT, Mark], ...]:
    return tuple(
        (
            check,
            mark._replace(concerns=None, concerns_opcodes=None, is_of_names=False, is_local=False),
        )
        for check, mark in held
    )


def found(path: Path, rules: ChosenRules, memo: RunMemo, before: str | None) -> list[Diagnostic]:
    """The findings of rules at any step of a run."""
    task = Task(rules, before, resolved=True, memo=memo)
    return Checker(task).check_dump(open_dump(path)).diagnostics


def assert_nothing_is_hidden(path: Path, before: str | None = None) -> None:
    """Every rule finds the same with its filters and without them."""
    filtered = found(path, DEFAULT, RunMemo(), before)
    chosen = {chosen.entry.name for chosen in DEFAULT.chosen}
    every = ChosenRules([ChosenRule(rule) for rule in UNFILTERED if rule.name in chosen])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline, "_with_opcodes", lambda check, views: views)
        assert found(path, every, RunMemo(UnfilteredVerifier()), before) == filtered
    with pytest.MonkeyPatch.context() as patch:  # as if the text were large
        patch.setattr(entry, "MAX_SEARCHED", 0)
        assert found(path, DEFAULT, RunMemo(), before) == filtered


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_no_filter_hides_a_finding_in_a_fixture(folder: Path) -> None:
    assert_nothing_is_hidden(folder)


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.name())
def test_no_filter_hides_a_finding_in_an_example(rule: Rule, tmp_path: Path) -> None:
    before = rule.precondition.demanded_by if rule.precondition else None
    for number, example in enumerate(rule.examples):
        folder = new_folder(tmp_path / str(number))
        assert_nothing_is_hidden(write_example(example, folder), before)
