"""Index maps against brute force: random chains of data movement."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from hlo_lint import parse
from hlo_lint.engine.proof.terms import Differs, NotLayout, prove_equal
from hlo_lint.hlo.index_maps import IndexMap, broadcast, identity, of_digits, transpose
from tests.conftest import present
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


TILED = "HloModule m\nENTRY e {{ p = f32[3,5]{{1,0:T(2,4)}} parameter(0) {} }}"


def test_padding_that_stays_where_it_is_moves_no_element() -> None:
    before = parse(TILED.format("ROOT r = f32[5,3]{1,0} transpose(p), dimensions={1,0}"))
    read = "t = f32[5,3]{0,1:T(2,4)} bitcast(p) ROOT r = f32[5,3]{1,0} copy(t)"
    assert prove_equal(before, parse(TILED.format(read))).elements == 30
    for layout in ("{0,1:T(4,4)}", "{0,1}", "{1,0:T(2,4)}"):
        other = parse(TILED.format(read.replace("{0,1:T(2,4)}", layout)))
        with pytest.raises(NotLayout):
            prove_equal(before, other)


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
    number = present(one.difference(other))
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
