"""Slices in loops and in fusions: their offsets, and the kernels that are handed them."""

from __future__ import annotations

import pytest

import hlo_lint
from hlo_lint.analysis.loop_values import Context, LoopValues, loops_around
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.kernels.ptx import read_ptx
from hlo_lint.kernels.ptx.global_accesses import GlobalAccesses, global_accesses
from tests.conftest import present

# Two loops, the inner one in the body of the outer; the index goes through a fusion, a call and an
# async-start, and through an element that the inner loop carries unchanged.
NEST = """
HloModule nest

offset {
  i = s32[] parameter(0)
  j = s32[] parameter(1)
  three = s32[] constant(3)
  more = s32[] multiply(i, three)
  ROOT sum = s32[] add(more, j)
}

sliced {
  x = f32[64,4]{1,0} parameter(0)
  at = s32[] parameter(1)
  zero = s32[] constant(0)
  ROOT d = f32[1,4]{1,0} dynamic-slice(x, at, zero), dynamic_slice_sizes={1,4}
}

async {
  x = f32[64,4]{1,0} parameter(0)
  at = s32[] parameter(1)
  ROOT f = f32[1,4]{1,0} fusion(x, at), kind=kLoop, calls=sliced
}

inner {
  p = (s32[], s32[], f32[64,4]{1,0}) parameter(0)
  j = s32[] get-tuple-element(p), index=0
  i = s32[] get-tuple-element(p), index=1
  x = f32[64,4]{1,0} get-tuple-element(p), index=2
  at = s32[] call(i, j), to_apply=offset
  s = ((f32[64,4]{1,0}, s32[]), f32[1,4]{1,0}, u32[]) async-start(x, at), calls=async
  row = f32[1,4]{1,0} async-done(s)
  two = s32[] constant(2)
  next = s32[] add(j, two)
  ROOT t = (s32[], s32[], f32[64,4]{1,0}) tuple(next, i, x)
}

inner_condition {
  p = (s32[], s32[], f32[64,4]{1,0}) parameter(0)
  j = s32[] get-tuple-element(p), index=0
  end = s32[] constant(21)
  ROOT c = pred[] compare(j, end), direction=LT
}

outer {
  p = (s32[], f32[64,4]{1,0}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[64,4]{1,0} get-tuple-element(p), index=1
  one = s32[] constant(1)
  t = (s32[], s32[], f32[64,4]{1,0}) tuple(one, i, x)
  w = (s32[], s32[], f32[64,4]{1,0}) while(t), condition=inner_condition, body=inner, backend_config={"known_trip_count":{"n":"10"},"known_init_step":{"init":"1","step":"2"},"known_induction_variable":{"tuple_index":"0"}}
  y = f32[64,4]{1,0} get-tuple-element(w), index=2
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[64,4]{1,0}) tuple(next, y)
}

outer_condition {
  p = (s32[], f32[64,4]{1,0}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  end = s32[] constant(2)
  ROOT c = pred[] compare(i, end), direction=LT
}

ENTRY e {
  zero = s32[] constant(0)
  x = f32[64,4]{1,0} parameter(0)
  t = (s32[], f32[64,4]{1,0}) tuple(zero, x)
  ROOT w = (s32[], f32[64,4]{1,0}) while(t), condition=outer_condition, body=outer, backend_config={"known_trip_count":{"n":"2"},"known_init_step":{"init":"0","step":"1"},"known_induction_variable":{"tuple_index":"0"}}
}
"""  # noqa: E501


def slice_of(module: Module) -> Instruction:
    computation = present(module.computation("sliced"))
    (instruction,) = computation.with_opcode("dynamic-slice")
    return instruction


def iterations(context: Context | None) -> tuple[int, ...]:
    return tuple(loop.iteration for loop in loops_around(context))


def test_an_index_is_run_at_the_first_three_iterations_and_the_last() -> None:
    module = hlo_lint.parse(NEST)
    offsets = {
        iterations(context): offset
        for context, offset in LoopValues(module).slice_offsets(slice_of(module))
    }
    # Row 3 * i + j, where j is 1, 3, 5 … and 19 in the last iteration, of 16 bytes each.
    assert offsets == {
        (inner, outer): 16 * (3 * outer + 1 + 2 * inner)
        for inner in (0, 1, 2, 9)
        for outer in (0, 1)
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"known_trip_count":{"n":"10"},', ""),  # the last iteration is unknown
        ("multiply(i, three)", "shift-left(i, three)"),  # an opcode that is not run
        ("three = s32[] constant(3)", "three = s32[] constant(64)"),  # XLA clamps the index
        ("f32[64,4]{1,0}", "f32[64,4]{1,0:T(8,128)}"),  # rows are not apart by their size
    ],
)
def test_what_is_not_followed_is_unknown(old: str, new: str) -> None:
    module = hlo_lint.parse(NEST.replace(old, new))
    offsets = LoopValues(module).slice_offsets(slice_of(module))
    assert all(iterations(context)[1] == 0 for context, _ in offsets)


def test_values_that_a_loop_carries_are_replayed() -> None:
    text = NEST.replace("tuple(next, i, x)", "tuple(next, next, x)")
    module = hlo_lint.parse(text)
    first = {
        iterations(context)[0]: offset
        for context, offset in LoopValues(module).slice_offsets(slice_of(module))
        if iterations(context)[1] == 0
    }
    # From iteration 1 on element 1 is that of element 0: row 4 * j. The last is not replayed.
    assert first == {0: 16, 1: 16 * 12, 2: 16 * 20}


KERNEL = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 out, .param .u32 n)
.reqntid 128
{
\t.reg .b32 %r<6>;
\t.reg .b64 %rd<6>;
\tld.param.u64 %rd1, [x];
\tld.param.u64 %rd2, [out];
\tld.param.u32 %r1, [n];
\tmul.wide.s32 %rd3, %r1, 4;
\tadd.s64 %rd4, %rd1, %rd3;
\tadd.s64 %rd5, %rd2, %rd3;
BODY
\tret;
}
"""


@pytest.mark.parametrize(
    ("body", "reads", "stored"),
    [
        ("\tld.global.u32 %r2, [%rd4];\n\tst.global.u32 [%rd5], %r2;", {0}, {1: 512}),
        ("\tst.global.v4.b32 [%rd5], {%r1,%r1,%r1,%r1};", set(), {1: 2048}),
        ("\tld.global.u32 %r2, [%rd5];\n\tst.global.u32 [%rd5+4], %r2;", {1}, {1: 512}),
        ("\tst.global.u32 [%rd5], %r1;\n\tld.global.u32 %r2, [%rd5];", set(), {1: 512}),
        ("\tred.global.add.u32 [%rd5], %r1;", {1}, {1: 512}),
        ("L:\n\tst.global.u32 [%rd5], %r1;\n\tbra L;", set(), {1: None}),
        ("\tadd.s64 %rd5, %rd4, %rd2;\n\tld.global.u32 %r2, [%rd5];", set(), {}),
        ("\tst.shared.u32 [%r1], %r1;", set(), {}),
    ],
)
def test_global_memory_is_followed_to_the_parameters(
    body: str, reads: set[int], stored: dict[int, int | None]
) -> None:
    accesses = global_accesses(read_ptx(KERNEL.replace("BODY", body)), (0, 1))
    assert accesses == GlobalAccesses(frozenset(reads), stored)


def test_a_kernel_that_cannot_be_followed_is_unknown() -> None:
    spilled = KERNEL.replace("BODY", "\tst.local.u64 [%r1], %rd1;")
    called = KERNEL.replace("BODY", "\tcall f, (%rd1);")
    assert [global_accesses(read_ptx(text), (0, 1)) for text in (spilled, called)] == [None, None]


@pytest.mark.parametrize(
    ("descriptor", "factor", "agrees"),
    [
        ((0, 16, 32), 0, True), ((0, 0, 32), 0, False), ((0, 16, 16), 0, False),
        ((0, 16, 32), 3, False),  # the outer loop moves the slice, too
        ((1, 16, 48), 3, False),
    ],
)  # fmt: skip
def test_a_descriptor_is_compared_through_the_nest(
    descriptor: tuple[int, int, int], factor: int, agrees: bool
) -> None:
    loop, offset, stride = descriptor
    config = (
        f'{{"dynamic_slice_config":{{"loop_index":"{loop}","byte_offset":"{offset}",'
        f'"byte_stride":"{stride}"}}}}'
    )
    sizes = "dynamic_slice_sizes={1,4}"
    text = NEST.replace(sizes, f"{sizes}, backend_config={config}")
    text = text.replace("three = s32[] constant(3)", f"three = s32[] constant({factor})")
    found = hlo_lint.lint(text, ["dynamic-slice-config-disagrees"]).findings
    assert (not found) is agrees
