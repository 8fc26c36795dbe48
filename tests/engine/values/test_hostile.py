"""Inputs that are out to break a pair of programs."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlo_lint
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.engine.values.demands import demands
from hlo_lint.engine.values.hostile import run_count
from hlo_lint.engine.values.lowering.graph import Nodes
from hlo_lint.engine.values.lowering.lower import Lowering
from hlo_lint.engine.values.validate import validate_dumps
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.xla.cpu import XlaCpu

TEXT = """HloModule m

most {{ a = s32[] parameter(0) b = s32[] parameter(1) ROOT c = s32[] maximum(a, b) }}

ENTRY e {{
{lines}
}}
"""


def entry(*lines: str) -> str:
    """A module whose entry has these lines; the last is the root."""
    return TEXT.format(lines="\n".join([*lines[:-1], f"ROOT {lines[-1]}"]))


SCALAR = "p = s32[] parameter(0)", "q = s32[] parameter(1)"


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (["c = s32[] constant(9)", "r = pred[] compare(p, c), direction=LT"], 9),
        (
            [
                "c = s32[] constant(22)",
                "t = s32[] constant(3)",
                "m = s32[] multiply(p, t)",
                "n = s32[] negate(m)",
                "r = pred[] compare(n, c), direction=EQ",
            ],
            -8,
        ),
        (
            [
                "x = s32[8] iota(), iota_dimension=0",
                "r = s32[2] dynamic-slice(x, p), dynamic_slice_sizes={2}",
            ],
            7,
        ),
        (
            [
                "x = s32[8] broadcast(p), dimensions={}",
                "c = s32[] constant(5)",
                "r = s32[] reduce(x, c), dimensions={0}, to_apply=most",
            ],
            4,
        ),
        (["r = s8[] convert(p)"], 128),
        (["r = s32[] shift-left(q, p)"], 32),
    ],
)
def test_a_parameter_is_asked_for_the_numbers_that_decide(lines: list[str], wanted: int) -> None:
    program = Lowering(hlo_lint.parse(entry(*SCALAR, *lines)), Nodes()).program()
    assert wanted in demands(program.graph).numbers[0]


INDEX = "x = s32[4] parameter(0)", "i = s32[] parameter(1)", "j = s32[] parameter(2)"
CLAMP = "a = s32[] parameter(0)", "x = s32[] parameter(1)", "b = s32[] parameter(2)"
FLAGS = tuple(f"c{number} = pred[] parameter({number})" for number in range(4))
WRONG = {
    "a number far away": (
        "p = s32[8] parameter(0)",
        "k = s32[] constant(123456)",
        "c = s32[8] broadcast(k), dimensions={}",
        "e = pred[8] compare(p, c), direction=EQ",
        "n = s32[8] negate(p)",
        "r = s32[8] select(e, n, p) -> r = s32[8] copy(p)",
    ),
    "an index out of range": (
        *INDEX,
        "o = s32[3] dynamic-slice(x, i), dynamic_slice_sizes={3}",
        "k = s32[] add(i, j)",
        "r = s32[1] dynamic-slice(o, j), dynamic_slice_sizes={1}"
        " -> r = s32[1] dynamic-slice(x, k), dynamic_slice_sizes={1}",
    ),
    "bounds in the wrong order": (
        *CLAMP,
        "c = s32[] clamp(a, x, b)",
        "r = s32[] maximum(c, a) -> r = s32[] copy(c)",
    ),
    "one combination of predicates": (
        *FLAGS,
        "n = pred[] not(c3)",
        "d = pred[] and(c0, c1)",
        "e = pred[] and(c2, n)",
        "f = pred[] constant(false)",
        "r = pred[] and(d, e) -> r = pred[] copy(f)",
    ),
    "a product that wraps": (
        "p = s8[32] parameter(0)",
        "m = s8[32] multiply(p, p)",
        "r = s8[32] abs(m) -> r = s8[32] copy(m)",
    ),
    "a square that overflows": (
        "p = f32[8] parameter(0)",
        "m = f32[8] multiply(p, p)",
        "r = f32[8] abs(p) -> r = f32[8] sqrt(m)",
    ),
    "an integer that f32 rounds": (
        "p = s32[8] parameter(0)",
        "f = f32[8] convert(p)",
        "r = s32[8] convert(f) -> r = s32[8] copy(p)",
    ),
}
RIGHT = {
    "a sum in another order": (
        *(f"{name} = f32[8] parameter({number})" for number, name in enumerate("abc")),
        "x = f32[8] add(a, b)",
        "y = f32[8] add(b, c)",
        "r = f32[8] add(x, c) -> r = f32[8] add(a, y)",
    ),
    "a total order by bits, which the comparison expander writes": (
        "a = f32[8] parameter(0)",
        "b = f32[8] parameter(1)",
        "k = s32[] constant(0)",
        "m = s32[] constant(2147483647)",
        "ks = s32[8] broadcast(k), dimensions={}",
        "ms = s32[8] broadcast(m), dimensions={}",
        "x = s32[8] bitcast-convert(a)",
        "y = s32[8] bitcast-convert(b)",
        "u = s32[8] xor(ms, x)",
        "v = s32[8] xor(ms, y)",
        "s = pred[8] compare(x, ks), direction=LT",
        "t = pred[8] compare(y, ks), direction=LT",
        "c = s32[8] select(s, u, x)",
        "d = s32[8] select(t, v, y)",
        "r = pred[8] compare(a, b), direction=LT, type=TOTALORDER"
        " -> r = pred[8] compare(c, d), direction=LT",
    ),
    "a quotient of a quotient": (
        *(f"{name} = f32[8] parameter({number})" for number, name in enumerate("abc")),
        "x = f32[8] divide(a, b)",
        "y = f32[8] multiply(b, c)",
        "r = f32[8] divide(x, c) -> r = f32[8] divide(a, y)",
    ),
}


def test_the_work_of_a_dot_of_scalars_is_known() -> None:
    program = Lowering(hlo_lint.parse(entry(*SCALAR, "r = s32[] dot(p, q)")), Nodes()).program()
    assert run_count(program, program, program.inputs) > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", [*WRONG, *RIGHT])
def test_a_wrong_rewrite_is_found_and_a_right_one_is_not(name: str) -> None:
    *lines, last = (WRONG | RIGHT)[name]
    paths = [Path(f"module_0001.m.000{n}.all.after_p{n}.before_p{n + 1}.txt") for n in range(2)]
    dumps = [
        PassDump.of(parse_file(entry(*lines, root), path), path)
        for root, path in zip(last.split(" -> "), paths, strict=True)
    ]
    with XlaCpu() as xla:
        assert bool(validate_dumps("m", dumps, xla).changes) == (name in WRONG)
