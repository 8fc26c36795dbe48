"""Inputs that are out to break a pair of programs."""

from __future__ import annotations

import re

import pytest

import hlo_lint
from hlo_lint.engine.values import programs
from hlo_lint.engine.values.demands import demands
from hlo_lint.engine.values.hostile import HOSTILE, Wanted, hostile_value, run_count
from hlo_lint.engine.values.lowering.graph import Nodes
from hlo_lint.engine.values.lowering.lower import Lowering
from hlo_lint.engine.values.lowering.program import Input
from hlo_lint.engine.values.validate import validate_dumps
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.xla.cpu import XlaCpu
from tests.engine.values.test_validate import culprit, run_of

TEXT = """HloModule m

most {{ a = s32[] parameter(0) b = s32[] parameter(1) ROOT c = s32[] maximum(a, b) }}
sum_s32 {{ a = s32[] parameter(0) b = s32[] parameter(1) ROOT c = s32[] add(a, b) }}
most16 {{ a = bf16[] parameter(0) b = bf16[] parameter(1) ROOT c = bf16[] maximum(a, b) }}
sum32 {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}
rare32 {{ a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] add(a, b)
  k = f32[] constant(7)
  e = pred[] compare(c, k), direction=EQ
  n = f32[] negate(c)
  ROOT s = f32[] select(e, n, c) }}
sum16 {{ a = bf16[] parameter(0) b = bf16[] parameter(1) ROOT c = bf16[] add(a, b) }}
counts {{ s = (s32[], s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  ROOT c = pred[] compare(i, n), direction=LT }}
most32 {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT m = f32[] maximum(a, b) }}
sums {{ s = (s32[], s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  a = s32[] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  k = s32[] constant(13)
  e = pred[] compare(i, k), direction=EQ
  c = s32[] select(e, a, i)
  d = s32[] add(a, c)
  ROOT t = (s32[], s32[], s32[]) tuple(j, n, d) }}
sums_all {{ s = (s32[], s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  a = s32[] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  d = s32[] add(a, i)
  ROOT t = (s32[], s32[], s32[]) tuple(j, n, d) }}

ENTRY e {{
{lines}
}}
"""


def entry(text: str) -> str:
    """A module whose entry has these instructions, the root last; `all(1)` is an array of ones."""
    filled = r"\1_of = \2[] constant(\4)\n\1 = \2\3 broadcast(\1_of), dimensions={}"
    text = re.sub(r"(\w+) = (\w+)(\[.+\]) all\((.+)\)", filled, text)
    *lines, root = re.split(r"\n(?= *\w+ = )", text.strip("\n"))
    return TEXT.format(lines="\n".join([*lines, f"ROOT {root.strip()}"]))


SCALAR = "p = s32[] parameter(0)\nq = s32[] parameter(1)\n"


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("c = s32[] constant(9)\nr = pred[] compare(p, c), direction=LT", 9),
        (
            """
            c = s32[] constant(22)
            t = s32[] constant(3)
            m = s32[] multiply(p, t)
            n = s32[] negate(m)
            r = pred[] compare(n, c), direction=EQ""",
            -8,
        ),
        (
            """
            x = s32[8] iota(), iota_dimension=0
            r = s32[2] dynamic-slice(x, p), dynamic_slice_sizes={2}""",
            7,
        ),
        (
            """
            x = s32[8] broadcast(p), dimensions={}
            c = s32[] constant(5)
            r = s32[] reduce(x, c), dimensions={0}, to_apply=most""",
            4,
        ),
        (
            """
            one = s32[] constant(1)
            t = (s32[], s32[], s32[]) tuple(one, p, q)
            w = (s32[], s32[], s32[]) while(t), condition=counts, body=sums_all
            r = s32[] get-tuple-element(w), index=2""",
            3,  # a second turn
        ),
        (
            "c = s32[] constant(1000)\ne = pred[] compare(p, c), direction=EQ\n"
            "x = s32[] select(e, q, p)\n"
            + "".join(f"c{n} = s32[] constant({100 * n + 50})\n" for n in range(20))
            + "".join(f"d{n} = pred[] compare(x, c{n}), direction=LT\n" for n in range(20))
            + f"r = ({'pred[], ' * 19}pred[]) tuple({', '.join(f'd{n}' for n in range(20))})",
            1000,  # beside the numbers of many other uses
        ),
        ("c = s32[] constant(16)\nr = s32[] multiply(p, c)", (1 << 27)),
        ("r = s8[] convert(p)", 128),
        ("r = s32[] shift-left(q, p)", 32),
    ],
)
def test_a_parameter_is_asked_for_the_numbers_that_decide(lines: str, wanted: int) -> None:
    program = Lowering(hlo_lint.parse(entry(SCALAR + lines)), Nodes()).program()
    assert wanted in demands(program.graph).numbers[0]


INDEX = "x = s32[4] parameter(0)\ni = s32[] parameter(1)\nj = s32[] parameter(2)"
CLAMP = "a = s32[] parameter(0)\nx = s32[] parameter(1)\nb = s32[] parameter(2)"
FLAGS = "\n".join(f"c{number} = pred[] parameter({number})" for number in range(4))
ABC = "a = f32[8] parameter(0)\nb = f32[8] parameter(1)\nc = f32[8] parameter(2)"
WRONG = {
    "a number far away": """
        p = s32[8] parameter(0)
        c = s32[8] all(123456)
        e = pred[8] compare(p, c), direction=EQ
        n = s32[8] negate(p)
        r = s32[8] select(e, n, p) -> r = s32[8] copy(p)""",
    "an index out of range": INDEX
    + """
        o = s32[3] dynamic-slice(x, i), dynamic_slice_sizes={3}
        k = s32[] add(i, j)
        r = s32[1] dynamic-slice(o, j), dynamic_slice_sizes={1}
        -> r = s32[1] dynamic-slice(x, k), dynamic_slice_sizes={1}""",
    "bounds in the wrong order": CLAMP
    + """
        c = s32[] clamp(a, x, b)
        r = s32[] maximum(c, a) -> r = s32[] copy(c)""",
    "one combination of predicates": FLAGS
    + """
        n = pred[] not(c3)
        d = pred[] and(c0, c1)
        e = pred[] and(c2, n)
        f = pred[] constant(false)
        r = pred[] and(d, e) -> r = pred[] copy(f)""",
    "a product that wraps": """
        p = s8[32] parameter(0)
        m = s8[32] multiply(p, p)
        r = s8[32] abs(m) -> r = s8[32] copy(m)""",
    "a square that overflows": """
        p = f32[8] parameter(0)
        m = f32[8] multiply(p, p)
        r = f32[8] abs(p) -> r = f32[8] sqrt(m)""",
    "an accumulator with fewer digits": """
        p = bf16[512] parameter(0)
        z = f32[] constant(0)
        n = bf16[] constant(0)
        w = f32[512] convert(p)
        s = f32[] reduce(w, z), dimensions={0}, to_apply=sum32
        r = bf16[] convert(s) -> r = bf16[] reduce(p, n), dimensions={0}, to_apply=sum16""",
    "a product of bf16 in place of the highest precision": """
        p = f32[4,4] parameter(0)
        n = bf16[4,4] convert(p)
        w = f32[4,4] convert(n)
        r = f32[4,4] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0},
            operand_precision={highest,highest}
        -> r = f32[4,4] dot(w, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
    "a constant with fewer digits": """
        p = f32[] parameter(0)
        k = f32[] constant(0.1)
        n = bf16[] constant(0.1)
        w = f32[] convert(n)
        r = f32[] add(p, k) -> r = f32[] add(p, w)""",
    "other digits of a type": """
        p = f32[8] parameter(0)
        r = f32[8] reduce-precision(p), exponent_bits=8, mantissa_bits=7
        -> r = f32[8] reduce-precision(p), exponent_bits=5, mantissa_bits=10""",
    "a difference that vanishes in f64": """
        p = f32[8] parameter(0)
        e = f32[8] exponential(p)
        ones = f32[8] all(1)
        r = f32[8] exponential-minus-one(p) -> r = f32[8] subtract(e, ones)""",
    "the sign of a zero": """
        p = f32[8] parameter(0)
        zeros = f32[8] all(0)
        r = f32[8] negate(p) -> r = f32[8] subtract(zeros, p)""",
    "a mask that keeps NaNs": """
        p = f32[8] parameter(0)
        c = pred[8] parameter(1)
        zeros = f32[8] all(0)
        m = f32[8] convert(c)
        r = f32[8] select(c, p, zeros) -> r = f32[8] multiply(m, p)""",
    "a clamp before a conversion": """
        p = f32[8] parameter(0)
        k = f32[] constant(448)
        m = f32[] constant(-448)
        d = f32[8] clamp(m, p, k)
        r = f8e4m3fn[8] convert(p) -> r = f8e4m3fn[8] convert(d)""",
    "a number that is rounded twice": """
        p = f32[8] parameter(0)
        h = f16[8] convert(p)
        r = f8e5m2[8] convert(p) -> r = f8e5m2[8] convert(h)""",
    "integers compared as floats": """
        p = s64[8] parameter(0)
        q = s64[8] parameter(1)
        f = f64[8] convert(p)
        g = f64[8] convert(q)
        r = pred[8] compare(p, q), direction=LT -> r = pred[8] compare(f, g), direction=LT""",
    "the 14th iteration": """
        x = s32[] parameter(0)
        n = s32[] parameter(1)
        z = s32[] constant(0)
        t = (s32[], s32[], s32[]) tuple(z, n, x)
        v = (s32[], s32[], s32[]) while(t), condition=counts, body=sums
        w = (s32[], s32[], s32[]) while(t), condition=counts, body=sums_all
        r = s32[] get-tuple-element(v), index=2 -> r = s32[] get-tuple-element(w), index=2""",
    "a sum of a certain size": """
        p = s32[8] parameter(0)
        z = s32[] constant(0)
        s = s32[] reduce(p, z), dimensions={0}, to_apply=sum_s32
        k = s32[] constant(4242)
        e = pred[] compare(s, k), direction=EQ
        r = s32[] select(e, z, s) -> r = s32[] copy(s)""",
    "a product of a certain size": SCALAR
    + """
        m = s32[] multiply(p, q)
        k = s32[] constant(391)
        e = pred[] compare(m, k), direction=EQ
        r = s32[] select(e, p, q) -> r = s32[] copy(q)""",
    "two scalars that are equal and large": SCALAR
    + """
        k = s32[] constant(50)
        g = pred[] compare(p, k), direction=GT
        l = pred[] compare(p, q), direction=LT
        m = pred[] compare(p, q), direction=LE
        r = pred[] and(g, l) -> r = pred[] and(g, m)""",
    "a maximum of infinities": """
        p = bf16[8] parameter(0)
        i = bf16[] constant(-inf)
        k = bf16[] constant(-3e38)
        r = bf16[] reduce(p, i), dimensions={0}, to_apply=most16
        -> r = bf16[] reduce(p, k), dimensions={0}, to_apply=most16""",
    "an integer that f32 rounds": """
        p = s32[8] parameter(0)
        f = f32[8] convert(p)
        r = s32[8] convert(f) -> r = s32[8] copy(p)""",
    "a number that is infinite": """
        p = f32[64] parameter(0)
        r = pred[64] is-finite(p) -> r = pred[64] compare(p, p), direction=EQ""",
    "another constant in bf16": """
        p = bf16[] parameter(0)
        k = bf16[] constant(0.3)
        l = bf16[] constant(0.4)
        q = bf16[] abs(p)
        r = bf16[] add(q, k) -> r = bf16[] add(q, l)""",
    "a bound of many quotients": """
        p = bf16[512,512] parameter(0)
        q = bf16[] parameter(1)
        qs = bf16[512,512] broadcast(q), dimensions={}
        ks = bf16[512,512] all(448)
        ls = bf16[512,512] all(-448)
        d = bf16[512,512] divide(p, qs)
        c = bf16[512,512] clamp(ls, d, ks)
        m = bf16[512,512] maximum(ls, d)
        r = f8e4m3fn[512,512] convert(c) -> r = f8e4m3fn[512,512] convert(m)""",
    "a maximum of a certain size in many rows": """
        p = f32[512,512] parameter(0)
        i = f32[] constant(-inf)
        m = f32[512] reduce(p, i), dimensions={1}, to_apply=most32
        ks = f32[512] all(12345)
        e = pred[512] compare(m, ks), direction=EQ
        n = f32[512] negate(m)
        r = f32[512] select(e, n, m) -> r = f32[512] copy(m)""",
    "a start beyond a large array": """
        p = f32[2,512,512] parameter(0)
        i = s32[] parameter(1)
        z = s32[] constant(0)
        k = s32[] constant(2)
        j = s32[] remainder(i, k)
        r = f32[1,512,512] dynamic-slice(p, i, z, z), dynamic_slice_sizes={1,512,512}
        -> r = f32[1,512,512] dynamic-slice(p, j, z, z), dynamic_slice_sizes={1,512,512}""",
    "a rare sum of products of 16 bits": """
        p = bf16[16,512] parameter(0)
        q = bf16[64,512] parameter(1)
        t = bf16[512,64] transpose(q), dimensions={1,0}
        d = bf16[16,64] dot(p, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        w = f32[16,64] convert(d)
        z = f32[] constant(0)
        s = f32[64] reduce(w, z), dimensions={0}, to_apply=rare32
        o = f32[64] reduce(w, z), dimensions={0}, to_apply=sum32
        r = bf16[64] convert(o) -> r = bf16[64] convert(s)""",
    "an overflow after a product of another type": """
        p = f16[4,32] parameter(0)
        q = f16[32,8] parameter(1)
        d = f32[4,8] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        ks = f32[4,8] all(1e+36)
        m = f32[4,8] multiply(d, ks)
        v = f32[4,8] divide(m, ks)
        r = f16[4,8] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        -> r = f16[4,8] convert(v)""",
    "an addend that overflows beside sines of products": """
        a = f32[256,256] parameter(0)
        p = f32[256,256] parameter(1)
        q = f32[256,256] parameter(2)
        d = f32[256,256] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        i = f32[256,256] sine(d)
        s = f32[256,256] add(a, i)
        ks = f32[256,256] all(1e+36)
        m = f32[256,256] multiply(s, ks)
        r = f32[256,256] copy(s) -> r = f32[256,256] divide(m, ks)""",
    "a large product of matrices that overflows": """
        p = f32[512,512] parameter(0)
        q = f32[512,512] parameter(1)
        t = f32[512,512] tanh(p)
        d = f32[512,512] dot(t, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        ks = f32[512,512] all(1e+36)
        m = f32[512,512] multiply(d, ks)
        r = f32[512,512] copy(d) -> r = f32[512,512] divide(m, ks)""",
    "the root of a square beside a logarithm of an exponential": """
        p = f32[8] parameter(0)
        e = f32[8] exponential(p)
        l = f32[8] log(e)
        q = f32[8] parameter(1)
        m = f32[8] multiply(q, q)
        s = f32[8] sqrt(m)
        b = f32[8] abs(q)
        r = (f32[8], f32[8]) tuple(l, s) -> r = (f32[8], f32[8]) tuple(p, b)""",
}
RIGHT = {
    "a constant that is computed in bf16": """
        p = bf16[] parameter(0)
        k = bf16[] constant(0.3)
        l = bf16[] constant(0.7)
        m = bf16[] constant(0.21)
        x = bf16[] multiply(p, k)
        r = bf16[] multiply(x, l) -> r = bf16[] multiply(p, m)""",
    "partial sums of large products": """
        p = f32[256,256] parameter(0)
        q = f32[256,256] parameter(1)
        a = f32[256,4,64] reshape(p)
        b = f32[4,64,256] reshape(q)
        z = f32[] constant(0)
        c = f32[4,256,256] dot(a, b), lhs_batch_dims={1}, lhs_contracting_dims={2},
            rhs_batch_dims={0}, rhs_contracting_dims={1}
        s = f32[256,256] reduce(c, z), dimensions={0}, to_apply=sum32
        d = f32[256,256] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        r = f32[256,256] tanh(d) -> r = f32[256,256] tanh(s)""",
    "a sum in another order": ABC
    + """
        x = f32[8] add(a, b)
        y = f32[8] add(b, c)
        r = f32[8] add(x, c) -> r = f32[8] add(a, y)""",
    "a sum that cancels, in another order": """
        a = f32[64] parameter(0)
        b = f32[64] parameter(1)
        s = f32[64] add(a, b)
        m = f32[64] negate(a)
        n = f32[64] negate(b)
        t = f32[64] add(m, n)
        u = f32[64] add(n, s)
        r = f32[64] add(t, s) -> r = f32[64] add(m, u)""",
    "a total order by bits, which the comparison expander writes": """
        a = f32[8] parameter(0)
        b = f32[8] parameter(1)
        ks = s32[8] all(0)
        ms = s32[8] all(2147483647)
        x = s32[8] bitcast-convert(a)
        y = s32[8] bitcast-convert(b)
        u = s32[8] xor(ms, x)
        v = s32[8] xor(ms, y)
        s = pred[8] compare(x, ks), direction=LT
        t = pred[8] compare(y, ks), direction=LT
        c = s32[8] select(s, u, x)
        d = s32[8] select(t, v, y)
        r = pred[8] compare(a, b), direction=LT, type=TOTALORDER
        -> r = pred[8] compare(c, d), direction=LT""",
    "a logarithm of an exponential, which algsimp takes out": """
        p = f32[8] parameter(0)
        e = f32[8] exponential(p)
        r = f32[8] log(e) -> r = f32[8] copy(p)""",
    "a product of exponentials": """
        p = f32[8] parameter(0)
        q = f32[8] parameter(1)
        x = f32[8] exponential(p)
        y = f32[8] exponential(q)
        s = f32[8] add(p, q)
        r = f32[8] multiply(x, y) -> r = f32[8] exponential(s)""",
    "a mask that loses NaNs": """
        p = f32[8] parameter(0)
        c = pred[8] parameter(1)
        zeros = f32[8] all(0)
        m = f32[8] convert(c)
        r = f32[8] multiply(m, p) -> r = f32[8] select(c, p, zeros)""",
    "a product rounded once": """
        p = bf16[4,64] parameter(0)
        q = bf16[64,4] parameter(1)
        s = f32[4,4] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        r = bf16[4,4] convert(s)
        -> r = bf16[4,4] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
    "a sum of bf16 in f32": """
        p = bf16[512] parameter(0)
        z = f32[] constant(0)
        n = bf16[] constant(0)
        w = f32[512] convert(p)
        s = f32[] reduce(w, z), dimensions={0}, to_apply=sum32
        r = bf16[] reduce(p, n), dimensions={0}, to_apply=sum16 -> r = bf16[] convert(s)""",
    "a quotient of a quotient": ABC
    + """
        x = f32[8] divide(a, b)
        y = f32[8] multiply(b, c)
        r = f32[8] divide(x, c) -> r = f32[8] divide(a, y)""",
}


def test_a_count_is_a_number_of_its_type() -> None:
    for dtype in ("u32", "s8", "u2", "s2"):
        count = Input(0, 0, ArrayShape(dtype, (9,)), None, wanted=Wanted(is_count=True))
        for run in range(8):
            assert hostile_value(count, HOSTILE + run).shape == (9,)


def test_the_work_of_a_dot_of_scalars_is_known() -> None:
    program = Lowering(hlo_lint.parse(entry(SCALAR + "r = s32[] dot(p, q)")), Nodes()).program()
    assert run_count(program, program, program.inputs) > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", [*WRONG, *RIGHT])
def test_a_wrong_rewrite_is_found_and_a_right_one_is_not(name: str) -> None:
    text, after = re.split(r"\s+->\s+", (WRONG | RIGHT)[name])
    dumps = run_of([entry(text), entry(f"{text.rpartition('r = ')[0]}{after}")])
    with XlaCpu() as xla:
        assert bool(validate_dumps("m", dumps, xla).changes) == (name in WRONG)


LOOP = """HloModule m

until {{ s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  ten = s32[] constant(10)
  ROOT c = pred[] compare(i, ten), direction={direction} }}
count {{ s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = s32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  d = s32[] add(a, i)
  ROOT t = (s32[], s32[]) tuple(j, d) }}

ENTRY e {{
  p = s32[] parameter(0)
  q = s32[] parameter(1)
  t = (s32[], s32[]) tuple(p, q)
  loop = (s32[], s32[]) while(t), condition=until, body=count
  ROOT r = s32[] get-tuple-element(loop), index=1
}}
"""


@pytest.mark.slow
def test_a_loop_that_ended_before_a_step_has_to_end_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "HANG_SECONDS", 1.0)
    monkeypatch.setattr(programs, "SLOWER", 3)
    dumps = run_of([LOOP.format(direction=direction) for direction in ("LT", "NE")])
    with XlaCpu() as xla:
        (change,) = validate_dumps("m", dumps, xla).changes
    assert "it now runs for over" in change.comparison.reason
    assert culprit(change) == "loop"
