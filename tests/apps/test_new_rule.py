"""`hlo-lint new-rule`: a rule whose example is red until the rule is written."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, completed


def run(*command: str, folder: Path, path: Path = ROOT) -> tuple[int, str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(path), str(folder)])}
    done = completed([sys.executable, "-m", *command], cwd=folder, env=env)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_the_rule_of_a_package_is_red_and_then_green(tmp_path: Path) -> None:
    new = ("hlo_lint", "new-rule", "twice-negated", "--package", "team")
    status, output = run(*new, folder=tmp_path)
    assert status == 0
    *wrote, last = output.splitlines()
    assert wrote == [
        "wrote team/__init__.py",
        "wrote team/twice_negated.py",
        "wrote tests/test_twice_negated.py",
    ]
    assert last.startswith("red until the rule is written: python -m pytest -q tests/test_twice")
    test = ("pytest", "-q", "-p", "no:cacheprovider", "tests")
    status, output = run(*test, folder=tmp_path)
    assert status == 1
    assert "bad example 1 (HloModule m) marks the lines 6; found: none" in output
    rule = tmp_path / "team/twice_negated.py"
    rule.write_text(rule.read_text("utf-8").replace('== "TODO"', '== "negate"'), "utf-8")
    assert run(*test, folder=tmp_path)[0] == 0
    # The files of before stay, and the second rule has the same package.
    assert run(*new, folder=tmp_path) == (2, "Error: team/twice_negated.py exists already\n")
    status, output = run("hlo_lint", "new-rule", "other", "--package", "team", folder=tmp_path)
    assert "__init__" not in output


@pytest.mark.slow
def test_a_rule_of_a_new_family_is_found_without_a_further_step(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for source in sorted((ROOT / "hlo_lint").rglob("*")):
        if source.suffix in (".py", ".toml", ".txt", ".json") and "__pycache__" not in source.parts:
            copy = checkout / source.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(source.read_bytes())
    new = ("hlo_lint", "new-rule", "twice-negated", "--family", "numerics")
    assert run(*new, folder=checkout, path=checkout)[0] == 0
    _, rules = run("hlo_lint", "rules", folder=checkout, path=checkout)
    assert any(row.split()[:2] == ["numerics", "twice-negated"] for row in rules.splitlines())
    (checkout / "hlo_lint/rules/numerics/__init__.py").unlink()
    status, output = run("hlo_lint", "rules", folder=checkout, path=checkout)
    assert status == 2
    assert "numerics has no __init__.py, so its rules are not found" in output


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("new", "--family", "layout"), "--family is for a checkout of hlo_lint"),
        (("new",), "new-rule takes either --package or --family"),
        (("new", "--package", "a", "--family", "b"), "new-rule takes either"),
        (("New Rule", "--package", "a"), "'New Rule' cannot name a rule"),
        (("new", "--package", "../a"), "'../a' cannot name a package"),
        (("reshape-moves-data", "--package", "a"), "reshape-moves-data exists already"),
    ],
)
def test_wrong_use_writes_nothing(arguments: tuple[str, ...], reason: str, tmp_path: Path) -> None:
    status, output = run("hlo_lint", "new-rule", *arguments, folder=tmp_path)
    assert status == 2
    assert f"Error: {reason}" in output
    assert not list(tmp_path.iterdir())
