"""The package is typed for its users: an unknown name is an error, and the pages type-check."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, completed

pytestmark = pytest.mark.slow

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

GIVEN = """\
from typing import Any
import hlo_lint
blur: Any; f: Any; x: Any; y: Any; IMAGES: Any; KERNEL: Any; jax: Any; text: str
step: Any; state: Any; batch: Any
"""
"""Names that a fragment takes from the reader's own program."""

FLAGS = (
    "--strict",
    # jax leaves some of its functions untyped, and so do people in tests; packages that a page
    # makes up are not installed.
    "--allow-untyped-calls",
    "--allow-untyped-defs",
    "--ignore-missing-imports",
    "--disable-error-code=no-redef",
)


def mypy(*arguments: str, cwd: Path) -> str:
    cache = ROOT / ".mypy_cache/users"
    command = [sys.executable, "-m", "mypy", f"--cache-dir={cache}", *FLAGS, *arguments]
    # An empty file of settings: those of this repository are not the user's.
    (cwd / "mypy.ini").write_text("[mypy]\n")
    ran = completed(command, cwd=cwd)
    assert not ran.stderr, ran.stderr
    return ran.stdout


def programs(page: Path) -> str:
    """The Python of a page, one block after the other; of a session what was typed."""
    blocks = []
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.S | re.M):
        lines = block.splitlines()
        if ">>>" in block:
            lines = [line[4:] for line in lines if line.startswith((">>>", "..."))]
        blocks.append("\n".join(lines))
    return "\n".join(blocks)


def test_the_python_of_every_page_type_checks(tmp_path: Path) -> None:
    names = []
    for page in PAGES:
        program = programs(page)
        if program:
            names.append(f"{page.stem.replace('-', '_')}_page.py")
            (tmp_path / names[-1]).write_text(GIVEN + program + "\n")
    assert len(names) > 7
    shown = mypy(*names, cwd=tmp_path)
    assert "Success" in shown, shown


def test_an_unknown_name_and_an_argument_of_the_wrong_type_are_errors(tmp_path: Path) -> None:
    program = "import hlo_lint\nhlo_lint.lnit('x.hlo')\nhlo_lint.parse(5)\n"
    (tmp_path / "program.py").write_text(program)
    shown = mypy("program.py", cwd=tmp_path)
    assert 'Module has no attribute "lnit"' in shown
    assert 'incompatible type "int"' in shown
