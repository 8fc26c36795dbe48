"""Scans, ragged and scaled dots, and slices of old compute what their definitions in numpy do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hlo_lint import parse
from hlo_lint.engine.values.inputs import inputs_of
from hlo_lint.engine.values.lowering.graph import Nodes
from hlo_lint.engine.values.lowering.lower import Lowering
from hlo_lint.engine.values.run import arrays_of, values_of
from hlo_lint.xla.cpu import XlaCpu

pytestmark = pytest.mark.slow


def ran(xla: XlaCpu, text: str, *inputs: Any) -> list[NDArray[Any]]:
    (value,) = values_of(parse(text), list(map(np.asarray, inputs)), xla=xla)
    return list(arrays_of(value))


STEP = """HloModule m
step { x = f32[2] parameter(0) c = f32[2] parameter(1) s = f32[2] add(x, c)
  d = f32[2] multiply(s, x)
  ROOT t = (f32[2], f32[2]) tuple(d, s) }
"""


@pytest.mark.parametrize("order", [1, -1])
def test_a_scan_gives_a_slice_of_each_step_and_the_last_carry(xla: XlaCpu, order: int) -> None:
    x = np.arange(6, dtype="f").reshape(2, 3)
    attribute = ", is_reverse=true" if order < 0 else ""
    text = f"""{STEP}ENTRY e {{
      x = f32[2,3] parameter(0)
      c = f32[2] parameter(1)
      ROOT r = (f32[2,3], f32[2]) scan(x, c), dimensions={{1}}, num_carries=1, to_apply=step
          {attribute}
    }}"""
    outputs, last = ran(xla, text, x, np.array([1, 2], "f"))
    carry, wanted = np.array([1, 2], "f"), np.zeros_like(x)
    for place in range(3)[::order]:
        carry = carry + x[:, place]
        wanted[:, place] = carry * x[:, place]
    assert outputs.tolist() == wanted.tolist()
    assert last.tolist() == carry.tolist()


@pytest.mark.parametrize("order", [1, -1])
def test_a_scan_by_cub_sums_along_the_lines_of_memory(xla: XlaCpu, order: int) -> None:
    x = np.arange(6, dtype="f").reshape(2, 3)
    text = f"""HloModule m
    ENTRY e {{
      x = f32[2,3]{{0,1}} parameter(0)
      c = (f32[2,3]{{0,1}}, u8[0]{{0}}) custom-call(x),
          custom_call_target="xla.gpu.ext.cub_scan_unassigned_scratch_size", backend_config={{
            "vector_length":"1","row_length":"2","column_length":"3","kind":"SUM",
            "is_reverse":{"true" if order < 0 else "false"}}}
      ROOT y = f32[2,3]{{0,1}} get-tuple-element(c), index=0
    }}"""
    (sums,) = ran(xla, text, x)
    assert sums.tolist() == x[::order].cumsum(0)[::order].tolist()


def test_a_scan_of_nothing_gives_its_first_carry(xla: XlaCpu) -> None:
    text = f"""{STEP}ENTRY e {{
      x = f32[2,0] parameter(0)
      c = f32[2] parameter(1)
      ROOT r = (f32[2,0], f32[2]) scan(x, c), dimensions={{1}}, num_carries=1, to_apply=step
    }}"""
    _, last = ran(xla, text, np.zeros((2, 0), "f"), np.array([1, 2], "f"))
    assert last.tolist() == [1, 2]


def groups(sizes: NDArray[Any]) -> list[slice]:
    ends = np.cumsum(sizes)
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]


LEFT = np.arange(12, dtype="f").reshape(6, 2)
SIZES = np.array([2, 0, 3], "i")


def test_rows_of_a_group_meet_its_own_right_side_and_others_are_zero(xla: XlaCpu) -> None:
    right = np.arange(12, dtype="f").reshape(3, 2, 2) + 1
    text = """ENTRY e {
      a = f32[6,2] parameter(0)
      b = f32[3,2,2] parameter(1)
      n = s32[3] parameter(2)
      ROOT r = f32[6,2] ragged-dot(a, b, n), lhs_contracting_dims={1}, rhs_contracting_dims={1},
          lhs_ragged_dims={0}, rhs_group_dims={0}
    }"""
    (result,) = ran(xla, text, LEFT, right, SIZES)
    wanted = np.zeros((6, 2), "f")
    for number, rows in enumerate(groups(SIZES)):
        wanted[rows] = LEFT[rows] @ right[number]
    assert result.tolist() == wanted.tolist()


def test_a_contraction_in_groups_gives_a_result_for_each(xla: XlaCpu) -> None:
    left = np.arange(24, dtype="f").reshape(2, 6, 2)
    right = np.arange(36, dtype="f").reshape(2, 6, 3)
    sizes = np.array([[2, 0, 3], [1, 4, 1]], "i")
    text = """ENTRY e {
      a = f32[2,6,2] parameter(0)
      b = f32[2,6,3] parameter(1)
      n = s32[2,3] parameter(2)
      ROOT r = f32[3,2,2,3] ragged-dot(a, b, n), lhs_batch_dims={0}, rhs_batch_dims={0},
          lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={1}
    }"""
    (result,) = ran(xla, text, left, right, sizes)
    wanted = np.zeros((3, 2, 2, 3), "f")
    for batch in range(2):
        for number, rows in enumerate(groups(sizes[batch])):
            wanted[number, batch] = left[batch, rows].T @ right[batch, rows]
    assert result.tolist() == wanted.tolist()


def test_inputs_of_a_ragged_dot_are_groups_that_fit(xla: XlaCpu) -> None:
    module = parse("""ENTRY e {
      a = f32[64,2] parameter(0)
      b = f32[4,2,2] parameter(1)
      n = s32[4] parameter(2)
      ROOT r = f32[64,2] ragged-dot(a, b, n), lhs_contracting_dims={1}, rhs_contracting_dims={1},
          lhs_ragged_dims={0}, rhs_group_dims={0}
    }""")
    for seed in range(6):
        sizes = inputs_of(module, seed)[2]
        assert sizes.min() >= 0
        assert sizes.sum() <= 64
    assert sizes.any()


def test_a_scaled_dot_multiplies_each_block_by_its_scale(xla: XlaCpu) -> None:
    left, right = np.arange(12, dtype="f").reshape(3, 4), np.ones((4, 2), "f")
    scales = np.array([[1, 2], [4, 8], [1, 1]], "f"), np.array([[1, 2], [2, 1]], "f")
    text = """ENTRY e {
      a = f32[3,4] parameter(0)
      b = f32[4,2] parameter(1)
      s = f32[3,2] parameter(2)
      t = f32[2,2] parameter(3)
      ROOT r = f32[3,2] scaled-dot(a, b, s, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    }"""
    (result,) = ran(xla, text, left, right, *scales)
    wanted = (left * scales[0].repeat(2, 1)) @ (right * scales[1].repeat(2, 0))
    assert result.tolist() == wanted.tolist()


@pytest.mark.parametrize("spare", [0, 1])
def test_a_dot_in_blocks_of_a_given_size_leaves_spare_scales(xla: XlaCpu, spare: int) -> None:
    rng = np.random.default_rng(0)
    left, right = (rng.integers(-4, 4, (2, rows, 6)).astype("f") for rows in (3, 2))
    scales = [rng.integers(1, 5, (2, rows, 2 + spare)).astype("f") for rows in (3, 2)]
    text = f"""ENTRY e {{
      a = f32[2,3,6] parameter(0)
      b = f32[2,2,6] parameter(1)
      s = f32[2,3,{2 + spare}] parameter(2)
      t = f32[2,2,{2 + spare}] parameter(3)
      g = f32[] parameter(4)
      ROOT r = f32[2,3,2] custom-call(a, b, s, t, g), custom_call_target="__op$block_scaled_dot",
          backend_config={{"block_scaled_dot_backend_config":{{block_size:4}}}}
    }}"""
    (result,) = ran(xla, text, left, right, *scales, np.float32(3))
    sides = zip((left, right), scales, strict=True)
    wide = [side * scale.repeat(4, 2)[:, :, :6] for side, scale in sides]
    assert result.tolist() == (3 * np.einsum("bik,bjk->bij", *wide)).tolist()


def test_one_side_in_blocks_and_an_array_that_was_quantized(xla: XlaCpu) -> None:
    left, right = np.arange(12, dtype="f").reshape(3, 4), np.arange(8, dtype="f").reshape(2, 4)
    scale = np.array([[1, 2], [4, 8], [1, 3]], "f")
    text = """ENTRY e {
      a = f32[3,4] parameter(0)
      b = f32[2,4] parameter(1)
      s = f32[3,2] parameter(2)
      d = f32[3,4] custom-call(a, s), custom_call_target="__op$dequantize"
      p = f32[3,2] custom-call(a, b, s), custom_call_target="__op$block_scaled_dot"
      ROOT r = (f32[3,4], f32[3,2]) tuple(d, p)
    }"""
    wide = left * scale.repeat(2, 1)
    results = ran(xla, text, left, right, scale)
    assert [result.tolist() for result in results] == [wide.tolist(), (wide @ right.T).tolist()]


def test_a_slice_may_have_its_starts_in_one_array(xla: XlaCpu) -> None:
    x = np.arange(12, dtype="f").reshape(3, 4)
    text = """ENTRY e {
      x = f32[3,4] parameter(0)
      n = s32[2] parameter(1)
      s = f32[2,2] dynamic-slice(x, n), dynamic_slice_sizes={2,2}
      ROOT u = f32[3,4] dynamic-update-slice(x, s, n)
    }"""
    (result,) = ran(xla, text, x, np.array([1, 2], "i"))
    assert result.tolist() == x.tolist()


@pytest.mark.parametrize("pad", [1, 2])
def test_a_window_that_holds_every_element_is_a_reduction(xla: XlaCpu, pad: int) -> None:
    text = f"""HloModule m
    add {{ p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] add(p, q) }}
    ENTRY e {{
      x = f32[2,3] parameter(0)
      one = f32[] constant(1)
      ROOT r = f32[2,3] reduce-window(x, one), window={{size=1x{2 * pad + 1} pad=0_0x{pad}_{pad}}},
          to_apply=add
    }}"""
    x = np.arange(6, dtype="f").reshape(2, 3)
    opcodes = {node.opcode for node in Lowering(parse(text), Nodes()).program().nodes}
    assert ("reduce" in opcodes) == (pad == 2) != ("reduce-window" in opcodes)
    (ours,), (theirs,) = ran(xla, text, x), xla.run(text, [x])
    assert ours.tolist() == theirs.tolist()
