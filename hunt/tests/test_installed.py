"""The command and the plug-in of pytest, by their entry points."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from subprocess import CompletedProcess

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


def run_by_pytest(folder: Path, source: str) -> CompletedProcess[str]:
    """A run of pytest, with the plug-in, over one file of tests."""
    file = folder / "test_source.py"
    file.write_text(source, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    return completed(command, cwd=folder)


@pytest.mark.slow
def test_the_marker_hunts_before_the_test(tmp_path: Path) -> None:
    done = run_by_pytest(
        tmp_path,
        "import pytest\n"
        '@pytest.mark.hlo_lint_hunt(passes=["no-such-pass"], minutes=0.02)\n'
        "def test_the_pass():\n    pass\n",
    )
    assert "1 passed" in done.stdout, done.stdout


@pytest.mark.slow
def test_a_run_without_the_marker_imports_nothing_but_the_plugin(tmp_path: Path) -> None:
    done = run_by_pytest(
        tmp_path,
        "import sys\n\ndef test_imports():\n"
        '    mine = {name for name in sys.modules if name.startswith("hlo_lint_hunt")}\n'
        '    assert mine == {"hlo_lint_hunt", "hlo_lint_hunt.pytest_plugin"}\n',
    )
    assert done.returncode == 0, done.stdout
