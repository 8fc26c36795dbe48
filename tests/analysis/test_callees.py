"""The rows about callees: each says how it is known, and shapes are held against it."""

from __future__ import annotations

import pytest

from hlo_lint.analysis.callees import Call, callees
from hlo_lint.analysis.emitted_regions import misused
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.shape import parse_shape

ROWS = """
_[*m,n]; _[*n]      | f32[2,3]; f32[9]      |
T[*d]; V[*d]        | u32[4,2]; f32[4,2]    |
T[*d]; T[*d]        | u32[4]; f32[4]        | takes u32[4] as operand 1, got f32[4]
T[*d]; V[*d]        | u32[4]; f32[5]        | takes f32[4] as operand 1, got f32[5]
_; ...              | f32[4]; (f32[])       |
_; _                | f32[4]                | takes 2 operands, got 1
_; ...              |                       | takes at least 1 operands, got 0
_                   | (f32[4])              | takes array as operand 0, got a tuple
?                   | (f32[4])              |
_[a,b]; s32[_,b]    | f32[2,3]; s32[9,3]    |
_[a,b]; s32[_,b]    | f32[2,3]; u32[9,3]    | takes s32[…,3] as operand 1, got u32[9,3]
_[*n]; _[*m,*n]     | f32[5,7]; f32[2,5,7]  |
_[*n]; _[*m,*n]     | f32[7]; f32[6,35]     | takes array[6,7] as operand 1, got f32[6,35]
_[n]                | f32[]                 | takes array[…] as operand 0, got f32[]
"""


@pytest.mark.parametrize("line", ROWS.strip().splitlines())
def test_types_are_held_against_a_row(line: str) -> None:
    rows, shapes, says = (part.strip() for part in line.split("|"))
    call = Call(("f",), tuple(rows.split("; ")), ("...",), "")
    operands = [parse_shape(text) for text in filter(None, shapes.split("; "))]
    assert call.mismatch(operands, parse_shape("f32[]"), {}) == says


def test_every_row_says_how_it_is_known() -> None:
    calls, regions = callees()
    asked = [row.asked for rows in calls.values() for row in rows]
    assert all(len(text) > 20 for text in [*asked, *(region.asked for region in regions)])


def test_a_row_is_of_the_configurations_and_the_releases_that_it_names() -> None:
    calls, regions = callees()
    rows = calls["__cublas$lt$matmul"]
    held = [row.operands for row in rows if row.holds({"beta": 1.0, "epilogue": "DEFAULT"})]
    assert held == [("_", "_", "_[*m,n]")]
    (dots,) = [region for region in regions if "dot" in region.holds_no]
    known = [dots.is_of(release) for release in ((0, 5, 3), (0, 10, 2), ())]
    assert known == [True, False, False]


def test_a_loop_fusion_of_either_backend_holds_no_other_fusion() -> None:
    text = (
        "HloModule m\nf {\n  a = f32[8] parameter(0)\n  ROOT n = f32[8] negate(a)\n}\n"
        "g {\n  a = f32[8] parameter(0)\n  ROOT n = f32[8] fusion(a), kind=kLoop, calls=f\n}\n"
        "ENTRY e {\n  p = f32[8] parameter(0)\n  "
        "ROOT r = f32[8] fusion(p), kind=kLoop, calls=g\n}\n"
    )
    (module,) = parse_file(text).modules
    held = {
        region.backends: [(runner.name, reason.partition(":")[0]) for runner, reason in found]
        for region in callees()[1]
        if (found := list(misused(region, module)))
    }
    expected = [("r", "a loop fusion holds the fusion %n")]
    assert held == {("gpu",): expected, ("cpu",): expected}


@pytest.mark.parametrize(
    ("rows", "columns", "is_fit"), [(16, 64, True), (31, 64, True), (32, 64, False)]
)
def test_a_reduction_too_short_for_a_warp_is_computed_on_the_way(
    rows: int, columns: int, is_fit: bool
) -> None:
    # XLA:GPU of jaxlib 0.11.2, no passes: it emits the first two, and no kernel of the third.
    text = (
        "HloModule m\nadd {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  "
        "ROOT c = f32[] add(a, b)\n}\n"
        f"f {{\n  a = f32[{rows},{columns}] parameter(0)\n  z = f32[] constant(0)\n  "
        f"s = f32[{columns}] reduce(a, z), dimensions={{0}}, to_apply=add\n  "
        "t = f32[] reduce(s, z), dimensions={0}, to_apply=add\n  "
        f"ROOT r = (f32[], f32[{columns}]) tuple(t, s)\n}}\n"
        f"ENTRY e {{\n  p = f32[{rows},{columns}] parameter(0)\n  "
        f"ROOT r = (f32[], f32[{columns}]) fusion(p), kind=kInput, calls=f\n}}\n"
    )
    (module,) = parse_file(text).modules
    (region,) = (region for region in callees()[1] if region.has_equal_reductions)
    assert (not list(misused(region, module))) is is_fit


@pytest.mark.parametrize(
    ("opcode", "part", "is_sound"),
    [
        ("slice(p), slice={[1:2], [0:8], [0:8]}", "1,8,8", True),
        ("slice(p), slice={[1:2], [2:6], [0:8]}", "1,4,8", True),
        ("slice(p), slice={[0:4], [0:8], [2:6]}", "4,8,4", False),
        ("slice(p), slice={[0:4], [2:3], [0:8]}", "4,1,8", False),
    ],
)
def test_a_dynamic_slice_fusion_takes_one_piece_of_memory(
    opcode: str, part: str, is_sound: bool
) -> None:
    kind = '"name":"dynamic_address_computation"'
    text = (
        "HloModule m\nf {\n  p = f32[4,8,8]{2,1,0} parameter(0)\n"
        f"  ROOT s = f32[{part}]{{2,1,0}} {opcode}\n}}\n"
        "ENTRY e {\n  p = f32[4,8,8]{2,1,0} parameter(0)\n"
        f"  ROOT r = f32[{part}]{{2,1,0}} fusion(p), kind=kCustom, calls=f, backend_config="
        f'{{"fusion_backend_config":{{"custom_fusion_config":{{{kind}}}}}}}\n}}\n'
    )
    (module,) = parse_file(text).modules
    (region,) = [one for one in callees()[1] if one.slices_are_contiguous]
    reasons = [reason for _, reason in misused(region, module)]
    assert [("several pieces" in reason) for reason in reasons] == [True] * (not is_sound)
