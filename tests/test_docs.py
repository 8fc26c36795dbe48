"""What is generated is fresh; what is shown ran."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import CRASH, ROOT
from tests.docs import RULES, rules_page


def test_the_page_of_rules_is_fresh() -> None:
    assert RULES.read_text("utf-8") == rules_page(), "run `make docs`"


def test_the_session_in_the_readme_is_what_the_program_prints(tmp_path: Path) -> None:
    """The demo's own output, environment set-up left out."""
    shown = re.search(r"```console\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
    assert shown is not None
    program = tmp_path / "hlo-lint"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hlo_lint "$@"\n')
    program.chmod(0o755)
    ran = subprocess.run(
        ["sh", str(ROOT / "fixtures/programs/demo.sh"), str(program), str(CRASH)],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert shown[1].strip() == ran.stdout.strip()


def test_every_link_of_the_readme_leads_somewhere() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (ROOT / link).exists(), link
