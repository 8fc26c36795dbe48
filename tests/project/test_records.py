"""Fields of instruction records are read through accessors; their positions belong to hlo/."""

from __future__ import annotations

import ast

from hlo_lint.hlo import records
from tests.conftest import ROOT

PACKAGE = ROOT / "hlo_lint"
POSITIONS = {name for name, value in vars(records).items() if name.isupper() and value in range(7)}


def test_positions_of_fields_are_used_in_hlo_alone() -> None:
    assert "REFERENCES" in POSITIONS
    for path in (*PACKAGE.rglob("*.py"), *(ROOT / "hunt").rglob("*.py")):
        if PACKAGE / "hlo" in path.parents:
            continue
        text = path.read_text("utf-8")
        if not any(word in text for word in (records.__name__, ".row[", ".record[")):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module == records.__name__:
                assert not POSITIONS & {alias.name for alias in node.names}, path
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute):
                is_record = node.value.attr in ("row", "record")
                assert not is_record, f"{path}:{node.lineno}: a field of a record by its position"
