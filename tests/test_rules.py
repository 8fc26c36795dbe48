"""Every example of every rule; every rule says what it is."""

from __future__ import annotations

from collections.abc import Callable
from inspect import cleandoc
from pathlib import Path

import pytest

import hlo_lint
from hlo_lint.registry import all_rules, find_rule, select_rules
from hlo_lint.rule import Bad, Good, Rule

BAD = [(r, e) for r in all_rules() for e in r.examples if isinstance(e, Bad)]
GOOD = [(r, e) for r in all_rules() for e in r.examples if isinstance(e, Good)]
FIXED = [(rule, example) for rule, example in BAD if example.fixed]


def _name(value: object) -> str:
    return value.name() if isinstance(value, Rule) else ""


@pytest.fixture
def dump(tmp_path: Path) -> Callable[[Bad | Good], Path]:
    """An example as a dump directory holds it, where artefacts go with it."""

    def write(example: Bad | Good) -> Path:
        if example.file:
            (tmp_path / example.file).write_text(example.source)
            for name, text in example.beside.items():
                (tmp_path / name).write_text(cleandoc(text) + "\n")
            return tmp_path
        if not example.artefacts:
            marks = {"HloModule": "hlo", ".entry": "ptx", "instruction_profiles": "textproto"}
            endings = [ending for mark, ending in marks.items() if mark in example.source]
            path = tmp_path / f"example.{endings[0] if endings else 'log'}"
            path.write_text(example.source)
            return path
        stem = "module_0001.example.sm_9.0_gpu_after_optimizations"
        (tmp_path / f"{stem}.txt").write_text(example.source)
        for ending, text in example.artefacts.items():
            (tmp_path / f"{stem}{ending}").write_text(cleandoc(text) + "\n")
        return tmp_path

    return write


def _lines(rule: Rule, text: Path) -> list[int]:
    return [
        finding.line for finding in hlo_lint.lint(text, [rule.name()], None, _before(rule)).findings
    ]


def _before(rule: Rule) -> str | None:
    return rule.precondition.demanded_by if rule.precondition else None


@pytest.mark.parametrize(("rule", "example"), BAD, ids=_name)
def test_a_bad_example_is_found_at_its_marks_and_nowhere_else(
    rule: Rule, example: Bad, dump: Callable[[Bad | Good], Path]
) -> None:
    assert example.marked
    assert _lines(rule, dump(example)) == example.marked


@pytest.mark.parametrize(("rule", "example"), GOOD, ids=_name)
def test_a_good_example_is_clean(
    rule: Rule, example: Good, dump: Callable[[Bad | Good], Path]
) -> None:
    assert _lines(rule, dump(example)) == []


@pytest.mark.parametrize(("rule", "example"), FIXED, ids=_name)
def test_a_fix_gives_the_text_it_promises(
    rule: Rule, example: Bad, dump: Callable[[Bad | Good], Path]
) -> None:
    fixed = hlo_lint.fix(dump(example), [rule.name()], form=example.form, unsafe_fixes=True)
    assert fixed.text == example.fixed_source
    assert fixed.remaining.clean


@pytest.mark.parametrize(("rule", "example"), BAD, ids=_name)
def test_checking_twice_says_the_same(
    rule: Rule, example: Bad, dump: Callable[[Bad | Good], Path]
) -> None:
    path = dump(example)
    first, second = (hlo_lint.lint(path, [rule.name()]).findings for _ in range(2))
    assert first == second


@pytest.mark.parametrize("rule", all_rules(), ids=_name)
def test_a_rule_says_what_it_is(rule: Rule) -> None:
    assert rule.summary().endswith(".")
    assert rule.summary().count(". ") == 0
    assert "## Why" in rule.page()
    assert any(isinstance(example, Bad) for example in rule.examples)
    assert any(isinstance(example, Good) for example in rule.examples)
    assert rule.fixable() == ("## Fix" in rule.page())


@pytest.mark.parametrize(("rule", "example"), BAD, ids=_name)
def test_a_message_has_no_full_stop(
    rule: Rule, example: Bad, dump: Callable[[Bad | Good], Path]
) -> None:
    for finding in hlo_lint.lint(dump(example), [rule.name()]).findings:
        assert not finding.message.endswith(".")
        assert finding.message


def test_rules_are_chosen_by_name_and_by_family() -> None:
    assert {r.family() for r in select_rules(["layout"])} == {"layout"}
    assert [r.name() for r in select_rules(["unreadable-text"])] == ["unreadable-text"]
    assert find_rule("reshape-moves-data") not in select_rules(None, ["layout"])


def test_an_unknown_rule_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(hlo_lint.UsageError, match="did you mean reshape-moves-data"):
        select_rules(["reshape-move-data"])
