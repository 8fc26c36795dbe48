"""The evaluator against XLA:CPU: every element-wise opcode by type, programs, and random ones.

Bit for bit where a result is exact; where floats are rounded in an order that HLO leaves open, or
by a function that no standard defines, within a few units of the last place of the largest element.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hlo_lint import parse
from hlo_lint.engine.values.evaluate import evaluate, leaves
from hlo_lint.engine.values.inputs import inputs_of
from hlo_lint.hlo.dtypes import BITS, ELEMENT_TYPES, is_complex, is_float, is_integer
from hlo_lint.hlo.opcodes import BINARY, UNARY
from hlo_lint.xla.cpu import NotRun, XlaCpu
from tests.conftest import DUMPS

pytestmark = pytest.mark.slow

TYPES = "pred s4 u4 s8 u8 s16 s32 u32 s64 u64 f8e5m2 f8e4m3fn f16 bf16 f32 f64 c64".split()
NOT_ELEMENTWISE = {"bitcast-convert", "convert", "reduce-precision", "stochastic-convert", "mulhi"}
"""Opcodes with attributes or types of their own; XLA:CPU has no `mulhi`."""
CHANGE_TYPE = {"compare", "complex", "real", "imag", "is-finite"}
APPROXIMATED = set(
    "acos acosh asin asinh atan2 atanh cbrt cosh cosine erf exponential exponential-minus-one log "
    "log-plus-one logistic power rsqrt sine sinh sqrt tan tanh".split()
)
"""Functions that XLA:CPU approximates."""
ULPS = 16
"""Of those the last places in which XLA:CPU may differ from the rounded true value."""
SMALLEST_NORMAL = 2.0**-126
"""Of f32; XLA:CPU makes what is smaller 0."""
DEFECTS = {("popcnt", "s4"), ("logistic", "f16")}
"""XLA:CPU counts the sign of an s4 in eight bits, and a logistic of f16 has absolute errors."""


@pytest.fixture(scope="module")
def xla() -> Iterator[XlaCpu]:
    pytest.importorskip("jaxlib")
    with XlaCpu() as child:
        yield child


def check(text: str, xla: XlaCpu, seed: int = 0, ulps: float = 0, edges: bool = False) -> bool:
    """Compare both; False if XLA:CPU does not run the text."""
    module = parse(text)
    inputs = inputs_of(module, seed, edges=edges)
    ours = leaves(evaluate(module, inputs).result)
    try:
        theirs = xla.run(text, inputs)
    except NotRun:
        return False
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert not _wrong(one, other, ulps).any(), f"{text}\n{one}\n{other}"
    return True


def _wrong(one: NDArray[Any], other: NDArray[Any], ulps: float) -> NDArray[np.bool_]:
    if one.dtype.kind in "biu" or one.dtype.name.startswith(("int", "uint")):
        return np.asarray(one != other)
    kind = np.complex128 if one.dtype.kind == "c" else np.float64
    a, b = one.astype(kind), other.astype(kind)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        finite = np.abs(np.where(np.isfinite(a) & np.isfinite(b), a, 0))
        bits = next(t.significand_bits for t in ELEMENT_TYPES.values() if t.numpy == _part(one))
        bound = ulps * 2.0 ** (1 - bits) * finite.max(initial=0)
        flushed = np.where(np.abs(a) < SMALLEST_NORMAL, 0, a) == b
        return np.asarray(~same & ~flushed & ~(np.abs(a - b) <= bound))


def _part(array: NDArray[Any]) -> str:
    return {"complex64": "float32", "complex128": "float64"}.get(array.dtype.name, array.dtype.name)


@pytest.mark.parametrize("opcode", sorted((UNARY | BINARY) - NOT_ELEMENTWISE - CHANGE_TYPE))
def test_an_elementwise_opcode_of_every_type(opcode: str, xla: XlaCpu) -> None:
    operands = "p, q" if opcode in BINARY else "p"
    ran = 0
    for dtype in TYPES:
        if (opcode, dtype) in DEFECTS or _has_no_meaning(opcode, dtype):
            continue
        text = f"HloModule m\nENTRY e {{\n  p = {dtype}[256] parameter(0)\n"
        text += f"  q = {dtype}[256] parameter(1)\n  ROOT r = {dtype}[256] {opcode}({operands})\n}}"
        inexact = opcode in APPROXIMATED or is_complex(dtype)
        ran += check(text, xla, ulps=ULPS if inexact else 0, edges=not inexact)
    assert ran


def _has_no_meaning(opcode: str, dtype: str) -> bool:
    """True if the verifier of XLA refuses that type; the evaluator may do so as well."""
    if opcode in APPROXIMATED and not (is_float(dtype) or is_complex(dtype)):
        return not (opcode == "power" and is_integer(dtype))
    bitwise = opcode in ("and", "or", "xor", "not")
    if bitwise or opcode.startswith(("shift", "popcnt", "count", "mulhi")):
        return not (is_integer(dtype) or (bitwise and dtype == "pred"))
    if dtype == "pred":
        return opcode not in ("maximum", "minimum", "add", "multiply")
    real_only = opcode.startswith(("round", "ceil", "floor"))
    if real_only or opcode in ("erf", "cbrt", "atan2", "remainder", "maximum", "minimum"):
        return is_complex(dtype) or (real_only and not is_float(dtype))
    return False


@pytest.mark.parametrize("source", TYPES)
def test_a_conversion_to_every_type(source: str, xla: XlaCpu) -> None:
    for target in TYPES:
        if (source, target) == ("f64", "f16"):
            continue  # XLA:CPU goes by way of f32, and rounds twice
        text = (
            f"HloModule m\nENTRY e {{\n  p = {source}[64]{{0}} parameter(0)\n"
            f"  ROOT r = {target}[64]{{0}} convert(p)\n}}"
        )
        ran = check(text, xla, edges=not is_complex(source))
        assert ran or "c" in source[0] + target[0], (source, target)


PROGRAMS = {
    "dot": """ENTRY e { p = s8[5,6,4] parameter(0)
  q = s8[6,3,4] parameter(1)
  ROOT r = s32[4,5,3] dot(p, q), lhs_batch_dims={2}, rhs_batch_dims={2},
    lhs_contracting_dims={1}, rhs_contracting_dims={0} }""",
    "convolution in groups of features": """ENTRY e { p = f32[2,8,9,6] parameter(0)
  q = f32[3,2,3,4] parameter(1)
  ROOT r = f32[2,8,5,4] convolution(p, q), window={size=3x2 stride=1x2 pad=1_1x1_0},
    dim_labels=b01f_01io->b01f, feature_group_count=2 }""",
    "convolution in groups of batches": """ENTRY e { p = f32[4,8,9,3] parameter(0)
  q = f32[3,2,3,4] parameter(1)
  ROOT r = f32[2,15,10,4] convolution(p, q), dim_labels=b01f_01io->b01f, batch_group_count=2,
    window={size=3x2 pad=1_1x2_2 lhs_dilate=2x1 rhs_dilate=1x3 rhs_reversal=1x0} }""",
    "reduce-window": """m { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }
ENTRY e { p = f32[4,9] parameter(0)
  z = f32[] constant(-inf)
  ROOT r = f32[4,5] reduce-window(p, z), window={size=3x2 stride=1x2 pad=1_1x1_1}, to_apply=m }""",
    "select-and-scatter": """ge { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=GE }
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e { p = f32[4,8] parameter(0)
  s = f32[2,5] parameter(1)
  z = f32[] constant(0)
  ROOT r = f32[4,8] select-and-scatter(p, s, z), window={size=3x2 stride=2x2 pad=1_0x1_1},
    select=ge, scatter=add }""",
    "sort": """gt { c = s8[] parameter(0)
  d = s8[] parameter(1)
  a = f32[] parameter(2)
  b = f32[] parameter(3)
  ROOT r = pred[] compare(c, d), direction=GT }
ENTRY e { p = s8[300,3] parameter(0)
  q = f32[300,3] parameter(1)
  ROOT r = (s8[300,3], f32[300,3]) sort(p, q), dimensions={0}, is_stable=true, to_apply=gt }""",
    "gather": """ENTRY e { p = f32[5,6,7] parameter(0)
  i = s32[4,3] constant({{0,1,-3},{4,5,6},{3,9,2},{1,1,1}})
  ROOT r = f32[4,2,3] gather(p, i), offset_dims={1,2}, collapsed_slice_dims={1},
    start_index_map={1,0,2}, index_vector_dim=1, slice_sizes={2,1,3} }""",
    "gather in batches": """ENTRY e { p = f32[5,6,7] parameter(0)
  i = s32[2,5] constant({{0,1,-3,2,3},{4,5,6,1,9}})
  ROOT r = f32[3,5] gather(p, i), offset_dims={0}, collapsed_slice_dims={1},
    start_index_map={1,2}, operand_batching_dims={0}, start_indices_batching_dims={1},
    index_vector_dim=0, slice_sizes={1,1,3} }""",
    "scatter of windows": """minus { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] subtract(a, b) }
ENTRY e { p = f32[5,6] parameter(0)
  i = s32[6,1] constant({{0},{3},{3},{4},{-1},{3}})
  u = f32[6,2,6] parameter(1)
  ROOT r = f32[5,6] scatter(p, i, u), update_window_dims={1,2}, inserted_window_dims={},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=minus }""",
    "scatter in batches": """add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e { p = f32[5,6] parameter(0)
  i = s32[5,2] constant({{0,0},{3,7},{3,1},{4,2},{-1,2}})
  u = f32[5,2] parameter(1)
  ROOT r = f32[5,6] scatter(p, i, u), update_window_dims={}, inserted_window_dims={1},
    scatter_dims_to_operand_dims={1}, input_batching_dims={0},
    scatter_indices_batching_dims={0}, index_vector_dim=2, to_apply=add }""",
    "slices at places": """ENTRY e { p = f32[5,6] parameter(0)
  i = s32[] constant(4)
  j = s32[] constant(-4)
  u = f32[2,2] parameter(1)
  d = f32[3,2] dynamic-slice(p, i, j), dynamic_slice_sizes={3,2}
  w = f32[5,6] dynamic-update-slice(p, u, i, j)
  ROOT r = (f32[3,2], f32[5,6]) tuple(d, w) }""",
    "precision": """ENTRY e { x = f32[400] parameter(0)
  a = f32[400] reduce-precision(x), exponent_bits=5, mantissa_bits=10
  b = f32[400] reduce-precision(x), exponent_bits=2, mantissa_bits=3
  c = pred[400] compare(x, b), direction=LT, type=TOTALORDER
  d = u16[400,2] bitcast-convert(x)
  e = f32[400] bitcast-convert(d)
  ROOT t = (f32[400], f32[400], pred[400], u16[400,2], f32[400]) tuple(a, b, c, d, e) }""",
    "transforms": """ENTRY e { x = c64[4,8] parameter(0)
  a = c64[4,8] fft(x), fft_type=FFT, fft_length={8}
  r = f32[4,8] real(x)
  b = c64[4,5] fft(r), fft_type=RFFT, fft_length={8}
  c = f32[4,8] fft(b), fft_type=IRFFT, fft_length={8}
  ROOT t = (c64[4,8], c64[4,5], f32[4,8]) tuple(a, b, c) }""",
    "batch normalization": """ENTRY e { x = f32[3,4,5] parameter(0)
  s = f32[4] parameter(1)
  o = f32[4] parameter(2)
  a = (f32[3,4,5], f32[4], f32[4]) batch-norm-training(x, s, o), epsilon=0.001, feature_index=1
  m = f32[4] get-tuple-element(a), index=1
  v = f32[4] get-tuple-element(a), index=2
  i = f32[3,4,5] batch-norm-inference(x, s, o, m, v), epsilon=0.001, feature_index=1
  ROOT t = ((f32[3,4,5], f32[4], f32[4]), f32[3,4,5]) tuple(a, i) }""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name: str, xla: XlaCpu) -> None:
    for seed in range(3):
        assert check(f"HloModule m\n{PROGRAMS[name]}", xla, seed, ulps=ULPS)


@pytest.mark.parametrize(
    ("algorithm", "words"), [("rng_three_fry", 2), ("rng_philox", 2), ("rng_default", 3)]
)
def test_random_bits(algorithm: str, words: int, xla: XlaCpu) -> None:
    state = f"u64[{words}]"
    shapes = [f"{dtype}[{dims}]" for dtype in ("u8", "u32", "u64") for dims in ("", "7", "5,6,1")]
    draws = "\n".join(
        f"  r{number} = ({state}, {shape}) rng-bit-generator(s), algorithm={algorithm}"
        for number, shape in enumerate(shapes)
    )
    results = ", ".join(f"r{number}" for number in range(len(shapes)))
    whole = ", ".join(f"({state}, {shape})" for shape in shapes)
    start = "1311768467463790320, 18446744073709551614, 7"  # it carries
    numbers = ", ".join(start.split(", ")[:words])
    text = f"""HloModule m
ENTRY e {{
  s = {state} constant({{{numbers}}})
{draws}
  ROOT t = ({whole}) tuple({results})
}}"""
    assert check(text, xla)


def random_module(random: Random) -> str:
    """A module of instructions that XLA:CPU computes exactly."""
    dtype = random.choice(["f32", "s32", "u8", "bf16"])
    lines = [f"  v0 = {dtype}[4,6] parameter(0)", f"  v1 = {dtype}[4,6] parameter(1)"]
    shapes: list[tuple[int, ...]] = [(4, 6), (4, 6)]

    def add(dims: tuple[int, ...], call: str, tail: str = "") -> None:
        lines.append(f"  v{len(shapes)} = {dtype}[{','.join(map(str, dims))}] {call}{tail}")
        shapes.append(dims)

    for _ in range(random.randint(5, 14)):
        at = random.randrange(len(shapes))
        dims = shapes[at]
        match random.randint(0, 6):
            case 0:
                order = random.sample(range(len(dims)), len(dims))
                listed = ",".join(map(str, order))
                add(
                    tuple(dims[n] for n in order), f"transpose(v{at})", f", dimensions={{{listed}}}"
                )
            case 1:
                count = int(np.prod(dims))
                rows = random.choice([n for n in range(1, count + 1) if count % n == 0])
                add((rows, count // rows), f"reshape(v{at})")
            case 2:
                cuts = [sorted(random.sample(range(size + 1), 2)) for size in dims]
                listed = ", ".join(f"[{low}:{high}]" for low, high in cuts)
                add(tuple(h - lo for lo, h in cuts), f"slice(v{at})", f", slice={{{listed}}}")
            case 3:
                axis = random.randrange(len(dims))
                wide = tuple(2 * n if k == axis else n for k, n in enumerate(dims))
                add(wide, f"concatenate(v{at}, v{at})", f", dimensions={{{axis}}}")
            case 4:
                add(dims, f"reverse(v{at})", f", dimensions={{{random.randrange(len(dims))}}}")
            case _:
                alike = [n for n, shape in enumerate(shapes) if shape == dims]
                opcode = random.choice("add subtract multiply maximum minimum".split())
                add(dims, f"{opcode}(v{at}, v{random.choice(alike)})")
    shape = ", ".join(f"{dtype}[{','.join(map(str, dims))}]" for dims in shapes)
    names = ", ".join(f"v{number}" for number in range(len(shapes)))
    body = "\n".join(lines)
    return f"HloModule m\nENTRY e {{\n{body}\n  ROOT t = ({shape}) tuple({names})\n}}"


@pytest.mark.parametrize("seed", range(30))
def test_a_random_module_bit_for_bit(seed: int, xla: XlaCpu) -> None:
    assert check(random_module(Random(seed)), xla, seed)


FIXTURES = sorted(DUMPS.glob("cpu-*/*/*before_optimizations.txt"))


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: f"{path.parts[-3]}-{path.parts[-2]}")
def test_the_module_of_a_dump(path: Any, xla: XlaCpu) -> None:
    assert check(path.read_text(), xla, ulps=64)


def test_every_type_is_one_of_xla() -> None:
    assert set(TYPES) <= BITS.keys()
