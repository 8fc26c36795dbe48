"""Seeded inputs: the same for one seed, of every type, indices in range."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_lint
from hlo_lint.engine.values.inputs import EDGES, SPARSE, inputs_of, value
from hlo_lint.hlo.dtypes import ELEMENT_TYPES, is_float, is_integer
from hlo_lint.hlo.parser.literals import LiteralError
from hlo_lint.hlo.shape import ArrayShape

LOOKUP = """HloModule m

ENTRY e {
  table = f32[1000,8] parameter(0)
  rows = s32[64] parameter(1)
  flag = (pred[3], s32[]) parameter(2)
  at = s32[64,1] reshape(rows)
  ROOT r = f32[64,8] gather(table, at), offset_dims={1}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}
}
"""


def test_a_seed_gives_the_same_values_and_another_seed_others() -> None:
    module = hlo_lint.parse(LOOKUP)
    first, again, other = inputs_of(module, 1), inputs_of(module, 1), inputs_of(module, 2)
    assert all(np.array_equal(x, y) for x, y in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])


def test_leaves_of_tuples_have_values_in_order() -> None:
    inputs = inputs_of(hlo_lint.parse(LOOKUP))
    assert [(each.dtype.name, each.shape) for each in inputs] == [
        ("float32", (1000, 8)),
        ("int32", (64,)),
        ("bool", (3,)),
        ("int32", ()),
    ]


def test_an_index_covers_what_it_indexes_and_other_integers_are_small() -> None:
    inputs = inputs_of(hlo_lint.parse(LOOKUP))
    assert 100 < inputs[1].max() < 1000
    assert inputs[3] < 4


def test_an_index_is_followed_into_a_fusion() -> None:
    text = LOOKUP.replace("ENTRY e", "f").replace("(pred[3], s32[])", "f32[]")
    text += """
ENTRY main {
  a = f32[1000,8] parameter(0)
  b = s32[64] parameter(1)
  c = f32[] parameter(2)
  ROOT d = f32[64,8] fusion(a, b, c), kind=kLoop, calls=f
}
"""
    assert inputs_of(hlo_lint.parse(text))[1].max() > 100


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
@pytest.mark.parametrize("edges", [False, True])
def test_every_element_type_has_values(dtype: str, edges: bool) -> None:
    try:
        array = value(ArrayShape(dtype, (64,)), (0,), edges=edges)
    except LiteralError:
        pytest.skip("ml_dtypes lacks it")
    assert array.shape == (64,)
    if dtype != "s1":  # which holds 0 and -1
        assert len(np.unique(array.astype(np.complex128))) > 1
    if is_float(dtype) and not edges:
        assert np.isfinite(array.astype(np.float64)).all()
    if is_integer(dtype) and not edges:
        assert (abs(array.astype(np.int64)) < 4).all()


@pytest.mark.parametrize("dtype", ["f32", "s32", "s4"])
def test_numbers_of_an_odd_seed_have_no_sign(dtype: str) -> None:
    shape = ArrayShape(dtype, (256,))
    assert value(shape, (1,)).min() >= 0 > value(shape, (0,)).min()


def test_a_scalar_hides_no_operand_and_a_predicate_takes_both_branches() -> None:
    for run in range(8):
        assert abs(value(ArrayShape("s32", ()), (run, 3))) >= 2
        assert value(ArrayShape("f32", ()), (run, 3)) not in (0, 1)
    for dtype, limit in (("pred", None), ("s32", 2)):
        first, second = (value(ArrayShape(dtype, ()), (run, 3), limit=limit) for run in (0, 1))
        assert {int(first), int(second)} == {0, 1}


@pytest.mark.parametrize(
    ("dtype", "seed", "limit", "expected"),
    [
        ("s32", 0, None, {-41, -40, -39, 5, 6, 7}),
        ("s32", 1, None, {5, 6, 7}),
        ("s32", 0, 7, {-1, 5, 6}),
        ("s4", 0, None, {5, 6, 7}),
        ("f32", 0, None, {-41, -40, -39, 5, 6, 7}),
        ("f4e2m1fn", 0, None, {6}),
    ],
)
def test_elements_are_at_thresholds(
    dtype: str, seed: int, limit: int | None, expected: set[int]
) -> None:
    thresholds = (-40, 6) if limit is None else (0, 6, 9)
    try:
        array = value(ArrayShape(dtype, (999,)), (seed,), limit=limit, thresholds=thresholds)
    except LiteralError:
        pytest.skip("ml_dtypes lacks it")
    numbers = array.astype(np.float64)
    assert expected <= set(numbers)
    if limit is None:
        assert (abs(numbers) > 4).mean() < 0.25
        assert {number for number in numbers if abs(number) > 4} == expected
    else:
        assert numbers.max() < limit


@pytest.mark.parametrize("dims", [(8, 16), (16, 8), (3, 40, 7), (5,), (4, 0), (1, 9)])
def test_products_of_sparse_matrices_do_not_grow(dims: tuple[int, ...]) -> None:
    array = value(ArrayShape("bf16", dims), (SPARSE, 3), thresholds=(7, 9), edges=True)
    numbers = array.astype(np.float64)
    assert numbers.shape == dims
    assert set(abs(numbers).flat) <= {0, 0.5, 1}
    if numbers.ndim > 1 and numbers.size:
        assert (numbers != 0).any()
        for axis in (-1, -2):
            assert ((numbers != 0).sum(axis) <= 1).all()


def test_a_scalar_is_at_each_threshold_after_the_runs_without() -> None:
    shape = ArrayShape("s32", ())
    runs = [int(value(shape, (run,), thresholds=(10, 20))) for run in range(6)]
    assert max(map(abs, runs[:2])) < 4
    assert runs[2:] == [10, 20, 9, 19]


def test_indices_at_edges_meet_others_and_lie_beside_the_array() -> None:
    shape = ArrayShape("s32", ())
    runs = [
        [int(value(shape, (run, leaf), limit=limit, edges=True)) for run in range(3)]
        for leaf, limit in ((0, None), (1, None), (2, 5))
    ]
    assert runs == [[-(2**31), 3, -1], [3, -1, -(2**31)], [4, -1, 5]]
    array = value(ArrayShape("s32", (10,)), (EDGES, 0), limit=5, edges=True)
    assert set(array.tolist()) == {-(2**31), -1, 0, 4, 5}
    (narrow,) = {int(value(ArrayShape("u8", ()), (0, 2), limit=1000, edges=True))}
    assert narrow == 255
