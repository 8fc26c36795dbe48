"""Equal findings as one entry, and findings that are less severe than asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hlo_lint import lint
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.report.formats import FORMATS, render
from hlo_lint.report.groups import grouped
from hlo_lint.report.report import Report
from hlo_lint.report.text import plain_text, report_parts
from hlo_lint.rules.findings import Severity
from hlo_lint.rules.registry import find_rule
from tests.apps.test_cli import run, write

pytestmark = pytest.mark.usefixtures("here")
PARAMETER = "  %p = f32[8]{0} parameter(0)\n"


def module(*wrong: str) -> str:
    """A module with instructions that have too many operands."""
    lines = "".join(f"  %{name} = f32[8]{{0}} negate(%p, %p)\n" for name in wrong)
    root = "  ROOT %r = f32[8]{0} copy(%p)\n"
    return f"HloModule m\n\nENTRY %e (p: f32[8]) -> f32[8] {{\n{PARAMETER}{lines}{root}}}\n"


TIES = find_rule("order-dependent-reduction").examples[2].source
"""A text with information alone."""


def places(report: Report) -> list[str]:
    return [group.elsewhere() for group in grouped(report)]


def test_findings_that_differ_in_a_name_are_one_entry() -> None:
    report = lint(module("a", "b", "c"))
    assert len(report) == 3
    assert places(report) == ["lines 6, 7"]
    assert str(report).count("error[") == 1


def test_each_finding_is_listed_with_verbose() -> None:
    text = plain_text(report_parts(lint(module("a", "b", "c")), verbose=True))
    assert text.count("error[") == 3
    assert "also at" not in text


def test_an_entry_names_three_places_and_counts_the_others() -> None:
    report = lint(module(*"abcdefg"))
    assert places(report) == ["lines 6, 7, 8 and 3 more (--verbose lists all)"]


def test_places_in_other_files_have_their_path(tmp_path: Path) -> None:
    for name in ("a.hlo", "b.hlo"):
        (tmp_path / name).write_text(module("x"))
    assert places(lint(tmp_path)) == [f"{tmp_path}/b.hlo:5:3"]


@pytest.mark.parametrize(
    "change",
    [{"severity": Severity.WARNING}, {"message": "another message"}, {"rule": "another-rule"}],
)
def test_findings_with_another_cause_are_another_entry(change: dict[str, object]) -> None:
    first, second = lint(module("a", "b"))
    assert len(grouped([first, second])) == 1
    assert len(grouped([first, replace(second, **change)])) == 2  # type: ignore[arg-type]


def test_information_is_counted_where_errors_and_warnings_are_asked_for() -> None:
    report = lint(TIES, settings=Settings(min_severity=Severity.WARNING))
    assert not report.findings
    assert [finding.rule for finding in report.hidden] == ["order-dependent-reduction"]
    assert report.stats["hidden"] == 1
    assert str(report).endswith(
        "\n1 info not shown: order-dependent-reduction 1 (--min-severity info)\n"
    )


def test_from_python_every_finding_is_reported() -> None:
    assert [finding.rule for finding in lint(TIES)] == ["order-dependent-reduction"]


@pytest.mark.parametrize("name", FORMATS)
def test_no_format_reports_what_is_not_asked_for(name: str) -> None:
    hidden = lint(TIES, settings=Settings(min_severity=Severity.WARNING))
    assert "break ties" not in render(hidden, name)


def test_warnings_below_the_minimum_do_not_count_for_the_exit_status() -> None:
    write("a.hlo", module("a"))
    ran = run("check", "--severity=verifier=warning", "a.hlo")
    assert ran.status == 1
    ran = run("check", "--severity=verifier=warning", "--min-severity=error", "a.hlo")
    assert ran.status == 0
    assert "1 warning not shown" in ran.out


def test_an_option_counts_more_than_the_settings_file() -> None:
    write("hlo_lint.toml", 'min-severity = "info"\n')
    write("a.hlo", TIES)
    assert "info[order-dependent-reduction]" in run("check", "a.hlo").out
    assert "info[" not in run("check", "--min-severity=warning", "a.hlo").out
