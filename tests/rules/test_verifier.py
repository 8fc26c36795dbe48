"""Every row of XLA's verifier: which rule has it, and that only this rule finds its example."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import hlo_lint
from hlo_lint.analysis import verifier
from hlo_lint.rules.base import Bad, Good, Rule, Stage
from hlo_lint.rules.registry import all_rules
from hlo_lint.rules.verifier import ELSEWHERE, LEFT_OUT, verifier_rules, violations_of
from tests.conftest import DUMPS
from tests.oracle.xla import Refusal, oracles

RULES = [rule for rule in verifier_rules() if isinstance(rule, Rule)]
OPTIONAL = {
    "nested-thread": (
        Stage(thread_names=True),
        """
        HloModule m

        f {
          ROOT a = f32[] parameter(0)
        }, execution_thread="other"

        ENTRY e {
          p = f32[] parameter(0)
          ROOT r = f32[] call(p), to_apply=f
        }
        """,
    ),
    "reshape-option": (
        Stage(layouts=True, reshape_is_bitcast=True),
        """
        HloModule m

        ENTRY e {
          p = f32[3,4]{0,1} parameter(0)
          ROOT r = f32[4,3]{1,0} reshape(p)
        }
        """,
    ),
    "name-unchanged": (
        Stage(names_unchanged=True),
        """
        HloModule m

        ENTRY e {
          ROOT p = f32[] parameter(0), metadata={scheduling_name="q"}
        }
        """,
    ),
}
"""The checks that only an option of the stage turns on: the stage, and a text that violates it."""
DECLARED = [(check, rule, bad) for rule in RULES for check, bad in rule.rows.items()]


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


def test_every_check_has_one_place_and_one_example() -> None:
    for rule in RULES:
        assert [each for each in rule.demands if each not in OPTIONAL] == list(rule.rows)
    names = [*(check for rule in RULES for check in rule.demands), *ELSEWHERE, *LEFT_OUT]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("check", OPTIONAL)
def test_a_check_binds_where_the_stage_has_its_option(check: str) -> None:
    stage, text = OPTIONAL[check]
    module = hlo_lint.parse(text)
    assert list(violations_of(module, stage)) == [check]
    assert violations_of(module, Stage()) == {}


def test_checks_of_other_families_name_rules_there_are() -> None:
    assert {rule for _, _, rule in ELSEWHERE.values()} <= {rule.name() for rule in all_rules()}


@pytest.mark.skipif(not oracles(), reason="no jaxlib at hand")
def test_xla_reads_every_good_example() -> None:
    texts = [e.source for rule in RULES for e in rule.examples if isinstance(e, Good)]
    answers = oracles()[-1].read(texts)
    assert [
        text for text, said in zip(texts, answers, strict=True) if isinstance(said, Refusal)
    ] == []


@pytest.mark.parametrize("folder", sorted(DUMPS.glob("*/*")), ids=lambda path: path.name)
def test_what_xla_wrote_it_would_verify(folder: Path) -> None:
    assert hlo_lint.lint(folder, ["verifier"], cured=True).findings == ()


def test_a_defect_of_the_header_stands_in_its_own_module() -> None:
    whole = "HloModule a\n\nENTRY e {\n  ROOT p = f32[8]{0} parameter(0)\n}\n"
    wrong = whole.replace("HloModule a", "HloModule b, buffer_donor={ (3, {}) }")
    (found,) = hlo_lint.lint(f"{whole}\n{wrong}", ["verifier"]).findings
    assert (found.rule, found.module, found.line) == ("bad-aliasing", "b", 7)


def test_a_violation_is_of_a_check_that_its_rule_declares() -> None:
    """What no rule asks for would be lost."""
    declared = {check for check, _, _ in DECLARED}
    for rule in RULES:
        source = Path(inspect.getfile(type(rule))).read_text("utf-8")
        checks = re.findall(r'Violation\(\s*"([\w-]+)"', source)
        assert set(checks) <= set(rule.demands), rule.name()
        assert set(rule.shapes_of) | set(rule.counts_of) <= set(rule.demands), rule.name()
    for path in Path(verifier.__file__).parent.glob("*.py"):
        assert set(re.findall(r'Violation\("([\w-]+)"', path.read_text("utf-8"))) <= declared


def test_the_aliasing_of_a_start_may_name_an_operand_that_an_update_binds() -> None:
    text = """
HloModule m

work {
  a = f32[8]{0} parameter(0)
  ROOT c = (f32[8]{0}) custom-call(a), custom_call_target="f"
}

ENTRY e {
  p = f32[8]{0} parameter(0)
  s = ((), (f32[8]{0}), s32[]) async-start(), calls=work,
      output_to_operand_aliasing={{1,0}: (%s, {})}
  u = ((f32[8]{0}), (f32[8]{0}), s32[]) async-update(s, p)
  ROOT d = (f32[8]{0}) async-done(u)
}
"""
    assert not hlo_lint.lint(text % 0).findings
    assert [found.rule for found in hlo_lint.lint(text % 1).findings] == ["bad-output-aliasing"]
