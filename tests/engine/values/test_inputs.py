"""Seeded inputs: the same for one seed, of every type, indices in range."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_lint
from hlo_lint.engine.values.inputs import EDGES, SPARSE, inputs_of, value
from hlo_lint.hlo.dtypes import ELEMENT_TYPES, is_float, is_integer
from hlo_lint.hlo.parser.literals import LiteralError
from hlo_lint.hlo.shape import ArrayShape
from tests.texts import entry

LOOKUP = entry("""
  table = f32[1000,8] parameter(0)
  rows = s32[64] parameter(1)
  flag = (pred[3], s32[]) parameter(2)
  at = s32[64,1] reshape(rows)
  ROOT r = f32[64,8] gather(table, at), offset_dims={1}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}
""")


def test_a_seed_gives_the_same_values_and_another_seed_others() -> None:
    module = hlo_lint.parse(LOOKUP)
    first, again, other = inputs_of(module, 1), inputs_of(module, 1), inputs_of(module, 2)
    assert all(np.array_equal(x, y) for x, y in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])


def test_leaves_of_tuples_have_values_in_order() -> None:
    inputs = inputs_of(hlo_lint.parse(LOOKUP))
    assert [(each.dtype.name, each.shape) for each in inputs] == [
        ("float32", (1000, 8)), ("int32", (64,)), ("bool", (3,)), ("int32", ()),
    ]  # fmt: skip


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


@pytest.mark.parametrize("dims", [(8, 16), (16, 8), (3, 40, 7), (5,), (4, 0), (1, 9)])
def test_products_of_sparse_matrices_do_not_grow(dims: tuple[int, ...]) -> None:
    array = value(ArrayShape("bf16", dims), (SPARSE, 3), edges=True)
    numbers = array.astype(np.float64)
    assert numbers.shape == dims
    assert set(abs(numbers).flat) <= {0, 0.5, 1}
    if numbers.ndim > 1 and numbers.size:
        assert (numbers != 0).any()
        for axis in (-1, -2):
            assert ((numbers != 0).sum(axis) <= 1).all()


def test_indices_at_edges_lie_beside_the_array() -> None:
    array = value(ArrayShape("s32", (10,)), (EDGES, 0), limit=5, edges=True)
    assert set(array.tolist()) == {-(2**31), -1, 0, 4, 5}
