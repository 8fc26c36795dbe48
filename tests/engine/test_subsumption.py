"""Two rules that say one thing of one instruction are one finding."""

from __future__ import annotations

import networkx
import pytest

import hlo_lint
from hlo_lint.rules.findings import Severity
from hlo_lint.rules.registry import all_rules
from tests.conftest import FIXTURES

DONE = (FIXTURES / "unsound" / "copy_done_of_something_else.hlo").read_text()
SHARDING = (FIXTURES / "broken" / "sharding_mesh_axis_unknown.hlo").read_text()
CAPITALS = (FIXTURES / "broken" / "type_in_capitals.hlo").read_text()


def rules_found(text: str, **given: object) -> list[str]:
    return [finding.rule for finding in hlo_lint.lint(text, **given).findings]  # type: ignore[arg-type]


def test_no_rule_subsumes_itself_by_way_of_others() -> None:
    families = {rule.name(): rule.family() for rule in all_rules()}
    graph = networkx.DiGraph()
    for rule in all_rules():
        for name in rule.subsumes:
            parts = {part for part, family in families.items() if name in (part, family)}
            assert parts, f"{rule.name()} subsumes {name}, which is no rule and no family"
            graph.add_edges_from((rule.name(), part) for part in parts - {rule.name()})
    assert networkx.is_directed_acyclic_graph(graph)


@pytest.mark.parametrize(
    ("text", "rule"),
    [(DONE, "start-without-done"), (SHARDING, "malformed-text"), (CAPITALS, "unknown-word")],
)
def test_one_mistake_is_one_finding(text: str, rule: str) -> None:
    (finding,) = hlo_lint.lint(text).findings
    assert (finding.rule, finding.severity) == (rule, Severity.ERROR)


def test_the_messages_of_the_others_are_notes_unless_they_say_the_same() -> None:
    (finding,) = hlo_lint.lint(DONE).findings
    assert [note.partition(":")[0] for note in finding.notes] == ["bad-copy", "broken-async"]
    (finding,) = hlo_lint.lint(SHARDING).findings
    assert not finding.notes


def test_a_rule_that_was_not_chosen_subsumes_nothing() -> None:
    assert rules_found(DONE, ignore=["start-without-done"]) == ["bad-copy", "broken-async"]


def test_what_is_allowed_allows_its_parts() -> None:
    line = "  // hlo-lint: allow start-without-done -- a test\n"
    at = DONE.index("  ROOT")
    assert rules_found(DONE[:at] + line + DONE[at:]) == []


def test_another_instruction_of_the_line_keeps_its_finding() -> None:
    body = "p = f32[2,3]{1,0} parameter(0) q = f32[2,3]{1,0} ad(p, p) ROOT r = f32[3]{0} negate(p)"
    text = f"HloModule m ENTRY e {{ {body} }}\n"
    assert rules_found(text) == ["unknown-word", "wrong-result-shape"]
