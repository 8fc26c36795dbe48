"""Imports point downwards, and what is heavy is imported late."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import ROOT, completed

PACKAGE = ROOT / "hlo_lint"
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
LAYERS: list[list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "hlo_lint_layers"
]["layers"]
LEVELS = {name: level for level, names in enumerate(reversed(LAYERS)) for name in names}
LEVELS[""] = -1  # the package itself: lists the public names, imports nothing before it is asked
HEAVY = ("click", "jax", "jaxlib", "lark", "lsprotocol", "networkx", "numpy", "pygls", "rich")
FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def _part(module: str) -> str:
    """The layer's name for `hlo_lint.hlo.parser.module`: the longest that the table has."""
    parts = module.split(".")[1:]
    while parts and ".".join(parts) not in LEVELS:
        parts.pop()
    return ".".join(parts)


def _imports(path: Path) -> list[str]:
    """The modules of ours that a file imports, late ones as well."""
    text = (PACKAGE / path).read_text("utf-8")
    return re.findall(r"^ *(?:from|import) (hlo_lint\b[\w.]*)", text, re.MULTILINE)


def test_imports_point_downwards_and_no_two_folders_of_one_row_import_each_other() -> None:
    seen = set()
    for path in FILES:
        here = _part(".".join(["hlo_lint", *path.with_suffix("").parts]).removesuffix(".__init__"))
        for module in _imports(path):
            if here:
                assert LEVELS[_part(module)] <= LEVELS[here], f"{path} imports {module}"
                seen.add((here, _part(module)))
    pairs = {(here, there) for here, there in seen if here != there and (there, here) in seen}
    assert not pairs


def test_the_hunt_is_above_the_package() -> None:
    """It is a distribution of its own: nothing below may need it."""
    for path in FILES:
        text = (PACKAGE / path).read_text("utf-8")
        assert not re.search(r"^ *(?:from|import) hlo_lint_hunt\b", text, re.MULTILINE), path


def test_the_house_has_few_floors_and_rooms() -> None:
    assert len(LAYERS) <= 9
    rooms = [path for path in PACKAGE.iterdir() if not path.name.startswith("__pycache__")]
    assert len(rooms) <= 13, sorted(path.name for path in rooms)


def test_the_page_about_the_architecture_shows_the_layers_from_top_to_bottom() -> None:
    picture = ARCHITECTURE.partition("```text")[2].partition("```")[0]
    assert len(picture.strip().splitlines()) == len(LAYERS)
    for row, names in zip(picture.strip().splitlines(), LAYERS, strict=True):
        assert set(names) <= set(row.split()), row


def test_the_page_about_the_architecture_has_a_line_for_each_folder() -> None:
    """The folders of families stand below `rules`, which has a line."""
    packages = {
        str(path.parent.relative_to(ROOT))
        for path in PACKAGE.rglob("*.*")
        if "__pycache__" not in path.parts and path.is_file()
    }
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "."}
    named = re.findall(r"^\| `([\w/]+)` \|", ARCHITECTURE, re.M)
    families = {path for path in packages if path.rpartition("/")[0].endswith("/rules")}
    assert sorted(named) == sorted(
        (packages | folders) - families - {"hlo_lint", "build", "dist", "__pycache__"}
    )


@pytest.mark.parametrize(
    ("statement", "heavy"),
    [
        ("import hlo_lint", (*HEAVY, "hlo_lint.dumps.artefacts")),
        ("import hlo_lint.analysis.match", HEAVY),
        ("from hlo_lint.rules import plugins; [*plugins.plugin_rules()]", ["importlib.metadata"]),
    ],
)
def test_it_is_imported_without_anything_heavy(statement: str, heavy: Sequence[str]) -> None:
    code = f"{statement}; import sys; print({{*{heavy!r}}} & {{*sys.modules}})"
    assert completed([sys.executable, "-c", code], check=True).stdout == "set()\n"
