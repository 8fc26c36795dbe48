"""The report on a phone, its cards, and the drawing of a whole module, with a mouse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hlo_lint
from hlo_lint.report.html.module_graph import layered
from tests.apps.test_cli import run
from tests.conftest import present, written
from tests.report.conftest import FORCED, Open, text_in, write
from tests.report.test_groups import TIES
from tests.texts import entry

if TYPE_CHECKING:
    from playwright.sync_api import Page

PHONE = {"width": 390, "height": 844}
WIDE = {"width": 1440, "height": 900}
MANY = 400


def equal_findings() -> str:
    """A module with `MANY` instructions that have too many operands."""
    wrong = "".join(f"  %n{at} = f32[8]{{0}} negate(%p, %p)\n" for at in range(MANY))
    return entry(f"  %p = f32[8]{{0}} parameter(0)\n{wrong}  ROOT %r = f32[8]{{0}} copy(%p)")


# Cards


@pytest.fixture(scope="module")
def many_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    (folder / "many.hlo").write_text(equal_findings())
    return write(folder / "many.hlo", folder / "report.html")


def test_hundreds_of_equal_findings_are_a_card_that_lists_all(
    opened: Open, many_page: Path
) -> None:
    page = opened(many_page)
    assert page.locator("#list > li").count() == 1
    assert text_in(page, "#list .badge") == f"{MANY}×"
    assert text_in(page, ".totals .error") == f"{MANY} errors"
    assert page.locator("#list details a").count() == 0
    page.locator("#list summary").click()
    page.wait_for_selector("#list details a")
    places = page.locator("#list details a")
    assert places.count() == MANY
    assert places.last.inner_text() == f"%n{MANY - 1}, line {MANY + 4}"
    places.last.click()
    assert f"%n{MANY - 1} of %e" in text_in(page, ".facts")


def test_a_link_to_a_finding_of_a_card_opens_the_card(opened: Open, many_page: Path) -> None:
    last = hlo_lint.lint(many_page.parent / "many.hlo").findings[-1]
    page = opened(many_page, f"#finding-{last.fingerprint}")
    assert page.locator("#list details[open] a[aria-current]").is_visible()


def test_a_search_counts_the_findings_of_the_cards_it_finds(opened: Open, many_page: Path) -> None:
    page = opened(many_page)
    page.locator("#search").fill("n39")
    assert text_in(page, "#list .badge") == "11×"  # n39, n390 to n399
    assert text_in(page, "#shown") == f"11 of {MANY} findings"


def test_a_choice_between_fewer_than_two_is_left_out(opened: Open, many_page: Path) -> None:
    page = opened(many_page)
    assert page.locator("select:visible").count() == 0
    assert page.locator("[name=severity]:visible").count() == 0


# Counts


def test_the_report_counts_as_check_does(opened: Open, forced_page: Path, tmp_path: Path) -> None:
    page = opened(forced_page)
    assert text_in(page, ".totals").split() == [
        "0", "errors", "2", "warnings", "1", "resolved",
    ]  # fmt: skip
    lines = run("check", str(FORCED)).out.splitlines()
    assert lines[-2].startswith("2 warnings in ")
    assert ", 1 resolved by a later pass" in lines[-2]


def test_information_is_counted_and_listed_on_request(opened: Open, tmp_path: Path) -> None:
    path = written(tmp_path / "a.hlo", TIES)
    page = opened(write(path, tmp_path / "report.html"))
    assert page.locator("#list > li").count() == 0
    assert text_in(page, "aside .hint") == (
        "1 info not shown: order-dependent-reduction 1 (--min-severity info)"
    )
    page = opened(write(path, tmp_path / "all.html", "--min-severity", "info"))
    assert page.locator("#list .rule").all_inner_texts() == ["order-dependent-reduction"]
    assert text_in(page, ".totals .info") == "1 info"


# A phone


def test_a_phone_begins_at_the_title_a_link_at_its_finding(opened: Open, crash_page: Path) -> None:
    page = opened(crash_page, "", viewport=PHONE)
    assert text_in(page, "main h2").startswith("this reshape moves bytes")
    assert page.evaluate("scrollY") == 0
    link = page.evaluate("location.hash")
    again = opened(crash_page, link, viewport=PHONE)
    box = present(again.locator("main").bounding_box())
    assert 0 <= box["y"] < 100


def test_the_drawing_is_scrolled_to_its_instruction(opened: Open, forced_page: Path) -> None:
    page = opened(forced_page, "", viewport=PHONE)
    box = present(page.locator(".node.at").bounding_box())
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE["width"]


# The whole module

RECORD_TEXT = """() => {
  window.drawnTexts = [];
  const { fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    window.drawnTexts.push(text);
    return fillText.call(this, text, ...rest);
  };
}"""


def until(page: Page, condition: str) -> None:
    """Wait for a condition; `wait_for_function` polls by `eval`, which the page forbids."""
    for _ in range(200):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never true: {condition}")


def drawn(page: Page) -> None:
    """Draw the module and bring its pane into the window."""
    page.get_by_role("button", name="Draw the module").click()
    page.wait_for_selector(".whole canvas")
    pane = page.locator(".whole")
    pane.evaluate("pane => pane.scrollIntoView({ block: 'center', behavior: 'instant' })")


def places(page: Page) -> list[tuple[float, float]]:
    """The pixels of the dots in the pane, in the order of the instructions."""
    points = page.evaluate(
        "moduleView.sigma.refresh().getGraph()"
        ".mapNodes((_, dot) => moduleView.sigma.graphToViewport(dot)).map(({x, y}) => [x, y])"
    )
    return [(x, y) for x, y in points]


def spans(page: Page) -> tuple[float, float]:
    """The width and the height of the drawing, as parts of those of the pane."""
    box = present(page.locator(".whole").bounding_box())
    across, down = zip(*places(page), strict=True)
    assert min(across) > 0
    assert max(across) < box["width"]
    assert min(down) > 0
    assert max(down) < box["height"]
    return (max(across) - min(across)) / box["width"], (max(down) - min(down)) / box["height"]


def wide_module(count: int) -> str:
    """A module whose parameters would all be in its first layer."""
    lines = [f"  %p{at} = f32[8]{{0}} parameter({at})" for at in range(count)]
    lines.append("  %a0 = f32[8]{0} negate(%p0)")
    lines += [f"  %a{at} = f32[8]{{0}} add(%a{at - 1}, %p{at})" for at in range(1, count)]
    lines.append(f"  ROOT %r = f32[8]{{0}} negate(%a{count - 1}, %p0)")
    return entry("\n".join(lines))


@pytest.mark.parametrize("viewport", [PHONE, WIDE])
def test_a_module_fits_its_pane(opened: Open, forced_page: Path, viewport: dict[str, int]) -> None:
    page = opened(forced_page, "#module-0", viewport=viewport)
    drawn(page)
    wide, high = spans(page)
    assert wide > 0.5
    assert high > 0.9
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


@pytest.mark.parametrize("shape", ["wide", "deep"])
def test_a_long_row_or_column_fills_its_pane(opened: Open, tmp_path: Path, shape: str) -> None:
    text = equal_findings() if shape == "wide" else wide_module(MANY)
    (tmp_path / "a.hlo").write_text(text)
    page = opened(write(tmp_path / "a.hlo", tmp_path / "report.html"), "#module-0", viewport=WIDE)
    drawn(page)
    assert min(spans(page)) > 0.9


def test_a_drawn_instruction_has_its_name_opcode_and_shape(opened: Open, forced_page: Path) -> None:
    page = opened(forced_page, "#all", viewport=WIDE)
    page.evaluate(RECORD_TEXT)
    page.locator("#list a").first.click()
    drawn(page)
    until(page, "window.drawnTexts.length > 20")
    texts = page.evaluate("window.drawnTexts")
    assert {"wrapped_reshape", "fusion f16[16,64,128]{2,1,0}"} <= set(texts)
    assert {"bitcast.6.0", "f16[2,8,64,128]{3,2,1,0}"} <= set(texts)


def test_a_drag_moves_the_module_and_the_wheel_zooms(opened: Open, forced_page: Path) -> None:
    page = opened(forced_page, "#module-0", viewport=WIDE)
    drawn(page)
    before = places(page)
    box = present(page.locator(".whole").bounding_box())
    x, y = box["x"] + box["width"] / 4, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 120, y - 60, steps=6)
    page.wait_for_timeout(200)  # without it sigma lets the drawing glide on
    page.mouse.up()
    page.wait_for_timeout(200)
    for (left, top), (a, b) in zip(before, places(page), strict=True):
        assert (a - left, b - top) == pytest.approx((120, -60), abs=2)
    page.mouse.wheel(0, -300)
    camera = "moduleView.sigma.getCamera()"
    until(page, f"{camera}.ratio < 0.8 && !{camera}.isAnimated()")
    (left, top), (a, b) = places(page)[0], places(page)[-1]
    assert abs(b - top) > 1.3 * abs(before[-1][1] - before[0][1])
    page.get_by_role("button", name="Fit").click()
    assert places(page) == before


def test_a_click_on_a_larger_dot_opens_its_computation(opened: Open, forced_page: Path) -> None:
    page = opened(forced_page, "#module-0", viewport=WIDE)
    drawn(page)
    name = "wrapped_reshape"
    number = page.evaluate(f"moduleView.data.names.indexOf('{name}')")
    entry = places(page)
    x, y = entry[number]
    page.locator(".whole").click(position={"x": x, "y": y})
    assert len(places(page)) > len(entry)
    assert text_in(page, ".whole + p").startswith(f"%{name} = ")
    spans(page)


def test_the_colours_are_explained(opened: Open, forced_page: Path) -> None:
    page = opened(forced_page, "#module-0", viewport=WIDE)
    drawn(page)
    legend = page.locator(".legend span")
    assert legend.first.inner_text() == "in the first dump"
    page.get_by_label("Colour").select_option("opcode")
    assert legend.first.inner_text() == "parameter (9)"


def test_a_second_drawing_ends_the_first(opened: Open, forced_page: Path) -> None:
    page = opened(forced_page, "", viewport=WIDE)
    drawn(page)
    page.evaluate("window.first = moduleView.sigma; first.on('kill', () => (window.killed = true))")
    page.locator("#list a").nth(1).click()
    drawn(page)
    assert page.evaluate("window.killed")


# Layers


def test_a_parameter_is_drawn_above_its_first_user() -> None:
    module = hlo_lint.parse(wide_module(4))
    _, layers = layered(module["e"])
    of_name = {row.name: layer for row, layer in zip(module["e"], layers, strict=True)}
    assert [of_name[f"p{number}"] for number in range(4)] == [0, 1, 2, 3]
    assert [of_name[f"a{number}"] for number in range(4)] == [1, 2, 3, 4]
