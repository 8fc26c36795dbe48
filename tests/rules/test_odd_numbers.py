"""Numbers that no attribute or type may have stop no rule: they are findings, or nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hlo_lint

MODULE = """\
HloModule m

add {{ x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }}

ENTRY e {{
  a = f32[4,8]{{1,0}} parameter(0)
  b = f32[8,4]{{1,0}} parameter(1)
  i = s32[] parameter(2)
  t = (s32[], f32[4,8]{{1,0}}) tuple(i, a)
  z = f32[] constant(0)
  n = s32[2]{{0}} constant({{1, 2}})
  {line}
}}
"""
NUMBERS = (
    *("-3", "-1", "99", "-9223372036854775808", "9223372036854775808", "18446744073709551616"),
    *("n", "{}", ""),
    "9" * 5000,  # more digits than `int` reads
)
TYPES = ("f32[-1]", "(f32[-1], s8[0])", "s99999999999999999999[]", "f32[-1]{0:S(5)}")
STEP = (
    "module_0001.m.0001.simplification.after_pipeline-start.before_algsimp.txt",
    "module_0001.m.0002.simplification.after_algsimp.before_pipeline-end.txt",
)
_is_typed = re.compile(r".*?(?= [a-z][\w-]*\()")
GATHER = "collapsed_slice_dims={@}, start_index_map={@}, index_vector_dim=@, slice_sizes={1,@}"
LINES = (
    "s32[] constant(@)",
    "s32[] get-dimension-size(a), dimensions={@}",
    "f32[4,8]{1,0} set-dimension-size(a, i), dimensions={@}",
    "f32[4,4]{1,0} dot(a, b), lhs_contracting_dims={@}, rhs_contracting_dims={@}",
    "s16[4,4]{1,0} dot(a, b), lhs_batch_dims={@}, rhs_batch_dims={@}, lhs_contracting_dims={1}, "
    "rhs_contracting_dims={@}",
    "s8[400,8]{1,0} iota(), iota_dimension=@",
    "f32[4,8]{1,0} get-tuple-element(t), index=@",
    "f32[8,4]{0,1} transpose(a), dimensions={@,0}",
    "f32[4,8,3]{2,1,0} broadcast(a), dimensions={@,1}",
    "f32[8]{0} reduce(a, z), dimensions={@}, to_apply=add",
    "f32[8,8]{1,0} concatenate(a, a), dimensions={@}",
    "f32[2,8]{1,0} slice(a), slice={[@:2:@], [0:@]}",
    "f32[5,8]{1,0} pad(a, z), padding=@_1x0_@",
    "f32[4,8]{1,0} sort(a), dimensions={@}, to_apply=add",
    "f32[4,8]{1,0} reverse(a), dimensions={@}",
    "f32[8,8]{1,0} all-gather(a), dimensions={@}, replica_groups={{@}}",
    "f32[2,8]{1,0} reduce-scatter(a), dimensions={@}, replica_groups=[@,2]<=[2], to_apply=add",
    "f32[4,8]{1,0} all-reduce(a), replica_groups=mesh['x'=@] {'x'}, to_apply=add, channel_id=@",
    "f32[4,8]{1,0} collective-permute(a), source_target_pairs={{@,1}}",
    "f32[2,4]{1,0} dynamic-slice(a, i, i), dynamic_slice_sizes={@,4}",
    "f32[2,8]{1,0} gather(a, n), offset_dims={@}, " + GATHER,
    "f32[4,8]{1,0} scatter(a, n, b), update_window_dims={@}, inserted_window_dims={@}, "
    "scatter_dims_to_operand_dims={@}, index_vector_dim=@, to_apply=add",
    "f32[4,8]{1,0} reduce-window(a, z), window={size=@x1 stride=@x1 pad=@_0x0_0}, to_apply=add",
    "f32[4,8]{1,0} convolution(a, b), window={size=@}, dim_labels=b0f_0io->b0f, "
    "feature_group_count=@, batch_group_count=@",
    'f32[4,8]{1,0} custom-call(a), custom_call_target="f", '
    "output_to_operand_aliasing={{@}: (@, {@})}",
    "f32[4,8]{1,0} reduce-precision(a), exponent_bits=@, mantissa_bits=@",
    "(f32[4,2]{1,0}, s32[4,2]{1,0}) topk(a), k=@, largest=@",
    "f32[4,8]{1,0} copy(a), sharding={devices=[@,1]<=[2]T(@)}",
    "f32[4,8]{1,0} copy(a), sharding={mesh['x'=@], [{'x':(@)2}, {}]}",
    'f32[4,8]{1,0} copy(a), origin={{"x" {@}}}, metadata={source_line=@ stack_frame_id=@}',
    "f32[4,8]{1,0} copy(a), result_accuracy={tolerance={atol=@,rtol=0,ulps=@}}",
    "f32[1,8]{1,0} dynamic-slice(a, g, i), dynamic_slice_sizes={1,8}\n"
    "  g = s32[] get-tuple-element(t), index=@",
)


@pytest.mark.parametrize("line", LINES)
def test_no_number_of_an_attribute_stops_a_rule(line: str) -> None:
    for number in NUMBERS:
        text = MODULE.format(line=f"ROOT r = {line.replace('@', number)}")
        report = hlo_lint.lint(text)
        assert [f.message for f in report if f.rule == "internal-error"] == [], number


@pytest.mark.parametrize("line", LINES)
def test_no_number_or_type_that_a_pass_changes_stops_a_rule(line: str, tmp_path: Path) -> None:
    usual = line.replace("@", "1")
    changed = [line.replace("@", number) for number in NUMBERS]
    changed += [_is_typed.sub(written, usual, count=1) for written in TYPES]
    for odd in changed:
        for before, after in ((usual, odd), (odd, usual), (odd, f"{odd}, metadata={{}}")):
            for name, written in zip(STEP, (before, after), strict=True):
                (tmp_path / name).write_text(MODULE.format(line=f"ROOT r = {written}"))
            report = hlo_lint.lint(tmp_path)
            assert [f.message for f in report if f.rule == "internal-error"] == [], odd
