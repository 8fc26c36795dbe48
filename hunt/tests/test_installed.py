"""The command and the plug-in of pytest, by their entry points."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hlo_lint.apps.cli.main import cli
from tests.conftest import ROOT, completed


def test_the_command_is_found_and_needs_no_extra_before_it_hunts() -> None:
    code = """\
import sys
from click.testing import CliRunner
for name in ("numpy", "ml_dtypes", "jax", "jaxlib", "google.protobuf"):
    sys.modules[name] = None
from hlo_lint.apps.cli.main import cli
ran = CliRunner().invoke(cli, ["hunt", "--help"])
assert ran.exit_code == 0 and ran.output.startswith("Usage: cli hunt"), ran.output
ran = CliRunner().invoke(cli, ["hunt", "-o", "found"])
assert ran.exit_code == 2 and "pip install 'hlo-lint[xla]'" in ran.output, ran.output
"""
    ran = completed([sys.executable, "-c", code])
    assert ran.returncode == 0, ran.stderr


def test_the_help_lists_the_command() -> None:
    listed = CliRunner().invoke(cli, ["--help"]).output
    assert re.search(r"^Of other packages:\n  hunt +Find bugs of a released XLA\.$", listed, re.M)


def test_the_page_about_exit_statuses_names_the_command() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text("utf-8")
    assert re.search(r"^\| `hunt` .*\| no new bug \| a new bug \|$", page, re.M)


@pytest.mark.slow
def test_the_marker_hunts_before_the_test(tmp_path: Path) -> None:
    file = tmp_path / "test_pass.py"
    file.write_text(
        "import pytest\n"
        '@pytest.mark.hlo_lint_hunt(passes=["no-such-pass"], minutes=0.02)\n'
        "def test_the_pass():\n    pass\n",
        "utf-8",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    done = completed(command, cwd=tmp_path)
    assert "1 passed" in done.stdout, done.stdout


@pytest.mark.slow
def test_a_run_without_the_marker_imports_nothing_but_the_plugin(tmp_path: Path) -> None:
    file = tmp_path / "test_imports.py"
    file.write_text(
        "import sys\n\ndef test_imports():\n"
        '    mine = {name for name in sys.modules if name.startswith("hlo_lint_hunt")}\n'
        '    assert mine == {"hlo_lint_hunt", "hlo_lint_hunt.pytest_plugin"}\n',
        "utf-8",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    done = completed(command, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
