"""`hlo-lint example`: the dumps in the wheel are those of the fixtures."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlo_lint
from hlo_lint.apps.examples import EXAMPLES as NAMES
from tests.apps.test_cli import run
from tests.conftest import FIXTURES
from tests.docs import EXAMPLES, PACKED

MOST = 64_000
"""Bytes of one example in the wheel."""


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "MANIFEST.json"
    }


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_a_fixture(name: str, tmp_path: Path) -> None:
    done = run("example", name, "-o", str(tmp_path / "dump"))
    assert (done.status, done.output) == (0, b"")
    written = files_of(tmp_path / "dump")
    assert written == files_of(FIXTURES / EXAMPLES[name]), "run `make docs`"
    assert done.errors == f"{tmp_path}/dump: {len(written)} files\n"
    assert (PACKED / f"{name}.tar.xz").stat().st_size < MOST


def test_the_examples_are_listed() -> None:
    done = run("example")
    assert [line.split()[0] for line in done.output.decode().splitlines()] == list(EXAMPLES)


def test_a_folder_that_holds_something_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    done = run("example", "crash", "-o", str(tmp_path))
    assert done.status == 2
    assert "is not an empty folder: name another with -o" in done.errors
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_what_an_example_is_said_to_be_is_so(tmp_path: Path) -> None:
    rules = {}
    for name in ("crash", "slow", "healthy"):
        run("example", name, "-o", str(tmp_path / name))
        rules[name] = {finding.rule for finding in hlo_lint.lint(tmp_path / name).findings}
    assert rules == {
        "crash": {"reshape-moves-data"},
        "slow": {"reshape-runs-as-kernel"},
        "healthy": set(),
    }
