"""The plugin in real runs of pytest, with real jax."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import hlo_lint
from tests.conftest import ROOT, completed, new_folder

pytestmark = pytest.mark.slow

pytest.importorskip("jax")
pytest_plugins = ["pytester"]

PROGRAMS = """
import jax
import jax.numpy as jnp
import pytest

X = jax.ShapeDtypeStruct((1024, 512), "float32")

def rows(x):
    return jnp.tanh(x @ x.T).sum(0)

def convolved(x):
    kernel = jnp.ones((3, 1, 3, 3))
    y = jax.lax.conv_general_dilated(x.reshape(1, 1, 1024, 512), kernel, (1, 1), "SAME")
    return y.transpose(3, 2, 0, 1).sum(0)

"""
TESTS = PROGRAMS + (
    """
def test_rows(hlo_lint):
    report = hlo_lint.check(rows, X)
    assert not report.findings

def test_convolved(hlo_lint):
    hlo_lint.check(rows, X)
    hlo_lint.check(convolved, X)

@pytest.mark.hlo_lint(allow=["needless-transpose"])
class TestAllowed:
    def test_is_allowed(self, hlo_lint):
        assert hlo_lint.check(convolved, X).findings

    @pytest.mark.hlo_lint(allow="layout", select=["speed"])
    def test_what_is_allowed_adds_up(self, hlo_lint):
        assert hlo_lint.marked == {
            "allow": ["needless-transpose", "layout"], "select": ["speed"]
        }
        hlo_lint.check(convolved, X)

@pytest.mark.hlo_lint(ignore=["speed"])
def test_is_not_looked_for(hlo_lint):
    assert not hlo_lint.check(convolved, X).findings
    with pytest.raises(AssertionError):
        hlo_lint.check(convolved, X, ignore=None)

def test_pipeline(hlo_lint_dump):
    pipeline = hlo_lint_dump(rows, X)
    assert pipeline.final.module.entry.with_opcode("parameter")
    assert "layout-assignment" in [dump.name.after for dump in pipeline.steps]
"""
)


@pytest.fixture
def runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Runs of pytest that have the plugin by its entry point, as where it is installed."""
    path = [str(ROOT)]
    if not any(each.name == "hlo_lint" for each in metadata.entry_points(group="pytest11")):
        path.append(str(installed(pytester.mkdir("site"))))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return pytester


def installed(site: Path) -> Path:
    """The entry points as pip would write them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    info = new_folder(site / "hlo_lint_entry_points-0.dist-info")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hlo-lint-entry-points\n")
    lines = [f"{name} = {value}" for name, value in project["entry-points"]["pytest11"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines]))
    return site


def report_of(folder: Path) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """The summary, and the programs of each test."""
    summary = json.loads((folder / "summary.json").read_text())
    programs = {}
    for test in summary["tests"]:
        said = json.loads((folder / test["findings"]).read_text())
        assert said["test"] == test["test"]
        programs[said["test"].rpartition("::")[2]] = said["programs"]
    return summary, programs


@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_finding_fails_the_test_and_is_in_the_report(
    runs: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    if arguments:
        pytest.importorskip("xdist")
    runs.makepyfile(test_programs=TESTS)
    result = runs.runpytest_subprocess("--hlo-lint-report=out", *arguments)
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.re_match_lines(
        [
            r"E +hlo_lint\.\S+\.FindingsError: convolved, compiled by jax .*, has findings",
            r"E +warning\[needless-transpose\]: this kernel moves [\d.]+ MiB",
            r"E +the dump is kept in .*2-convolved",
            r"hlo-lint: 7 compiled in 5 tests, 2 failed; see .*summary\.json",
        ]
    )
    assert "check_capture" not in result.stdout.str(), "frames of the package are left out"

    summary, programs = report_of(runs.path / "out")
    assert (summary["programs"], summary["failed"]) == (7, 2)
    passed, failed = programs["test_convolved"]
    assert (passed["failed"], failed["failed"]) == (False, True)
    assert passed["dump"] is None
    (finding,) = failed["report"]["findings"]
    assert finding["rule"] == "needless-transpose"
    (folder,) = (runs.path / "out").glob("*test_convolved*/2-convolved")
    assert (folder / finding["path"]).is_file()
    assert "test_pipeline" not in programs, "it checks nothing"


def test_without_a_report_the_dump_is_a_temporary_file(runs: pytest.Pytester) -> None:
    runs.makepyfile(test_programs=TESTS)
    result = runs.runpytest_subprocess("-k", "convolved")
    result.assert_outcomes(failed=1)
    kept = re.search(r"the dump is kept in (\S+)", result.stdout.str())
    assert kept
    assert {found.rule for found in hlo_lint.lint(kept[1]).findings} == {"needless-transpose"}


def test_the_example_of_the_page_runs_as_shown(runs: pytest.Pytester) -> None:
    page = (ROOT / "docs" / "pytest.md").read_text("utf-8")
    example = re.search(r"```python\n(.*?)```", page, re.S)
    session = re.search(r"```console\n\$ pytest test_model.py(.*?)\n(.*?)```", page, re.S)
    assert example
    assert session
    runs.makepyfile(test_model=example[1])
    result = runs.runpytest_subprocess("test_model.py", *session[1].split())
    result.assert_outcomes(passed=2, failed=1)
    release = re.search(r"compiled by jax ([\d.]+)", session[2])
    assert release
    if metadata.version("jax") == release[1]:
        shown = [line for line in session[2].splitlines() if "/home/" not in line]
        result.stdout.fnmatch_lines([re.sub(r"([\[\]])", r"[\1]", line) for line in shown])


def test_a_report_holds_one_run(runs: pytest.Pytester) -> None:
    runs.makepyfile(test_programs=TESTS)
    out = runs.mkdir("out")
    (out / "mine.txt").write_text("stays")
    for chosen, expected in (("convolved or rows", 2), ("rows", 1)):
        runs.runpytest_subprocess("--hlo-lint-report=out", "-k", chosen)
        summary, _ = report_of(out)
        assert len(summary["tests"]) == expected
        assert len(list(out.glob("*/findings.json"))) == expected
    assert (out / "mine.txt").exists()


def test_the_settings_of_the_project_hold(runs: pytest.Pytester) -> None:
    runs.makepyprojecttoml(
        """
        [tool.hlo_lint]
        ignore = ["needless-transpose"]
        [[tool.hlo_lint.allow]]
        rule = "unreadable-text"
        reason = "that it matches nothing in one program of many is not a finding"
        """
    )
    runs.makepyfile(
        PROGRAMS
        + """
def test_ignored(hlo_lint):
    assert not hlo_lint.check(convolved, X).findings
def test_a_marker_or_argument_counts_more(hlo_lint):
    with pytest.raises(AssertionError, match="needless-transpose"):
        hlo_lint.check(convolved, X, select=["needless-transpose"])
"""
    )
    runs.runpytest_subprocess().assert_outcomes(passed=2)
    runs.makepyprojecttoml("[tool.hlo_lint]\nignores = []\n")
    result = runs.runpytest_subprocess()
    result.stdout.fnmatch_lines(["E * *pyproject.toml:2*ignores*"])


def test_arguments_are_passed_by_name(runs: pytest.Pytester) -> None:
    runs.makepyfile(
        PROGRAMS
        + """
def shifted(x, *, bias):
    return x + bias
def test_named(hlo_lint):
    assert not hlo_lint.check(shifted, X, bias=1.0, select=["layout"]).findings
    with pytest.raises(Exception, match="hlo_lint has no setting bia: there are"):
        hlo_lint.check(shifted, X, bia=1.0)
"""
    )
    runs.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_report_that_cannot_be_written_is_said_at_once(runs: pytest.Pytester) -> None:
    runs.makefile(".txt", taken="a file")
    result = runs.runpytest_subprocess("--hlo-lint-report=taken.txt")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --hlo-lint-report: *taken.txt: File exists"])


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ('("layout")', "settings are passed by name: select, ignore"),
        ('(selects=["layout"])', "hlo_lint has no setting selects: did you mean select?"),
        ('(select=["layouts"])', "no rule or family is named layouts: did you mean layout?"),
        ('(target="h20")', "no target is named h20"),
    ],
)
def test_a_wrong_marker_is_a_short_error(runs: pytest.Pytester, marker: str, message: str) -> None:
    test = f"@pytest.mark.hlo_lint{marker}\ndef test_rows(hlo_lint): hlo_lint.check(rows, X)\n"
    runs.makepyfile(PROGRAMS + test)
    result = runs.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    printed = result.stdout.str().partition("short test summary")[0]
    assert printed.count(message) == 1
    assert "hlo_lint/apps" not in printed, "frames of the package are left out"


def test_the_marker_is_registered_and_dumps_go(runs: pytest.Pytester) -> None:
    test = """
@pytest.mark.hlo_lint(select=["layout"])
def test_rows(hlo_lint, hlo_lint_dump):
    hlo_lint.check(rows, X)
    hlo_lint_dump(rows, X)
    assert len(FOLDERS) == 0
    FOLDERS.extend(capture.folder for capture in hlo_lint.captures)
    assert len(FOLDERS) == 2

def test_dumps_are_gone():
    assert len(FOLDERS) == 2
    assert not any(folder.exists() for folder in FOLDERS)

FOLDERS = []
"""
    runs.makepyfile(PROGRAMS + test)
    runs.runpytest_subprocess("--strict-markers").assert_outcomes(passed=2)
    markers = runs.runpytest_subprocess("--markers").stdout.str()
    assert "@pytest.mark.hlo_lint(select=" in markers


def test_a_run_that_wants_nothing_of_it_imports_nothing_of_it(runs: pytest.Pytester) -> None:
    runs.makepyfile(
        """
import sys

def test_imports():
    mine = {name for name in sys.modules if name.split(".")[0] in ("hlo_lint", "jax", "rich")}
    packages = {"hlo_lint", "hlo_lint.apps", "hlo_lint.apps.jax"}
    assert mine == {*packages, "hlo_lint.apps.jax.pytest_plugin"}
"""
    )
    done = completed(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:hypothesispytest"], cwd=runs.path
    )
    assert done.returncode == 0, done.stdout
