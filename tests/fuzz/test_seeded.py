"""Seeded samples of what fuzzing does: changed bytes, mutated graphs, mutated steps."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest

from hlo_lint.hlo.opcodes import OPCODES
from tests.conftest import FIXTURES
from tests.fuzz import graphs, steps
from tests.fuzz.corpus import seeds
from tests.fuzz.targets import TARGETS

MUTANTS = {
    "payload": 8,
    "report": 10,
    "fix": 15,
    "directory": 8,
    "file_name": 8,
    "message": 6,
    "values": 12,
}
"""Inputs of a target; 20 of those that are not listed."""
GRAPHS, STEPS = 150, 60
"""Mutants."""
TOKENS = (b"{", b"}", b"(", b")", b'"', b"/*", b"\0", b"\xff", b"9" * 30, b"=", b",", b"\n", b"%a")


def _mutants(name: str, count: int) -> list[bytes]:
    chance = random.Random(name)
    known = list(seeds(name))
    inputs = [b""]
    while len(inputs) < count:
        data = bytearray(chance.choice(known))
        for _ in range(chance.randint(1, 4)):
            at = chance.randint(0, len(data))
            data[at : at + chance.choice((0, 1, 1, 7))] = chance.choice(TOKENS)
        inputs.append(bytes(data))
    return inputs


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_keeps_its_promises(name: str) -> None:
    for data in (*islice(seeds(name), 3), *_mutants(name, MUTANTS.get(name, 20))):
        TARGETS[name](data)


@pytest.mark.parametrize("path", sorted((FIXTURES / "broken").glob("fuzz_*")), ids=lambda p: p.name)
def test_what_fuzzing_found_is_mended(path: Path) -> None:
    """A name is `fuzz_TARGET-what_broke`."""
    target = path.name.removeprefix("fuzz_").partition("-")[0]
    TARGETS[target](path.read_bytes())


@pytest.mark.slow
def test_mutants_of_graphs_are_read_checked_fixed_and_lowered() -> None:
    texts = graphs.sources()
    sample, missing = random.Random(26).sample(graphs.every(), GRAPHS), set(graphs.MUTATIONS)
    for number in range(10 * GRAPHS):
        mutant = graphs.mutant_at(texts, 26, number)
        if number < GRAPHS or mutant.mutation in missing:
            sample.append(mutant)
        missing.discard(mutant.mutation)
    assert not missing
    assert len({mutant.opcode for mutant in sample} & OPCODES.keys()) > 60
    failures = [
        (failure, mutant) for mutant in sample if (failure := graphs.failure_of(mutant.text))
    ]
    assert not failures


@pytest.mark.slow
def test_no_mutated_step_crashes_a_rule_or_a_command() -> None:
    mutants = [steps.mutant_at(43, number) for number in range(STEPS)]
    assert {kind for done, _ in mutants for kind in done.split(", ")} == steps.CHANGES.keys()
    failures = [
        (failure, done)
        for number, (done, mutant) in enumerate(mutants)
        if (failure := steps.failure_of(mutant, number))
    ]
    assert not failures
