"""Each row of the table of exit statuses in docs/command-line.md."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from hlo_lint.apps.cli.main import COMMANDS
from tests.conftest import CRASH, DUMPS, FIXTURES, ROOT
from tests.forks import forked
from tests.texts import entry, summing

pytestmark = pytest.mark.slow

BAD = entry("""
  p = f32[8,3]{1,0} parameter(0)
  ROOT r = f32[4,2,3]{0,1,2} reshape(p)
""")
GOOD = BAD.replace("{0,1,2}", "{2,1,0}")
BISECTED = FIXTURES / "bisect" / "cpu_without_cse"
PAYLOAD = str(FIXTURES / "payloads/add_wrong_legacy/module_0001.jit_add.before_optimizations.txt")
STEP = summing("""
  p = f32[4]{0} parameter(0)
  n = f32[4]{0} negate(p)
  ROOT r = f32[4]{0} all-reduce(n), channel_id=1, replica_groups={{0}}, use_global_device_ids=true,
      to_apply=add
""")
INFINITE = entry("""
  z = f32[] constant(0)
  ROOT r = f32[] log(z)
""")
HEALTHY = str(DUMPS / "gpu-jax0.10.2" / "cublaslt_fission")
SLOWER = tuple(str(FIXTURES / "profiles" / name) for name in ("all", "without_fusion"))

CASES: dict[tuple[str, int], tuple[str, ...]] = {
    ("check", 0): ("good.hlo",), ("check", 1): ("bad.hlo",), ("check", 2): ("nothing.hlo",),
    ("fix", 0): ("bad.hlo", "--before", "layout_normalization"), ("fix", 1): ("garbage.hlo",),
    ("fix", 2): ("nothing.hlo",),
    ("report", 0): ("good.hlo", "-o", "x.html"), ("report", 1): ("bad.hlo", "-o", "x.html"),
    ("report", 2): ("empty", "-o", "x.html"),
    ("bisect", 0): (str(CRASH), str(CRASH)),
    ("bisect", 1): (*map(str, (BISECTED / "all", BISECTED / "without")),),
    ("bisect", 2): ("nothing", "nothing"),
    ("compare", 0): ("good.hlo", "good.hlo"), ("compare", 1): SLOWER,
    ("compare", 2): ("nothing", "nothing"),
    ("diff", 0): ("bad.hlo", "bad.hlo"), ("diff", 1): ("bad.hlo", "good.hlo"),
    ("diff", 2): ("nothing.hlo", "bad.hlo"),
    ("match", 0): ("reshape()", "bad.hlo"), ("match", 1): ("dot()", "bad.hlo"),
    ("match", 2): ("reshape(", "bad.hlo"),
    ("example", 0): ("crash",), ("example", 2): ("crash", "-o", "garbage.hlo"),
    ("explain", 0): ("reshape-moves-data",), ("explain", 2): ("no-such-rule",),
    ("rules", 0): (),
    ("passes", 0): (str(CRASH),), ("passes", 2): ("bad.hlo",),
    ("run", 0): ("bad.hlo",), ("run", 1): ("infinite.hlo", "--first-nan"),
    ("run", 2): ("garbage.hlo",),
    ("config", 0): (),
    ("cache", 0): ("info",),
    ("new-rule", 0): ("my-rule", "--package", "team"),
    ("new-rule", 2): ("My Rule", "--package", "team"),
    ("validate", 0): ("same",), ("validate", 1): ("changed", "--seeds", "1"),
    ("validate", 2): ("good.hlo",),
    ("ranks", 0): ("same", "other"), ("ranks", 1): ("ranks",), ("ranks", 2): ("same",),
    ("payload", 0): (PAYLOAD, "triton_kernel_call.1"), ("payload", 2): ("bad.hlo", "r"),
    ("repro", 0): ("bad.hlo", "reshape-moves-data", "-o", "repro", "-q"),
    ("repro", 2): ("good.hlo", "-o", "repro"),
    ("capture", 2): ("nothing.py:f",),
    ("reduce", 0): ("bad.hlo", "--finding", "reshape-moves-data", "-q"),
    ("reduce", 2): ("good.hlo", "--finding", "reshape-moves-data", "-q"),
}  # fmt: skip
"""For commands and statuses, the words that lead to them. Other tests have the rest: of `capture`,
which needs a compiler, of `server`, and of signals."""


OTHERS = {"capture", "exec", "server"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = {"bad": BAD, "good": GOOD, "infinite": INFINITE}
    for name, text in (texts | {"garbage": "HloModule m\n\nENTRY e {\n ?\n"}).items():
        (tmp_path / f"{name}.hlo").write_text(text)
    (tmp_path / "empty").mkdir()
    for run, second in (
        ("same", STEP),
        ("other", STEP),
        ("changed", STEP.replace("negate", "sine")),
        ("ranks/rank0", STEP),
        ("ranks/rank1", STEP.replace("{{0}}", "{{1}}")),
    ):
        (tmp_path / run).mkdir(parents=True)
        names = "0001.cpu.after_cse.before_dce", "0002.cpu.after_dce.before_pipeline-end"
        for name, text in zip(names, (STEP, second), strict=True):
            (tmp_path / run / f"module_0001.jit_f.{name}.txt").write_text(text)
    return tmp_path


@pytest.mark.parametrize(("command", "status"), CASES, ids=lambda value: str(value))
def test_a_command_exits_with_the_status_of_the_table(
    command: str, status: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    environment = {**os.environ, "COLUMNS": "80"}
    ended, output, errors = forked([command, *CASES[command, status]], environment)
    assert ended == status, output + errors
    assert b"Traceback" not in errors
    if status == 2:
        assert b"Error: " in errors


def test_the_table_names_every_command_that_exits_with_1() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text("utf-8")
    table = page.partition("## Exit status")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z-]+)`", table))
    commands = ROOT / "hlo_lint" / "apps" / "cli"
    for command in COMMANDS:
        source = (commands / f"{command.replace('-', '_')}.py").read_text("utf-8")
        assert ("ctx.exit(" in source) <= (command in named), command
    assert {command for command, status in CASES if status == 1} == named & set(COMMANDS) - OTHERS
    assert {command for command, status in CASES if status == 0} == set(COMMANDS) - OTHERS
