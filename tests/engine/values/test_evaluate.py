"""The evaluator: small programs whose values are written beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hlo_lint import parse
from hlo_lint.engine.values.evaluate import NotEvaluated, evaluate, leaves
from hlo_lint.engine.values.evaluator.arrays import Value


def value_of(body: str, *inputs: Any, **options: Any) -> Value:
    """The value of an entry of these lines, after computations that stand before `ENTRY`."""
    if "ENTRY" not in body:
        body = f"ENTRY e {{ {body} }}"
    return evaluate(parse(f"HloModule m\n{body}"), list(map(np.asarray, inputs)), **options).result


def array_of(body: str, *inputs: Any, **options: Any) -> NDArray[Any]:
    value = value_of(body, *inputs, **options)
    assert isinstance(value, np.ndarray)
    return value


def refusal(body: str, *inputs: Any, **options: Any) -> str:
    with pytest.raises(NotEvaluated) as refused:
        value_of(body, *inputs, **options)
    return str(refused.value)


def test_integers_wrap_and_divide_as_in_xla() -> None:
    x, y = np.array([7, -7, -128, 5], np.int8), np.array([-2, 2, -1, 0], np.int8)
    lines = "p = s8[4] parameter(0) q = s8[4] parameter(1) ROOT r = s8[4] {}(p, q)"
    assert array_of(lines.format("divide"), x, y).tolist() == [-3, -3, -128, -1]
    assert array_of(lines.format("remainder"), x, y).tolist() == [1, -1, 0, 5]
    assert array_of(lines.format("multiply"), x, y).tolist() == [-14, -14, -128, 0]


def test_packed_integers_wrap_at_their_own_width() -> None:
    lines = "p = s4[3] parameter(0) ROOT r = s4[3] add(p, p)"
    assert array_of(lines, np.array([7, -8, 3])).astype(int).tolist() == [-2, 0, 6]


def test_a_sum_of_bf16_is_rounded_once() -> None:
    lines = "p = bf16[2] parameter(0) q = bf16[2] parameter(1) ROOT r = bf16[2] add(p, q)"
    assert array_of(lines, [1, 256], [2**-9, 1]).astype(float).tolist() == [1, 256]
    wide = array_of(lines, [1, 256], [2**-9, 1], wide=True)
    assert wide.tolist() == [1 + 2**-9, 257]


def test_a_bitcast_reads_bytes_in_the_order_of_the_layouts() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    lines = "p = f32[2,3]{0,1} parameter(0) ROOT r = f32[6]{0} bitcast(p)"
    assert array_of(lines, x).tolist() == [0, 3, 1, 4, 2, 5]


def test_a_bitcast_reads_tiles_and_other_types() -> None:
    x = np.arange(16, dtype=np.int32).reshape(4, 4)
    lines = "p = s32[4,4]{1,0:T(2,2)} parameter(0) ROOT r = s32[16]{0} bitcast(p)"
    assert array_of(lines, x).tolist() == [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]
    pair = np.array([0x40490FDB], np.uint32)
    lines = "p = u32[1]{0} parameter(0) ROOT r = f32[1]{0} bitcast(p)"
    assert array_of(lines, pair).tolist() == [float(np.float32(np.pi))]


def test_negative_and_interior_padding() -> None:
    lines = "p = s32[4] parameter(0) z = s32[] constant(9) ROOT r = s32[{}] pad(p, z), padding={}"
    x = np.array([1, 2, 3, 4], np.int32)
    assert array_of(lines.format(4, "-1_1"), x).tolist() == [2, 3, 4, 9]
    assert array_of(lines.format(5, "-1_-1_1"), x).tolist() == [9, 2, 9, 3, 9]
    assert array_of(lines.format(1, "-3_-3_1"), x).tolist() == [9]


COUNT_TO_SEVEN = """
inside { t = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(7)
  ROOT c = pred[] compare(i, n), direction=LT }
step { t = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[2] get-tuple-element(t), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  doubled = f32[2] add(x, x)
  ROOT u = (s32[], f32[2]) tuple(next, doubled) }
ENTRY e { x = f32[2] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[2]) tuple(zero, x)
  ROOT w = (s32[], f32[2]) while(t), condition=inside, body=step }
"""


def test_a_loop_runs_and_what_is_watched_in_it_keeps_its_last_value() -> None:
    module = parse(f"HloModule m\n{COUNT_TO_SEVEN}")
    evaluation = evaluate(module, [np.array([1, 2])], watch={"doubled", "next"})
    count, x = leaves(evaluation.result)
    assert (int(count), x.tolist()) == (7, [128, 256])
    assert leaves(evaluation.watched["next"])[0] == 7
    assert leaves(evaluation.watched["doubled"])[0].tolist() == [128, 256]


def test_a_loop_without_end_is_given_up() -> None:
    endless = COUNT_TO_SEVEN.replace("add(i, one)", "copy(i)")
    assert "too many operations" in refusal(endless, [1, 2], max_work=10_000)


def test_a_large_array_of_the_entry_is_counted() -> None:
    large = "ENTRY e { ROOT i = s32[1000]{0} iota(), iota_dimension=0 }"
    assert "too many operations" in refusal(large, max_work=999)


def test_only_what_is_watched_is_computed() -> None:
    lines = (
        "p = f32[2] parameter(0) n = f32[2] negate(p)"
        ' ROOT c = f32[2] custom-call(n), custom_call_target="mystery"'
    )
    module = parse(f"HloModule m\nENTRY e {{ {lines} }}")
    watched = evaluate(module, [np.array([1, 2])], watch={"n"}, needs_result=False).watched
    assert leaves(watched["n"])[0].tolist() == [-1, -2]
    assert refusal(lines, [1, 2]) == "%c: a custom call of mystery"
    given = evaluate(module, [np.array([1, 2])], given={"c": np.array([5, 6])})
    assert leaves(given.result)[0].tolist() == [5, 6]


ARGMAX = """
larger { a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  c = pred[] compare(a, b), direction=GE
  x = f32[] select(c, a, b)
  k = s32[] select(c, i, j)
  ROOT t = (f32[], s32[]) tuple(x, k) }
ENTRY e { p = f32[2,5] parameter(0)
  i = s32[2,5] iota(), iota_dimension=1
  least = f32[] constant(-inf)
  zero = s32[] constant(0)
  ROOT r = (f32[2], s32[2]) reduce(p, i, least, zero), dimensions={1}, to_apply=larger }
"""


def test_a_reducer_of_two_values_is_lifted() -> None:
    x = np.array([[3, 1, 4, 1, 4], [5, 9, 2, 6, 9]])
    values, places = leaves(value_of(ARGMAX, x))
    assert (values.tolist(), places.tolist()) == ([4, 9], [2, 1])


def test_a_sort_is_stable() -> None:
    text = """
less { a = s32[] parameter(0) b = s32[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT }
ENTRY e { k = s32[40] parameter(0) v = s32[40] parameter(1)
  ROOT s = (s32[40], s32[40]) sort(k, v), dimensions={0}, is_stable=true, to_apply=less }
"""
    keys = np.random.default_rng(0).integers(0, 5, 40)
    sorted_keys, order = leaves(value_of(text, keys, np.arange(40)))
    assert sorted_keys.tolist() == sorted(keys)
    assert order.tolist() == np.argsort(keys, kind="stable").tolist()


def test_a_sort_by_a_comparator_that_is_not_transitive_has_no_value() -> None:
    text = """
beats { a = s32[] parameter(0) b = s32[] parameter(1) three = s32[] constant(3)
  c = s32[] add(a, three) d = s32[] subtract(c, b) one = s32[] constant(1)
  e = s32[] remainder(d, three) ROOT r = pred[] compare(e, one), direction=EQ }
ENTRY e { k = s32[9] parameter(0) ROOT s = s32[9] sort(k), dimensions={0}, to_apply=beats }
"""
    with pytest.raises(NotEvaluated, match="strict weak order"):
        value_of(text, np.arange(9) % 3)


def test_a_scatter_combines_updates_of_one_place_in_order() -> None:
    text = """
minus { a = s32[] parameter(0) b = s32[] parameter(1) ROOT c = s32[] subtract(b, a) }
ENTRY e { p = s32[3] parameter(0) i = s32[4,1] parameter(1) u = s32[4] parameter(2)
  ROOT s = s32[3] scatter(p, i, u), update_window_dims={}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=minus }
"""
    # Place 1 takes 10, then 100: 10 - 1 = 9, 100 - 9 = 91; 3 and -1 are outside.
    result = array_of(text, [0, 1, 2], [[1], [3], [1], [-1]], [10, 7, 100, 7])
    assert result.tolist() == [0, 91, 2]


def test_a_fusion_and_asynchronous_wrappers_are_entered() -> None:
    text = """
body { a = f32[2] parameter(0) ROOT n = f32[2] negate(a) }
ENTRY e { p = f32[2] parameter(0)
  f = f32[2] fusion(p), kind=kLoop, calls=body
  s = ((f32[2]), f32[2], u32[]) async-start(f), calls=body
  d = f32[2] async-done(s)
  c = (f32[2], f32[2], u32[]) copy-start(d)
  ROOT e = f32[2] copy-done(c) }
"""
    assert array_of(text, [1, 2]).tolist() == [1, 2]


def test_what_has_no_value_is_named_with_the_reason() -> None:
    lines = "p = f32[<=2] parameter(0) ROOT r = f32[<=2] negate(p)"
    assert refusal(lines, [1, 2]) == "%p: a dimension of dynamic size"
    lines = "p = f32[2] parameter(0) ROOT r = f32[3] negate(p)"
    assert refusal(lines, [1, 2]) == "%r: its operands give the dimensions [2], not f32[3]"
    lines = "ROOT c = f32[9] constant({...})"
    assert refusal(lines) == "%c: a constant that was left out when the text was printed"
    assert "takes 1 arrays, 2 are given" in refusal("ROOT p = f32[] parameter(0)", 1, 2)
    recursive = "again { p = f32[] parameter(0) ROOT c = f32[] call(p), to_apply=again }"
    entry = "ENTRY e { p = f32[] parameter(0) ROOT c = f32[] call(p), to_apply=again }"
    assert "calls inside calls" in refusal(f"{recursive}\n{entry}", 1)


def test_a_gemm_of_a_library_is_what_its_configuration_says() -> None:
    lines = """p = f32[2,3] parameter(0)
      q = f32[4,3] parameter(1)
      c = f32[2,4] parameter(2)
      g = (f32[2,4], s8[64]) custom-call(p, q, c), custom_call_target="__cublas$gemm",
        backend_config={"gemm_backend_config":{"alpha_real":2,"alpha_imag":0,"beta":1,
        "dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],
        "rhs_contracting_dimensions":["1"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]},
        "epilogue":"DEFAULT"}}
      ROOT r = f32[2,4] get-tuple-element(g), index=0"""
    p, q, c = np.ones((2, 3)), np.arange(12).reshape(4, 3), np.full((2, 4), 0.5)
    assert array_of(lines, p, q, c).tolist() == (2 * p @ q.T + c).tolist()
