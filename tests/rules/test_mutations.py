"""A seeded sample of damaged dumps: what rules say of them, whatever was judged before."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import hlo_lint
from benchmarks.mutations import dumps, judged, reason
from hlo_lint.engine.verifier import Verifier
from hlo_lint.rules.base import Stage
from tests.conftest import DUMPS
from tests.hlo_mutations import KINDS, mutant

pytestmark = pytest.mark.slow

STAGE = Stage(layouts=True)
TEXTS = sorted((DUMPS / "gpu-jax0.11.2" / "attention").glob("*.before_*.txt"))[::9]


def _said(verifier: Verifier, text: str) -> dict[str, list[str]]:
    found = verifier.violations(hlo_lint.parse(text), STAGE).by_check
    return {check: [each.message for each in violations] for check, violations in found.items()}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name[12:40])
def test_a_change_is_judged_as_if_nothing_had_been_judged_before(path: Path) -> None:
    text, chance = path.read_text(), random.Random(path.name)
    for kind in KINDS:
        changed = mutant(kind, text, chance)
        if changed is None:
            continue
        alone = _said(Verifier(), changed.text)
        verifier = Verifier()
        assert _said(verifier, text) == {}
        assert _said(verifier, changed.text) == alone, changed.after
        assert _said(verifier, text) == {}


def test_damage_is_found_or_does_none() -> None:
    # The layouts of XLA:TPU have tiles, of which no check binds the sizes.
    folders = sorted(DUMPS.glob("[cg]pu-*"))
    sample = list(judged(dumps(folders), count=60, seed=3))
    missed = [each.mutant for each in sample if not each.rules]
    assert [each for each in missed if not reason(each)] == []
    assert len(missed) < len(sample) / 4
