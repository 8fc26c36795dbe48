"""Rules of other packages: real wheels, unpacked where Python finds them."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from tests.conftest import CRASH, ROOT, completed

pytestmark = pytest.mark.slow

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.2"

[project.entry-points."hlo_lint.rules"]
team = "{target}"

[tool.hatch.build.targets.wheel]
packages = ["{package}"]
"""

RULE = '''
from hlo_lint import Bad, Computation, Finding, Findings, Good, Rule


class _Named(Rule):
    """Helpers that the rules of this package share."""


class {name}(_Named):
    """A custom call."""

    def check(self, computation: Computation) -> Findings:
        for call in computation.with_opcode("custom-call"):
            yield Finding(call, "a custom call")
'''


def named(name: str) -> dict[str, str]:
    """The files of a package with a rule of that name."""
    return {"calls.py": RULE.format(name=name)}


SOME_CALL = named("SomeCall")
Build = Callable[..., Path]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Builds a wheel of a package with these files, and an entry point that names `target`."""

    def build(files: Mapping[str, str], target: str = "team_rules", name: str = "team") -> Path:
        project = tmp_path / name
        package = f"{name}_rules"
        for file, text in {"__init__.py": "", **files}.items():
            path = project / package / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text), "utf-8")
        text = PROJECT.format(name=f"{name}-rules", target=target, package=package)
        (project / "pyproject.toml").write_text(text, "utf-8")
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
        completed(command, cwd=project, check=True)
        (made,) = tmp_path.glob(f"{name}_rules-*.whl")
        return made

    return build


@pytest.fixture
def install(build: Build, tmp_path: Path) -> Build:
    """The folder that such a package is installed in."""

    def install(*arguments: object, **options: object) -> Path:
        with zipfile.ZipFile(build(*arguments, **options)) as wheel:
            wheel.extractall(tmp_path / "site")
        return tmp_path / "site"

    return install


def run(
    path: Path | None, *command: str, isolated: str | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HLO_")}
    environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{path}" if path else str(ROOT)
    if isolated is not None:
        environment["HLO_LINT_ISOLATED"] = isolated
    return completed([sys.executable, "-m", "hlo_lint", *command], env=environment)


def refusal(path: Path) -> str:
    """The one line that says why nothing can be done."""
    done = run(path, "check", str(CRASH))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_rules_below_a_package_are_rules_of_its_entry_points_family(install: Build) -> None:
    program = "raise SystemExit('to import a program is to run it')\n"
    calls = RULE.format(name="SomeCall") + "\n\nTheSame = SomeCall\n"
    site = install({"calls/__init__.py": "", "calls/custom.py": calls, "__main__.py": program})
    listed = [line.split()[:2] for line in run(site, "rules").stdout.splitlines()]
    assert [rule for family, rule in listed if family == "team"] == ["some-call"]
    found = run(site, "check", str(CRASH), "--select", "team", "--output-format", "concise")
    assert found.returncode == 1
    assert "error[some-call]: a custom call" in found.stdout
    assert "error[reshape-moves-data]" not in found.stdout
    assert run(site, "explain", "some-call").stdout.startswith("# some-call\n\nA custom call.")


@pytest.mark.parametrize(("isolated", "status"), [("1", 2), ("0", 0), ("", 0)])
def test_isolation_leaves_them_out(install: Build, isolated: str, status: int) -> None:
    site = install(SOME_CALL)
    assert run(site, "explain", "some-call", isolated=isolated).returncode == status


def test_isolated_checks_leave_them_out(install: Build) -> None:
    site = install(SOME_CALL)
    for jobs in ("1", "2"):
        command = ("check", str(CRASH), "--jobs", jobs, "--output-format", "concise")
        assert "some-call" in run(site, *command).stdout
        assert "some-call" not in run(site, *command, "--isolated").stdout


def test_a_wheel_on_the_path_is_looked_into(build: Build) -> None:
    wheel = build(SOME_CALL)
    assert "some-call" in run(wheel, "rules").stdout


def test_a_package_that_cannot_be_imported_is_named(install: Build) -> None:
    site = install({"calls.py": "raise ImportError('no\\nsuch thing')\n"})
    said = refusal(site)
    assert "team-rules 1.2 (entry point team = team_rules) cannot be imported" in said
    assert "ImportError: no; repair" in said
    assert "HLO_LINT_ISOLATED=1" in said
    assert run(site, "check", str(CRASH), isolated="1").returncode == 1


SILENT = {"calls.py": SOME_CALL["calls.py"].replace('    """A custom call."""\n', "")}


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "has no rules"),
        (
            named("ReshapeMovesData"),
            "two rules are named reshape-moves-data: in hlo_lint and in team-rules 1.2",
        ),
        (SILENT, "team-rules 1.2 (entry point team = team_rules): SomeCall has no docstring"),
        (named("Team"), "the family team has the name of a rule"),
    ],
)
def test_a_package_of_wrong_rules_fails(files: dict[str, str], says: str, install: Build) -> None:
    assert says in refusal(install(files))


def test_an_entry_point_names_a_module(install: Build) -> None:
    assert "must name a module" in refusal(install(SOME_CALL, target="team_rules.calls:SomeCall"))


def test_two_packages_with_one_name_are_both_named(install: Build) -> None:
    install(SOME_CALL)
    site = install(SOME_CALL, target="crew_rules", name="crew")
    said = refusal(site)
    assert "in crew-rules 1.2" in said
    assert "in team-rules 1.2" in said
