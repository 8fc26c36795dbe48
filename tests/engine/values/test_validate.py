"""The first pass that changed the values: found by bisection, with the instruction."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import hlo_lint
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.selection import in_order
from hlo_lint.engine.values.findings import diagnostic_of
from hlo_lint.engine.values.lowering.emit import emit_graph
from hlo_lint.engine.values.lowering.graph import Nodes
from hlo_lint.engine.values.lowering.lower import Lowering
from hlo_lint.engine.values.programs import Runs, StepOutcome
from hlo_lint.engine.values.validate import Validation, ValueChange, validate_dumps
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.xla.cpu import XlaCpu
from hlo_lint.xla.limits import Deadline
from tests.conftest import FIXTURES, present
from tests.texts import ADD, counted, entry, summing

pytestmark = pytest.mark.slow

GPU = FIXTURES / "dumps" / "gpu-jax0.10.2"
LOOP = counted(
    {"sum": "f32[4]", "rows": "f32[8,4]"},
    """
  zero = s32[] constant(0)
  row = f32[1,4] dynamic-slice(rows, i, zero), dynamic_slice_sizes={1,4}
  flat = f32[4] reshape(row)
  double = f32[4] add(flat, flat)
  total = f32[4] add(sum, double)""",
    "total, rows",
    """
  rows = f32[8,4] parameter(0)
  start = f32[4] parameter(1)
  w = LOOP(start, rows)
  total = f32[4] get-tuple-element(w), index=1
  ROOT r = f32[4] negate(total)""",
)


def run_of(texts: list[str]) -> list[PassDump]:
    """Dumps of one run, each text after a pass of its own."""
    dumps = []
    for step, text in enumerate(texts):
        path = Path(f"module_0001.m.{step:04d}.all.after_pass{step}.before_pass{step + 1}.txt")
        dumps.append(PassDump.of(parse_file(text, path), path))
    return dumps


def changed(validation: Validation) -> list[str]:
    return [change.after.path.name.split(".")[4] for change in validation.changes]


Edits = dict[str, str]
of_two_devices, of_four_devices = (
    partial(entry, header=f", num_partitions={count}") for count in (2, 4)
)


def edited(text: str, edits: Edits) -> str:
    for right, other in edits.items():
        assert text.count(right) == 1, right
        text = text.replace(right, other)
    return text


def culprit(change: ValueChange) -> str:
    """The name of the wrong instruction."""
    return present(change.culprit).instruction.name


CALL = entry("""
  p = f32[8,4]{0,1} parameter(0)
  double = f32[8,4]{ORDER} add(p, p)
  call = f32[8,4]{ORDER} custom-call(double), custom_call_target="opaque"CONSTRAINTS
  ROOT r = f32[8,4]{ORDER} negate(call)
""")
"""XLA:GPU (0.11.2) gives `call` the order 0,1 without constraints, XLA:CPU the order 1,0."""


@pytest.mark.parametrize("all_steps", [False, True])
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("order", ["0,1", "1,0"])
def test_layout_assignment_chooses_the_layouts_of_a_call_without_constraints(
    xla: XlaCpu, order: str, constrained: bool, all_steps: bool
) -> None:
    constraints = ", operand_layout_constraints={f32[8,4]{0,1}}" if constrained else ""
    texts = [CALL.replace("ORDER", "0,1"), CALL.replace("ORDER", order)]
    dumps = run_of([text.replace("CONSTRAINTS", constraints) for text in (*texts, texts[1])])
    path = Path("module_0001.m.0001.all.after_layout-assignment.before_pass2.txt")
    dumps[1] = PassDump.of(dumps[1].file, path)
    validation = validate_dumps("m", dumps, xla, all_steps=all_steps)
    # With constraints the call gives its result in the order of the text, in any dump.
    assert bool(validation.changes) == (constrained and order == "1,0")
    wrong = texts[1].replace("CONSTRAINTS", constraints).replace("add(", "subtract(")
    assert validate_dumps("m", [*dumps, *run_of([wrong])], xla, all_steps=all_steps).changes


@pytest.mark.parametrize("all_steps", [False, True])
def test_a_real_run_of_the_gpu_compiler_changes_nothing(xla: XlaCpu, all_steps: bool) -> None:
    (compilation,) = [
        each for each in hlo_lint.open_dump(GPU) if "jit_" in each.title and len(each.dumps) > 9
    ][:1]
    validation = validate_dumps(compilation.title, in_order(compilation), xla, all_steps=all_steps)
    assert validation.changes == []
    assert validation.compared == sum(validation.counts.values()) > 20
    by_graph = validation.counts[StepOutcome.SAME_GRAPH]
    assert by_graph > 20 if all_steps else by_graph <= 1


WRONG = {
    "a wrong constant": ("constant(5)", "constant(4)", "less"),
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
    culprit = present(validation.changes[0].culprit)
    assert culprit.instruction.name == instruction
    assert (culprit.iteration is None) == (instruction == "r")


DIVIDED = summing("""
  p = f32[4] parameter(0)
  ex = f32[4] exponential(p)
  zero = f32[] constant(0)
  sum = f32[] reduce(ex, zero), dimensions={0}, to_apply=add
  one = f32[] constant(1)
  power = f32[] power(sum, one)
  all = f32[4] broadcast(power), dimensions={}
  share = f32[4] divide(ex, all)
  twice = f32[4] add(share, share)
  ROOT r = f32[4] multiply(twice, ex)
""")


def test_a_wrong_value_that_equals_another_is_not_taken_for_it(xla: XlaCpu) -> None:
    """Divided by 1, the shares equal the exponentials, which are right; renamed and reordered."""
    planted = DIVIDED.replace("power(sum, one)", "power(sum, zero)")
    planted = planted.replace("multiply(twice, ex)", "multiply(ex, twice)").replace("all", "every")
    change = validate_dumps("m", run_of([DIVIDED, planted]), xla).changes[0]
    assert culprit(change) == "power"
    assert not change.is_disputed


BRANCHES = entry(
    """
  x = f32[4] parameter(0)
  w = f32[4] parameter(1)
  is = pred[] parameter(2)
  chosen = f32[4] conditional(is, x, w), true_computation=yes, false_computation=no
  zero = f32[] constant(0)
  sum = f32[] reduce(chosen, zero), dimensions={0}, to_apply=add
  all = f32[4] broadcast(sum), dimensions={}
  back = f32[4] reverse(chosen), dimensions={0}
  ROOT r = f32[4] subtract(back, all)
""",
    "yes {\n  p = f32[4] parameter(0)\n  ROOT e = f32[4] exponential(p)\n}\n"
    "no {\n  p = f32[4] parameter(0)\n  ROOT n = f32[4] negate(p)\n}\n" + ADD,
)


@pytest.mark.parametrize(("wrong", "name"), [("tanh(p)", "e"), ("abs(p)", "n")])
def test_the_wrong_instruction_is_in_a_branch(xla: XlaCpu, wrong: str, name: str) -> None:
    """Both operands of the result are wrong, because of a value that both come from."""
    right = {"e": "exponential(p)", "n": "negate(p)"}[name]
    planted = BRANCHES.replace(right, wrong).replace("add(a, b)", "add(b, a)")
    change = validate_dumps("m", run_of([BRANCHES, planted]), xla).changes[0]
    assert culprit(change) == name


CLAMPED = of_four_devices("""
  p = s32[8] parameter(0), sharding={replicated}
  i = s32[] parameter(1), sharding={replicated}
  zero = s32[] constant(0)
  high = s32[] constant(4)
  start = s32[] clamp(zero, i, high)
  id = u32[] partition-id()
  own = s32[] convert(id)
  place = s32[] add(own, start)
  ROOT r = s32[1] dynamic-slice(p, place), dynamic_slice_sizes={1}
""")


def test_the_parts_of_the_devices_are_looked_into(xla: XlaCpu) -> None:
    planted = CLAMPED.replace("constant(4)", "constant(7)")
    change = validate_dumps("m", run_of([CLAMPED, planted]), xla).changes[0]
    assert culprit(change) == "start"


REMAINDER = entry("""
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
""")


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
def test_a_scalar_decides_on_both_sides_of_a_threshold(xla: XlaCpu, right: str, wrong: str) -> None:
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


def test_steps_too_large_to_run_are_bisected(xla: XlaCpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hlo_lint.engine.values.validate.MAX_WORK", 0)
    dumps = run_of([LOOP, edited(LOOP, {"constant(5)": "constant(3)"}), LOOP])
    assert not validate_dumps("m", dumps, xla, all_steps=True).changes


def test_several_children_say_what_one_says(xla: XlaCpu) -> None:
    texts = [LOOP.replace("constant(5)", f"constant({1 + step % 4})") for step in range(9)]
    alone, together = (
        validate_dumps("m", run_of(texts), xla, all_steps=True, jobs=jobs) for jobs in (1, 3)
    )
    assert changed(alone) == changed(together) == [f"after_pass{step}" for step in range(1, 9)]
    assert alone.runs < together.runs  # the ends of shares run twice


def test_rounding_is_not_an_error_and_a_small_constant_is(xla: XlaCpu) -> None:
    text = entry("""
  x = f32[64] parameter(0)
  c = f32[] constant(3)
  e = f32[] constant(1e-05)
  three = f32[64] broadcast(c), dimensions={}
  tiny = f32[64] broadcast(e), dimensions={}
  q = f32[64] divide(x, three)
  ROOT r = f32[64] add(q, tiny)
""")
    reciprocal = text.replace("constant(3)", "constant(0.333333343)").replace("divide", "multiply")
    for tiny in ("1e-05", "0.333333343"):  # a new constant, and one that is there
        modules = [module.replace("1e-05", tiny) for module in (text, reciprocal)]
        counts = validate_dumps("m", run_of(modules), xla).counts
        assert counts == {StepOutcome.WITHIN_BOUND: 1}
    wrong = text.replace("1e-05", "3e-05")
    assert changed(validate_dumps("m", run_of([text, wrong]), xla)) == ["after_pass1"]


def test_pads_and_sums_may_have_fewer_bits_than_what_they_read(xla: XlaCpu) -> None:
    text = summing("""
  x = f32[8] parameter(0)
  z = bf16[] constant(0)
  y = bf16[10] pad(x, z), padding=1_1
  w = f32[10] convert(y)
  c = f32[] constant(1)
  ROOT r = bf16[] reduce(w, c), dimensions={0}, to_apply=add
""")
    program = Lowering(hlo_lint.parse(text), Nodes()).program()
    (result,) = xla.run(emit_graph(program.graph, {}), [np.ones(8, np.float32)])
    assert (result.dtype.name, float(result)) == ("bfloat16", 9)


@pytest.mark.parametrize("dtype", ["f32", "s32"])
@pytest.mark.parametrize(("opcode", "sign"), [("maximum", "copy"), ("minimum", "negate")])
@pytest.mark.parametrize("dimensions", ["0", "1", "0,1"])
def test_rows_lie_on_each_side_of_a_wrong_initial_value(
    xla: XlaCpu, dtype: str, opcode: str, sign: str, dimensions: str
) -> None:
    shape = {"0": "[64]", "1": "[8]", "0,1": "[]"}[dimensions]
    lines = f"""
  x = {dtype}[64,8] parameter(0)
  y = {dtype}[8,64] transpose(x), dimensions={{1,0}}
  z = {dtype}[8,64] {sign}(y)
  c = {dtype}[] constant({"-" * (opcode == "maximum")}100)
  ROOT r = {dtype}{shape} reduce(z, c), dimensions={{{dimensions}}}, to_apply=add
"""
    text = entry(lines, ADD.replace("f32", dtype).replace("add(", f"{opcode}("))
    wrong = text.replace("constant(-100)", "constant(0)").replace("constant(100)", "constant(0)")
    assert changed(validate_dumps("m", run_of([text, wrong]), xla)) == ["after_pass1"]


WRONG_NUMBERS = {
    "beside as much rounding": summing("""
  x = bf16[8,8192] parameter(0)
  y = bf16[8,8192] multiply(x, x)
  c = bf16[] constant(0)
  ROOT r = bf16[8] reduce(y, c), dimensions={1}, to_apply=add
""").replace("f32[] ", "bf16[] "),
    "through a function that is saturated": summing("""
  x = bf16[4,128] parameter(0)
  y = bf16[128,4] parameter(1)
  d = bf16[4,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  w = f32[4,4] convert(d)
  c = f32[] constant(0)
  s = f32[4] reduce(w, c), dimensions={1}, to_apply=add
  n = bf16[4] convert(s)
  ROOT r = bf16[4] tanh(n)
"""),
    # One is less than the last place of most sums in bf16.
    "behind a division": summing("""
  x = f32[64,4096] parameter(0)
  one = f32[] constant(1)
  ones = f32[64,4096] broadcast(one), dimensions={}
  exp = f32[64,4096] exponential(x)
  more = f32[64,4096] add(ones, exp)
  part = f32[64,4096] divide(exp, more)
  narrow = bf16[64,4096] convert(part)
  wide = f32[64,4096] convert(narrow)
  start = f32[] constant(0)
  sum = f32[64] reduce(wide, start), dimensions={1}, to_apply=add
  ROOT r = bf16[64] convert(sum)
"""),
    "in a slice": entry("""
  x = f32[8] parameter(0)
  i = s32[] parameter(1)
  least = s32[] constant(0)
  most = s32[] constant(7)
  at = s32[] clamp(least, i, most)
  ROOT r = f32[1] dynamic-slice(x, at), dynamic_slice_sizes={1}
"""),
}


@pytest.mark.parametrize(
    ("place", "right", "wrong"), [*((place, 0, 1) for place in WRONG_NUMBERS), ("in a slice", 7, 6)]
)
def test_a_wrong_number_is_an_error_where_nothing_is_decided(
    xla: XlaCpu, place: str, right: int, wrong: int
) -> None:
    text = WRONG_NUMBERS[place]
    planted = edited(text, {f"constant({right})": f"constant({wrong})"})
    assert changed(validate_dumps("m", run_of([text, planted]), xla)) == ["after_pass1"]


CUBES = counted(
    {"x": "bf16[16,512]"},
    """
  square = bf16[16,16] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  cube = bf16[16,512] dot(square, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = bf16[16,512] reverse(cube), dimensions={1}""",
    "y",
    """
  x = bf16[16,512] parameter(0)
  w = LOOP(x)
  ROOT r = bf16[16,512] get-tuple-element(w), index=1""",
    "COUNT",
)


@pytest.mark.parametrize(("count", "other"), [(5, 3), (12, 9)], ids=["rounding", "overflow"])
def test_an_error_shows_behind_rounding_or_overflow(xla: XlaCpu, count: int, other: int) -> None:
    text = CUBES.replace("COUNT", str(count))
    rewritten = text.replace("dot(square, x)", "dot(square, z)").replace(
        "  cube =", "  n = bf16[16,512] negate(x)\n  z = bf16[16,512] negate(n)\n  cube ="
    )
    wrong = rewritten.replace(f"constant({count})", f"constant({other})")
    assert changed(validate_dumps("m", run_of([text, rewritten, wrong]), xla)) == ["after_pass2"]


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
        "not lowered: f32[4] does not say which dimensions have a size of their own (1 step)",
        "not run, equal for equal operands: opaque",
    ]


def test_a_loop_that_never_ends_is_not_run(xla: XlaCpu) -> None:
    endless = LOOP.replace("compare(i, n), direction=LT", "constant(true)")
    validation = validate_dumps("m", run_of([endless, endless.replace("negate", "abs")]), xla)
    assert validation.counts == {StepOutcome.NOT_RUN: 1}
    assert "the loop %w never ends: its condition is constant true" in validation.notes[0]


def test_a_step_that_is_ended_by_its_time_is_not_called_refused() -> None:
    sharded = "negate(total), sharding={devices=[2,2]<=[4]}"
    slow = LOOP.replace("constant(5)", "constant(2000000000)").replace("negate(total)", sharded)
    assert hlo_lint.lint(slow, ["verifier"]).findings
    with XlaCpu(seconds=1) as impatient:
        validation = validate_dumps("m", run_of([LOOP, slow]), impatient)
    assert validation.counts == {StepOutcome.NOT_RUN: 1}
    assert not validation.changes


def test_a_loop_that_a_pass_makes_endless_is_reported(xla: XlaCpu) -> None:
    endless = LOOP.replace("compare(i, n), direction=LT", "constant(true)")
    (change,) = validate_dumps("m", run_of([LOOP, endless]), xla).changes
    assert culprit(change) == "w"
    assert "its condition is constant true" in change.comparison.reason


REWRITES: dict[str, tuple[str, Edits, Edits]] = {
    "a sum in another order": (
        entry("""
  a = f32[64] parameter(0)
  b = f32[64] parameter(1)
  n = f32[64] negate(b)
  s = f32[64] add(a, b)
  ROOT r = f32[64] add(s, n)
"""),
        {"add(a, b)": "add(b, n)", "add(s, n)": "add(a, s)"},
        {"add(b, n)": "copy(b)"},
    ),
    "the sign of a NaN": (
        entry("""
  a = f32[64] parameter(0)
  b = f32[64] parameter(1)
  s = f32[64] subtract(a, b)
  n = f32[64] copy(s)
  ROOT r = pred[64] compare(n, b), direction=GT, type=TOTALORDER
"""),
        {"subtract(a, b)": "subtract(b, a)", "copy(s)": "negate(s)"},
        {"negate(s)": "copy(s)"},
    ),
    "a product with a predicate is a choice": (
        entry("""
  x = f32[8,4] parameter(0)
  i = s32[8] parameter(1)
  k = s32[8] iota(), iota_dimension=0
  p = pred[8] compare(i, k), direction=EQ
  c = f32[8] convert(p)
  m = f32[8,4] broadcast(c), dimensions={0}
  ROOT r = f32[8,4] multiply(m, x)
"""),
        {
            "c = f32[8] convert(p)": "z = f32[] constant(0)",
            "m = f32[8,4] broadcast(c)": "m = pred[8,4] broadcast(p)",
            "  ROOT": "  zeros = f32[8,4] broadcast(z), dimensions={}\n  ROOT",
            "multiply(m, x)": "select(m, x, zeros)",
        },
        {"m, x, zeros": "m, zeros, x"},
    ),
    "a division by zero has no value where it is expanded": (
        entry("""
  a = s64[8] parameter(0)
  b = s64[8] parameter(1)
  ROOT r = s64[8] divide(a, b)
"""),
        {
            "ROOT r = s64[8] divide(a, b)": """f = f64[8] convert(a)
  g = f64[8] convert(b)
  q = f64[8] divide(f, g)
  ROOT r = s64[8] convert(q)"""
        },
        {"r = s64[8] convert(q)": "r = s64[8] divide(b, a)"},
    ),
    "a transform of infinities": (
        entry("""
  a = c64[3] parameter(0)
  ROOT r = f32[4] fft(a), fft_type=IRFFT, fft_length={4}
"""),
        {
            "ROOT r = f32[4] fft(a), fft_type=IRFFT, fft_length={4}": """x = f32[3] real(a)
  y = f32[3] imag(a)
  v = f32[3,4] constant({ {.25, .25, .25, .25}, {.5, 0, -.5, 0}, {.25, -.25, .25, -.25} })
  w = f32[3,4] constant({ {0, 0, 0, 0}, {0, -.5, 0, .5}, {0, 0, 0, 0} })
  s = f32[4] dot(x, v), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  t = f32[4] dot(y, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT r = f32[4] add(s, t)"""
        },
        {"{0, -.5, 0, .5}": "{0, .5, 0, -.5}"},
    ),
    # XLA's tests of collectives run through the partitioner, which leaves them as they are.
    "a program of one device is no array of all": (
        of_two_devices("""
  x = f32[6] parameter(0)
  ROOT p = f32[6] collective-permute(x), channel_id=1, source_target_pairs={{0,1}}
"""),
        {"ENTRY e": "ENTRY e_spmd"},
        {"{{0,1}}": "{{1,0}}"},
    ),
}
"""A module, what a pass makes of it without a change, and an error beside that."""


@pytest.mark.parametrize("name", REWRITES)
def test_another_way_to_the_same_values_is_no_change(xla: XlaCpu, name: str) -> None:
    text, edits, error = REWRITES[name]
    same = edited(text, edits)
    validation = validate_dumps("m", run_of([text, same]), xla)
    assert not validation.changes
    assert validation.steps[-1].comparison.is_equal == ("no value" not in name)
    assert validate_dumps("m", run_of([text, edited(same, error)]), xla).changes


@pytest.mark.parametrize("seconds", [0, 4])
def test_the_time_for_all_steps_ends_a_run(seconds: float) -> None:
    long = LOOP.replace("constant(5)", "constant(2000000000)")
    begun = time.monotonic()
    with XlaCpu(deadline=Deadline(seconds)) as xla:
        validation = validate_dumps("m", run_of([long, long.replace("negate", "abs")]), xla)
    assert time.monotonic() - begun < seconds + 1
    assert validation.notes == ["not run: the time was over (--seconds) (2 steps)"]


def test_two_runs_are_compared_at_common_steps(tmp_path: Path) -> None:
    for side, text in (("a", LOOP), ("b", LOOP.replace("negate(total)", "copy(total)"))):
        (tmp_path / side).mkdir()
        for dump, content in zip(run_of([LOOP, text]), (LOOP, text), strict=True):
            (tmp_path / side / dump.path.name).write_text(content)
    result = hlo_lint.validate(tmp_path / "a", against=tmp_path / "b")
    assert [finding.instruction for finding in result.report.findings] == ["r"]
    assert hlo_lint.validate(tmp_path / "a", against=tmp_path / "a").report.clean


def test_dumps_of_a_run_are_in_order() -> None:
    (compilation, *_) = hlo_lint.open_dump(GPU)
    assert in_order(compilation)[0].path.name.endswith("before_optimizations.txt")


FOLDED = entry("""
  x = f32[20] parameter(0)
LINES
""")
NEGATED = FOLDED.replace(
    "LINES",
    "  c.1 = f32[20] constant({...})\n  n = f32[20] negate(c.1)\n  ROOT r = f32[20] add(x, n)",
)


def test_a_constant_that_is_left_out_may_be_another_one_under_a_new_name(xla: XlaCpu) -> None:
    folded = FOLDED.replace("LINES", "  c = f32[20] constant({...})\n  ROOT r = f32[20] add(x, c)")
    dropped = folded.replace("c =", "c.1 =").replace(", c)", ", c.1)")
    validation = validate_dumps("m", run_of([NEGATED, NEGATED, folded, folded]), xla)
    assert validation.counts[StepOutcome.NOT_COMPARABLE] == 1
    assert not validation.changes
    assert changed(validate_dumps("m", run_of([NEGATED, dropped]), xla)) == ["after_pass1"]


def test_what_a_table_that_is_left_out_decides_is_known_to_passes_alone(xla: XlaCpu) -> None:
    table = entry("""
  x = f32[16,2] parameter(0)
  id = s32[] parameter(1)
  c = s32[16] constant({...})
  s = s32[1] dynamic-slice(c, id), dynamic_slice_sizes={1}
  i = s32[] reshape(s)
  z = s32[] constant(0)
  d = f32[1,2] dynamic-slice(x, i, z), dynamic_slice_sizes={1,2}
  e = f32[1,2] dynamic-slice(x, INDEX, z), dynamic_slice_sizes={1,2}
  ROOT r = f32[1,2] add(OTHER, e)
""")
    before = table.replace("INDEX", "i").replace("OTHER", "d")
    known = table.replace("INDEX", "id").replace("OTHER", "d")
    validation = validate_dumps("m", run_of([before, known]), xla)
    assert validation.counts[StepOutcome.NOT_COMPARABLE] == 1
    wrong = before.replace("add(", "subtract(")
    assert changed(validate_dumps("m", run_of([before, wrong]), xla)) == ["after_pass1"]


@pytest.mark.parametrize("algorithm", ["rng_default", "rng_philox"])
def test_the_default_generator_is_each_backends_own(algorithm: str, xla: XlaCpu) -> None:
    text = entry(f"""
  x = u64[2] parameter(0)
  g = (u64[2], u32[8]) rng-bit-generator(x), algorithm={algorithm}
  bits = u64[2] get-tuple-element(g), index=0
  twice = u64[2] add(x, x)
  both = u64[2] xor(bits, twice)
  ROOT r = u64[2] copy(RESULT)
""")
    generated, expanded, both = (text.replace("RESULT", at) for at in ("bits", "twice", "both"))
    validation = validate_dumps("m", run_of([generated, expanded]), xla)
    assert bool(validation.changes) == (algorithm == "rng_philox")
    # Nothing new stands for the bits: they are lost.
    assert changed(validate_dumps("m", run_of([both, expanded]), xla)) == ["after_pass1"]


WHOLE = """HloModule m, num_partitions={devices}

add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}

ENTRY e {{
  x = f32[6,8] parameter(0), sharding={{devices=[2,1,{rest}]<=[{devices}] last_tile_dim_replicate}}
  y = f32[8,7] parameter(1), sharding={{mesh['a'=2,'b'={rest}], [{{}}, {{'b'}}]}}
  dot = f32[6,7] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = (f32[6,7]) tuple(dot), sharding={{{{replicated}}}}
}}
"""
PARTS = """HloModule m, num_partitions={devices}

ENTRY e_spmd {{
  x = f32[3,8] parameter(0)
  y = f32[8,{part}] parameter(1)
  dot = f32[3,{part}] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  row = f32[3,{filled}] all-gather(dot), channel_id=1, dimensions={{1}}, use_global_device_ids=true, replica_groups=[2,{rest}]<=[{devices}]
  all = f32[6,{filled}] all-gather(row), channel_id=2, dimensions={{0}}, use_global_device_ids=true, replica_groups=[{rest},2]<=[2,{rest}]T(1,0)
  part = f32[6,7] slice(all), slice={{[0:6], [0:7]}}
  ROOT r = (f32[6,7]) tuple(part)
}}
"""  # noqa: E501


@pytest.mark.parametrize("devices", [4, 16])
def test_a_module_is_compared_with_its_parts_on_devices(xla: XlaCpu, devices: int) -> None:
    rest = devices // 2
    part = -(-7 // rest)
    facts = {"devices": devices, "rest": rest, "part": part, "filled": part * rest}
    whole, parts = WHOLE.format(**facts), PARTS.format(**facts)
    right = validate_dumps("m", run_of([whole, parts, parts]), xla)
    assert (right.compared, right.changes) == (2, [])
    uncounted = [text.replace(f", num_partitions={devices}", "") for text in (whole, parts)]
    assert validate_dumps("m", run_of(uncounted), xla).compared == 1  # protocol buffers
    wrong = parts.replace(f"<=[2,{rest}]T(1,0)", f"<=[{devices}]")
    assert changed(validate_dumps("m", run_of([whole, wrong]), xla)) == ["after_pass1"]


@pytest.mark.parametrize(
    "sharding",
    [
        "{unreduced}",
        "{devices=[1,2]<=[2] last_tile_dims={unreduced}}",
        "{mesh['a'=2], [{}], unreduced={'a'}}",
    ],
)
def test_parts_that_are_addends_are_summed(xla: XlaCpu, sharding: str) -> None:
    whole = of_two_devices(f"""
  x = f32[6] parameter(0), sharding={sharding}
  ROOT r = f32[6] negate(x), sharding={sharding}
""")
    parts = edited(whole, {"ENTRY e": "ENTRY e_spmd"}).replace(f", sharding={sharding}", "")
    right = validate_dumps("m", run_of([whole, parts]), xla)
    assert (right.compared, right.changes) == (1, [])
    assert validate_dumps("m", run_of([whole, parts.replace("negate", "copy")]), xla).changes
    # A module without the sum that its shardings need is not judged: no partitioner adds it.
    invalid = whole.replace(f"negate(x), sharding={sharding}", "negate(x), sharding={replicated}")
    assert not validate_dumps("m", run_of([invalid, parts]), xla).changes


@pytest.mark.parametrize("device", [0, 2, 3])
def test_each_device_has_the_result_that_all_of_them_have(xla: XlaCpu, device: int) -> None:
    whole = of_four_devices("""
  x = f32[6] parameter(0), sharding={replicated}
  ROOT r = f32[6] negate(x), sharding={replicated}
""")
    lines = f"""
  n = f32[6] negate(x)
  d = u32[] partition-id()
  z = u32[] constant({device})
  is = pred[] compare(d, z), direction=EQ
  all = pred[6] broadcast(is), dimensions={{}}
  ROOT r = f32[6] select(all, n, x)"""
    parts = edited(whole, {"ENTRY e": "ENTRY e_spmd", "\n  ROOT r = f32[6] negate(x)": lines})
    parts = parts.replace(", sharding={replicated}", "")
    assert changed(validate_dumps("m", run_of([whole, parts]), xla)) == ["after_pass1"]


REGION = r"""HloModule m, num_partitions=4, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["x"=2, "y"=2]>}}

add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }

ENTRY e {
  x = f32[4,6] parameter(0), sharding={devices=[2,2]<=[4]}
  in = f32[2,3] custom-call(x), custom_call_target="xla.sdy.GlobalToLocalShape", frontend_attributes={xla.sdy.in_shardings="#sdy.sharding_per_value<[<@mesh, [{\"x\"}, {\"y\"}]>]>"}
  sum = f32[2,3] all-reduce(in), channel_id=1, replica_groups={{0,2},{1,3}}, use_global_device_ids=true, to_apply=add
  ROOT out = f32[2,6] custom-call(sum), custom_call_target="xla.sdy.LocalToGlobalShape", frontend_attributes={xla.sdy.out_shardings="#sdy.sharding_per_value<[<@mesh, [{}, {\"y\"}]>]>"}, sharding={devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}
}
"""  # noqa: E501


def test_a_manual_region_runs_on_each_device(xla: XlaCpu) -> None:
    head, _ = REGION.split("ENTRY")
    line = next(line for line in REGION.splitlines() if "all-reduce" in line)
    line = line.replace("sum =", "ROOT sum =").replace("(in)", "(x)")
    parts = f"{head}ENTRY e_spmd {{\n  x = f32[2,3] parameter(0)\n{line}\n}}\n"
    validation = validate_dumps("m", run_of([REGION, parts]), xla)
    assert (validation.compared, validation.changes) == (1, [])
    wrong = parts.replace("{{0,2},{1,3}}", "{{0,1},{2,3}}")
    assert changed(validate_dumps("m", run_of([REGION, wrong]), xla)) == ["after_pass1"]


def test_rows_of_a_ragged_exchange_arrive_where_each_sender_says(xla: XlaCpu) -> None:
    text = partial(entry, header=", replica_count=2")("""
  x = f32[4] parameter(0)
  y = f32[6] parameter(1)
  from = s32[2] parameter(2)
  count = s32[2] parameter(3)
  to = s32[2] parameter(4)
  got = s32[2] parameter(5)
  ROOT r = f32[6] ragged-all-to-all(x, y, from, count, to, got), replica_groups={{0,1}}
""")
    program = Lowering(hlo_lint.parse(text), Nodes()).program()
    inputs = Runs(xla).inputs(program.inputs, 0)
    x, y, begins, counts, targets, _ = (inputs[at : at + 2] for at in range(0, 12, 2))
    expected = [array.copy() for array in y]
    for sender in range(2):
        for receiver, result in enumerate(expected):
            begin, count, target = (int(a[sender][receiver]) for a in (begins, counts, targets))
            result[target : target + count] = x[sender][begin : begin + count]
    results = xla.run(emit_graph(program.graph), inputs)
    assert [result.tolist() for result in results] == [result.tolist() for result in expected]


PAIRS = "frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,0}}}"
PERMUTED = of_two_devices("""
  x = f32[4] parameter(0)
  n = f32[4] negate(x)
  p = f32[4] collective-permute(n), channel_id=1, source_target_pairs={{0,1},{1,0}}
  ROOT s = f32[4] subtract(p, n)
""")
SENT = of_two_devices(f"""
  x = f32[4] parameter(0)
  n = f32[4] negate(x)
  t = token[] after-all()
  r = (f32[4], u32[], token[]) recv(t), channel_id=1, {PAIRS}
  q = (f32[4], u32[], token[]) send(n, t), channel_id=1, {PAIRS}, control-predecessors={{r}}
  d = (f32[4], token[]) recv-done(r), channel_id=1
  e = token[] send-done(q), channel_id=1
  p = f32[4] get-tuple-element(d), index=0
  ROOT s = f32[4] subtract(p, n)
""")
LOOP_OF_TRANSFERS = counted(
    {"x": "f32[4]", "r": "(f32[4], u32[], token[])"},
    f"""
  d = (f32[4], token[]) recv-done(r), channel_id=1
  y = f32[4] get-tuple-element(d), index=0
  w = f32[4] subtract(y, x)
  o = token[] after-all()
  k = (f32[4], u32[], token[]) recv(o), channel_id=1, {PAIRS}
  q = (f32[4], u32[], token[]) send(w, o), channel_id=1, {PAIRS}""",
    "w, k",
    f"""
  x = f32[4] parameter(0)
  n = f32[4] negate(x)
  o = token[] after-all()
  k = (f32[4], u32[], token[]) recv(o), channel_id=1, {PAIRS}
  q = (f32[4], u32[], token[]) send(n, o), channel_id=1, {PAIRS}
  v = LOOP(n, k)
  ROOT w = f32[4] get-tuple-element(v), index=1""",
    1,
).replace(" m", " m, num_partitions=2", 1)


@pytest.mark.parametrize("sent", [SENT, LOOP_OF_TRANSFERS], ids=["at once", "in the next round"])
def test_a_send_and_its_receive_are_a_permute(xla: XlaCpu, sent: str) -> None:
    validation = validate_dumps("m", run_of([PERMUTED, sent]), xla)
    assert (validation.compared, validation.changes) == (1, [])
    wrong = sent.replace("send(n, ", "send(x, ")
    assert changed(validate_dumps("m", run_of([PERMUTED, wrong]), xla)) == ["after_pass1"]


def test_a_transfer_whose_other_side_is_not_known_is_cut(xla: XlaCpu) -> None:
    alone = SENT.replace(f"channel_id=1, {PAIRS}, control", "channel_id=2, control")
    validation = validate_dumps("m", run_of([PERMUTED, alone]), xla)
    assert not validation.compared
    assert not validation.changes


def test_a_module_that_xla_refuses_after_one_that_runs_is_a_change(xla: XlaCpu) -> None:
    right, wrong = (
        entry(f"""
  x = f32[6,4] parameter(0)
  y = f32[4,35] parameter(1)
  b = f32[{columns}] parameter(2)
  c = (f32[6,35], s8[64]) custom-call(x, y, b), custom_call_target="__cublas$lt$matmul", backend_config={{"gemm_backend_config":{{"alpha_real":1,"beta":0,"dot_dimension_numbers":{{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}},"epilogue":"{epilogue}"}}}}
  ROOT r = f32[6,35] get-tuple-element(c), index=0
""")  # noqa: E501
        for columns, epilogue in ((7, "DEFAULT"), (7, "BIAS"))
    )
    (change,) = validate_dumps("m", run_of([right, right, wrong, wrong]), xla).changes
    assert change.after.path.name.split(".")[4] == "after_pass2"
    assert culprit(change) == "c"
    assert "operand dimension 0 (7)" in diagnostic_of(change).message


@pytest.mark.parametrize("all_steps", [False, True])
def test_an_invalid_module_is_a_change_an_unknown_one_is_not(xla: XlaCpu, all_steps: bool) -> None:
    right = "HloModule m\n\nENTRY e {\n  x = f32[4,2] parameter(0)\n  ROOT r = RESULT\n}\n"
    wrong = right.replace("RESULT", "f32[2,3] reshape(x)")
    unknown = right.replace("RESULT", 'f32[4,2] custom-call(x), custom_call_target="f"')
    unknown = unknown.replace("4,2", "4,<=2")
    right = right.replace("RESULT", "f32[8] reshape(x)")
    run = run_of([right, right, wrong, wrong])
    (change,) = validate_dumps("m", run, xla, all_steps=all_steps).changes
    assert change.after.path.name.split(".")[4] == "after_pass2"
    assert "no longer runs in this dump: reshape of 8 elements" in diagnostic_of(change).message
    dead = unknown.replace("  ROOT", "  d = f32[2,3] reshape(x)\n  ROOT")
    for other in (unknown, dead):
        validation = validate_dumps("m", run_of([right, other]), xla, all_steps=all_steps)
        assert validation.counts[StepOutcome.NOT_LOWERED] == 1
        assert not validation.changes


def test_a_group_that_does_not_meet_infinities_of_another_one_is_no_change(xla: XlaCpu) -> None:
    head = """
  a = f32[4,2] parameter(0)
  b = f32[2,2,2] parameter(1)
  n = s32[2] parameter(2)
"""
    product = "ragged-dot(a, b, n), lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    whole = entry(
        f"{head}  ROOT r = f32[4,2] {product}, lhs_ragged_dims={{0}}, rhs_group_dims={{0}}"
    )
    parts = "".join(
        f"""  n{at} = s32[1] slice(n), slice={{[{at}:{at + 1}]}}
  s{at} = s32[] reshape(n{at})
  b{at} = f32[1,2,2] slice(b), slice={{[{at}:{at + 1}], [0:2], [0:2]}}
  c{at} = f32[2,2] reshape(b{at})
  d{at} = f32[4,2] dot(a, c{at}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
"""
        for at in range(2)
    )
    split = entry(f"""{head}{parts}  i = s32[4,2] iota(), iota_dimension=0
  both = s32[] add(s0, s1)
  e0 = s32[4,2] broadcast(s0), dimensions={{}}
  e1 = s32[4,2] broadcast(both), dimensions={{}}
  l0 = pred[4,2] compare(i, e0), direction=LT
  l1 = pred[4,2] compare(i, e1), direction=LT
  zero = f32[] constant(0)
  z = f32[4,2] broadcast(zero), dimensions={{}}
  o = f32[4,2] select(l1, d1, z)
  ROOT r = f32[4,2] select(l0, d0, o)
""")
    assert changed(validate_dumps("m", run_of([whole, split]), xla)) == []
    wrong = split.replace("select(l0, d0, o)", "select(l0, d1, o)")
    assert changed(validate_dumps("m", run_of([whole, wrong]), xla)) == ["after_pass1"]


def test_in_a_loop_that_a_pass_unrolled_the_wrong_instruction_is_named(xla: XlaCpu) -> None:
    rolled = LOOP.replace("constant(5)", "constant(6)")
    second = """  after = s32[] add(next, one)
  row2 = f32[1,4] dynamic-slice(rows, INDEX, zero), dynamic_slice_sizes={1,4}
  flat2 = f32[4] reshape(row2)
  double2 = f32[4] add(flat2, flat2)
  total2 = f32[4] add(total, double2)
  ROOT t = (s32[], f32[4], f32[8,4]) tuple(after, total2, rows)"""
    root = "  ROOT t = (s32[], f32[4], f32[8,4]) tuple(next, total, rows)"
    right, wrong = (
        rolled.replace(root, second.replace("INDEX", index)) for index in ("next", "after")
    )
    (change,) = validate_dumps("m", run_of([rolled, right, wrong]), xla).changes
    assert (culprit(change), change.culprit and change.culprit.iteration) == ("row2", 0)
    (change,) = validate_dumps("m", run_of([rolled, wrong]), xla).changes
    assert (culprit(change), change.culprit and change.culprit.iteration) == ("row2", 0)


def test_a_product_of_onednn_is_what_is_fused_to_it(xla: XlaCpu) -> None:
    plain = entry("""
  x = f32[2,3,5] parameter(0)
  y = f32[2,4,5] parameter(1)
  b = f32[4] parameter(2)
  d = f32[2,3,4] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}
  c = f32[2,3,4] broadcast(b), dimensions={2}
  s = f32[2,3,4] add(d, c)
  q = f32[] constant(0.25)
  quarter = f32[2,3,4] broadcast(q), dimensions={}
  z = f32[2,3,4] multiply(s, quarter)
  t = f32[2,3,4] tanh(z)
  f = f32[] constant(50)
  fifty = f32[2,3,4] broadcast(f), dimensions={}
  ROOT r = f32[2,3,4] multiply(t, fifty)
""")  # noqa: E501
    call = entry("""
  x = f32[2,3,5] parameter(0)
  y = f32[2,4,5] parameter(1)
  b = f32[4] parameter(2)
  ROOT r = f32[2,3,4] custom-call(x, y, b), custom_call_target="__onednn$matmul", backend_config={"onednn_matmul_config":{"transpose_a":false,"transpose_b":true,"fusions":{"ops":["BIAS","LINEAR","TANH","LINEAR"],"alpha_typecast":[1048576000,1112014848]}}}
""")  # noqa: E501
    validation = validate_dumps("m", run_of([plain, call]), xla)
    assert (validation.compared, validation.changes) == (1, [])
    wrong = call.replace("[1048576000,1112014848]", "1112014848")
    assert changed(validate_dumps("m", run_of([plain, wrong]), xla)) == ["after_pass1"]


def test_an_operand_that_a_pass_rounds_to_fewer_bits_is_changed(xla: XlaCpu) -> None:
    text = entry("""
  x = f8e4m3fn[2,8] parameter(0)
  y = f8e5m2[8,2] parameter(1)
  ROOT d = f32[2,2] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
""")
    wide, narrow = (
        text.replace("dot(x,", "dot(c,").replace("  ROOT", f"  c = {to}[2,8] convert(x)\n  ROOT")
        for to in ("f16", "f8e5m2")
    )
    assert changed(validate_dumps("m", run_of([text, wide, narrow]), xla)) == ["after_pass2"]
    moved = narrow.replace("convert(x)", "convert(r)").replace(
        "  c =", "  n = f8e4m3fn[2,8] negate(x)\n  r = f8e4m3fn[2,8] negate(n)\n  c ="
    )
    assert not validate_dumps("m", run_of([moved, narrow]), xla).changes


def test_a_value_that_a_pass_rounds_and_converts_back_is_changed(xla: XlaCpu) -> None:
    text = entry("""
  x = f32[4,8] parameter(0)
  y = f32[4,8] parameter(1)
  ROOT s = f32[4,8] add(x, y)
""")
    for narrow in ("bf16", "f16"):
        there = f"  n = {narrow}[4,8] convert(x)\n  b = f32[4,8] convert(n)\n  ROOT"
        rounded = text.replace("  ROOT", there).replace("add(x,", "add(b,")
        assert changed(validate_dumps("m", run_of([text, rounded]), xla)) == ["after_pass1"]
        # The program has such numbers: XLA may round more of them.
        has = f"  k = {narrow}[4,8] convert(y)\n  m = f32[4,8] convert(k)\n  ROOT"
        own, more = (
            one.replace("  ROOT", has).replace(" y)", " m)").replace("convert(m)", "convert(y)")
            for one in (text, rounded)
        )
        assert not validate_dumps("m", run_of([own, more]), xla).changes


@pytest.mark.parametrize("count", [1, 3, 90])
def test_an_update_outside_of_the_array_is_not_clamped(count: int, xla: XlaCpu) -> None:
    text = summing(f"""
  x = f32[6,2] parameter(0)
  i = s32[{count},1] parameter(1)
  u = f32[{count},2] parameter(2)
  low = s32[] constant(0)
  high = s32[] constant(5)
  lows = s32[{count},1] broadcast(low), dimensions={{}}
  highs = s32[{count},1] broadcast(high), dimensions={{}}
  c = s32[{count},1] clamp(lows, i, highs)
  ROOT s = f32[6,2] scatter(x, INDICES, u), update_window_dims={{1}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add
""")  # noqa: E501
    right, wrong = (text.replace("INDICES", name) for name in ("i", "c"))
    same = right.replace("s32[] constant(5)", "s32[] constant(4)")
    (change,) = validate_dumps("m", run_of([right, wrong]), xla).changes
    assert "reaches beyond an array" in " ".join(diagnostic_of(change).notes)
    assert not validate_dumps("m", run_of([right, same]), xla).changes


def test_a_product_in_parts_has_all_of_its_parts(xla: XlaCpu) -> None:
    text = entry("""
  p = f32[8,8] parameter(0)
  q = f32[8,8] parameter(1)
  RESULT
""")
    axes = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    whole = text.replace(
        "RESULT", f"ROOT d = f32[8,8] dot(p, q), {axes}, algorithm=dot_bf16_bf16_f32_x3"
    )
    parts = "".join(
        f"{name}h = bf16[8,8] convert({name})\n  {name}f = f32[8,8] convert({name}h)\n  "
        f"{name}r = f32[8,8] subtract({name}, {name}f)\n  {name}l = bf16[8,8] convert({name}r)\n  "
        for name in "pq"
    )
    parts += "".join(
        f"{left}{right} = f32[8,8] dot(p{left}, q{right}), {axes}\n  "
        for left, right in ("hl", "lh", "hh")
    )
    first = f"{parts}a = f32[8,8] add(hl, hh)\n  "
    both = text.replace("RESULT", f"{first}ROOT b = f32[8,8] add(a, lh)")
    one = text.replace("RESULT", f"{first}ROOT b = f32[8,8] copy(a)")
    assert not validate_dumps("m", run_of([whole, both]), xla).changes
    assert changed(validate_dumps("m", run_of([whole, one]), xla)) == ["after_pass1"]


@pytest.mark.parametrize(
    ("mode", "activation"),
    [
        ('"kRelu6"', "clamp(zeros, c, sixes)"),
        ('"kLeakyRelu","leakyrelu_alpha":0.25', "select(positive, c, small)"),
    ],
)
def test_a_convolution_of_cudnn_has_its_activation(mode: str, activation: str, xla: XlaCpu) -> None:
    text = entry("""
  x = f32[1,9,9,4] parameter(0)
  w = f32[3,3,4,8] parameter(1)
  b = f32[8] parameter(2)
  RESULT
""")
    labels = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"
    plain = f"""d = f32[1,9,9,8] convolution(x, w), {labels}
  e = f32[1,9,9,8] broadcast(b), dimensions={{3}}
  c = f32[1,9,9,8] add(d, e)
  zero = f32[] constant(0)
  six = f32[] constant(6)
  quarter = f32[] constant(0.25)
  zeros = f32[1,9,9,8] broadcast(zero), dimensions={{}}
  sixes = f32[1,9,9,8] broadcast(six), dimensions={{}}
  quarters = f32[1,9,9,8] broadcast(quarter), dimensions={{}}
  small = f32[1,9,9,8] multiply(c, quarters)
  positive = pred[1,9,9,8] compare(c, zeros), direction=GT
  ROOT r = f32[1,9,9,8] {activation}"""
    call = f"""k = (f32[1,9,9,8], u8[0]) custom-call(x, w, b), {labels}, custom_call_target="__cudnn$convBiasActivationForward", backend_config={{"cudnn_conv_backend_config":{{"conv_result_scale":1,"activation_mode":{mode},"side_input_scale":0}}}}
  ROOT r = f32[1,9,9,8] get-tuple-element(k), index=0"""  # noqa: E501
    right = text.replace("RESULT", call)
    other = text.replace("RESULT", plain.replace("constant(6)", "constant(5)"))
    other = other.replace("constant(0.25)", "constant(0.5)")
    before = text.replace("RESULT", plain)
    assert not validate_dumps("m", run_of([before, right]), xla).changes
    assert changed(validate_dumps("m", run_of([other, right]), xla)) == ["after_pass1"]


def test_a_product_with_a_scale_for_each_block_is_not_taken_for_a_plain_one(xla: XlaCpu) -> None:
    text = entry("""
  p = f8e4m3fn[32,64] parameter(0)
  q = f8e4m3fn[16,64] parameter(1)
  s = f8e8m0fnu[32,2] parameter(2)
  t = f8e8m0fnu[16,2] parameter(3)
  RESULT
""")
    before = (
        'ROOT d = f32[32,16] custom-call(p, q, s, t), custom_call_target="__op$block_scaled_dot"'
    )
    config = '{"gemm_backend_config":{"alpha_real":1,"beta":0,"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["1"]},"epilogue":"DEFAULT"}}'  # noqa: E501
    after = f"""g = (f32[32,16], s8[64]) custom-call(p, q, s, t), custom_call_target="__cublas$lt$matmul$mx", backend_config={config}
  ROOT o = f32[32,16] get-tuple-element(g), index=0"""  # noqa: E501
    steps = [text.replace("RESULT", result) for result in (before, after)]
    assert not validate_dumps("m", run_of(steps), xla).changes
