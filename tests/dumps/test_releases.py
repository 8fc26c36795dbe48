"""One healthy program as each release of jax compiles it, for CPU, GPU and TPU."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

import hlo_lint
from hlo_lint.dumps.directory import open_dump
from hlo_lint.dumps.selection import main_compilations
from hlo_lint.hlo.parser.module import parse_file
from tests.conftest import FIXTURES, ROOT, hlo_files

pytestmark = pytest.mark.slow

ARCHIVES = sorted((FIXTURES / "releases").glob("*.tar.xz"))


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.partition(".tar")[0])
def dump(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of a dump, by the name of its backend and release."""
    path: Path = request.param
    folder = tmp_path / path.name.removesuffix(".tar.xz")
    with tarfile.open(path) as archive:
        archive.extractall(folder, filter="data")
    return folder


def test_a_healthy_dump_has_no_findings_and_its_release_is_known(dump: Path) -> None:
    report = hlo_lint.lint(dump)
    # Layout normalization of jax 0.6 to 0.9 says that it changed what it did not.
    others = [at for at in report.findings if at.rule != "change-without-effect"]
    assert list(map(str, others)) == []
    compilation = max(main_compilations(open_dump(dump)), key=lambda found: len(found.dumps))
    assert compilation.final is not None
    assert compilation.backend == dump.name.partition("-")[0]
    if (ROOT / "hlo_lint" / "dumps" / "pipelines" / f"{dump.name}.txt").exists():
        assert dump.name in [release.name for release in compilation.releases]
        assert compilation.is_of_known_release


def test_the_texts_of_each_release_are_read_as_they_are_printed(dump: Path) -> None:
    for path in hlo_files(dump):
        assert parse_file(path.read_bytes(), path).text == path.read_bytes().decode()


def test_each_release_on_the_page_has_an_archive() -> None:
    page = (ROOT / "docs" / "releases.md").read_text("utf-8")
    for path in ARCHIVES:
        release = path.name.partition("-jax")[2].removesuffix(".tar.xz")
        assert f"| {release} |" in page
