"""The wheel holds all that `check` needs, away from any checkout."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from hlo_lint.report.html.page import GRAPH_LIBRARIES
from hlo_lint.report.links import SITE
from tests.conftest import CRASH, ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out)]
    subprocess.run([*command, str(ROOT)], check=True, capture_output=True)
    (made,) = out.glob("*.whl")
    return made


def test_the_wheel_carries_what_is_no_python(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for grammar in (ROOT / "grammars").glob("*.lark"):
        assert f"hlo_lint/grammars/{grammar.name}" in names
    assert "hlo_lint/dumps/pipelines/gpu-jax0.10.0.txt" in names
    assert "hlo_lint/apps/jax/capture/targets/h200.pbtxt" in names
    assert "hlo_lint/py.typed" in names
    for part in ("html", "css", "js"):
        assert f"hlo_lint/report/html/page.{part}" in names
    for script in ("graph.js", *GRAPH_LIBRARIES):
        assert f"hlo_lint/report/html/{script}" in names


def test_check_runs_from_an_installed_wheel_outside_the_checkout(
    wheel: Path, tmp_path: Path
) -> None:
    home = tmp_path / "env"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", str(wheel)],
        check=True,
        capture_output=True,
        cwd=tmp_path,
    )
    shutil.copytree(CRASH, tmp_path / "dump")
    # A shape that only the grammar reads: the wheel's own copy of it is what is found.
    odd = "HloModule m\n\nENTRY e {\n  p = f32[8,3]{0,1:T(8,128)} parameter(0)\n"
    (tmp_path / "odd.hlo").write_text(odd + "  ROOT r = f32[24]{0} reshape(p)\n}\n")
    done = subprocess.run(
        [home / "bin" / "hlo-lint", "check", "dump", "odd.hlo", "--output-format", "concise"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    assert [line.split(": ")[1] for line in done.stdout.splitlines()] == [
        "error[reshape-moves-data]",
        "warning[reshape-moves-data]",
    ]
    # Without the extra there is no jinja2 here.
    done = subprocess.run(
        [home / "bin" / "hlo-lint", "report", "dump"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stderr == "Error: an HTML report needs jinja2: pip install 'hlo-lint[report]'\n"
    assert not (tmp_path / "report.html").exists()


def test_a_newcomer_does_what_the_readme_begins_with(wheel: Path, tmp_path: Path) -> None:
    """In a fresh environment, with the dump of a real crash in place of the program's own."""
    readme = (ROOT / "README.md").read_text("utf-8")
    block = re.search(r"```\n(.*?)```", readme, re.S)
    assert block is not None
    install, program, *commands = [line.partition("#")[0].strip() for line in block[1].splitlines()]
    assert install == "pip install 'hlo-lint[report]'"
    assert program.endswith(" python model.py")
    home = tmp_path / "env"
    venv.create(home, with_pip=True)
    begun = time.monotonic()

    def run(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            shell=True,
            cwd=tmp_path,
            env={"PATH": f"{home / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    installed = run(install.replace("hlo-lint[report]", f"{wheel}[report]"))
    assert installed.returncode == 0, installed.stdout
    shutil.copytree(CRASH, tmp_path / "dump")
    check, fix, report = (run(command) for command in commands)
    assert [check.returncode, fix.returncode, report.returncode] == [1, 0, 0], check.stdout
    assert "error[reshape-moves-data]: this reshape moves bytes" in check.stdout
    assert "= since: pass autotuner of post-layout_assignment, step 0030" in check.stdout
    assert "= from: programs.py:40 in batched_dot" in check.stdout
    assert check.stdout.endswith("1 fixable with `hlo-lint fix`\n")
    assert fix.stdout.startswith("fixed 1 instruction in dump/module_0001.jit_batched_dot.0030.")
    assert report.stdout.startswith("report.html: 1 finding, ")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "compilation-died" in page
    print(f"a newcomer needs {time.monotonic() - begun:.0f} s")


def test_the_links_of_findings_lead_to_the_site_that_the_package_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["urls"]["Documentation"] == SITE
