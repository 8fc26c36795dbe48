"""The site: built with warnings as errors, of every page, without anything from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hlo_lint import __all__
from hlo_lint.apps.cli.main import cli
from hlo_lint.rules.registry import all_rules
from tests.conftest import ROOT, completed, made_once
from tests.report.conftest import CHROMIUM

pytestmark = pytest.mark.slow

pytest.importorskip("furo", reason="the site needs the extra `docs`")

LOADED = re.compile(
    r'<(?:script|img|iframe|source)\b[^>]*\bsrc="([^"]+)"|<link\b[^>]*\bhref="([^"]+)"'
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Links that lead nowhere are warnings, too, and pages that docs/index.md does not list.

    Names of the reference are left out of the contents of its pages, which every page copies.
    """

    def build(out: Path) -> None:
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going"]
        command += ["-D", "toc_object_entries=0", "docs", str(out)]
        done = completed(command, cwd=ROOT)
        assert done.returncode == 0, done.stderr

    return made_once(tmp_path_factory, "site", build)


def test_every_page_is_there(site: Path) -> None:
    docs = ROOT / "docs"
    made = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    assert {path.relative_to(docs).with_suffix("") for path in docs.rglob("*.md")} <= made


def test_every_rule_has_a_page_with_its_examples(site: Path) -> None:
    for rule in all_rules():
        page = (site / "rules" / f"{rule.name()}.html").read_text("utf-8")
        assert f"<h1>{rule.name()}" in page
        texts = re.findall('<div class="highlight-(?:hlo|diff) ', page)  # steps are differences
        assert len(texts) >= sum("HloModule" in example.source for example in rule.examples)


def test_every_command_is_in_the_reference(site: Path) -> None:
    page = (site / "reference/commands.html").read_text("utf-8")
    import click

    for name in cli.list_commands(click.Context(cli)):
        assert f'id="hlo-lint-{name}"' in page


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    page = (site / "reference/python.html").read_text("utf-8")
    described = set(re.findall(r'id="hlo_lint\.(\w+)"', page))
    elsewhere = {"Findings", "live", "match", "testing"}  # an alias, and modules.md
    missing = set(__all__) - described - elsewhere
    assert not missing, "docs/reference/python.md has to have them"


def test_docstrings_become_what_sphinx_reads() -> None:
    """By its path: it is an extension of the site, and no module of the package."""
    path = ROOT / "docs/_ext/markdown_docstrings.py"
    done = subprocess.run([sys.executable, "-m", "doctest", "-v", str(path)], capture_output=True)
    assert done.returncode == 0, done.stdout
    assert b"2 passed" in done.stdout


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        for found in LOADED.findall(path.read_text("utf-8")):
            assert not re.match(r"\w+:|//", "".join(found)), path
    for path in site.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?(?:https?:)?//|@import", path.read_text("utf-8")), path


@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium to search in")
def test_the_search_finds_a_rule(site: Path, tmp_path: Path) -> None:
    done = completed(
        [
            CHROMIUM,
            *("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"),
            *("--virtual-time-budget=10000", "--dump-dom"),
            f"{(site / 'search.html').as_uri()}?q=reshape",
        ],
        timeout=120,
    )
    assert 'href="rules/reshape-moves-data.html"' in done.stdout.partition("search-results")[2]
