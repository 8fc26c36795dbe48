"""Every example of every rule; every rule says what it is."""

from __future__ import annotations

import os

import pytest

import hlo_lint
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.apps.testing import check_example, check_page
from hlo_lint.report.rule_page import render_page
from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.registry import REMOVED, all_rules, find_rule, known_names, select_rules

EXAMPLES = [
    pytest.param(type(rule), example, marks=[] if rule.command == "check" else [pytest.mark.slow])
    for rule in all_rules()
    for example in rule.examples
]


def _name(value: object) -> str:
    if isinstance(value, type) and issubclass(value, Rule):
        return value.name()
    return type(value).__name__.lower()


@pytest.mark.parametrize(("rule", "example"), EXAMPLES, ids=_name)
def test_an_example_is_found_and_fixed_as_it_says(
    rule: type[Rule], example: Bad | Good, monkeypatch: pytest.MonkeyPatch
) -> None:
    if rule.command == "check --ask-xla":
        if "HLO_LINT_RELEASES" not in os.environ:
            pytest.skip("needs compilers for chips: HLO_LINT_RELEASES")
        monkeypatch.setenv("XDG_CACHE_HOME", os.environ["HLO_LINT_RELEASES"])
    check_example(rule, example)


@pytest.mark.parametrize("rule", [type(rule) for rule in all_rules()], ids=_name)
def test_a_rule_says_what_it_is(rule: type[Rule]) -> None:
    check_page(rule)


def test_rules_are_chosen_by_name_and_by_family() -> None:
    assert {r.family() for r in select_rules(["layout"])} == {"layout"}
    assert [r.name() for r in select_rules(["unreadable-text"])] == ["unreadable-text"]
    assert find_rule("reshape-moves-data") not in select_rules(None, ["layout"])


def test_a_rule_that_runs_xla_is_chosen_by_its_own_name_alone() -> None:
    assert select_rules(["form"]).named("parser-refuses") is None
    assert select_rules(None, None, ["form"]).named("parser-refuses") is None
    assert select_rules(["form", "parser-refuses"]).named("parser-refuses")
    asked = Settings().reselected(["parser-refuses"])
    assert asked.reselected(extend_select=["form"]).chosen_rules().named("parser-refuses")
    assert asked.reselected(ignore=["form"]).chosen_rules().named("parser-refuses") is None


def test_a_removed_rule_is_refused_as_such() -> None:
    assert REMOVED.isdisjoint(known_names())
    assert "device-descriptor-misaligned" in REMOVED
    assert not [name for name in REMOVED if "-" not in name.strip("-")]
    with pytest.raises(hlo_lint.UsageError, match="the rule needless-copy was removed"):
        select_rules(["needless-copy"])


def test_an_unknown_rule_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(hlo_lint.UsageError, match="did you mean reshape-moves-data"):
        select_rules(["reshape-move-data"])


def test_a_page_shows_a_step_as_the_lines_that_the_pass_changed() -> None:
    class Negated(Rule):
        """A negate that a pass added."""

        examples = (
            Bad.step(
                """
                  a = f32[8] abs(f32[8] p)
                - ROOT c = f32[8] copy(a)
                + ROOT n = f32[8] negate(a)  // error
                """
            ),
        )

    assert render_page(Negated()).endswith(
        "`algsimp` of `simplification`:\n\n```diff\n HloModule m\n\n ENTRY e {\n"
        "   p = f32[8] parameter(0)\n   a = f32[8] abs(p)\n-  ROOT c = f32[8] copy(a)\n"
        "+  ROOT n = f32[8] negate(a)  // error\n }\n```\n"
    )
