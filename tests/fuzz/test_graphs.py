"""A seeded sample of mutated graphs."""

from __future__ import annotations

import random

import pytest

from hlo_lint.hlo.opcodes import OPCODES
from tests.fuzz.graphs import MUTATIONS, every, failure_of, mutant_at, sources

COUNT = 150


@pytest.mark.slow
def test_mutants_of_graphs_are_read_checked_fixed_and_lowered() -> None:
    texts = sources()
    sample, missing = random.Random(26).sample(every(), COUNT), set(MUTATIONS)
    for number in range(10 * COUNT):
        mutant = mutant_at(texts, 26, number)
        if number < COUNT or mutant.mutation in missing:
            sample.append(mutant)
        missing.discard(mutant.mutation)
    assert not missing
    assert len({mutant.opcode for mutant in sample} & OPCODES.keys()) > 60
    failures = [(failure, mutant) for mutant in sample if (failure := failure_of(mutant.text))]
    assert not failures
