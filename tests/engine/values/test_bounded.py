"""Arrays with a size that is known at run time: as XLA:CPU has them, and a lost mask shows."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_lint
from hlo_lint.engine.values.lowering.emit import emit_graph
from hlo_lint.engine.values.lowering.graph import Nodes, NotLowered
from hlo_lint.engine.values.lowering.lower import Lowering
from hlo_lint.engine.values.validate import validate_dumps
from hlo_lint.xla.cpu import XlaCpu
from tests.engine.values.test_validate import changed, run_of
from tests.texts import summing

pytestmark = pytest.mark.slow

TEXT = """HloModule m

least { p = s32[] parameter(0) q = s32[] parameter(1) ROOT r = s32[] minimum(p, q) }

later { p = s32[] parameter(0) ROOT q = s32[] parameter(1) }

both { p = s32[] parameter(0) q = s32[] parameter(1) r = s32[] parameter(2) s = s32[] parameter(3)
  t = s32[] minimum(p, r)
  u = s32[] add(q, s)
  ROOT v = (s32[], s32[]) tuple(t, u)
}

above { p = s32[] parameter(0) q = s32[] parameter(1) r = s32[] parameter(2) s = s32[] parameter(3)
  ROOT greater = pred[] compare(p, q), direction=GT
}

push {
  state = (s32[<=4], s32[]) parameter(0)
  stack = s32[<=4] get-tuple-element(state), index=0
  count = s32[] get-dimension-size(stack), dimensions={0}
  one = s32[] constant(1)
  next = s32[] add(count, one)
  longer = s32[<=4] set-dimension-size(stack, next), dimensions={0}
  seven = s32[1] constant({7})
  pushed = s32[<=4] dynamic-update-slice(longer, seven, count)
  ROOT result = (s32[<=4], s32[]) tuple(pushed, count)
}

is_short {
  state = (s32[<=4], s32[]) parameter(0)
  stack = s32[<=4] get-tuple-element(state), index=0
  count = s32[] get-dimension-size(stack), dimensions={0}
  three = s32[] constant(3)
  ROOT less = pred[] compare(count, three), direction=LT
}

ENTRY e {
  a = s32[4] parameter(0)
  b = s32[2,3] parameter(1)
  n = s32[] parameter(2)
  zero = s32[] constant(0)
  one = s32[] constant(1)
  two = s32[] constant(2)
  four = s32[] constant(4)
  most = s32[] constant(99)
  d = s32[<=4] set-dimension-size(a, n), dimensions={0}
  e = s32[2,<=3] set-dimension-size(b, n), dimensions={1}
  LINES
  empty = s32[16] broadcast(zero), dimensions={}
  whole = s32[16] dynamic-update-slice(empty, x, zero)
  size = s32[] get-dimension-size(x), dimensions={0}
  ROOT r = (s32[16], s32[]) tuple(whole, size)
}
"""
OPERATIONS = {
    "an elementwise operation": "x = s32[<=4] not(d)",
    "an operation with scalars": "x = s32[<=4] clamp(two, d, most)",
    "a pad between and around": "x = s32[<=10] pad(d, two), padding=1_2_1",
    "parts side by side": "x = s32[<=8] concatenate(d, d), dimensions={0}",
    "rows side by side": "c = s32[4,<=3] concatenate(e, e), dimensions={0} "
    "x = s32[<=12] reshape(c)",
    "a reshape": "x = s32[<=6] reshape(e)",
    "a reshape to given sizes": "t = s32[2,<=3] set-dimension-size(b, two), dimensions={1} "
    "w = s32[<=3,2] dynamic-reshape(t, two, two) x = s32[<=6] reshape(w)",
    "a transpose": "t = s32[<=3,2] transpose(e), dimensions={1,0} x = s32[<=6] reshape(t)",
    "a broadcast": "w = s32[2,<=4] broadcast(d), dimensions={1} x = s32[<=8] reshape(w)",
    "a slice": "s = s32[1,<=3] slice(e), slice={[1:2], [0:3]} x = s32[<=3] reshape(s)",
    "a reduction of the others": "x = s32[<=3] reduce(e, most), dimensions={0}, to_apply=least",
    "a reduction": "x = s32[2] reduce(e, most), dimensions={1}, to_apply=least",
    "a product": "p = s32[<=3,<=3] dot(e, e), lhs_contracting_dims={0}, rhs_contracting_dims={0} "
    "x = s32[<=3] reduce(p, most), dimensions={0}, to_apply=least",
    "a reverse": "x = s32[<=4] reverse(d), dimensions={0}",
    "a reverse of both": "t = s32[2,<=3] reverse(e), dimensions={0,1} x = s32[<=6] reshape(t)",
    "a sort": "t = (s32[<=4], s32[<=4]) sort(d, d), dimensions={0}, to_apply=above "
    "x = s32[<=4] get-tuple-element(t), index=1",
    "a sort of the others": "t = (s32[2,<=3], s32[2,<=3]) sort(e, e), dimensions={0}, "
    "to_apply=above g = s32[2,<=3] get-tuple-element(t), index=0 x = s32[<=6] reshape(g)",
    "a gather of columns": "x = s32[<=3] gather(e, one), offset_dims={0}, "
    "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=0, slice_sizes={1,3}",
    "a gather of some places": "m = s32[4] iota(), iota_dimension=0 "
    "i = s32[<=4] set-dimension-size(m, n), dimensions={0} "
    "x = s32[<=4] gather(a, i), offset_dims={}, "
    "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}",
    "a scatter of some places": "m = s32[4] constant({3,0,1,2}) "
    "i = s32[<=4] set-dimension-size(m, n), dimensions={0} "
    "c = s32[4] scatter(a, i, d), to_apply=later, update_window_dims={}, "
    "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1 "
    "x = s32[<=4] set-dimension-size(c, four), dimensions={0}",
    "a scatter of rows": "w = s32[1,3] constant({{7,8,9}}) "
    "u = s32[1,<=3] set-dimension-size(w, n), dimensions={1} i = s32[1] constant({1}) "
    "t = s32[2,<=3] scatter(e, i, u), to_apply=later, update_window_dims={1}, "
    "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1 "
    "x = s32[<=6] reshape(t)",
    "windows of the others": "t = s32[1,<=3] reduce-window(e, most), window={size=2x1}, "
    "to_apply=least x = s32[<=3] reshape(t)",
    "windows with a stride": "x = s32[<=2] reduce-window(d, most), window={size=2 stride=2}, "
    "to_apply=least",
    "a part of a size that is known": "k = s32[<=4] set-dimension-size(a, two), dimensions={0} "
    "c = s32[2] slice(k), slice={[0:2]} x = s32[<=2] set-dimension-size(c, two), dimensions={0}",
    "a reduction of several": "t = (s32[2], s32[2]) reduce(e, e, most, two), dimensions={1}, "
    "to_apply=both x = s32[2] get-tuple-element(t), index=1",
    "a loop": "s = (s32[<=4], s32[]) tuple(d, n) "
    "w = (s32[<=4], s32[]) while(s), condition=is_short, body=push "
    "x = s32[<=4] get-tuple-element(w), index=0",
}


def text_of(lines: str) -> str:
    return TEXT.replace("LINES", lines)


@pytest.mark.parametrize("name", OPERATIONS)
def test_xla_computes_the_same(xla: XlaCpu, name: str) -> None:
    text = text_of(OPERATIONS[name])
    graph = Lowering(hlo_lint.parse(text), Nodes()).program().graph
    for size in (1, 2, 3):
        inputs = [
            np.arange(1, 5, dtype=np.int32),
            np.arange(5, 11, dtype=np.int32).reshape(2, 3),
            np.array(size, np.int32),
        ]
        ours, theirs = (xla.run(each, inputs) for each in (emit_graph(graph), text))
        assert [array.tolist() for array in ours] == [array.tolist() for array in theirs]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('x = s32[<=4] custom-call(d), custom_call_target="f"', "f of arrays whose sizes"),
        (
            "x = s32[<=4] reduce-window(d, most), window={size=2 pad=1_0}, to_apply=least",
            "%x has padded or dilated windows",
        ),
        ("x = s32[<=4] add(d, a)", "%x reads arrays whose sizes may differ"),
        (
            "s = s32[2,2] slice(e), slice={[0:2], [1:3]} x = s32[4] reshape(s)",
            "%s slices a dimension",
        ),
        ("x = s32[4] dynamic-update-slice(a, d, zero)", "%x overwrites a whole dimension"),
        ("x = s32[<=4] dynamic-reshape(d, n)", "%x has sizes that are not constant"),
    ],
)
def test_what_it_reads_beyond_the_sizes_is_not_known(line: str, reason: str) -> None:
    with pytest.raises(NotLowered, match=reason):
        Lowering(hlo_lint.parse(text_of(line)), Nodes()).program()


PADDED = "  x = f32[<=6] parameter(0)\n  zero = f32[] constant(0)\n"
BEFORE = summing(
    PADDED
    + """  n = f32[<=6] exponential(x)
  s = f32[] reduce(n, zero), dimensions={0}, to_apply=add
  ROOT r = (f32[<=6], f32[]) tuple(n, s)"""
)
AFTER = summing(
    PADDED
    + """  p = (f32[6], s32[]) custom-call(x), custom_call_target="PadToStatic"
  whole = f32[6] get-tuple-element(p), index=0
  size = s32[] get-tuple-element(p), index=1
  n = f32[6] exponential(whole)
  i = s32[6] iota(), iota_dimension=0
  ends = s32[6] broadcast(size), dimensions={}
  is = pred[6] compare(i, ends), direction=LT
  zeros = f32[6] broadcast(zero), dimensions={}
  m = f32[6] select(is, n, zeros)
  s = f32[] reduce(m, zero), dimensions={0}, to_apply=add
  part = f32[<=6] custom-call(n, size), custom_call_target="SliceToDynamic"
  ROOT r = (f32[<=6], f32[]) tuple(part, s)"""
)


def test_a_mask_that_the_padder_forgets_is_found(xla: XlaCpu) -> None:
    assert changed(validate_dumps("m", run_of([BEFORE, AFTER]), xla)) == []
    for right, wrong in (("reduce(m,", "reduce(n,"), ("LT", "LE"), ("call(n, size", "call(m, one")):
        text = AFTER.replace(right, wrong).replace("  i =", "  one = s32[] constant(1)\n  i =")
        assert changed(validate_dumps("m", run_of([BEFORE, text]), xla)) == ["after_pass1"]
