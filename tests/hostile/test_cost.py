"""Hostile inputs end soon, whatever they are."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.hostile.cost import run
from tests.hostile.inputs import INPUTS, Hostile

SAMPLE = Random(0).sample(INPUTS, 16)


@pytest.mark.slow
@pytest.mark.parametrize("hostile", SAMPLE, ids=lambda hostile: hostile.name)
def test_a_tenth_of_an_input_is_within_bounds(hostile: Hostile, tmp_path: Path) -> None:
    folder = tmp_path / "input"
    folder.mkdir()
    cost = run(hostile, max(hostile.small, hostile.size // 10), folder)
    assert cost.is_within_bounds, cost
