"""A seeded sample of damaged dumps: what rules say of them, whatever was judged before."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import hlo_lint
from benchmarks.mutations import dumps, judged, reason
from hlo_lint.analysis.verifier import Demands, shapes, verdicts, verify
from tests.conftest import DUMPS
from tests.hlo_mutations import KINDS, mutant

TEXTS = sorted((DUMPS / "gpu-jax0.11.2" / "attention").glob("*.before_*.txt"))[::9]


def _said(text: str) -> dict[str, list[str]]:
    found = verify(hlo_lint.parse(text), Demands())
    return {row: [finding.message for finding in each] for row, each in found.items()}


def _forget() -> None:
    verdicts._latest.clear()
    verdicts._FINE.clear()
    shapes._FINE.clear()


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name[12:40])
def test_a_change_is_judged_as_if_nothing_had_been_judged_before(path: Path) -> None:
    text, chance = path.read_text(), random.Random(path.name)
    for kind in KINDS:
        changed = mutant(kind, text, chance)
        if changed is None:
            continue
        _forget()
        alone = _said(changed.text)
        _forget()
        held = hlo_lint.parse(text)
        assert verify(held, Demands()) == {}
        assert _said(changed.text) == alone, changed.after
        assert _said(text) == {}


def test_damage_is_found_or_does_none() -> None:
    sample = list(judged(dumps([DUMPS]), count=60, seed=3))
    missed = [each.mutant for each in sample if not each.rules]
    assert [each for each in missed if not reason(each)] == []
    assert len(missed) < len(sample) / 4
