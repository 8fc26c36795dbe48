"""A seeded sample of mutated steps."""

from __future__ import annotations

import pytest

from tests.fuzz.steps import CHANGES, failure_of, mutant_at

COUNT = 60


@pytest.mark.slow
def test_no_mutated_step_crashes_a_rule_or_a_command() -> None:
    mutants = [mutant_at(43, number) for number in range(COUNT)]
    assert {kind for done, _ in mutants for kind in done.split(", ")} == CHANGES.keys()
    failures = [
        (failure, done)
        for number, (done, steps) in enumerate(mutants)
        if (failure := failure_of(steps, number))
    ]
    assert not failures
