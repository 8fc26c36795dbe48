"""Index maps against brute force: random chains of data movement."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from hlo_lint import parse
from hlo_lint.engine.proof.index_maps import IndexMap, broadcast, identity, of_digits, transpose
from hlo_lint.engine.proof.terms import Differs, prove_equal
from tests.oracle.layout_chains import random_pair


def is_proven_equal(before: str, after: str) -> bool:
    """True if the chains are equal, False if they differ; unknown is an error."""
    try:
        prove_equal(parse(before), parse(after))
    except Differs:
        return False
    return True


@pytest.mark.parametrize("seed", range(40))
def test_chains_of_data_movement_are_decided_as_by_brute_force(seed: int) -> None:
    random = Random(seed)
    for _ in range(10):
        one, other = random_pair(random)
        expected = bool(np.array_equal(one.run(), other.run()))
        assert is_proven_equal(one.text(), other.text()) is expected, (one.text(), other.text())


def test_a_map_of_many_steps_equals_the_identity_it_comes_back_to() -> None:
    # 2n mod 5: the fourth power is the identity, and no two neighbours can be joined.
    step = transpose((2, 3), (1, 0))
    once = IndexMap(6, step.steps)
    twice = once.after(once)
    assert len(twice.steps) == 2
    assert twice.after(twice).equals(identity(6))
    assert not twice.equals(identity(6))


def test_a_map_names_an_element_that_differs() -> None:
    one, other = transpose((2, 3, 4), (0, 2, 1)), identity(24)
    number = one.difference(other)
    assert number is not None
    assert one.source(number) != other.source(number)
    assert one.difference(transpose((2, 3, 4), (0, 2, 1))) is None


def test_a_broadcast_repeats_elements() -> None:
    rows = broadcast((3,), (2, 3), (1,))
    assert [rows.source(n) for n in range(6)] == [0, 1, 2, 0, 1, 2]
    assert not rows.equals(broadcast((3,), (2, 3), (1,)).after(transpose((3, 2), (1, 0))))


def test_large_arrays_cost_no_more_than_small_ones() -> None:
    batch = 1 << 40
    one = transpose((batch, 128, 64), (0, 2, 1)).after(transpose((batch, 64, 128), (0, 2, 1)))
    assert one.steps == ()
    assert of_digits([]).count == 1
