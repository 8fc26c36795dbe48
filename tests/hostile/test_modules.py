"""Modules that no compiler writes: each is read, checked, fixed and lowered without an exception.

A file of `fixtures/hostile` has one thing that stops a reader who trusts it: a cycle, an operand
that is not there, a number that is no dimension. Its name says which.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import hlo_lint
from tests.conftest import FIXTURES
from tests.fuzz.graphs import failure_of

MODULES = sorted((FIXTURES / "hostile").glob("*.hlo"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_hostile_module_stops_nothing(path: Path) -> None:
    assert failure_of(path.read_text("utf-8")) is None


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_that_xla_refuses_has_a_finding(path: Path) -> None:
    if path.stem not in {"ragged_exchange_of_a_billion_parts"}:
        assert hlo_lint.lint(path).findings
