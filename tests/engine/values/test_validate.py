"""The first pass that changed the values: found by bisection, with the instruction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import hlo_lint
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.selection import in_order
from hlo_lint.engine.values.programs import StepOutcome
from hlo_lint.engine.values.validate import Validation, validate_dumps
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.xla.cpu import XlaCpu
from tests.conftest import FIXTURES

pytestmark = pytest.mark.slow

GPU = FIXTURES / "dumps" / "gpu-jax0.10.2"
LOOP = """HloModule m

body {
  p = (s32[], f32[4], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  sum = f32[4] get-tuple-element(p), index=1
  rows = f32[8,4] get-tuple-element(p), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  next = s32[] add(i, one)
  row = f32[1,4] dynamic-slice(rows, i, zero), dynamic_slice_sizes={1,4}
  flat = f32[4] reshape(row)
  double = f32[4] add(flat, flat)
  total = f32[4] add(sum, double)
  ROOT t = (s32[], f32[4], f32[8,4]) tuple(next, total, rows)
}

condition {
  p = (s32[], f32[4], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT less = pred[] compare(i, n), direction=LT
}

ENTRY e {
  rows = f32[8,4] parameter(0)
  start = f32[4] parameter(1)
  zero = s32[] constant(0)
  t = (s32[], f32[4], f32[8,4]) tuple(zero, start, rows)
  w = (s32[], f32[4], f32[8,4]) while(t), condition=condition, body=body
  total = f32[4] get-tuple-element(w), index=1
  ROOT r = f32[4] negate(total)
}
"""


@pytest.fixture(scope="module")
def xla() -> Iterator[XlaCpu]:
    with XlaCpu() as running:
        yield running


def run_of(texts: list[str]) -> list[PassDump]:
    """Dumps of one run, each text after a pass of its own."""
    paths = [
        Path(f"module_0001.m.{step:04d}.all.after_pass{step}.before_pass{step + 1}.txt")
        for step in range(len(texts))
    ]
    return [
        PassDump.of(parse_file(text, path), path) for text, path in zip(texts, paths, strict=True)
    ]


def changed(validation: Validation) -> list[str]:
    return [change.after.path.name.split(".")[4] for change in validation.changes]


@pytest.mark.parametrize("all_steps", [False, True])
def test_a_real_run_of_the_gpu_compiler_changes_nothing(xla: XlaCpu, all_steps: bool) -> None:
    (pipeline,) = [
        each for each in hlo_lint.open_dump(GPU) if "jit_" in each.title and len(each.dumps) > 9
    ][:1]
    validation = validate_dumps(pipeline.title, in_order(pipeline), xla, all_steps=all_steps)
    assert validation.changes == []
    assert validation.compared == sum(validation.counts.values()) > 20
    assert validation.counts[StepOutcome.SAME_GRAPH] > 20


WRONG = {
    "a wrong constant": ("constant(5)", "constant(4)", "w"),
    "a swapped operand": ("add(flat, flat)", "subtract(flat, flat)", "double"),
    "a dropped term": ("add(sum, double)", "copy(double)", "total"),
    "a wrong row": ("dynamic-slice(rows, i, zero)", "dynamic-slice(rows, one, zero)", "row"),
    "a lost negation": ("negate(total)", "copy(total)", "r"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_planted_error_is_found_at_its_step_and_instruction(xla: XlaCpu, name: str) -> None:
    right, wrong, instruction = WRONG[name]
    rewritten = LOOP.replace("add(flat, flat)", "multiply(flat, two)").replace(
        "  double =",
        "  c = f32[] constant(2)\n  two = f32[4] broadcast(c), dimensions={}\n  double =",
    )
    planted = LOOP.replace(right, wrong)
    validation = validate_dumps("m", run_of([LOOP, rewritten, LOOP, planted, planted]), xla)
    assert changed(validation) == ["after_pass3"]
    culprit = validation.changes[0].culprit
    assert culprit is not None
    assert culprit.instruction.name == instruction
    assert (culprit.iteration is None) == (instruction in ("w", "r"))


REMAINDER = """HloModule m

ENTRY e {
  x = s32[64] parameter(0)
  y = s32[] parameter(1)
  zero = s32[] constant(0)
  one = s32[] constant(1)
  none = pred[] compare(y, zero), direction=EQ
  divisor = s32[] select(none, one, y)
  d = s32[64] broadcast(divisor), dimensions={}
  rest = s32[64] remainder(x, d)
  zeros = s32[64] broadcast(zero), dimensions={}
  below = pred[64] compare(rest, zeros), direction=LT
  negative = pred[] compare(y, zero), direction=LT
  signs = pred[64] broadcast(negative), dimensions={}
  other = pred[64] compare(below, signs), direction=NE
  some = pred[64] compare(rest, zeros), direction=NE
  both = pred[64] and(other, some)
  up = s32[64] add(rest, d)
  ROOT r = s32[64] select(both, up, rest)
}
"""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("compare(y, zero), direction=EQ", "compare(y, zero), direction=NE"),
        ("compare(y, zero), direction=EQ", "compare(y, one), direction=EQ"),
        ("compare(y, zero), direction=LT", "compare(y, zero), direction=GT"),
        ("compare(rest, zeros), direction=NE", "compare(rest, zeros), direction=EQ"),
        ("add(rest, d)", "copy(rest)"),
        ("select(none, one, y)", "copy(y)"),
    ],
)
def test_a_scalar_decides_on_both_sides_of_its_thresholds(
    xla: XlaCpu, right: str, wrong: str
) -> None:
    assert right in REMAINDER
    dumps = run_of([REMAINDER, REMAINDER.replace(right, wrong)])
    assert changed(validate_dumps("m", dumps, xla)) == ["after_pass1"]


def test_a_change_that_is_taken_back_shows_in_all_steps(xla: XlaCpu) -> None:
    other = LOOP.replace("negate(total)", "copy(total)")
    dumps = run_of([LOOP, other, LOOP])
    assert changed(validate_dumps("m", dumps, xla)) == []
    assert changed(validate_dumps("m", dumps, xla, all_steps=True)) == [
        "after_pass1",
        "after_pass2",
    ]


def test_several_children_say_what_one_says(xla: XlaCpu) -> None:
    texts = [LOOP.replace("constant(5)", f"constant({1 + step % 4})") for step in range(9)]
    alone, together = (
        validate_dumps("m", run_of(texts), xla, all_steps=True, jobs=jobs) for jobs in (1, 3)
    )
    assert changed(alone) == changed(together) == [f"after_pass{step}" for step in range(1, 9)]
    assert alone.runs < together.runs  # the ends of shares run twice


def test_rounding_is_not_an_error_and_a_small_constant_is(xla: XlaCpu) -> None:
    text = """HloModule m

ENTRY e {
  x = f32[64] parameter(0)
  c = f32[] constant(3)
  e = f32[] constant(1e-05)
  three = f32[64] broadcast(c), dimensions={}
  tiny = f32[64] broadcast(e), dimensions={}
  q = f32[64] divide(x, three)
  ROOT r = f32[64] add(q, tiny)
}
"""
    reciprocal = text.replace("constant(3)", "constant(0.333333343)").replace("divide", "multiply")
    validation = validate_dumps("m", run_of([text, reciprocal]), xla)
    assert validation.counts == {StepOutcome.WITHIN_BOUND: 1}
    wrong = text.replace("1e-05", "3e-05")
    assert changed(validate_dumps("m", run_of([text, wrong]), xla)) == ["after_pass1"]


def test_what_is_not_compared_is_said(xla: XlaCpu) -> None:
    call = "HloModule m\n\nENTRY e {\n  x = f32[4] parameter(0)\n  ROOT r = f32[4] CALL\n}\n"
    texts = [
        call.replace("CALL", "negate(x)"),
        call.replace("CALL", 'custom-call(x), custom_call_target="opaque"'),
        call.replace("CALL", 'custom-call(x), custom_call_target="opaque"').replace("r =", "s ="),
        call.replace("f32[4] parameter", "f32[<=4] parameter").replace("CALL", "negate(x)"),
    ]
    validation = validate_dumps("m", run_of(texts), xla)
    assert [step.comparison.outcome for step in validation.steps[1:]] == [
        StepOutcome.NOT_COMPARABLE,
        StepOutcome.SAME_GRAPH,
        StepOutcome.NOT_LOWERED,
    ]
    assert validation.notes == [
        "not comparable: operations that are not run differ: opaque after (1 step)",
        "not lowered: f32[<=4] has a size that is known at run time only (1 step)",
        "not run, equal for equal operands: opaque",
    ]


def test_two_runs_are_compared_at_common_steps(tmp_path: Path) -> None:
    for side, text in (("a", LOOP), ("b", LOOP.replace("negate(total)", "copy(total)"))):
        (tmp_path / side).mkdir()
        for dump, content in zip(run_of([LOOP, text]), (LOOP, text), strict=True):
            (tmp_path / side / dump.path.name).write_text(content)
    result = hlo_lint.validate(tmp_path / "a", against=tmp_path / "b")
    assert [finding.instruction for finding in result.report.findings] == ["r"]
    assert hlo_lint.validate(tmp_path / "a", against=tmp_path / "a").report.clean


def test_dumps_of_a_run_are_in_order() -> None:
    (pipeline, *_) = hlo_lint.open_dump(GPU)
    assert in_order(pipeline)[0].path.name.endswith("before_optimizations.txt")
