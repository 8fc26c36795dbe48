"""No test hangs: each has a limit, and what it starts is over after it."""

from __future__ import annotations

import ast

import pytest

from tests.conftest import ROOT


def test_each_test_has_a_limit(pytestconfig: pytest.Config) -> None:
    pytest.importorskip("pytest_timeout")
    assert 0 < float(pytestconfig.getini("timeout")) <= 600


def test_every_process_and_thread_that_a_test_starts_ends_with_it() -> None:
    """`started` of conftest.py kills what a test leaves; `run` kills what it waits for.

    The process of forks.py serves all tests, and ends with theirs.
    """
    places = []
    for path in sorted((*(ROOT / "tests").rglob("*.py"), *(ROOT / "hunt").rglob("*.py"))):
        text = path.read_text("utf-8")
        if "Popen" not in text and "Thread" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            is_left = name.endswith("Popen") and path.name not in ("conftest.py", "forks.py")
            if is_left or (name.endswith("Thread") and "daemon=True" not in ast.unparse(node)):
                places.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert places == []
