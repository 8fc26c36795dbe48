"""Each row of the table of exit statuses in docs/command-line.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hlo_lint.apps.cli.main import LATE
from tests.conftest import CRASH, DUMPS, ROOT

pytestmark = pytest.mark.slow

BAD = """HloModule m

ENTRY e {
  p = f32[8,3]{1,0} parameter(0)
  ROOT r = f32[4,2,3]{0,1,2} reshape(p)
}
"""
GOOD = BAD.replace("{0,1,2}", "{2,1,0}")
HEALTHY = str(DUMPS / "gpu-jax0.10.2" / "cublaslt_fission")

CASES: dict[tuple[str, int], tuple[str, ...]] = {
    ("check", 0): ("good.hlo",),
    ("check", 1): ("bad.hlo",),
    ("check", 2): ("nothing.hlo",),
    ("fix", 0): ("bad.hlo", "--before", "layout_normalization"),
    ("fix", 1): ("garbage.hlo",),
    ("fix", 2): ("nothing.hlo",),
    ("blame", 0): ("good.hlo",),
    ("blame", 1): (str(CRASH),),
    ("report", 0): ("good.hlo", "-o", "x.html"),
    ("report", 1): ("bad.hlo", "-o", "x.html"),
    ("report", 2): ("empty", "-o", "x.html"),
    ("baseline", 0): ("good.hlo", "-o", "list.json"),
    ("baseline", 1): ("bad.hlo", "-o", "list.json"),
    ("baseline", 2): ("nothing.hlo",),
    ("bisect", 0): (str(CRASH), str(CRASH)),
    ("bisect", 2): ("nothing", "nothing"),
    ("config-diff", 0): (str(CRASH), str(CRASH)),
    ("config-diff", 1): (str(CRASH), HEALTHY),
    ("diff", 0): ("bad.hlo", "bad.hlo"),
    ("diff", 1): ("bad.hlo", "good.hlo"),
    ("match", 0): ("reshape()", "bad.hlo"),
    ("match", 1): ("dot()", "bad.hlo"),
    ("match", 2): ("reshape(", "bad.hlo"),
    ("explain", 0): ("reshape-moves-data",),
    ("explain", 2): ("no-such-rule",),
    ("rules", 0): (),
    ("passes", 0): (str(CRASH),),
    ("passes", 2): ("bad.hlo",),
    ("run", 0): ("bad.hlo",),
    ("run", 2): ("garbage.hlo",),
    ("convert", 0): ("bad.hlo",),
    ("convert", 2): ("nothing.hlo",),
    ("config", 0): (),
    ("dialects", 0): (),
    ("cache", 0): ("info",),
    ("new-rule", 0): ("my-rule", "--package", "team"),
    ("new-rule", 2): ("My Rule", "--package", "team"),
    ("reduce", 0): ("bad.hlo", "--finding", "reshape-moves-data", "-q"),
    ("reduce", 2): ("good.hlo", "--finding", "reshape-moves-data", "-q"),
}
"""For commands and statuses, the words that lead to them. Other tests have the rest of them: of
`capture`, which needs a compiler, of `validate`, `ranks`, `payload` and `repro`, and of signals."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("bad", BAD), ("good", GOOD), ("garbage", "HloModule m\n\nENTRY e {\n ?\n")):
        (tmp_path / f"{name}.hlo").write_text(text)
    (tmp_path / "list.json").write_text('{"version": 2, "findings": []}')
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.mark.parametrize(("command", "status"), CASES, ids=lambda value: str(value))
def test_a_command_exits_with_the_status_of_the_table(
    command: str, status: int, folder: Path
) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "hlo_lint", command, *CASES[command, status]],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert ran.returncode == status, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    if status == 2:
        assert "Error: " in ran.stderr


def test_the_table_names_every_command_that_exits_with_1() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text("utf-8")
    table = page.partition("## Exit status")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z-]+)`", table))
    commands = ROOT / "hlo_lint" / "apps" / "cli"
    for command in LATE:
        source = (commands / f"{command.replace('-', '_')}.py").read_text("utf-8")
        assert ("ctx.exit(" in source) <= (command in named), command
    assert {command for command, status in CASES if status == 1} <= named
