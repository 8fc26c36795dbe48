"""The text of a constant is the array that it spells."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lark import Token, Tree

import hlo_lint
from hlo_lint.hlo.grammar import grammar_parser, trees
from hlo_lint.hlo.parser.literals import ELIDED, LiteralError, LiteralValue, read_literal
from hlo_lint.hlo.shape import ArrayShape, parse_array, parse_shape
from tests.conftest import completed
from tests.texts import entry

numpy = pytest.importorskip("numpy")
pytest.importorskip("ml_dtypes")


def literal(shape: str, text: str) -> LiteralValue:
    return read_literal(parse_shape(shape), text)


def bits(shape: str, text: str) -> str:
    """The bytes of all elements, the lowest first, in hexadecimal."""
    value = literal(shape, text)
    assert isinstance(value, numpy.ndarray)
    return str(value.tobytes().hex())


@pytest.mark.parametrize(
    ("shape", "text", "values"),
    [
        ("s32[]", "-7", -7), ("s32[2,2]", "{ { 1, 2 }, { 3, 4 } }", [[1, 2], [3, 4]]),
        ("s32[2,1]", "{ { /*i0=0*/ 1 },\n // the second\n { 2 } }", [[1], [2]]),
        ("u64[2]", "{18446744073709551615, 0}", [18446744073709551615, 0]),
        ("s64[]", "-9223372036854775808", -9223372036854775808),
        ("pred[3]", "{true, 0, 1}", [True, False, True]),
        ("f32[3]", "{-inf, 1e-3, 2.}", [float("-inf"), numpy.float32(1e-3), 2.0]),
        ("f32[0]", "{}", []), ("f32[0,4]", "{ }", []), ("f32[2,0,4]", "{ { }, { } }", [[], []]),
        ("f32[2,0]", "{ {}, {} }", [[], []]), ("s4[2]", "{-8, 7}", [-8, 7]),
        ("u2[2]", "{0, 3}", [0, 3]), ("c64[2]", "{(1, -2), (0.5, 0)}", [1 - 2j, 0.5 + 0j]),
        ("f8e4m3fn[2]", "{448, -0.5}", [448.0, -0.5]), ("b(f32[2])", "{1, 2}", [1.0, 2.0]),
        ("s32[2,2]", "-5", [[-5, 0], [0, 0]]), ("pred[3]", "true", [True, False, False]),
    ],
)  # fmt: skip
def test_a_text_is_an_array(shape: str, text: str, values: object) -> None:
    value = literal(shape, text)
    assert isinstance(value, numpy.ndarray)
    assert value.tolist() == values


@pytest.mark.parametrize(
    ("shape", "text", "expected"),
    [
        ("f32[]", "nan", "0000c07f"), ("f32[]", "-nan", "0000c0ff"),
        ("f32[2]", "{nan(0x12), -nan(0x400001)}", "1200807f0100c0ff"),
        ("f16[]", "nan(0x1)", "017c"), ("bf16[2]", "{nan(0x41), 0.1001}", "c17fcd3d"),
        ("f64[]", "-nan(0x5)", "050000000000f0ff"), ("c64[]", "(nan(0x1), 2)", "0100807f00000040"),
        ("f8e5m2[]", "-nan(0x1)", "fd"), ("f8e4m3fn[2]", "{nan, -nan}", "7fff"),
        ("f32[]", "-0", "00000080"), ("f32[]", "1e39", "0000807f"),
    ],
)  # fmt: skip
def test_every_bit_is_kept(shape: str, text: str, expected: str) -> None:
    assert bits(shape, text) == expected


def test_a_tuple_holds_the_values_of_its_elements() -> None:
    found = literal("(f32[2], (s32[], token[]), f32[9])", "( {1, 2}, ( 3, token ), {...} )")
    assert isinstance(found, tuple)
    first, inner, third = found
    assert isinstance(inner, tuple)
    assert numpy.array_equal(first, [1.0, 2.0])
    assert numpy.array_equal(inner[0], 3)
    assert inner[1] is None
    assert third is ELIDED
    assert literal("()", "()") == ()
    assert literal("token[]", "") is None


def test_what_was_left_out_is_elided() -> None:
    assert literal("f32[1024]", "{...}") is ELIDED
    assert literal("(f32[2], s32[])", "{...}") is ELIDED


@pytest.mark.parametrize(
    ("shape", "text", "message"),
    [
        ("f32[2]", "{1}", "expected nested braces that hold [2] elements"),
        ("f32[2]", "1, 2", "expected nested braces that hold [2] elements"),
        ("f32[]", "{1}", "expected one element"),
        ("f32[2,2]", "{1, 2, 3, 4}", "expected nested braces that hold [2,2] elements"),
        ("c64[]", "1", "expected one element"),
        ("c64[2]", "(1, 2)", "expected nested braces that hold [2] elements"),
        ("f32[0]", "1", "expected nested braces that hold [0] elements"),
        ("f32[99999999999]", "1", "expected nested braces that hold [99999999999] elements"),
        ("f32[99999999999]", "{1}", "expected nested braces that hold [99999999999] elements"),
        ("s32[]", "1.5", "expected numbers"),
        ("s32[]", "0x10", "expected numbers"),
        ("s32[2]", "{1, 2 3}", "expected numbers"),
        ("s32[2]", "{1, }", "a number is missing"),
        ("f32[3]", "{1,,2}", "a number is missing"),
        ("c64[]", "(,1)", "a number is missing"),
        ("s8[]", "128", "expected integers from -128 to 127"),
        ("u8[]", "-1", "an unsigned number has no sign"),
        ("u4[]", "16", "expected integers from 0 to 15"),
        ("u64[]", "18446744073709551616", "expected integers from 0 to 18446744073709551615"),
        (
            "s64[]",
            "9223372036854775808",
            "expected integers from -9223372036854775808 to 9223372036854775807",
        ),
        ("pred[]", "2", "a pred is true or false"),
        ("f32[]", "infinity", "expected numbers"),
        ("f32[]", "caf\xe9", "expected numbers"),
        ("f32[]", "\udce9", "expected numbers"),
        ("f32[0]", "{1}", "a value without elements has a number"),
        ("(f32[], s32[])", "(1)", "expected a tuple of 2 elements in parentheses"),
        ("(f32[])", "1", "expected a tuple of 1 elements in parentheses"),
        ("z9[]", "1", "unknown element type: z9"),
    ],
)
def test_what_is_no_value_of_the_shape_is_an_error(shape: str, text: str, message: str) -> None:
    with pytest.raises(LiteralError) as raised:
        literal(shape, text)
    assert raised.value.message.startswith(message)


def by_grammar(text: str) -> object:
    """A value as `literal.lark` reads it: nested lists of numbers."""
    (child,) = grammar_parser("literal").parse(text).children
    return _nested(child)


def _nested(child: Tree[Token] | Token) -> object:
    if isinstance(child, str):
        return float({"true": "1", "false": "0"}.get(str(child), str(child)))
    return [_nested(each) for each in child.children]


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 3), max_size=3),
    st.sampled_from(["s32", "f32", "f64", "pred", "u8"]),
    st.data(),
)
def test_fast_way_and_grammar_agree(dims: list[int], dtype: str, data: st.DataObject) -> None:
    texts = {
        "s32": st.integers(-(2**31), 2**31 - 1).map(str),
        "u8": st.integers(0, 255).map(str),
        "pred": st.sampled_from(["true", "false", "0", "1"]),
        "f32": st.floats(width=32, allow_nan=False, allow_infinity=True).map(repr),
        "f64": st.floats(allow_nan=False, allow_infinity=True).map(repr),
    }

    def spell(sizes: list[int]) -> str:
        if not sizes:
            return data.draw(texts[dtype])
        return "{ " + ", ".join(spell(sizes[1:]) for _ in range(sizes[0])) + " }"

    text = spell(dims)
    shape = ArrayShape(dtype, tuple(dims))
    found = read_literal(shape, text)
    assert isinstance(found, numpy.ndarray)
    kind = found.dtype
    assert numpy.array_equal(found, numpy.array(by_grammar(text), "float64").astype(kind))


def test_the_grammar_takes_what_printers_write() -> None:
    text = "( { { /*i0=0*/ 1, -inf }, { nan(0x1), 2.5e-3 } }, (true, {...}) )"
    (tree,) = trees(grammar_parser("literal").parse(text))
    assert tree.data == "tuple"


@pytest.mark.slow
@settings(max_examples=200)
@given(
    st.sampled_from(["f32[]", "f32[2]", "s32[2,2]", "pred[1]", "c64[1]", "(f32[], s32[1])"]),
    st.text("{}(), 0123.e-naif/*x\n", max_size=24) | st.text(max_size=6),
)
def test_any_text_is_a_value_or_an_error(shape: str, text: str) -> None:
    offset = 0
    try:
        literal(shape, text)
    except LiteralError as error:
        offset = error.offset
    assert 0 <= offset <= len(text)


def test_ten_megabytes_are_one_array() -> None:
    row = "{" + ", ".join(["0.12345678"] * 1000) + "}"
    text = "{" + ", ".join([row] * 800) + "}"
    found = read_literal(parse_array("f32[800,1000]"), text)
    assert isinstance(found, numpy.ndarray)
    assert found.shape == (800, 1000)


def test_an_instruction_has_its_literal() -> None:
    lines = "  a = s32[2]{0} constant({1, 2})\n  ROOT b = s32[2]{0} negate(a)"
    module = hlo_lint.parse(entry(lines))
    constant, negate = module.entry_computation
    value = constant.literal
    assert isinstance(value, numpy.ndarray)
    assert value.tolist() == [1, 2]
    assert negate.literal is None


def test_numpy_is_imported_when_a_value_is_asked_for() -> None:
    code = (
        "import sys, hlo_lint.hlo.parser.literals as l\n"
        "from hlo_lint.hlo.shape import parse_shape\n"
        "print('numpy' in sys.modules)\n"
        "l.read_literal(parse_shape('f32[]'), '1')\n"
        "print('numpy' in sys.modules, 'ml_dtypes' in sys.modules)"
    )
    done = completed([sys.executable, "-c", code], check=True)
    assert done.stdout == "False\nTrue False\n"


def test_a_type_that_needs_ml_dtypes_says_so_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ImportError, match="elements of bf16 need the package ml_dtypes"):
        literal("bf16[]", "1")
