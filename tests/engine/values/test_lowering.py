"""Modules as values: what is semantics-free vanishes, what a configuration says is computed."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import hlo_lint
from hlo_lint.engine.values.compare import largest_error, result_difference
from hlo_lint.engine.values.inputs import inputs_of
from hlo_lint.engine.values.lowering.emit import NATIVE, WIDE, emit_graph
from hlo_lint.engine.values.lowering.graph import Nodes, NotLowered, nodes_in_order
from hlo_lint.engine.values.lowering.lower import Lowering
from hlo_lint.engine.values.lowering.program import Program
from hlo_lint.engine.values.programs import in_types
from hlo_lint.xla.cpu import XlaCpu
from tests.texts import counted, entry, summing


def lowered(text: str, nodes: Nodes | None = None) -> Program:
    return Lowering(hlo_lint.parse(text), nodes or Nodes()).program()


def opcodes(program: Program) -> list[str]:
    return [node.opcode for node in nodes_in_order(program.graph.roots)]


PLAIN = entry(
    """  x = f32[4,8] parameter(0)
  y = f32[4,8] add(x, x)
  ROOT z = f32[8,4] transpose(y), dimensions={1,0}"""
)
doubling = partial(
    entry, before="f {\n  p = f32[4,8] parameter(0)\n  ROOT s = f32[4,8] add(p, p)\n}\n\n"
)
SAME = {
    "layouts, copies and a bitcast": entry("""  x = f32[4,8]{1,0} parameter(0)
  c = f32[4,8]{0,1} copy(x)
  y = f32[4,8]{0,1} add(c, c)
  ROOT z = f32[8,4]{1,0} bitcast(y)"""),
    "a fusion": entry(
        "  x = f32[4,8] parameter(0)\n  ROOT r = f32[8,4] fusion(x), kind=kLoop, calls=f",
        "f { p = f32[4,8] parameter(0) s = f32[4,8] add(p, p)\n"
        "  ROOT t = f32[8,4] transpose(s), dimensions={1,0} }\n",
    ),
    "an asynchronous call and a copy to the host": doubling("""
  x = f32[4,8] parameter(0)
  h = (f32[4,8]{1,0:S(5)}, f32[4,8], u32[]) copy-start(x)
  d = f32[4,8]{1,0:S(5)} copy-done(h)
  s = ((f32[4,8]), f32[4,8], u32[]) async-start(d), calls=f
  t = f32[4,8] async-done(s)
  ROOT r = f32[8,4] transpose(t), dimensions={1,0}
"""),
    "types that are left out": entry("""  x = f32[4,8] parameter(0)
  y = add(x, x)
  t = tuple(y, x)
  s = f32[4,8] get-tuple-element(t), index=0
  ROOT z = transpose(s), dimensions={1,0}"""),
    "operands that are bound later": entry(
        """
  x = f32[4,8] parameter(0)
  s = ((), (), u32[]) call-start(), to_apply=f
  u = ((f32[4,8]), (), u32[]) async-update(s, x)
  v = ((f32[4,8], f32[4,8]), f32[4,8], u32[]) async-update(u, x)
  t = f32[4,8] call-done(v)
  ROOT r = f32[8,4] transpose(t), dimensions={1,0}
""",
        "f { p = f32[4,8] parameter(0) q = f32[4,8] parameter(1) ROOT s = f32[4,8] add(p, q) }\n",
    ),
    "marks of a call, and a call that is a fusion": doubling("""
  x = f32[4,8] parameter(0)
  b = (f32[4,8]) custom-call(x), custom_call_target="__xla_internal_call_marker_before"
  g = f32[4,8] get-tuple-element(b), index=0
  c = f32[4,8] custom-call(g), custom_call_target="__cudnn$fusion", called_computations={f}
  a = f32[4,8] custom-call(c), custom_call_target="__xla_internal_call_marker_after"
  ROOT r = f32[8,4] transpose(a), dimensions={1,0}
"""),
    "a mutable buffer": entry("""  x = f32[4,8] parameter(0)
  b = b(f32[4,8]) custom-call(x), custom_call_target="Pin", output_to_operand_aliasing={{}: (0, {})}
  t = (b(f32[4,8])) tuple(b)
  c = b(f32[4,8]) get-tuple-element(t), index=0
  u = f32[4,8] custom-call(c), custom_call_target="Unpin", output_to_operand_aliasing={{}: (0, {})}
  y = f32[4,8] add(u, u)
  ROOT z = f32[8,4] transpose(y), dimensions={1,0}"""),
    "common subexpressions and dead code": entry("""  x = f32[4,8] parameter(0)
  dead = f32[4,8] multiply(x, x)
  y = f32[4,8] add(x, x)
  again = f32[4,8] add(x, x)
  t = (f32[4,8], f32[4,8]) tuple(y, again)
  second = f32[4,8] get-tuple-element(t), index=1
  ROOT z = f32[8,4] transpose(second), dimensions={1,0}"""),
}


@pytest.mark.parametrize("name", SAME)
def test_what_is_semantics_free_vanishes(name: str) -> None:
    nodes = Nodes()
    assert lowered(SAME[name], nodes).graph is lowered(PLAIN, nodes).graph


def test_a_copy_to_another_type_rounds() -> None:
    rounded = "  x = f32[8] parameter(0)\n  ROOT c = bf16[8] OPCODE(x)"
    assert equal_graphs(*(entry(rounded.replace("OPCODE", it)) for it in ("copy", "convert")))


def test_a_loop_is_one_node_whatever_its_computations_are_called() -> None:
    text = counted(
        {"x": "f32[4]"},
        "y = f32[4] add(x, x)",
        "y",
        """
  x = f32[4] parameter(0)
  w = LOOP(x)
  ROOT r = f32[4] get-tuple-element(w), index=1""",
    )
    nodes = Nodes()
    first = lowered(text, nodes)
    renamed = text.replace("=body", "=region_0").replace("body {", "region_0 {")
    assert lowered(renamed, nodes).graph is first.graph
    line = "w = (s32[], f32[4]) while(t), condition=condition, body=body"
    started = line.replace("w = (s32[], f32[4]) while(t)", "s = STATE while-start(t)")
    started = started.replace("STATE", "(((s32[], f32[4])), (s32[], f32[4]), u32[])")
    done = "\n  w = (s32[], f32[4]) while-done(s)"
    assert lowered(text.replace(line, started + done), nodes).graph is first.graph
    assert opcodes(first).count("while") == 1
    assert "while(" in emit_graph(first.graph)


def test_floats_become_f64_and_bits_stay_those_of_their_type() -> None:
    text = emit_graph(
        lowered(
            entry("""  x = f32[2] parameter(0)
  b = u32[2] bitcast-convert(x)
  h = bf16[2] convert(x)
  ROOT t = (u32[2], bf16[2]) tuple(b, h)""")
        ).graph,
        WIDE,
    )
    assert "f64[2] parameter(0)" in text
    assert "f32[2] convert(p0)" in text
    assert "bf16" not in text


def test_an_opaque_call_is_cut_and_says_so() -> None:
    program = lowered(
        entry("""  x = f32[4] parameter(0)
  ROOT y = f32[4] custom-call(x), custom_call_target="opaque" """)
    )
    assert [cut.what for cut in program.cuts] == ["opaque"]


def test_a_call_that_is_started_is_cut_as_the_call() -> None:
    line = '  x = f32[8] parameter(0)\n  {}, custom_call_target="solve"{}'
    plain = line.format("ROOT y = f32[8] custom-call(x)", "")
    started = "s = ((f32[8]), f32[8], s32[]) custom-call-start(x)"
    done = "\n  ROOT y = f32[8] custom-call-done(s)"
    assert equal_graphs(entry(plain), entry(line.format(started, done)))


def test_a_gemm_without_a_configuration_is_cut() -> None:
    line = "  x = f32[8,8] parameter(0)\n  ROOT y = (f32[8,8], s8[4]) custom-call(x, x), "
    program = lowered(entry(f'{line}custom_call_target="__cublas$gemm"'))
    assert [cut.what for cut in program.cuts] == ["__cublas$gemm"]


def test_a_cut_convolution_has_its_labels_and_sizes_in_its_signature() -> None:
    call = """  x = f32[2,2,2] parameter(0)
  c = (f32[2,2,2], u8[0]) custom-call(x, x), window={{size=2}}, dim_labels={}, feature_group_count=2, custom_call_target="__cudnn$convBackwardInput"
  ROOT y = f32[2,2,2] get-tuple-element(c), index=0"""  # noqa: E501
    programs = [lowered(entry(call.format(labels))) for labels in ("0bf_o0i->bf0", "b0f_o0i->b0f")]
    first, second = (program.cuts[0].signature for program in programs)
    assert first != second


def test_a_small_unsigned_index_is_read_as_a_wide_one() -> None:
    lines = """  x = f32[200] parameter(0)
  i = u8[] constant(150)
  {}ROOT y = f32[1] dynamic-slice(x, {}), dynamic_slice_sizes={{1}}"""
    wide = lines.format("w = s64[] convert(i)\n  ", "w")
    assert equal_graphs(entry(lines.format("", "i")), entry(wide))


def test_an_offset_in_bytes_of_elements_of_4_bits_is_left_to_the_operands() -> None:
    lines = """  x = u4[8]{0:E(4)} parameter(0)
  i = s32[] constant(1)
  ROOT y = u4[2]{0:E(4)} dynamic-slice(x, i), dynamic_slice_sizes={2}"""
    noted = ', backend_config={"dynamic_slice_config":{"byte_offset":"-1","byte_stride":"0"}}'
    assert equal_graphs(entry(lines), entry(lines + noted))


def test_two_devices_exchange_values_in_one_program() -> None:
    text = partial(summing, header=", num_partitions=2")("""
  x = f32[4] parameter(0)
  ROOT r = f32[4] all-reduce(x), replica_groups={{0,1}}, channel_id=1, to_apply=add
""")
    program = lowered(text)
    assert (program.devices, len(program.inputs)) == (2, 2)
    assert opcodes(program) == ["parameter"] * 2 + ["add"]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("  x = f32[<=4] parameter(0)\n  ROOT y = f32[<=4] cholesky(x)", "known at run time"),
        ("  x = f32[4] parameter(0)\n  ROOT y = f32[4] add(x, gone)", "gone"),
        (
            "  x = f32[4] parameter(0)\n  ROOT y = f32[4] custom-call(x, x), "
            'custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":3}',
            "gemm_backend_config has the wrong type",
        ),
        (
            "  x = f32[4] parameter(0)\n  s = ((), (), u32[]) async-start(), calls={ p = f32[4] "
            "parameter(0) ROOT n = f32[4] negate(p) }\n  ROOT y = f32[4] async-done(s)",
            "%y ends an operation whose operands are not all bound",
        ),
        ("  x = f32[4] parameter(0)\n  ROOT y = custom-call(x)", "%y has no shape, and none"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(lines: str, reason: str) -> None:
    with pytest.raises(NotLowered, match=reason):
        lowered(entry(lines))


def test_a_channel_joins_all_partitions_of_the_replicas_that_are_named() -> None:
    text = partial(summing, header=", num_partitions=4")("""
  x = f32[4] parameter(0)
  ROOT r = f32[4] all-reduce(x), replica_groups={{0}}, channel_id=1, to_apply=add
""")
    assert opcodes(lowered(text)).count("add") == 3


def test_a_call_reads_its_operands_as_its_constraints_say() -> None:
    text = entry("""
  x = f32[4,2]{LAYOUT} parameter(0)
  ROOT y = f32[4,2]{1,0} custom-call(x), custom_call_target="opaque",
    operand_layout_constraints={f32[4,2]{0,1}}
""")
    nodes = Nodes()
    before, after = (lowered(text.replace("LAYOUT", order), nodes) for order in ("1,0", "0,1"))
    assert before.graph is after.graph


def equal_graphs(*texts: str) -> bool:
    nodes = Nodes()
    return len({lowered(text, nodes).graph.number for text in texts}) == 1


def moved(source: str, target: str, between: str = "bitcast(x)") -> str:
    return entry(f"  x = {source} parameter(0)\n  ROOT y = {target} {between}")


def test_a_tile_of_one_row_orders_elements_as_no_row_does() -> None:
    assert equal_graphs(
        moved("s32[8]{0:T(128)}", "s32[8,1]{0,1:T(1,128)}"),
        moved("s32[8]", "s32[8,1]", "reshape(x)"),
    )


def test_padding_is_zeros_that_a_bitcast_may_read_or_leave() -> None:
    narrow = moved("f32[256]{0:T(256)}", "f32[129]{0:T(256)}")
    assert equal_graphs(narrow, moved("f32[256]", "f32[129]", "slice(x), slice={[0:129]}"))
    wide = entry("""  x = f32[129] parameter(0)
  zero = f32[] constant(0)
  ROOT y = f32[256] pad(x, zero), padding=0_127""")
    assert equal_graphs(moved("f32[129]{0:T(256)}", "f32[256]{0:T(256)}"), wide)
    with pytest.raises(NotLowered, match="whose sizes in memory differ"):
        lowered(moved("f32[256]", "f32[129]"))


def test_a_scalar_is_the_first_element_of_its_tile() -> None:
    first = entry("""  x = u32[1,2] parameter(0)
  zero = u32[] constant(0)
  tile = u32[1,128] pad(x, zero), padding=0_0x0_126
  row = u32[128] reshape(tile)
  one = u32[1] slice(row), slice={[0:1]}
  ROOT y = u32[] reshape(one)""")
    assert equal_graphs(moved("u32[1,2]{1,0:T(1,128)}", "u32[]{:T(128)}"), first)


def test_the_halves_of_a_complex_number_are_its_parts() -> None:
    names = (("X64SplitLow", "real"), ("X64SplitHigh", "imag"), ("X64Combine", "complex"))

    def text(spelling: int) -> str:
        low, high, both = (
            (f'custom-call({{}}), custom_call_target="{pair[0]}"', f"{pair[1]}({{}})")[spelling]
            for pair in names
        )
        return entry(f"""  x = c64[4] parameter(0)
  low = f32[4] {low.format("x")}
  high = f32[4] {high.format("x")}
  ROOT y = c64[4] {both.format("low, high")}""")

    assert equal_graphs(text(0), text(1))


def test_the_halves_of_a_float_are_the_nearest_one_and_what_it_lacks() -> None:
    calls = entry(
        """  x = f64[4] parameter(0)
  low = f32[4] custom-call(x), custom_call_target="X64SplitLow"
  high = f32[4] custom-call(x), custom_call_target="X64SplitHigh"
  ROOT y = f64[4] custom-call(low, high), custom_call_target="X64Combine\""""
    )
    numbers = entry("""  x = f64[4] parameter(0)
  high = f32[4] convert(x)
  near = f64[4] convert(high)
  lacking = f64[4] subtract(x, near)
  low = f32[4] convert(lacking)
  small = f64[4] convert(low)
  ROOT y = f64[4] add(small, near)""")
    assert equal_graphs(calls, numbers)


@pytest.mark.parametrize(
    ("target", "operation"),
    [
        ("Cholesky", "cholesky(x), lower=true"),
        (
            "InvertDiagBlocksUpperTriangular",
            "triangular-solve(x, one), left_side=true, lower=false, transpose_a=NO_TRANSPOSE",
        ),
    ],
)
def test_calls_of_tpus_factor_and_invert_matrices(target: str, operation: str) -> None:
    lines = """  x = f32[2,2] parameter(0)
  one = f32[2,2] constant({{1, 0}, {0, 1}})
  ROOT y = f32[2,2] """
    call = f'custom-call(x), custom_call_target="{target}"'
    assert equal_graphs(entry(lines + call), entry(lines + operation))


@pytest.mark.parametrize(
    "operation",
    [
        "reshape({})", "transpose({}), dimensions={{1,0}}", "reverse({}), dimensions={{0}}",
        "slice({}), slice={{[0:4], [0:4]}}",
    ],
)  # fmt: skip
def test_tpus_round_as_they_move(operation: str) -> None:
    rounded, first = (operation.format(name) for name in ("x", "n"))
    parts = "  x = f32[4,4] parameter(0)\n"
    moved = entry(f"{parts}  ROOT y = bf16[4,4] {rounded}")
    after = entry(f"{parts}  n = f32[4,4] {rounded}\n  ROOT y = bf16[4,4] convert(n)")
    before = entry(f"{parts}  n = bf16[4,4] convert(x)\n  ROOT y = bf16[4,4] {first}")
    assert equal_graphs(moved, after) or equal_graphs(moved, before)


def test_a_call_of_tpus_inverts_the_parts_of_complex_matrices_together() -> None:
    parts = """  x = f32[2,2] parameter(0)
  y = f32[2,2] parameter(1)
"""
    call = 'custom-call(x, y), custom_call_target="InvertDiagBlocksLowerTriangular"'
    solve = "triangular-solve(z, one), left_side=true, lower=true, transpose_a=NO_TRANSPOSE"
    one_call = f"{parts}  ROOT r = (f32[2,2], f32[2,2]) {call}"
    spelled = f"""{parts}  z = c64[2,2] complex(x, y)
  real = f32[2,2] constant({{{{1, 0}}, {{0, 1}}}})
  one = c64[2,2] convert(real)
  i = c64[2,2] {solve}
  re = f32[2,2] real(i)
  im = f32[2,2] imag(i)
  ROOT r = (f32[2,2], f32[2,2]) tuple(re, im)"""
    assert equal_graphs(entry(one_call), entry(spelled))


@pytest.mark.parametrize(("starts", "same"), [((0, 2), True), ((2, 0), True), ((2, 2), False)])
def test_slices_lie_in_memory_as_in_their_array(starts: tuple[int, int], same: bool) -> None:
    parts = "\n".join(
        f"  s{at} = f32[2,3] slice(x), slice={{[{start}:{start + 2}], [0:3]}}"
        for at, start in enumerate(starts)
    )
    call = 'custom-call(s0, s1), custom_call_target="ConcatBitcast"'
    joined = entry(f"  x = f32[4,3] parameter(0)\n{parts}\n  ROOT y = f32[4,3] {call}")
    whole = entry("  x = f32[4,3] parameter(0)\n  ROOT y = f32[4,3] copy(x)")
    assert equal_graphs(joined, whole) is same


@pytest.mark.parametrize("window", ["size=3 pad=2_1 lhs_dilate=2", "size=3 pad=1_1 rhs_reversal=1"])
def test_a_forward_call_of_cudnn_has_the_window_of_the_convolution(window: str) -> None:
    size = 8 if "dilate" in window else 4
    rest = f"window={{{window}}}, dim_labels=b0f_0io->b0f"
    call = f'custom-call(x, k), {rest}, custom_call_target="__cudnn$convForward"'
    parameters = "  x = f32[2,4,3] parameter(0)\n  k = f32[3,3,5] parameter(1)\n"
    called = f"""  c = (f32[2,{size},5], u8[0]) {call}
  ROOT y = f32[2,{size},5] get-tuple-element(c), index=0"""
    plain = f"  ROOT y = f32[2,{size},5] convolution(x, k), {rest}"
    assert equal_graphs(entry(parameters + called), entry(parameters + plain))


def test_a_gradient_of_filters_in_groups_is_a_convolution_of_batches_in_groups() -> None:
    lines = "  x = f32[2,8,4] parameter(0)\n  g = f32[2,8,4] parameter(1)\n"
    call = """  c = (f32[5,1,4], u8[0]) custom-call(x, g), window={size=5 pad=2_2},
    dim_labels=b0f_0io->b0f, feature_group_count=4, custom_call_target="__cudnn$convBackwardFilter"
  ROOT y = f32[5,1,4] get-tuple-element(c), index=0"""
    plain = """  ROOT y = f32[5,1,4] convolution(x, g), window={size=8 pad=2_2},
    dim_labels=f0b_i0o->0bf, batch_group_count=4"""
    assert equal_graphs(entry(lines + call), entry(lines + plain))


def test_ends_of_manual_regions_are_cut_alike_before_and_after_the_partitioner() -> None:
    together = entry("""  x = f32[8,4] parameter(0)
  y = f32[4] parameter(1)
  t = (f32[2,4], f32[1]) custom-call(x, y), custom_call_target="xla.sdy.GlobalToLocalShape"
  a = f32[2,4] get-tuple-element(t), index=0
  b = f32[1] get-tuple-element(t), index=1
  ROOT r = (f32[2,4], f32[1]) tuple(a, b)""")
    apart = entry("""  x = f32[8,4] parameter(0)
  y = f32[4] parameter(1)
  a = f32[2,4] custom-call(x), custom_call_target="SPMDFullToShardShape"
  b = f32[1] custom-call(y), custom_call_target="SPMDFullToShardShape"
  ROOT r = (f32[2,4], f32[1]) tuple(a, b)""")
    assert equal_graphs(together, apart)


def test_a_fused_collective_of_a_tpu_is_the_collective() -> None:
    gather = "all-gather(x), replica_groups={{0,1}}, dimensions={0}"
    of_two = partial(entry, header=", num_partitions=2")
    plain = of_two(f"  x = f32[2] parameter(0)\n  ROOT g = f32[4] {gather}")
    fused = plain.replace("ROOT g", "g").replace(
        "}\n}",
        """}
  s = (f32[2], f32[4], s32[2], u32[]) custom-call(g), custom_call_target="AsyncCollectiveStart"
  a = f32[2] get-tuple-element(s), index=0
  b = f32[4] get-tuple-element(s), index=1
  h = f32[4] all-gather(a), replica_groups={{0,1}}, dimensions={0}
  ROOT d = f32[4] custom-call(a, b, h), custom_call_target="AsyncCollectiveDone"
}""",
    )
    assert "AsyncCollectiveStart" in fused
    assert equal_graphs(plain, fused)


CONVOLUTIONS = {
    "a batch, as TPUs spell it": (
        "6,3,5 6,5,7 6,3,7",
        "0bf_0io->0bf",
        "size=6 stride=5 lhs_dilate=6",
    ),
    "a batch, as their gradients spell it": (
        "6,5,3 6,5,7 6,3,7",
        "0fb_0io->0bf",
        "size=6 stride=6 pad=5_5 lhs_dilate=5 rhs_reversal=1",
    ),
    "a sum over a dimension": ("6,3,5 6,5,7 1,3,7", "0bf_0io->0bf", "size=6"),
    "a dimension of the kernel": (
        "3,5,1 5,7,4 3,7,4",
        "bf0_io0->bf0",
        "size=4 pad=3_3 rhs_reversal=1",
    ),
    "a dimension of the image": ("3,5,4 5,7,1 4,3,7", "bf0_io0->0bf", "size=1"),
}


def convolution(shapes: str, labels: str, window: str) -> str:
    """A convolution of an image by a kernel, of these shapes and that of the result."""
    image, kernel, result = shapes.split()
    return entry(f"""  x = f32[{image}] parameter(0)
  y = f32[{kernel}] parameter(1)
  ROOT r = f32[{result}] convolution(x, y), window={{{window}}}, dim_labels={labels}""")


@pytest.mark.slow
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_that_is_a_dot_computes_the_same(name: str, xla: XlaCpu) -> None:
    text = convolution(*CONVOLUTIONS[name])
    module = hlo_lint.parse(text)
    program = lowered(text)
    assert "dot" in opcodes(program)
    inputs = inputs_of(module)
    expected = xla.run(text, inputs)
    assert result_difference(expected, xla.run(emit_graph(program.graph), inputs)) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shapes", "labels", "window"),
    [
        ("2,7,6,3 3,2,3,4 2,4,6,4", "b01f_01io->b01f", "size=3x2 stride=2x1 pad=1_1x0_1"),
        ("3,5,2,6 4,2,3,3 2,2,3,4", "f0b1_o0i1->0b1f", "size=2x3 pad=-1_-1x-1_2 rhs_dilate=1x2"),
        ("2,3,4 5,4,3 2,5,7", "b0f_oi0->bf0", "size=3 pad=2_0 lhs_dilate=3 rhs_reversal=1"),
        ("8,3,9 9,8,5 9,3,5", "f0b_0io->b0f", "size=9 pad=1_1 lhs_dilate=4 rhs_reversal=1"),
    ],
)
def test_f64_convolutions_run_as_dots(shapes: str, labels: str, window: str, xla: XlaCpu) -> None:
    text = convolution(shapes, labels, window)
    program = lowered(text)
    assert program.graph.roots[0].opcode == "convolution"
    wide = emit_graph(program.graph, WIDE)
    assert " convolution(" not in wide
    inputs = [array.astype("f8") for array in inputs_of(hlo_lint.parse(text))]
    expected = xla.run(text.replace("f32[", "f64["), inputs)
    assert result_difference(expected, xla.run(wide, inputs)) is None


@pytest.mark.parametrize(
    ("window", "size"),
    [
        ("size=6 pad=1_0", 2),
        ("size=6 rhs_reversal=1", 1),
        ("size=6 stride=5 lhs_dilate=6 rhs_reversal=1", 6),
    ],
)
def test_another_window_is_not_one_of_a_dot(window: str, size: int) -> None:
    shapes = f"6,3,5 6,5,7 {size},3,7"
    program = lowered(convolution(shapes, "0bf_0io->0bf", window))
    assert program.graph.roots[0].opcode == "convolution"


def test_a_top_k_is_the_sort_that_the_decomposer_makes_of_it() -> None:
    nodes = Nodes()
    whole = entry("""  x = f32[4,8] parameter(0)
  ROOT top = (f32[4,3], s32[4,3]) topk(x), k=3, largest=true""")
    decomposed = """HloModule m

greater { a = f32[] parameter(0) b = f32[] parameter(1)
  c = s32[] parameter(2) d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=GT, type=TOTALORDER }

ENTRY e {
  x = f32[4,8] parameter(0)
  places = s32[4,8] iota(), iota_dimension=1
  ordered = (f32[4,8], s32[4,8]) sort(x, places), dimensions={1}, is_stable=true, to_apply=greater
  keys = f32[4,8] get-tuple-element(ordered), index=0
  numbers = s32[4,8] get-tuple-element(ordered), index=1
  first = f32[4,3] slice(keys), slice={[0:4], [0:3]}
  second = s32[4,3] slice(numbers), slice={[0:4], [0:3]}
  ROOT r = (f32[4,3], s32[4,3]) tuple(first, second)
}
"""
    assert lowered(whole, nodes).graph is lowered(decomposed, nodes).graph
    call = """c { a = f32[] parameter(0) b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GT }

ENTRY e {
  x = f32[4,8] parameter(0)
  ROOT r = (f32[4,3], s32[4,3]) custom-call(x), custom_call_target="__gpu$TopK",
      called_computations={c}, backend_config={is_stable = true}
}
"""
    assert lowered(call, nodes).graph is lowered(whole, nodes).graph
    least = whole.replace("largest=true", "largest=false")
    assert lowered(call.replace("GT", "LT"), nodes).graph is lowered(least, nodes).graph
    assert lowered(call.replace("GT", "GE"), nodes).cuts


def test_a_sort_by_cub_is_a_sort_by_its_configuration() -> None:
    call = """  k = f32[8] parameter(0)
  v = s32[8] parameter(1)
  c = (f32[8], s32[8], u8[1]) custom-call(k, v), custom_call_target="%s",
      backend_config={%s}
  x = f32[8] get-tuple-element(c), index=0
  y = s32[8] get-tuple-element(c), index=1
  ROOT r = (f32[8], s32[8]) tuple(x, y)"""
    targets = "__cub$DeviceRadixSort", "xla.gpu.ext.cub_sort_unassigned_scratch_size"
    configurations = '"descending":true', '"sort_options":{"descending":true}'
    program, other = (
        lowered(entry(call % given), Nodes()) for given in zip(targets, configurations, strict=True)
    )
    assert not [*program.cuts, *other.cuts]
    assert emit_graph(program.graph) == emit_graph(other.graph)
    assert "direction=GT" in emit_graph(program.graph)


def test_scratch_memory_of_a_cut_call_may_grow() -> None:
    line = """  q = bf16[2,4,8] parameter(0)
  ROOT r = (bf16[2,4,8], u8[%d]) custom-call(q, q, q), custom_call_target="%s" """
    fmha = "__cudnn$fmhaSoftmax"
    first, second = (lowered(entry(line % (size, fmha))) for size in (0, 64))
    assert first.cuts[0].signature == second.cuts[0].signature
    own, other = (lowered(entry(line % (size, "mine"))) for size in (0, 64))
    assert own.cuts[0].signature != other.cuts[0].signature


@pytest.mark.slow
def test_what_stands_for_a_cut_call_is_as_exact_at_a_million_elements(xla: XlaCpu) -> None:
    program = lowered(
        entry("""  x = f32[1048576] parameter(0)
  ROOT c = f32[1048576] custom-call(x), custom_call_target="opaque"
""")
    )
    x = np.arange(1 << 20, dtype=np.float32) % 5 - 2
    native, wide = (
        xla.run(emit_graph(program.graph, given), in_types([x], program, given))
        for given in (NATIVE, WIDE)
    )
    assert largest_error(native, wide) < 2.0**-20


def test_a_constant_that_is_left_out_has_a_value_at_each_index() -> None:
    lines = "  x = f32[4,6] parameter(0)\n  c = {} constant({{...}})\n  ROOT r = f32[4,6] add(x, c)"
    texts = [entry(lines.format(f"f32[4,6]{{{layout}}}")) for layout in ("1,0", "0,1")]
    assert equal_graphs(*texts)


@pytest.mark.parametrize("linear", ["{}", '"byte_offset":"0","byte_stride":"0","linear":{{{}}}'])
def test_a_descriptor_gives_the_offset_in_the_form_of_each_release(linear: str) -> None:
    config = linear.format('"byte_offset":"16","byte_stride":"0"')
    lines = """  x = f32[4,4] parameter(0)
  z = s32[] constant(0)
  ROOT r = f32[1,4] dynamic-slice(x, z, z), dynamic_slice_sizes={1,4}, backend_config="""
    at_one = entry("""  x = f32[4,4] parameter(0)
  i = s64[] constant(4)
  row = f32[16] reshape(x)
  part = f32[4] dynamic-slice(row, i), dynamic_slice_sizes={4}
  ROOT r = f32[1,4] reshape(part)""")
    nodes = Nodes()
    described = lowered(entry(lines + f'{{"dynamic_slice_config":{{{config}}}}}'), nodes)
    starts = [
        node.operands[1].operands[0].literal
        for program in (described, lowered(at_one, nodes))
        for node in nodes_in_order(program.graph.roots)
        if node.opcode == "dynamic-slice" and node.operands[1].operands
    ]
    assert starts == [16]


def test_the_largest_value_of_a_product_of_8_bit_floats_is_a_result(xla: XlaCpu) -> None:
    call = """  x = f8e4m3fn[16,16] parameter(0)
  s = f32[] parameter(1)
  one = f32[] constant(1)
  c = (f8e4m3fn[16,16], f32[], s8[64]) custom-call(x, x, one, one, s), custom_call_target="__cublas$lt$matmul$f8", backend_config={"gemm_backend_config":{"alpha_real":1,"beta":0,"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]},"epilogue":"DEFAULT","damax_output":true}}
  ROOT r = f32[] get-tuple-element(c), index=1"""  # noqa: E501
    plain = """  x = f8e4m3fn[16,16] parameter(0)
  s = f32[] parameter(1)
  wide = f32[16,16] convert(x)
  d = f32[16,16] dot(wide, wide), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  a = f32[16,16] abs(d)
  zero = f32[] constant(0)
  ROOT r = f32[] reduce(a, zero), dimensions={0,1}, to_apply=max"""
    largest = (
        "max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT m = f32[] maximum(a, b) }\n\n"
    )
    inputs = inputs_of(hlo_lint.parse(entry(call)))
    one, other = (
        xla.run(emit_graph(lowered(text).graph), inputs)
        for text in (entry(call), entry(plain).replace("ENTRY", f"{largest}ENTRY"))
    )
    assert result_difference(one, other) is None


@pytest.mark.parametrize(
    ("groups", "are_alone"), [("{}", True), ("{{0}}", True), ("{{0,1}}", False)]
)
def test_partitions_of_a_replica_are_alone_without_a_channel(groups: str, are_alone: bool) -> None:
    text = f"""  x = f32[4] parameter(0)
  ROOT r = f32[4] all-reduce(x), replica_groups={groups}, to_apply=add"""
    (root, *_) = lowered(summing(text, header=", num_partitions=2")).graph.roots
    assert (root.opcode == "parameter") is are_alone


def test_a_channel_of_replica_0_joins_all_devices_where_the_header_counts_none() -> None:
    text = summing("""
  x = f32[4] parameter(0)
  r = f32[4] all-reduce(x), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add
  ROOT s = f32[4] all-reduce(r), channel_id=2, replica_groups={{0}}, to_apply=add
""")  # noqa: E501
    program = lowered(text)
    assert program.devices == 2
    assert program.graph.roots[0] is program.graph.roots[1]
    assert program.graph.roots[0].opcode == "add"
