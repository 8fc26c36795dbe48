"""Speed of a browser with the HTML report of a dump: `python -m benchmarks.report_page DUMP…`.

Prints a row for each: megabytes of the dump, findings, kilobytes of the page, seconds to make it,
and milliseconds until Chromium has read it, until it shows something, and until a finding is open;
the median of five openings.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from hlo_lint.apps.api import lint
from hlo_lint.dumps.directory import open_dump
from hlo_lint.report.html.page import render_html

OPENINGS = 5
_MEASURE = """() => new Promise((done) => {
  const read = performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd;
  const shown = performance.getEntriesByName("first-contentful-paint")[0].startTime;
  const begun = performance.now();
  document.querySelector("#list a")?.click();
  requestAnimationFrame(() => setTimeout(() => done([read, shown, performance.now() - begun])));
})"""


def main(dumps: list[str]) -> None:
    """Prints the table."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    print("| dump | MB | findings | page, kB | made, s | read, ms | shown, ms | finding, ms |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name in dumps:
            begun = time.perf_counter()
            dump = open_dump(name)
            report = lint(dump, resolved=True)
            page = Path(folder) / "report.html"
            page.write_text(render_html(dump, report, title=name), "utf-8")
            made = time.perf_counter() - begun
            times: list[list[float]] = []
            for _ in range(OPENINGS):
                opened = browser.new_page()
                opened.goto(page.as_uri())
                opened.wait_for_timeout(500)
                times.append(opened.evaluate(_MEASURE))
                opened.close()
            sizes = [file.stat().st_size for file in Path(name).rglob("*") if file.is_file()]
            cells = (
                name,
                f"{sum(sizes) / 1e6:.0f}",
                str(len(report.findings)),
                f"{page.stat().st_size / 1000:.0f}",
                f"{made:.1f}",
                *(f"{median(each):.0f}" for each in zip(*times, strict=True)),
            )
            print("| " + " | ".join(cells) + " |")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
