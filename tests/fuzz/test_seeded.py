"""A seeded sample of what fuzzing does: seeds, and seeds with a few bytes changed."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest

from tests.conftest import FIXTURES
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
