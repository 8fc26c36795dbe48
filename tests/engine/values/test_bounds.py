"""The programs whose results rounding cannot change much."""

from __future__ import annotations

import pytest

import hlo_lint
from hlo_lint.engine.values.bounds import is_smooth, rounded_share
from hlo_lint.engine.values.lowering.graph import Nodes
from hlo_lint.engine.values.lowering.lower import Lowering

PROGRAM = """HloModule m

add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}

difference {{ a = f32[] parameter(0) b = f32[] parameter(1) n = f32[] negate(b)
  ROOT c = f32[] add(a, n) }}

ENTRY e {{
  x = f32[8] parameter(0)
  zero = f32[] constant(0)
  one = f32[] constant(1)
  ones = f32[8] broadcast(one), dimensions={{}}
  root = f32[8] sqrt(x)
  exp = f32[8] exponential(x)
  square = f32[8] multiply(x, x)
  product = f32[8] multiply(square, exp)
  least = f32[8] maximum(x, ones)
  above = f32[8] add(exp, product)
  sum = f32[] reduce(exp, zero), dimensions={{0}}, to_apply=add
  rest = f32[] reduce(exp, zero), dimensions={{0}}, to_apply=difference
  sums = f32[8] broadcast(sum), dimensions={{}}
  angle = c64[8] complex(x, x)
  turn = c64[8] exponential(angle)
  turned = c64[8] log(turn)
  rests = f32[8] broadcast(rest), dimensions={{}}
  ROOT r = f32[8] {expression}
}}
"""


@pytest.mark.parametrize(
    ("expression", "smooth"),
    [
        ("multiply(x, exp)", True), ("divide(ones, exp)", True), ("divide(x, above)", True),
        ("divide(x, sums)", True), ("rsqrt(least)", True), ("log(above)", True),
        ("power(exp, x)", True), ("divide(x, x)", False), ("divide(x, square)", False),
        ("divide(x, product)", False), ("divide(x, rests)", False), ("divide(exp, root)", False),
        ("power(x, exp)", False), ("log(x)", False), ("real(turned)", False),
    ],
)  # fmt: skip
def test_a_division_by_what_is_more_than_0_is_smooth(expression: str, smooth: bool) -> None:
    module = hlo_lint.parse(PROGRAM.format(expression=expression))
    assert is_smooth(Lowering(module, Nodes()).program()) is smooth


FOLDS = """HloModule m

fold {{ a = {dtype}[] parameter(0) b = {dtype}[] parameter(1) ROOT c = {dtype}[] {opcode}(a, b) }}

ENTRY e {{
  x = {source}[8,4] parameter(0)
  first = f32[] constant({first})
  begin = {dtype}[] convert(first)
  y = {dtype}[8,4] convert(x)
  f = {dtype}[8] reduce({operand}, begin), dimensions={{1}}, to_apply=fold
  ROOT r = f32[8] convert(f)
}}
"""


@pytest.mark.parametrize(
    ("opcode", "source", "loses"),
    [("maximum", "bf16", False), ("add", "bf16", True), ("maximum", "f32", True)],
)
def test_a_maximum_in_an_operands_type_is_exact(opcode: str, source: str, loses: bool) -> None:
    nodes = Nodes()
    facts = {"opcode": opcode, "source": source, "first": "0" if opcode == "add" else "-inf"}
    ours, theirs = (
        FOLDS.format(dtype=dtype, operand="x" if dtype == source else "y", **facts)
        for dtype in ("f32", "bf16")
    )
    before, after = (Lowering(hlo_lint.parse(text), nodes).program() for text in (ours, theirs))
    assert (rounded_share(before, after, False) > 0) is loses
