"""Counters of while loops: how often the body runs, and where it never stops."""

from __future__ import annotations

import operator

import pytest

import hlo_lint
from hlo_lint.analysis.loops import loops
from tests.conftest import present

TEXT = """
HloModule m

body {{
  b = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(b), index=0
  x = f32[8] get-tuple-element(b), index=1
  step = s32[] constant({step})
  next = s32[] {change}(i, step)
  ROOT t = (s32[], f32[8]) tuple(next, x)
}}

condition {{
  c = (s32[], f32[8]) parameter(0)
  j = s32[] get-tuple-element(c), index=0
  limit = s32[] constant({limit})
  ROOT r = pred[] compare(j, limit), direction={direction}
}}

ENTRY e {{
  first = s32[] constant({first})
  p = f32[8] parameter(0)
  state = (s32[], f32[8]) tuple(first, p)
  ROOT w = (s32[], f32[8]) while(state), condition=condition, body=body
}}
"""
TEN = TEXT.format(first=0, change="add", step=1, direction="LT", limit=10)


def runs(first: int, change: str, step: int, direction: str, limit: int) -> int:
    """The number of times that the body runs, by running it."""
    count = 0
    while getattr(operator, direction.lower())(first, limit):
        first += step if change == "add" else -step
        count += 1
    return count


@pytest.mark.parametrize(
    "loop",
    [
        (0, "add", 1, "LT", 10),
        (0, "add", 3, "LT", 10),
        (2, "add", 4, "LE", 10),
        (10, "subtract", 1, "GT", 0),
        (10, "subtract", 3, "GE", 1),
        (10, "add", -3, "GT", -2),
        (0, "add", 5, "NE", 20),
        (7, "add", 1, "LT", 7),
    ],
)
def test_the_trip_count_is_that_of_running_the_loop(loop: tuple[int, str, int, str, int]) -> None:
    names = ("first", "change", "step", "direction", "limit")
    text = TEXT.format(**dict(zip(names, loop, strict=True)))
    (found,) = loops(hlo_lint.parse(text))
    assert found.trip_count == runs(*loop)
    assert not present(found.counter).never_ends
    assert [found.is_invariant(index) for index in (0, 1)] == [False, True]


def test_an_unrolled_body_counts_twice() -> None:
    twice = TEN.replace("add(i, step)", "add(first, step)").replace(
        "  next =", "  first = s32[] add(step, i)\n  next ="
    )
    assert [found.step(0) for found in loops(hlo_lint.parse(twice))] == [2]


def test_iterations_before_the_loop_count() -> None:
    peeled = TEN.replace("tuple(first, p)", "tuple(second, p)").replace(
        "  state =", "  one = s32[] constant(1)\n  second = s32[] add(first, one)\n  state ="
    )
    (found,) = loops(hlo_lint.parse(peeled))
    assert found.trip_count == 9


def test_the_declared_trip_count_counts_more() -> None:
    config = ', body=body, backend_config={"known_trip_count":{"n":"5"}}'
    (found,) = loops(hlo_lint.parse(TEN.replace(", body=body", config)))
    assert found.trip_count == 5


def test_a_limit_out_of_range_is_no_number_of_iterations() -> None:
    text = TEXT.format(first=0, change="add", step=0, direction="NE", limit=1 << 32)
    assert loops(hlo_lint.parse(text))[0].trip_count is None


@pytest.mark.parametrize(
    ("step", "direction", "limit"), [(0, "LT", 10), (2, "NE", 7), (0, "NE", 3)]
)
def test_a_counter_that_misses_its_limit_never_ends(step: int, direction: str, limit: int) -> None:
    text = TEXT.format(first=0, change="add", step=step, direction=direction, limit=limit)
    (found,) = loops(hlo_lint.parse(text))
    assert present(found.counter).never_ends
    assert found.trip_count is None
