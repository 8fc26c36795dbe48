"""Rules and analyses read the numbers of a text, and look for what it may lack, without a crash."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "hlo_lint"
FOLDERS = ("rules", "analysis", "kernels/rules", "kernels/autotuning")
FOUND = {
    "analysis/match/reader.py: next(iter(keywords))": "in a branch where there are keywords",
    "rules/form/unknown_word.py: next((index for index, row in "
    "enumerate(computation.rows) if type_of(row) == text))": "the texts are those of the rows",
    "rules/layout/gemm_layout_unsupported.py: next((dims for dims in groups.values() if "
    "remaining[0] in dims))": "the groups have each dimension",
    "rules/pipeline/interface_changed.py: next((name for name in (*olds, *news) if name "
    "not in olds or name not in news))": "the keys differ",
    "rules/verifier/bad_collective.py: next(iter(groups.sizes))": "there is a single size",
    "rules/verifier/broken_structure.py: next((number for number in range(last) if "
    "number not in by_number))": "there are fewer numbers than the largest",
}
"""Searches that cannot fail, each with the reason."""
NUMBERS = {
    "analysis/buffers.py: int(printed[1])": "nine digits of a pattern",
    "analysis/device_groups.py: int(source)": "18 digits of a pattern",
    "analysis/device_groups.py: int(target)": "18 digits of a pattern",
    "analysis/diff/normalize.py: int(number)": "a float that is whole",
    "analysis/loop_values.py: int(relation(left, right))": "a truth value",
    "analysis/match/reader.py: int(token)": "a pattern of the command line",
    "analysis/shape_inference/reduction.py: int(select_last)": "a truth value",
    "analysis/verifier/scope.py: int(text)": "nine digits of a pattern",
    "analysis/waits.py: int(key['number'])": "18 digits of a pattern",
}
"""Conversions that take no number of a text, or a short one, each with the reason."""


@cache
def _nodes() -> Sequence[tuple[str, ast.Call | ast.Attribute]]:
    """The calls of `next` and `int`, and the readings of a shape, each with its file."""
    return [
        (path.relative_to(PACKAGE).as_posix(), node)
        for folder in FOLDERS
        for path in sorted((PACKAGE / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if (isinstance(node, ast.Call) and ast.unparse(node.func) in ("next", "int"))
        or (isinstance(node, ast.Attribute) and node.attr == "shape")
    ]


@pytest.mark.parametrize(("function", "reasons"), [("next", FOUND), ("int", NUMBERS)])
def test_a_search_has_a_default_a_number_a_length(function: str, reasons: dict[str, str]) -> None:
    calls = {
        f"{file}: {ast.unparse(node)}"
        for file, node in _nodes()
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == function
        and len(node.args) == 1
        and not isinstance(node.args[0], ast.Compare)
    }
    assert sorted(calls) == sorted(reasons)


def test_the_type_of_an_instruction_may_be_unreadable() -> None:
    """`Instruction.shape` raises; `shape_or_none` does not, nor does the shape of an operand."""
    names = {"call", "copy", "dot", "fusion", "instruction", "new", "old", "reader", "root", "user"}
    assert not [
        f"{file}:{node.lineno}"
        for file, node in _nodes()
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in names
    ]
