"""Patterns: what they match, how they print, and why they do not match."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hlo_lint
from hlo_lint.analysis import match as m
from hlo_lint.analysis.match.pattern import function_of
from hlo_lint.analysis.match.reader import MAX_DEPTH, read_pattern
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.opcodes import OPCODES
from hlo_lint.text.errors import UsageError
from tests.apps.test_cli import run, write
from tests.conftest import CRASH, DUMPS, hlo_files, present
from tests.texts import entry

TEXT = """\
HloModule m

%fused (a: f32[2,3]) -> f32[3,2] {
  %a = f32[2,3]{1,0} parameter(0)
  ROOT %ft = f32[3,2]{1,0} transpose(%a), dimensions={1,0}
}

ENTRY %e (p: f32[2,3], q: bf16[2,3]) -> f32[3,2] {
  %p = f32[2,3]{1,0} parameter(0)
  %q = bf16[2,3]{0,1} parameter(1)
  %c = f32[2,3]{0,1} copy(%p)
  %t = f32[3,2]{0,1} transpose(%c), dimensions={1,0}
  %one = f32[] constant(1)
  %b = f32[3,2]{1,0} broadcast(%one), dimensions={}
  %product = f32[3,2]{1,0} multiply(%t, %b)
  %square = f32[3,2]{1,0} multiply(%b, %b)
  %sum = f32[3,2]{1,0} add(%square, %product)
  %call = (f32[3,2]{1,0}, u8[64]{0}) custom-call(%sum), custom_call_target="kernel", \
custom_call_has_side_effect=true, backend_config={"n":1}
  %x = f32[3,2]{1,0} get-tuple-element(%call), index=0
  ROOT %f = f32[3,2]{1,0} fusion(%x), kind=kLoop, calls=%fused
}
"""
COMPACT = TEXT.replace("  %x = f32[3,2]{1,0} get-tuple-element(%call), index=0\n", "").replace(
    "fusion(%x)", "fusion(%call#0)"
)


def module(text: str = TEXT) -> Module:
    return hlo_lint.parse(text)


def named(name: str, text: str = TEXT) -> Instruction:
    (found,) = (each for each in module(text).instructions() if each.name == name)
    return found


def hits(pattern: m.Pattern, text: str = TEXT) -> list[str]:
    return [hit.instruction.name for hit in m.find(pattern, module(text))]


MATCHES: list[tuple[m.Pattern, list[str]]] = [
    (m.transpose(), ["ft", "t"]),
    (m.transpose(m.copy()), ["t"]),
    (m.transpose(m.copy(m.parameter())), ["t"]),
    (m.transpose(m.reshape()), []),
    (m.multiply(m.any("x"), m.any("x")), ["square"]),
    (m.multiply(m.any("x"), m.any("y")), ["product", "square"]),
    (m.add(m.multiply(m.transpose()), m.any()), []),
    (m.add(m.multiply(m.transpose()), m.any()).any_order(), ["sum"]),
    (m.multiply(m.any(), m.broadcast(m.constant())), ["product", "square"]),
    (m.multiply(m.broadcast().one_user()), []),
    (m.multiply(m.transpose().one_user()), ["product"]),
    (m.op("add", "multiply"), ["product", "square", "sum"]),
    (m.op("add", "multiply", m.multiply()), ["sum"]),
    (m.transpose().attr(dimensions=(1, 0)), ["ft", "t"]),
    (m.transpose().attr(dimensions="{1,0}"), ["ft", "t"]),
    (m.transpose().attr(dimensions=(0, 1)), []),
    (m.custom_call().attr(custom_call_target="kernel"), ["call"]),
    (m.custom_call().attr(custom_call_has_side_effect=True), ["call"]),
    (m.custom_call().attr(custom_call_has_side_effect=1), []),
    (m.custom_call().attr(backend_config='{"n": 1}'), ["call"]),
    (m.fusion().attr(kind="kLoop", calls="fused"), ["f"]),
    (m.any().shape(m.array(dtype="bf16")), ["q"]),
    (m.any().shape(m.array(rank=0)), ["one"]),
    (m.op("copy", "parameter").shape(m.array(dims=(None, 3), layout=(0, 1))), ["q", "c"]),
    (m.any().shape("f32[2,3]"), ["a", "p", "c"]),
    (m.any().shape("f32[2,3]{0,1}"), ["c"]),
    (m.add(m.any(), m.any(), m.any()), []),
    (m.copy().where("the copy", lambda i: i.name == "c"), ["c"]),
    (m.fusion(m.get_tuple_element(m.custom_call())), ["f"]),
]


@pytest.mark.parametrize(("pattern", "expected"), MATCHES, ids=lambda value: str(value)[:90])
def test_a_pattern_matches_what_it_reads_like(pattern: m.Pattern, expected: list[str]) -> None:
    assert hits(pattern) == expected
    for instruction in module().instructions():
        assert (m.explain(pattern, instruction) == "") == (instruction.name in expected)


def test_names_are_captures() -> None:
    pattern = m.add(m.multiply("product", m.transpose("t")), m.any("other")).any_order()
    (hit,) = m.find(pattern.named("sum"), module())
    names = {name: hit[name].name for name in hit}
    assert names == {"sum": "sum", "product": "product", "t": "t", "other": "square"}


def test_one_name_is_one_instruction_wherever_it_stands() -> None:
    pattern = m.add(m.multiply(m.any("b")), m.multiply(m.any(), m.any("b")))
    assert hits(pattern) == ["sum"]
    reason = m.explain(m.add(m.multiply(m.any("b")), m.multiply(m.any("b"))), named("sum"))
    assert reason == "b is %b and %t, not the same"


def test_any_order_goes_back_where_the_first_choice_does_not_fit() -> None:
    pattern = m.add(m.multiply("first"), m.multiply(m.transpose())).any_order()
    (hit,) = m.find(pattern, module())
    assert hit["first"].name == "square"
    turned = m.add(m.multiply("first", m.transpose()), m.multiply("second")).any_order()
    (hit,) = m.find(turned, module())
    assert (hit["first"].name, hit["second"].name) == ("product", "square")


def test_an_element_that_no_line_prints_is_a_get_tuple_element() -> None:
    pattern = m.fusion(m.get_tuple_element(m.custom_call("call")).named("x"))
    assert hits(pattern, COMPACT) == ["f"]
    (hit,) = m.find(pattern, module(COMPACT))
    assert (hit["x"].name, hit.element("x"), hit["call"].name) == ("call", (0,), "call")
    assert hits(m.fusion(m.get_tuple_element().attr(index=0)), COMPACT) == ["f"]
    assert hits(m.fusion(m.get_tuple_element().attr(index=1)), COMPACT) == []
    assert hits(m.fusion(m.any().shape("f32[3,2]")), COMPACT) == ["f"]
    assert hits(m.fusion(m.get_tuple_element().one_user()), COMPACT) == ["f"]
    assert hits(m.fusion(m.custom_call()), COMPACT) == []


def test_what_is_searched_may_be_a_module_computations_or_an_instruction() -> None:
    whole = module()
    pattern = m.transpose()
    for place, expected in (
        (whole, ["ft", "t"]),
        (present(whole.entry), ["t"]),
        (whole.nonfusion_computations, ["t"]),
        (named("t"), ["t"]),
        (named("c"), []),
    ):
        assert [hit.instruction.name for hit in m.find(pattern, place)] == expected


EXPLAINED: list[tuple[m.Pattern, str, str]] = [
    (m.reshape(m.custom_call()), "c", "%c is a copy, not a reshape"),
    (m.transpose(m.custom_call()), "t", "%c is a copy, not a custom-call"),
    (m.transpose(m.op("add", "abs")), "t", "%c is a copy, not an add or abs"),
    (m.broadcast().one_user(), "b", "%b has 2 users, not 1"),
    (m.fusion().one_user(), "f", "%f has no users, not 1"),
    (m.copy().shape(m.array(dtype="bf16")), "c", "%c has the type f32, not bf16"),
    (m.copy().shape(m.array(rank=3)), "c", "%c has the rank 2, not 3"),
    (m.copy().shape(m.array(dims=(None, 4))), "c", "%c has the sizes [2,3], not [*,4]"),
    (m.copy().shape(m.array(layout=(1, 0))), "c", "%c has the layout {0,1}, not {1,0}"),
    (m.custom_call().shape(m.array()), "call", "%call is a tuple, not an array"),
    (m.copy().shape("f32[4]"), "c", "%c has the shape f32[2,3]{0,1}, not f32[4]"),
    (m.transpose().attr(dimensions=(0, 1)), "t", "%t has dimensions={1,0}, not {0,1}"),
    (m.copy().attr(dimensions=(0, 1)), "c", "%c has no dimensions"),
    (m.copy().where("a copy that moves", lambda _: False), "c", "%c is not 'a copy that moves'"),
    (m.copy(m.any(), m.any()), "c", "%c has 1 operand, not 2"),
    (
        m.add(m.abs()).any_order(),
        "sum",
        "no operand of %sum is an abs as asked: %square is a multiply, not an abs",
    ),
]


@pytest.mark.parametrize(
    ("pattern", "name", "reason"), EXPLAINED, ids=lambda value: str(value)[:60]
)
def test_the_first_reason_is_told(pattern: m.Pattern, name: str, reason: str) -> None:
    assert m.explain(pattern, named(name)) == reason


def test_an_operand_that_is_not_in_the_text_is_no_match() -> None:
    negate = named("a", entry("  ROOT a = f32[] negate(b)"))
    reason = "the text does not define operand 0 of %a"
    assert m.explain(m.negate(m.any()), negate) == reason


# ---- a pattern is a value that prints as it was written


def is_small(instruction: Instruction) -> bool:
    return instruction.name == "c"


SPELLED = [
    "m.reshape(m.custom_call())",
    'm.reshape(m.any("operand")).named("reshape")',
    'm.add(m.multiply("product"), m.any("bias")).any_order()',
    'm.transpose(m.transpose("inner").one_user()).named("outer")',
    'm.custom_call("call").attr(custom_call_target="__cublas$gemm")',
    'm.op("all-reduce", "reduce-scatter").shape(m.array(dtype="bf16"))',
    'm.op("a-newer-opcode", m.any("x"))',
    "m.and_(m.not_(), m.while_())",
    'm.copy().shape(m.array(dtype="f32", rank=2, dims=(8, None), layout=(0, 1)))',
    'm.copy().shape("f32[8]{0}").attr(a=True, b=1.5, c=(1,), d=(), e="x\\"\\\\y")',
    'm.get_tuple_element(m.async_done()).attr(index=-1).one_user().any_order().named("n")',
]


@pytest.mark.parametrize("text", SPELLED)
def test_a_pattern_prints_as_it_was_written_and_is_read_again(text: str) -> None:
    made, again = (eval(text, {"m": m}) for _ in range(2))
    assert isinstance(made, m.Pattern)
    assert repr(made) == text
    assert made == again == read_pattern(text)
    assert hash(made) == hash(again)
    assert repr(read_pattern(text.replace("m.", " ").replace(",", " ,\n"))) == text


def test_a_condition_prints_its_description_and_its_function() -> None:
    pattern = m.copy("c").where("a small one", is_small)
    assert repr(pattern) == 'm.copy("c").where("a small one", is_small)'
    assert repr(m.copy().where("any", lambda _: True)) == 'm.copy().where("any", …)'


def test_a_pattern_never_changes() -> None:
    pattern = m.copy("c")
    assert pattern.one_user() != pattern
    assert pattern == m.copy("c")
    with pytest.raises(AttributeError):
        pattern.opcodes = ()  # type: ignore[misc]


@pytest.mark.parametrize("opcode", sorted(OPCODES))
def test_every_opcode_has_its_function(opcode: str) -> None:
    function = getattr(m, function_of(opcode))
    assert function().opcodes == (opcode,)
    assert repr(function("x")) == f'm.{function_of(opcode)}("x")'


@pytest.mark.parametrize("name", ["reshpe", "all-reduce", "and", "__wrapped__", "reshape_"])
def test_what_is_no_opcode_has_no_function(name: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
        getattr(m, name)


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: m.copy(m.any(), "late"), "operands are patterns; a name comes first"),
    (lambda: m.copy(""), "a name must be a text"),
    (lambda: m.op(), "arguments of op are opcodes, then patterns"),
    (lambda: m.op(m.any(), "add"), "arguments of op are opcodes, then patterns"),
    (lambda: m.copy().shape(3), "shape must be array"),  # type: ignore[arg-type]
    (lambda: m.copy().attr(a=None), "a must be a text, a number"),  # type: ignore[arg-type]
    (lambda: m.array(dims=3), "dims must be sizes"),  # type: ignore[arg-type]
    (lambda: m.array(dims="33"), "dims must be sizes"),  # type: ignore[arg-type]
    (lambda: m.array(layout=(None,)), "layout must name every"),  # type: ignore[arg-type]
    (lambda: m.array(rank="2"), "rank must be an integer"),  # type: ignore[arg-type]
    (lambda: m.array(dtype=2), "dtype must be an element type"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_a_pattern_that_means_nothing_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()


# ---- from the shell


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("get-tuple-element(custom-call('c'))", m.get_tuple_element(m.custom_call("c"))),
        ("and(or(), not())", m.and_(m.or_(), m.not_())),
        ("copy().attr(a=true, b=[1, 2], c=1e3,)", m.copy().attr(a=True, b=(1, 2), c=1000.0)),
    ],
)
def test_the_shell_has_other_spellings(text: str, same: m.Pattern) -> None:
    assert read_pattern(text) == same


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "character 1: expected a pattern"),
        ("reshape", "character 8: expected a pattern"),
        ("reshape(", "character 9: expected a pattern"),
        ("reshape())", "character 10: expected a pattern"),
        ("reshpe()", "no opcode is named reshpe: did you mean reshape?"),
        ("copy().where('x')", "character 7: where(…) takes a function of Python"),
        ("copy().nmed('x')", "no modifier is named nmed; there are named"),
        ("copy().__class__()", "no modifier is named __class__"),
        ("copy().shape('f32[')", "character 7: invalid shape"),
        ("copy(x)", 'expected ( after x, or "x" in quotes'),
        ("copy(3)", "operands are patterns"),
        ("copy(a=3)", "copy(…) has no parameter a="),
        ("array(rank=2)", "a pattern begins with an opcode"),
        ("copy(array(rank=2))", "operands are patterns"),
        ("copy().shape(array(rank=2).named('x'))", "array(…) has no modifiers"),
        ("copy().attr()", "attr wants attributes"),
        ("copy().attr(index=1, index=2)", "index= is there twice"),
        ("copy().attr(index=array())", "index must be a text"),
        ("copy().attr(index=99999999999999999999)", "this number is too big"),
        ("copy(" * 101 + ")" * 101, f"at most {MAX_DEPTH} pairs"),
    ],
)
def test_what_is_no_pattern_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        read_pattern(text)
    assert message in str(error.value)


PIECES = st.sampled_from(
    "copy reshape any op m . ( ) , = ' \" attr named shape array one_user x 1 -1 1.5 [ ]".split()
)


@given(st.lists(PIECES, max_size=25))
def test_any_text_is_a_pattern_or_a_usage_error(pieces: list[str]) -> None:
    try:
        pattern = read_pattern("".join(pieces))
    except UsageError:
        return
    assert read_pattern(repr(pattern)) == pattern


# ---- on real dumps


def test_the_reshape_behind_the_gemm_call_is_found() -> None:
    pattern = m.reshape(m.get_tuple_element(m.custom_call("call"))).named("reshape")
    last = max(hlo_files(CRASH), key=lambda path: path.name.partition(".00")[2])
    (hit,) = m.find(pattern, hlo_lint.parse(last.read_bytes()))
    assert (hit["reshape"].name, hit["call"].name) == ("reshape.15", "custom-call.1")


def test_find_gives_what_looking_at_every_instruction_gives() -> None:
    """The index by opcode leaves nothing out."""
    patterns = [m.bitcast(m.any("x")), m.op("copy", "transpose"), m.any(m.parameter()).one_user()]
    seen = 0
    for path in hlo_files(DUMPS)[::9]:
        text = hlo_lint.parse(path.read_bytes())
        for pattern in patterns:
            found = {hit.instruction for hit in m.find(pattern, text)}
            assert found == {i for i in text.instructions() if not m.explain(pattern, i)}
            seen += len(found)
    assert seen > 400


# ---- the command


def test_match_prints_each_place_once_with_what_names_stand_for() -> None:
    ran = run("match", 'bitcast(reshape("r"))', str(CRASH))
    assert ran.status == 0
    *lines, summary = ran.out.splitlines()
    assert summary == "1 match"
    assert lines[0].endswith("autotuner.before_cublas-gemm-broadcast-folding-rewriter.txt:44:3")
    assert lines[1].startswith("  %bitcast.18 = f32[2,8,32,128]{3,2,1,0} bitcast(%reshape.15)")
    assert lines[2] == "  r is %reshape.15"


def test_what_many_dumps_share_is_printed_once() -> None:
    ran = run("match", "--output-format", "json", "reshape(transpose())", str(CRASH))
    (shared, *_) = ran.json["matches"]
    assert shared["instruction"] == "reshape"
    assert shared["dumps"] == 3


@pytest.mark.usefixtures("here")
def test_match_explains_near_misses() -> None:
    write("a.hlo", TEXT)
    ran = run("match", "transpose(copy())", "a.hlo", "--explain")
    assert ran.out.splitlines() == [
        "a.hlo:12:3",
        "  %t = f32[3,2]{0,1} transpose(%c), dimensions={1,0}",
        "a.hlo:5:3",
        "  ROOT %ft = f32[3,2]{1,0} transpose(%a), dimensions={1,0}",
        "  no match: %a is a parameter, not a copy",
        "1 match, 1 near",
    ]
    report = run("match", "transpose(abs())", "a.hlo", "--explain", "--output-format", "json")
    assert report.status == 1
    reasons = [miss["reason"] for miss in report.json["near_misses"]]
    assert reasons == ["%a is a parameter, not an abs", "%c is a copy, not an abs"]
    assert report.json["pattern"] == "m.transpose(m.abs())"


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["copy()", "nowhere"], 2, "no such file"),
        (["copy(", "."], 2, "expected a pattern"),
        (["copy()", "."], 1, ""),
        (["copy()", "log.txt"], 1, "skipped: log.txt holds no HLO"),
    ],
)
@pytest.mark.usefixtures("here")
def test_match_says_what_it_could_not_do(arguments: list[str], status: int, words: str) -> None:
    write("log.txt", "nothing of interest\n")
    ran = run("match", *arguments)
    assert ran.status == status
    assert words in ran.errors
