"""A rewrite is edits of the text: what it writes, what it leaves alone, what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from difflib import unified_diff
from typing import Any, ClassVar

import pytest

import hlo_lint
from hlo_lint import Computation, Instruction, Module, Rewrite, RewriteError
from hlo_lint.apps.testing import check_example
from hlo_lint.hlo.shape import ArrayShape
from tests.conftest import FIXTURES, ROUNDTRIP, hlo_files
from tests.oracle.xla import Refusal, oracles
from tests.texts import entry

FUSED = """\
HloModule narrows

body {
  x = f32[8]{0} parameter(0)
  narrow = bf16[8]{0} convert(x)
  wide = f32[8]{0} convert(narrow)
  twice = f32[8]{0} add(wide, wide)
  ROOT out = (f32[8]{0}, f32[8]{0}) tuple(twice, wide)
}

ENTRY e {
  p = f32[8]{0} parameter(0)
  ROOT f = (f32[8]{0}, f32[8]{0}) fusion(p), kind=kLoop, calls=body
}
"""
WITHOUT = re.sub(r"  (?:narrow|wide) = .*\n", "", FUSED).replace("wide", "x")


DOT = """\
HloModule step, entry_computation_layout={(f32[8,16]{1,0}, f32[16,4]{1,0})->f32[4,8]{1,0}}

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(f32[] %a, f32[] %b)
}

ENTRY %main (x: f32[8,16], w: f32[16,4]) -> f32[4,8] {
  %x = f32[8,16]{1,0} parameter(0)
  %w = f32[16,4]{1,0} parameter(1)
  %dot = f32[8,4]{1,0} dot(f32[8,16]{1,0} %x, f32[16,4]{1,0} %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="dot"}  // as written
  ROOT %t = f32[4,8]{1,0} transpose(f32[8,4]{1,0} %dot), dimensions={1,0}, metadata={op_name="t"}  // the result
}
"""  # noqa: E501
PAIR = """\
HloModule pair

ENTRY e {
  p = f32[8]{0} parameter(0)
  t = (f32[8]{0}, s32[]) custom-call(p), custom_call_target="pair"
  first = f32[8]{0} get-tuple-element(t), index=0
  ROOT n = f32[8]{0} negate(first)
}
"""


def rewriting(text: str) -> tuple[Module, Rewrite]:
    module = hlo_lint.parse(text)
    return module, Rewrite(module)


def named(module: Module, name: str) -> Instruction:
    (found,) = [each for each in module.instructions() if each.name == name]
    return found


def changes(before: str, after: str) -> list[str]:
    """The lines that differ, each with `-` or `+` before it."""
    lines = unified_diff(before.split("\n"), after.split("\n"), n=0, lineterm="")
    return [line for line in lines if line[:2] not in ("--", "++", "@@")]


def test_users_read_another_value_and_dead_instructions_go() -> None:
    module, rewrite = rewriting(FUSED)
    rewrite.replace(named(module, "wide"), named(module, "x"))
    assert rewrite.text() == WITHOUT
    assert hlo_lint.lint(rewrite.text(), ["verifier"]).findings == ()


def test_a_replaced_root_hands_its_mark_on() -> None:
    text = entry("""
  %p = f32[8]{0} parameter(0)
  %n = f32[8]{0} negate(f32[8]{0} %p)
  ROOT %c = f32[8]{0} copy(f32[8]{0} %n)
""")
    module, rewrite = rewriting(text)
    rewrite.replace(named(module, "c"), named(module, "n"))
    assert rewrite.text() == text.replace("  %n", "  ROOT %n").rpartition("  ROOT %c")[0] + "}\n"


@pytest.mark.parametrize(
    "kept",
    [
        'narrow = bf16[8]{0} custom-call(x), custom_call_target="f"',
        "narrow = bf16[8]{0} all-reduce(x), channel_id=1, to_apply=add",
        "narrow = bf16[8]{0} convert(x), control-predecessors={x}",
    ],
)
def test_an_instruction_with_an_effect_stays(kept: str) -> None:
    module, rewrite = rewriting(FUSED.replace("narrow = bf16[8]{0} convert(x)", kept))
    rewrite.replace(named(module, "wide"), named(module, "x"))
    assert kept in rewrite.text()


def test_new_lines_are_written_as_those_around_them() -> None:
    module, rewrite = rewriting(DOT)
    main = module["main"]
    (x, w), t = main["dot"].operands, main["t"]
    wt = rewrite.insert_before(t, "transpose", "f32[4,16]{1,0}", [w], dimensions=(1, 0))
    xt = rewrite.insert_before(t, "transpose", "f32[16,8]{1,0}", [x], dimensions=(1, 0))
    product = rewrite.insert_before(
        t, "dot", t.shape, [wt, xt], lhs_contracting_dims=(1,), rhs_contracting_dims=(0,)
    )
    rewrite.replace(t, product)
    assert changes(DOT, rewrite.text()) == [
        *(f"-{line}" for line in DOT.split("\n")[11:13]),
        "+  %t.transpose = f32[4,16]{1,0} transpose(f32[16,4]{1,0} %w), dimensions={1,0}",
        "+  %t.transpose.2 = f32[16,8]{1,0} transpose(f32[8,16]{1,0} %x), dimensions={1,0}",
        "+  ROOT %t = f32[4,8]{1,0} dot(f32[4,16]{1,0} %t.transpose, f32[16,8]{1,0} "
        "%t.transpose.2), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
        'metadata={op_name="t"}  // the result',
    ]


def test_a_value_is_wrapped_for_its_users() -> None:
    module, rewrite = rewriting(DOT)
    main = module["main"]
    dot = main["dot"]
    copy = rewrite.insert_before(main["t"], "copy", dot.shape, [dot], name="%kept")
    rewrite.replace_all_uses_with(dot, copy)
    assert changes(DOT, rewrite.text()) == [
        "-" + DOT.split("\n")[12],
        '+  %kept = f32[8,4]{1,0} copy(f32[8,4]{1,0} %dot), metadata={op_name="dot"}',
        "+" + DOT.split("\n")[12].replace("%dot", "%kept"),
    ]


def test_attributes_are_set_where_xla_prints_them() -> None:
    module, rewrite = rewriting(DOT)
    dot = module["main"]["dot"]
    rewrite.set_attribute(dot, "operand_precision", "{highest,highest}")
    rewrite.set_attribute(dot, "sharding", "{replicated}")
    rewrite.set_attribute(dot, "backend_config", '"fast"')
    old = 'rhs_contracting_dims={0}, metadata={op_name="dot"}'
    new = (
        "rhs_contracting_dims={0}, operand_precision={highest,highest}, sharding={replicated}, "
        'metadata={op_name="dot"}, backend_config="fast"'
    )
    assert rewrite.text() == DOT.replace(old, new)


def test_a_new_computation_stands_before_its_caller() -> None:
    module, rewrite = rewriting(DOT)
    dot, t = module["main"]["dot"], module["main"]["t"]
    larger = rewrite.add_computation("""
%larger { %l = f32[] parameter(0) %r = f32[] parameter(1) ROOT %m = f32[] maximum(%l, %r) }
""")
    least = rewrite.insert_before(t, "constant", "f32[]", "-inf")
    most = rewrite.insert_before(
        t, "reduce", "f32[4]{0}", [dot, least], dimensions=[0], to_apply=larger
    )
    assert repr(most) == "<NewInstruction t.reduce: f32[4]{0} reduce>"
    after = rewrite.text()
    assert after.index("%larger {") == DOT.index("ENTRY")
    assert changes(DOT, after)[-2:] == [
        "+  %t.constant = f32[] constant(-inf)",
        "+  %t.reduce = f32[4]{0} reduce(f32[8,4]{1,0} %dot, f32[] %t.constant), "
        'dimensions={0}, to_apply=%larger, metadata={op_name="dot"}',
    ]


def test_computations_that_lose_their_last_caller_go_and_their_callees() -> None:
    before = """\
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }

body {
  q = f32[8]{0} parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[] reduce(q, z), dimensions={0}, to_apply=add
}

"""
    lines = """
  p = f32[8]{0} parameter(0)
  one = f32[] constant(1)
  f = f32[] fusion(p), kind=kLoop, calls=body
  ROOT n = f32[] add(f, one)
"""
    module, rewrite = rewriting(entry(lines, before))
    rewrite.replace(module["e"]["n"], module["e"]["one"])
    assert rewrite.text() == entry("  p = f32[8]{0} parameter(0)\n  ROOT one = f32[] constant(1)")
    rewrite = Rewrite(module)
    larger = rewrite.add_computation(
        "larger { c = f32[] parameter(0) d = f32[] parameter(1) ROOT m = f32[] maximum(c, d) }"
    )
    rewrite.set_attribute(module["body"]["r"], "to_apply", larger)
    assert "add {" not in rewrite.text()
    assert not hlo_lint.lint(rewrite.text(), ["verifier", "form"]).findings


def test_elements_of_tuples_are_operands() -> None:
    module, rewrite = rewriting(PAIR)
    body = module["e"]
    count = rewrite.insert_before(body["n"], "get-tuple-element", "s32[]", [body["t"]], index=1)
    wide = rewrite.insert_before(body["n"], "convert", "f32[]", [count])
    full = rewrite.insert_before(body["n"], "broadcast", "f32[8]{0}", [wide], dimensions=())
    rewrite.replace_operand(body["n"], 0, full)
    assert rewrite.text().splitlines()[4:-1] == [
        '  t = (f32[8]{0}, s32[]) custom-call(p), custom_call_target="pair"',
        "  n.get-tuple-element = s32[] get-tuple-element(t), index=1",
        "  n.convert = f32[] convert(n.get-tuple-element)",
        "  n.broadcast = f32[8]{0} broadcast(n.convert), dimensions={}",
        "  ROOT n = f32[8]{0} negate(n.broadcast)",
    ]
    compact, rewrite = rewriting(PAIR.replace("negate(first)", "negate(t#0)"))
    user = compact["e"]["n"]
    rewrite.replace(user, rewrite.insert_before(user, "abs", user.shape, user.operands))
    assert "ROOT n = f32[8]{0} abs(t#0)" in rewrite.text()


def test_several_rewrites_of_a_module_are_one_fix() -> None:
    text = WITHOUT.replace("add(x, x)", "negate(x)")
    module, rewrite = rewriting(text)
    for name in ("twice", "f"):
        old = named(module, name)
        rewrite.insert_before(old, "copy", "f32[8]{0}", old.operands)
    fix = rewrite.fix("copy both")
    fixed = hlo_lint.apply_fixes(text, [fix])
    assert len(fix.edits) == fixed.count(" copy(") == 2
    assert repr(rewrite) == "<Rewrite of narrows: 2 instructions inserted, 0 instructions removed>"


def test_line_ends_and_several_instructions_on_a_line_are_kept() -> None:
    module, rewrite = rewriting(PAIR.replace("\n", "\r\n"))
    rewrite.insert_before(module["e"]["t"], "negate", "f32[8]{0}", [module["e"]["p"]])
    added = "  p = f32[8]{0} parameter(0)\n  t.negate = f32[8]{0} negate(p)\n"
    expected = PAIR.replace("  p = f32[8]{0} parameter(0)\n", added)
    assert rewrite.text() == expected.replace("\n", "\r\n")
    text = "ENTRY e { p = f32[8] parameter(0) n = f32[8] negate(p) }"
    module, rewrite = rewriting(text)
    rewrite.insert_before(module["e"]["n"], "copy", "f32[8]", [module["e"]["p"]])
    assert rewrite.text() == (
        "ENTRY e { p = f32[8] parameter(0) n.copy = f32[8] copy(p)\n  n = f32[8] negate(p) }"
    )


def test_only_the_module_of_a_rewrite_changes() -> None:
    other = PAIR.replace("pair", "second")
    _, second = hlo_lint.parse_all(PAIR + other)
    rewrite, n = Rewrite(second), second["e"]["n"]
    rewrite.replace(n, rewrite.insert_before(n, "abs", n.shape, n.operands))
    assert rewrite.text() == PAIR + other.replace("negate", "abs")


def test_a_replacement_with_another_layout_is_read_with_that_layout() -> None:
    module, rewrite = rewriting(DOT)
    dot = module["main"]["dot"]
    turned = rewrite.insert_before(dot, "copy", "f32[8,16]{0,1}", [module["main"]["x"]])
    rewrite.replace_operand(dot, 0, turned)
    assert "dot(f32[8,16]{0,1} %dot.copy, f32[16,4]{1,0} %w)" in rewrite.text()


Change = Callable[[Rewrite, Module], object]


def inserted(opcode: str, shape: str, reads: str = "dot", **how: Any) -> Change:
    """Inserts an instruction that reads others, before `%t`."""
    return lambda r, m: r.insert_before(
        m["main"]["t"], opcode, shape, [m["main"][name] for name in reads.split()], **how
    )


@pytest.mark.parametrize(
    ("says", "change"),
    [
        ("%dot still has users: %t", lambda r, m: r.remove(m["main"]["dot"])),
        ("%t is the root of its computation: replace it", lambda r, m: r.remove(m["main"]["t"])),
        ("%x is a parameter", lambda r, m: r.remove(m["main"]["x"])),
        (
            "%dot cannot read %a: they are in %sum and %main",
            lambda r, m: r.replace_operand(m["main"]["dot"], 0, m["sum"]["a"]),
        ),
        (
            "%x.copy cannot read %dot, which is defined below it",
            lambda r, m: r.insert_before(m["main"]["x"], "copy", "f32[8,4]", [m["main"]["dot"]]),
        ),
        ("%dot is taken; %dot.2 is free", inserted("copy", "f32[8,4]", name="dot")),
        ("XLA has no opcode 'transpos': did you mean transpose?", inserted("transpos", "f32[4,8]")),
        ("transpose needs the attribute dimensions", inserted("transpose", "f32[4,8]")),
        ("copy has no attribute dimensions", inserted("copy", "f32[8,4]", dimensions=0)),
        ("add takes 2 operands, got 1", inserted("add", "f32[8,4]")),
        (
            "XLA would refuse %t.add = f32[8,4] add(f32[8,4]{1,0}, f32[8,16]{1,0}): ",
            inserted("add", "f32[8,4]", "dot x"),
        ),
        ("'f32[4,8' is not a shape", inserted("copy", "f32[4,8")),
        (
            "%t has shape f32[4,8]{1,0}, %dot has f32[8,4]{1,0}",
            lambda r, m: r.replace(m["main"]["t"], m["main"]["dot"]),
        ),
        ("expected the literal of a constant as text", inserted("constant", "f32[]", "")),
        (
            "%dot has 2 operands, got operand number 2",
            lambda r, m: r.replace_operand(m["main"]["dot"], 2, m["main"]["x"]),
        ),
        (
            "dot has no attribute operand_precisions: did you mean operand_precision?",
            lambda r, m: r.set_attribute(m["main"]["dot"], "operand_precisions", "{high}"),
        ),
        ("%sum is taken; %sum.2 is free", lambda r, m: r.add_computation(m["sum"].text)),
        ("expected one computation", lambda r, m: r.add_computation(DOT)),
        (
            "no computation is named %summ: did you mean sum?",
            inserted("call", "f32[]", to_apply="%summ"),
        ),
        (
            "is not in the module of this rewrite",
            lambda r, m: r.remove(hlo_lint.parse(DOT)["main"]["dot"]),
        ),
    ],
)
def test_a_change_that_xla_would_refuse_is_an_error(says: str, change: Change) -> None:
    module, rewrite = rewriting(DOT)
    with pytest.raises(RewriteError) as raised:
        change(rewrite, module)
    assert says in str(raised.value)
    assert rewrite.text() == DOT


def test_a_shape_that_no_longer_follows_is_an_error_of_the_outcome() -> None:
    module, rewrite = rewriting(DOT)
    main = module["main"]
    rewrite.replace_operand(main["t"], 0, main["x"])
    with pytest.raises(RewriteError, match=r"XLA would refuse %t = f32\[4,8\]"):
        rewrite.text()


def test_control_dependencies_go_to_the_replacement_or_forbid_it() -> None:
    text = PAIR.replace("negate(first)", "negate(first), control-predecessors={second}").replace(
        "  ROOT", "  second = f32[8]{0} abs(p)\n  ROOT"
    )
    module, rewrite = rewriting(text)
    body = module["e"]
    with pytest.raises(RewriteError, match="%second has control dependencies"):
        rewrite.remove(body["second"])
    n = body["n"]
    rewrite.replace(n, rewrite.insert_before(n, "floor", n.shape, [body["p"]]))
    line = "  ROOT n = f32[8]{0} floor(p), control-predecessors={second}"
    assert line in rewrite.text()
    assert "get-tuple-element" not in rewrite.text()


def with_copies(module: Module) -> Rewrite:
    """Copies of the first operands, which their users read in their place."""
    rewrite = Rewrite(module)
    for instruction in module.instructions():
        read = instruction.operand(0)
        if instruction.is_nested or read is None or not isinstance(read.shape, ArrayShape):
            continue
        try:
            copy = rewrite.insert_before(instruction, "copy", read.shape, [read])
            rewrite.replace_operand(instruction, 0, copy)
            rewrite.set_attribute(instruction, "sharding", "{replicated}")
        except RewriteError:
            continue  # a nested user, an undefined name …
    return rewrite


def rewritten() -> Iterator[tuple[str, str]]:
    """Texts of every dialect, before and after."""
    for path in [*hlo_files(ROUNDTRIP), *hlo_files(FIXTURES / "dumps")[::40]]:
        text = path.read_bytes().decode("utf-8", "surrogateescape")
        module = hlo_lint.parse(text)
        if module.problems or module.file.modules[1:] or len(text) > 200_000:
            continue
        try:
            yield text, with_copies(module).text()
        except RewriteError:
            continue


@pytest.mark.slow
def test_xla_reads_rewrites_in_every_dialect() -> None:
    if not oracles():
        pytest.skip("jaxlib is not installed")
    pairs = list(rewritten())
    assert len(pairs) > 100
    newest = max(oracles(), key=lambda oracle: [int(n) for n in oracle.version.split(".")])
    before = newest.read([text for text, _ in pairs])
    after = newest.read([text for _, text in pairs])
    assert sum(before != after for before, after in pairs) > 100
    for (_, text), former, answer in zip(pairs, before, after, strict=True):
        assert not isinstance(answer, Refusal) or isinstance(former, Refusal), text


MARKED = FUSED.replace("convert(narrow)\n", "convert(narrow)  // error\n")


class NarrowConvert(hlo_lint.Rule):
    """A value that is converted to fewer bits and back."""

    skip_fusion_bodies = False
    leaves_dead = False
    examples: ClassVar[tuple[hlo_lint.Bad | hlo_lint.Good, ...]] = (
        hlo_lint.Bad(MARKED, fixed=WITHOUT),
    )

    def check(self, computation: Computation) -> hlo_lint.Findings:
        for wide in computation.with_opcode("convert"):
            inner = wide.operands[0].instruction
            if inner is not None and inner.opcode == "convert":
                yield hlo_lint.Finding(wide, "converted to fewer bits and back")

    def fix(self, instruction: Instruction, module: Module) -> hlo_lint.Fix | None:
        narrow = instruction.operands[0].instruction
        value = narrow and narrow.operands[0].instruction
        assert value
        rewrite = Rewrite(module)
        rewrite.replace(instruction, value)
        fix = rewrite.fix("read the wide value")
        if not self.leaves_dead:
            return fix
        edits = tuple(edit for edit in fix.edits if "narrow" not in self._text(edit.span, module))
        return hlo_lint.Fix(fix.title, edits, fix.safety)

    def _text(self, span: hlo_lint.Span, module: Module) -> str:
        return module.file.text[span.start : span.end].partition("=")[0]


def test_a_fix_inside_a_fusion_leaves_nothing_dead() -> None:
    check_example(NarrowConvert, NarrowConvert.examples[0])


def test_a_fix_that_introduces_a_finding_fails_its_test() -> None:
    class LeavesDead(NarrowConvert):
        leaves_dead = True
        kept = WITHOUT.replace("  twice", "  narrow = bf16[8]{0} convert(x)\n  twice")
        example = hlo_lint.Bad(MARKED, fixed=kept)
        examples = (example,)

    with pytest.raises(AssertionError, match="the fix introduces broken-fusion"):
        check_example(LeavesDead, LeavesDead.example)
