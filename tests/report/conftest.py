"""Reports as pages, opened in a real browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.apps.test_cli import run
from tests.conftest import CRASH, DUMPS, FIXTURES

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

FORCED = DUMPS / "gpu-jax0.10.2" / "cublaslt_fission"
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)


def write(target: Path, out: Path, *options: str) -> Path:
    """The page of a dump, as the command writes it."""
    done = run("report", str(target), "-o", str(out), *options)
    assert done.status in (0, 1), done.errors
    return out


@pytest.fixture(scope="module")
def crash_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("crash") / "report.html"
    return write(CRASH, out, "--source", str(FIXTURES / "programs"))


@pytest.fixture(scope="module")
def forced_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that came to its end: one finding is resolved, others stay."""
    return write(FORCED, tmp_path_factory.mktemp("forced") / "report.html")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    if not CHROMIUM:
        pytest.skip("no Chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    # WebGL is drawn by the processor: machines that run tests have no screen.
    options = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    options += ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield browser
        browser.close()


Open = Callable[..., "Page"]


def text_in(page: Page, selector: str) -> str:
    """The text that people see in an element."""
    return page.locator(selector).inner_text()


@pytest.fixture
def opened(chromium: Browser) -> Iterator[Open]:
    """Opens pages; each must log nothing, ask nothing and load nothing but itself."""
    said: list[str] = []
    loaded: list[str] = []
    contexts = []

    def dismiss(dialog: Dialog) -> None:
        said.append(dialog.message)
        dialog.dismiss()

    def open_page(path: Path, link: str = "#all", **options: Any) -> Page:
        context = chromium.new_context(**{"viewport": {"width": 1400, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", dismiss)
        page.on("request", lambda request: loaded.append(request.url))
        page.goto(path.as_uri() + link)
        assert loaded.pop(0).startswith(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert [url for url in loaded if url != "data:,"] == []
