"""Counts of vague words in docstrings, messages and names: `python -m tests.project.wording`."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

_ROOT = Path(__file__).parents[2]
PACKAGES = (_ROOT / "hlo_lint", _ROOT / "hunt" / "hlo_lint_hunt")

LIMITS = {
    "one": 60,
    "what": 40,
    "nobody, nothing, none": 40,
    "odd beginning": 10,
    ", and not": 0,
    "variable one": 56,
    "variable at": 134,
    "variable made": 23,
    "variable other": 60,
}
"""The largest count of each pattern in the packages."""

_FIRST_LINE = {
    "one": re.compile(r"\b[Oo]ne\b"),
    "what": re.compile(r"\b[Ww]hat\b"),
    # `None` is Python's.
    "nobody, nothing, none": re.compile(r"\b[Nn]obody\b|\b[Nn]othing\b|\bnone\b"),
}
_ODD = re.compile(r"(?:Those|Of|The same|So many)\b")
_MESSAGE = re.compile(r", and not\b")
_VARIABLES = frozenset(("one", "at", "made", "other"))


def patterns_in(paths: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """The name of each pattern that occurs, with its place and text."""
    for path in paths:
        tree = ast.parse(path.read_text("utf-8"))
        docstrings = set()
        # Parents come first, so that a docstring is known before its text is met.
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text is not None:
                    docstring = node.body[0]
                    assert isinstance(docstring, ast.Expr)
                    docstrings.add(id(docstring.value))
                    first = text.partition("\n")[0]
                    for name, pattern in _FIRST_LINE.items():
                        for _ in pattern.finditer(first):
                            yield name, f"{path}:{docstring.lineno}: {first}"
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                # Docstrings, and the texts under fields and constants.
                if isinstance(node.value.value, str) and _ODD.match(node.value.value.lstrip()):
                    yield "odd beginning", f"{path}:{node.lineno}: {node.value.value[:80]}"
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                if id(node) not in docstrings:
                    for _ in _MESSAGE.finditer(node.value):
                        yield ", and not", f"{path}:{node.lineno}: {node.value.strip()[:120]}"
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                if node.id in _VARIABLES:
                    yield f"variable {node.id}", f"{path}:{node.lineno}"
            elif isinstance(node, ast.arg) and node.arg in _VARIABLES:
                yield f"variable {node.arg}", f"{path}:{node.lineno}"


def counts(paths: Sequence[Path]) -> Counter[str]:
    """The number of occurrences of each pattern."""
    return Counter(name for name, _ in patterns_in(paths))


def _files(arguments: Sequence[str]) -> Iterator[Path]:
    for path in map(Path, arguments):
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


if __name__ == "__main__":
    listed = "--list" in sys.argv
    files = [*_files([word for word in sys.argv[1:] if word != "--list"] or [*map(str, PACKAGES)])]
    if listed:
        for name, place in patterns_in(files):
            print(f"{name}: {place}")
    totals = counts(files)
    for name, limit in LIMITS.items():
        print(f"{name}: {totals[name]} (at most {limit} in the packages)")
