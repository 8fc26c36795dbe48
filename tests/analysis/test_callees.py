"""The rows about callees: each says how it is known, and shapes are held against it."""

from __future__ import annotations

import pytest

from hlo_lint.analysis.callees import Call, callees
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
