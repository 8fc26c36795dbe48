"""Draws the pictures of the docs from the real report: `make images`.

They are drawn anew where the page has changed; a browser of another release draws other pixels, so
no test compares them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from hlo_lint import lint, open_dump
from hlo_lint.report.html.page import render_html
from tests.conftest import CRASH, FIXTURES, ROOT
from tests.report.conftest import CHROMIUM

if TYPE_CHECKING:
    from playwright.sync_api import Page

IMAGES = ROOT / "docs" / "images"


@contextmanager
def opened(page: Path, fragment: str) -> Iterator[Page]:
    """A page in a browser, at the part of it that the fragment names."""
    from playwright.sync_api import sync_playwright

    if not CHROMIUM:
        sys.exit("no Chromium is found: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": 1280, "height": 960})
        shown.goto(page.as_uri() + fragment)
        yield shown
        browser.close()


def main() -> None:
    """Draw `report.png` for the README, and the two pictures of the page about the report."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        report = lint(CRASH, resolved=True)
        page = render_html(open_dump(CRASH), report, title="dump", sources=[FIXTURES / "programs"])
        path.write_text(page, "utf-8")
        with opened(path, "") as shown:
            shown.screenshot(path=IMAGES / "report.png")
            heading = shown.locator("main h3", has_text="HLO before and after")
            heading.evaluate("heading => heading.scrollIntoView({behavior: 'instant'})")
            shown.screenshot(path=IMAGES / "report-finding.png")
        with opened(path, "#all") as shown:
            shown.screenshot(path=IMAGES / "report-timeline.png")


if __name__ == "__main__":
    main()
