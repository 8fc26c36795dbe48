"""Fixes keep every value, leave the rest of the text alone, and are done once."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import hlo_lint
from hlo_lint.engine.proof.terms import Differs, NotLayout, prove_equal
from hlo_lint.rules.base import Bad
from hlo_lint.rules.findings import Severity
from hlo_lint.rules.registry import find_rule
from hlo_lint.text.source import decode
from tests.conftest import DUMPS, present, written
from tests.texts import entry

FORMS = ("copy", "transpose")
NEXT = "layout_normalization"
CRASHES = sorted(path for path in DUMPS.glob("*/*crash"))

SHAPES = [
    # the operand, the result: one side can be moved, the other, both
    ("f32[16,128,32]{2,1,0}", "f32[2,8,128,32]{2,3,1,0}"), ("f32[4,2,3]{0,1,2}", "f32[8,3]{1,0}"),
    ("f32[8,3]{1,0}", "f32[4,2,3]{0,1,2}"), ("f32[4,2,3,8]{0,2,1,3}", "f32[8,3,2,4]{0,2,1,3}"),
    ("f16[48,64]{0,1}", "f16[3072]{0}"), ("bf16[8,1,3]{0,1,2}", "bf16[4,6,1,1]{3,2,1,0}"),
    # what the shapes in between must not lose
    ("s4[8,6]{0,1:E(4)}", "s4[48]{0:E(4)}"), ("f32[8,6]{0,1:S(5)}", "f32[48]{0:S(5)}"),
    ("f32[<=8,6]{0,1}", "f32[<=8,2,3]{2,1,0}"), ("f32[16,128]{0,1:T(8,128)}", "f32[2048]{0}"),
    ("f32[16,128]{0,1:T(8,128)}", "f32[128,16]{1,0:T(8,128)}"), ("u8[5,7]{0,1}", "u8[7,5]{0,1}"),
    ("c64[2,3,4]{0,2,1}", "c64[6,4]{0,1}"), ("pred[4,8]{0,1}", "pred[32]{0}"),
]  # fmt: skip


def module(operand: str, result: str, tail: str = "") -> str:
    opcode = "not" if result.startswith("pred") else "negate"
    where = ', frontend_attributes={_xla_compute_type="host"}' if ":S(5)" in result else ""
    return (
        "HloModule m\n\nENTRY %e {\n"
        f'  %p = {operand} parameter(0), metadata={{op_name="p"}}\n'
        f"  %r = {result} reshape(%p){tail}\n"
        f"  ROOT %n = {result} {opcode}(%r){where}\n}}\n"
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("operand", "result"), SHAPES)
def test_every_element_of_the_result_stays(operand: str, result: str, form: str) -> None:
    text = module(operand, result)
    fixed = hlo_lint.fix(text, before=NEXT, form=form)
    assert fixed.edits
    assert fixed.remaining.clean
    assert is_proven(text, fixed.text)


def is_proven(before: str, after: str) -> bool:
    """True if what differs moves every element as before; a dynamic size counts as its bound."""
    one, other = (hlo_lint.parse(text.replace("<=", "")) for text in (before, after))
    try:
        return prove_equal(one, other).moves > 0
    except (Differs, NotLayout):
        return False


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("operand", "result"), SHAPES)
def test_a_fix_broken_in_any_one_step_is_not_equal(operand: str, result: str, form: str) -> None:
    text = module(operand, result)
    fixed = hlo_lint.fix(text, before=NEXT, form=form).text
    broken = list(_broken(fixed))
    assert broken
    for other in broken:
        assert not is_proven(text, other), other


def _broken(fixed: str) -> list[str]:
    """The fixed text with one step wrong: another order, or other dimensions of a transpose."""
    found = []
    for match in re.finditer(r"  %r\.[^\n]*", fixed):
        line = match[0]
        orders = re.finditer(r"(?:(?<=\])\{|dimensions=\{)((?:\d+,)+\d+)", line)
        for order in orders:
            numbers = order[1].split(",")
            sizes = present(re.search(r"\[([\d,<=]*)\]", line))
            kept = [n for n in numbers if sizes[1].split(",")[int(n)].lstrip("<=") != "1"]
            if len(kept) < 2:
                continue
            first, second = numbers.index(kept[0]), numbers.index(kept[1])
            numbers[first], numbers[second] = numbers[second], numbers[first]
            wrong = line[: order.start(1)] + ",".join(numbers) + line[order.end(1) :]
            found.append(fixed.replace(line, wrong))
    return found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("operand", "result"), SHAPES)
def test_the_rest_stays_and_a_second_fix_is_empty(operand: str, result: str, form: str) -> None:
    text = module(operand, result)
    fixed = hlo_lint.fix(text, before=NEXT, form=form).text
    lines = text.split("\n")
    assert [line for line in fixed.split("\n") if not line.startswith("  %r")] == [
        line for line in lines if not line.startswith("  %r")
    ]
    assert hlo_lint.fix(fixed, before=NEXT, form=form).text == fixed


def test_element_size_memory_space_and_bounds_are_kept_in_between() -> None:
    text = module("s4[<=8,6]{0,1:E(4)S(5)}", "s4[<=8,2,3]{2,1,0:E(4)S(5)}")
    for form in FORMS:
        fixed = hlo_lint.fix(text, before=NEXT, form=form).text
        made = re.findall(r"%r\S* = (\S+)", fixed)
        assert all("E(4)S(5)" in shape and "<=8" in shape for shape in made), fixed


def test_what_lies_in_different_memories_is_reported_and_not_fixed() -> None:
    text = module("f32[8,6]{0,1:S(5)}", "f32[48]{0}")
    report = hlo_lint.lint(text, before=NEXT)
    assert [finding.fix for finding in report.findings] == [None]
    fixed = hlo_lint.fix(text, before=NEXT)
    assert (fixed.text, fixed.edits, fixed.remaining.clean) == (text, (), False)


def test_metadata_comes_from_the_operand_and_other_attributes_stay() -> None:
    tail = ', control-predecessors={%p}, metadata={op_name="r"}, frontend_attributes={a="b"}'
    fixed = hlo_lint.fix(module(*SHAPES[0], tail), before=NEXT, form="copy").text
    assert fixed.split("\n")[4:6] == [
        '  %r.copy = f32[16,128,32]{1,2,0} copy(%p), metadata={op_name="p"}',
        "  %r = f32[2,8,128,32]{2,3,1,0} bitcast(%r.copy), control-predecessors={%p}, "
        'frontend_attributes={a="b"}, metadata={op_name="p"}',
    ]


def test_metadata_of_the_reshape_stays_where_the_operand_has_none() -> None:
    text = module(*SHAPES[0], ', metadata={op_name="r"}').replace(', metadata={op_name="p"}', "")
    fixed = hlo_lint.fix(text, before=NEXT, form="copy").text
    assert fixed.split("\n")[4:6] == [
        "  %r.copy = f32[16,128,32]{1,2,0} copy(%p)",
        '  %r = f32[2,8,128,32]{2,3,1,0} bitcast(%r.copy), metadata={op_name="r"}',
    ]


def test_new_names_are_fresh_in_the_whole_module() -> None:
    text = module(*SHAPES[0]).replace(
        "HloModule m\n",
        "HloModule m\n\n%f (r.copy: f32[]) -> f32[] {\n  ROOT %r.copy = f32[] parameter(0)\n}\n",
    )
    fixed = hlo_lint.fix(text, before=NEXT, form="copy").text
    assert "%r.copy.2 = f32[16,128,32]{1,2,0} copy(%p)" in fixed


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("%p", "p"), ("reshape(%p)", "reshape(f32[16,128,32]{2,1,0} %p)"), ("\n", "\r\n"),
        ("  %", "\t%"), ("%r = ", "ROOT %r = "), ("reshape(%p)", "reshape(/*the value*/ %p)"),
    ],
)  # fmt: skip
def test_a_fix_speaks_the_dialect_of_its_file(old: str, new: str) -> None:
    text = module(*SHAPES[0])
    text = text.replace("ROOT ", "") if "ROOT" in new else text
    text = text.replace(old, new)
    text = text.replace("%", "") if new == "p" else text
    fixed = hlo_lint.fix(text, before=NEXT, form="copy").text
    assert len(fixed.split("\n")) == len(text.split("\n")) + 1
    made = next(line for line in fixed.split("\n") if "copy(" in line)
    assert ("%" in made) == ("%" in text)
    assert made.endswith("\r") == ("\r" in text)
    assert made.startswith("\t") == ("\t" in text)
    assert ("copy(f32" in made) == ("reshape(f32" in text)
    assert ("ROOT %r = f32[2,8,128,32]{2,3,1,0} bitcast" in fixed) == ("ROOT %r" in text)
    assert hlo_lint.lint(fixed, before=NEXT).clean


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("folder", CRASHES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_real_crash_dumps_are_mended(folder: Path, form: str, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    shutil.copytree(folder, dump)
    fixed = hlo_lint.fix(dump, form=form)
    assert fixed.files
    assert fixed.remaining.clean
    for file in fixed.files:
        assert is_proven(file.before, file.after)
        present(file.path).write_bytes(file.after.encode("utf-8", "surrogateescape"))
    assert [finding.rule for finding in hlo_lint.lint(dump).findings] == ["compilation-died"]


def test_several_modules_of_a_file_are_all_fixed() -> None:
    text = "\n// -----\n\n".join(module(*shapes) for shapes in SHAPES[:2] * 6)
    fixed = hlo_lint.fix(text, before=NEXT)
    assert (len(fixed.edits), len(fixed.fixed)) == (12, 12)
    assert hlo_lint.lint(fixed.text, before=NEXT).clean


def test_a_fix_of_two_edits_fixes_one_finding() -> None:
    rule = find_rule("reshape-runs-as-kernel")
    texts = [example.source for example in rule.examples if isinstance(example, Bad)]
    results = [hlo_lint.fix(text, [rule.name()], unsafe_fixes=True) for text in texts]
    assert (2, 1) in [(len(result.edits), len(result.fixed)) for result in results]
    for text, result in zip(texts, results, strict=True):
        reported = hlo_lint.lint(text, [rule.name()])
        assert len(result.fixed) + len(result.findings) == len(reported)


def test_bytes_that_are_no_utf8_survive_a_fix() -> None:
    data = module(*SHAPES[0]).encode().replace(b'"p"', b'"\xff\xfe"')
    fixed = hlo_lint.fix(data, before=NEXT, form="copy").text
    assert fixed.encode("utf-8", "surrogateescape").count(b'"\xff\xfe"') == 3
    assert decode(data) != fixed


# What a compiler accepts: layout-assignment refuses a bitcast

INFERRED = entry("""
  p = f32[2,3,4]{2,1,0} parameter(0)
  t = f32[2,4,3]{1,2,0} transpose(p), dimensions={0,2,1}
  n = f32[2,4,3]{1,2,0} negate(t)
  ROOT r = f32[8,3]{1,0} reshape(n)
""")
"""As jax prints what it lowered: a transpose permutes the order, and `negate` passes it on."""

ASSIGNED = INFERRED.replace("{1,2,0} transpose(p)", "{0,1,2} transpose(p)")
"""An order that no shape inference gives."""


def test_layouts_before_layout_assignment_bind_nothing() -> None:
    assert hlo_lint.lint(INFERRED).findings == ()
    assert hlo_lint.fix(INFERRED).text == INFERRED
    assert "bitcast" in hlo_lint.fix(INFERRED, before=NEXT).text


@pytest.mark.parametrize("name", ["m.before_optimization.hlo", "m.before_optimizations.txt"])
def test_a_file_named_for_the_time_before_layouts_is_left_alone(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / name, ASSIGNED)
    assert hlo_lint.fix(path).edits == ()
    assert hlo_lint.lint(path).findings == ()


def test_what_may_come_before_layout_assignment_is_not_edited_and_the_warning_says_so() -> None:
    result = hlo_lint.fix(ASSIGNED)
    (finding,) = result.findings
    assert (result.text, finding.severity, finding.fix) == (ASSIGNED, Severity.WARNING, None)
    assert "layout-assignment may still run" in finding.notes[-1]


def test_a_bitcast_shows_that_layouts_are_assigned() -> None:
    text = ASSIGNED.replace("\n}\n", "\n  b = f32[24]{0} bitcast(p)\n}\n")
    assert hlo_lint.fix(text).findings == ()


def test_a_fix_after_which_the_verifier_refuses_the_module_is_taken_back() -> None:
    """A bitcast shows that layouts are assigned, and then the call has a wrong one."""
    text = entry(
        """
  p = f32[4,8]{0,1} parameter(0)
  r = f32[8,4]{1,0} reshape(p)
  c = f32[4,8]{1,0} call(p), to_apply=f
  ROOT t = (f32[8,4]{1,0}, f32[4,8]{1,0}) tuple(r, c)
""",
        "f { q = f32[4,8]{1,0} parameter(0) ROOT n = f32[4,8]{1,0} negate(q) }\n\n",
    )
    (finding,) = hlo_lint.lint(text, before="layout_normalization").findings
    assert finding.rule == "reshape-moves-data"
    fixed = hlo_lint.fix(text, before="layout_normalization")
    assert fixed.text == text
    reasons = [skipped.reason for skipped in fixed.remaining.skipped]
    assert any("not fixed: XLA would refuse the result" in reason for reason in reasons), reasons
    (left,) = fixed.remaining.findings
    assert (left.start, left.excerpt, left.fix) == (finding.start, finding.excerpt, finding.fix)
