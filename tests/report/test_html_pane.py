"""The report on a phone, and its cards."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlo_lint
from tests.apps.test_cli import run
from tests.conftest import present, written
from tests.report.conftest import FORCED, Open, write
from tests.report.test_groups import TIES

PHONE = {"width": 390, "height": 844}
MANY = 400


def equal_findings() -> str:
    """A module with `MANY` instructions that have too many operands."""
    wrong = "".join(f"  %n{at} = f32[8]{{0}} negate(%p, %p)\n" for at in range(MANY))
    return (
        "HloModule m\n\nENTRY %e (p: f32[8]) -> f32[8] {\n  %p = f32[8]{0} parameter(0)\n"
        f"{wrong}  ROOT %r = f32[8]{{0}} copy(%p)\n}}\n"
    )


# Cards


@pytest.fixture(scope="module")
def many_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    (folder / "many.hlo").write_text(equal_findings())
    return write(folder / "many.hlo", folder / "report.html")


def test_hundreds_of_equal_findings_are_one_card_that_lists_all(
    opened: Open, many_page: Path
) -> None:
    page = opened(many_page)
    assert page.locator("#list > li").count() == 1
    assert page.locator("#list .badge").inner_text() == f"{MANY}×"
    assert page.locator(".totals .error").inner_text() == f"{MANY} errors"
    assert page.locator("#list details a").count() == 0
    page.locator("#list summary").click()
    page.wait_for_selector("#list details a")
    places = page.locator("#list details a")
    assert places.count() == MANY
    assert places.last.inner_text() == f"%n{MANY - 1}, line {MANY + 4}"
    places.last.click()
    assert f"%n{MANY - 1} of %e" in page.locator(".facts").inner_text()


def test_a_link_to_a_finding_of_a_card_opens_the_card(opened: Open, many_page: Path) -> None:
    last = hlo_lint.lint(many_page.parent / "many.hlo").findings[-1]
    page = opened(many_page, f"#finding-{last.fingerprint}")
    assert page.locator("#list details[open] a[aria-current]").is_visible()


def test_a_search_counts_the_findings_of_a_card_that_it_finds(
    opened: Open, many_page: Path
) -> None:
    page = opened(many_page)
    page.locator("#search").fill("n39")
    assert page.locator("#list .badge").inner_text() == "11×"  # n39, n390 to n399
    assert page.locator("#shown").inner_text() == f"11 of {MANY} findings"


def test_a_choice_between_fewer_than_two_is_left_out(opened: Open, many_page: Path) -> None:
    page = opened(many_page)
    assert page.locator("select:visible").count() == 0
    assert page.locator("[name=severity]:visible").count() == 0


# Counts


def test_the_report_counts_as_check_does(opened: Open, forced_page: Path, tmp_path: Path) -> None:
    page = opened(forced_page)
    assert page.locator(".totals").inner_text().split() == [
        "0", "errors", "2", "warnings", "1", "resolved",
    ]  # fmt: skip
    lines = run("check", str(FORCED)).out.splitlines()
    assert lines[-2].startswith("2 warnings in ")
    assert ", 1 resolved by a later pass" in lines[-2]


def test_information_is_counted_and_not_listed_unless_asked_for(
    opened: Open, tmp_path: Path
) -> None:
    path = written(tmp_path / "a.hlo", TIES)
    page = opened(write(path, tmp_path / "report.html"))
    assert page.locator("#list > li").count() == 0
    assert page.locator("aside .hint").inner_text() == (
        "1 info not shown: order-dependent-reduction 1 (--min-severity info)"
    )
    page = opened(write(path, tmp_path / "all.html", "--min-severity", "info"))
    assert page.locator("#list .rule").all_inner_texts() == ["order-dependent-reduction"]
    assert page.locator(".totals .info").inner_text() == "1 info"


# A phone


def test_a_phone_begins_at_the_title_and_a_link_at_its_finding(
    opened: Open, crash_page: Path
) -> None:
    page = opened(crash_page, "", viewport=PHONE)
    assert page.locator("main h2").inner_text().startswith("this reshape moves bytes")
    assert page.evaluate("scrollY") == 0
    link = page.evaluate("location.hash")
    again = opened(crash_page, link, viewport=PHONE)
    box = present(again.locator("main").bounding_box())
    assert 0 <= box["y"] < 100


def test_the_drawing_around_an_instruction_is_scrolled_to_it(
    opened: Open, forced_page: Path
) -> None:
    page = opened(forced_page, "", viewport=PHONE)
    box = present(page.locator(".node.at").bounding_box())
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE["width"]
