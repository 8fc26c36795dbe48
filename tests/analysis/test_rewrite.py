"""A rewrite leaves a whole module: users, dead operands, computations that nothing calls."""

from __future__ import annotations

from typing import ClassVar

import pytest

import hlo_lint
from hlo_lint import Bad, Computation, Finding, Findings, Fix, Good, Instruction, Module, Rule
from hlo_lint.analysis.rewrite import Rewrite
from hlo_lint.apps.testing import check_example
from hlo_lint.engine.fixes import apply_fixes

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
WITHOUT = """\
HloModule narrows

body {
  x = f32[8]{0} parameter(0)
  twice = f32[8]{0} add(x, x)
  ROOT out = (f32[8]{0}, f32[8]{0}) tuple(twice, x)
}

ENTRY e {
  p = f32[8]{0} parameter(0)
  ROOT f = (f32[8]{0}, f32[8]{0}) fusion(p), kind=kLoop, calls=body
}
"""


def named(module: Module, name: str) -> Instruction:
    (found,) = [each for each in module.instructions() if each.name == name]
    return found


def test_users_read_another_value_and_what_is_dead_goes() -> None:
    module = hlo_lint.parse(FUSED)
    rewrite = Rewrite(named(module, "wide"), module)
    assert rewrite.replace_with(named(module, "x"))
    fixed, _ = apply_fixes(FUSED, [rewrite.fix("read the wide value")])
    assert fixed == WITHOUT
    assert hlo_lint.lint(fixed, ["verifier"]).findings == ()


def test_a_root_that_is_replaced_hands_its_mark_on() -> None:
    text = (
        "HloModule m\n\nENTRY %e {\n  %p = f32[8]{0} parameter(0)\n"
        "  %n = f32[8]{0} negate(f32[8]{0} %p)\n  ROOT %c = f32[8]{0} copy(f32[8]{0} %n)\n}\n"
    )
    module = hlo_lint.parse(text)
    rewrite = Rewrite(named(module, "c"), module)
    assert rewrite.replace_with(named(module, "n"))
    fixed, _ = apply_fixes(text, [rewrite.fix("drop the copy")])
    assert fixed == text.replace("  %n", "  ROOT %n").rpartition("  ROOT %c")[0] + "}\n"


@pytest.mark.parametrize(
    "kept",
    [
        'narrow = bf16[8]{0} custom-call(x), custom_call_target="f"',
        "narrow = bf16[8]{0} all-reduce(x), channel_id=1, to_apply=add",
        "narrow = bf16[8]{0} convert(x), control-predecessors={x}",
    ],
)
def test_what_has_an_effect_stays(kept: str) -> None:
    text = FUSED.replace("narrow = bf16[8]{0} convert(x)", kept)
    module = hlo_lint.parse(text)
    rewrite = Rewrite(named(module, "wide"), module)
    assert rewrite.replace_with(named(module, "x"))
    assert kept in apply_fixes(text, [rewrite.fix("read the wide value")])[0]


def test_several_rewrites_are_one_fix() -> None:
    text = WITHOUT.replace("add(x, x)", "negate(x)")
    module = hlo_lint.parse(text)
    fixes = []
    for name in ("twice", "f"):
        rewrite = Rewrite(named(module, name), module, dropping=("kind",))
        rewrite.add("copy", named(module, name).shape)
        fixes.append(rewrite.fix("copy"))
    joined = Rewrite.join("copy both", fixes)
    fixed, edits = apply_fixes(text, [joined])
    assert len(edits) == fixed.count(" copy(") == 2


class NarrowConvert(Rule):
    """A value that is converted to fewer bits and back."""

    skip_fusion_bodies = False
    leaves_dead = False
    examples: ClassVar[tuple[Bad | Good, ...]] = (
        Bad(
            FUSED.replace("convert(narrow)\n", "convert(narrow)  // error\n"),
            fixed=WITHOUT,
        ),
    )

    def check(self, computation: Computation) -> Findings:
        for wide in computation.with_opcode("convert"):
            inner = wide.operands[0].instruction
            if inner is not None and inner.opcode == "convert":
                yield Finding(wide, "converted to fewer bits and back")

    def fix(self, instruction: Instruction, module: Module) -> Fix | None:
        narrow = instruction.operands[0].instruction
        value = narrow and narrow.operands[0].instruction
        assert value
        rewrite = Rewrite(instruction, module)
        assert rewrite.replace_with(value)
        fix = rewrite.fix("read the wide value")
        if not self.leaves_dead:
            return fix
        edits = tuple(edit for edit in fix.edits if "narrow" not in self._text(edit.span, module))
        return Fix(fix.title, edits, fix.safety)

    def _text(self, span: hlo_lint.Span, module: Module) -> str:
        return module.file.text[span.start : span.end].partition("=")[0]


def test_a_fix_inside_a_fusion_leaves_nothing_dead() -> None:
    check_example(NarrowConvert, NarrowConvert.examples[0])


def test_a_fix_that_introduces_a_finding_fails_its_test() -> None:
    class LeavesDead(NarrowConvert):
        leaves_dead = True
        example = Bad(
            FUSED.replace("convert(narrow)\n", "convert(narrow)  // error\n"),
            fixed=WITHOUT.replace("  twice", "  narrow = bf16[8]{0} convert(x)\n  twice"),
        )
        examples = (example,)

    with pytest.raises(AssertionError, match="the fix introduces broken-fusion"):
        check_example(LeavesDead, LeavesDead.example)
