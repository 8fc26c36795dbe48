"""Imports point downwards, and what is heavy is imported late."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "hlo_lint"
LAYERS: list[list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "hlo_lint_layers"
]["layers"]
LEVELS = {name: level for level, names in enumerate(reversed(LAYERS)) for name in names}
LEVELS[""] = -1  # the package itself: lists the public names, imports nothing before it is asked
HEAVY = ("click", "jax", "jaxlib", "lark", "lsprotocol", "networkx", "numpy", "pygls", "rich")
FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
MOVING = Path("analysis/verifier")
"""Its checks move into the rules that report them; until then it imports `Finding` from above."""


def _part(module: str) -> str:
    """The layer's name for `hlo_lint.hlo.parser.module`: the longest that the table has."""
    parts = module.split(".")[1:]
    while parts and ".".join(parts) not in LEVELS:
        parts.pop()
    return ".".join(parts)


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse((PACKAGE / path).read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_point_downwards(path: Path) -> None:
    here = _part(".".join(["hlo_lint", *path.with_suffix("").parts]).removesuffix(".__init__"))
    for module in _imports(path):
        if path.is_relative_to(MOVING) and module == "hlo_lint.rules.findings":
            continue
        if module.startswith("hlo_lint") and here:
            assert LEVELS[_part(module)] <= LEVELS[here], f"{path} imports {module}"


def test_the_house_has_few_floors_and_rooms() -> None:
    assert len(LAYERS) <= 8
    rooms = [path for path in PACKAGE.iterdir() if not path.name.startswith("__pycache__")]
    assert len(rooms) <= 12, sorted(path.name for path in rooms)


def test_no_two_folders_of_one_row_import_each_other() -> None:
    seen = set()
    for path in FILES:
        if path.is_relative_to(MOVING):
            continue
        here = _part(".".join(["hlo_lint", *path.with_suffix("").parts]))
        seen |= {(here, _part(module)) for module in _imports(path) if "hlo_lint." in module}
    pairs = {(here, there) for here, there in seen if here != there and (there, here) in seen}
    assert not pairs


def test_the_package_is_imported_without_anything_heavy() -> None:
    code = f"import hlo_lint, sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
