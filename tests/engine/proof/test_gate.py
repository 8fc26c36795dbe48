"""The gate: each fix of each rule passes it, and a wrong one of each kind does not."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import hlo_lint
from hlo_lint import Computation, Finding, Findings, Instruction, Module, Rule
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.apps.targets import as_dump
from hlo_lint.apps.testing import write_example
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.engine.proof.gate import Gate, Verdict
from hlo_lint.engine.proof.prove import Level, prove_ptx, strongest_proof
from hlo_lint.engine.reporter import PlannedFix
from hlo_lint.engine.runner import Checker, Task
from hlo_lint.engine.suppressions.apply import UNUSED
from hlo_lint.rules.base import Bad
from hlo_lint.rules.registry import all_rules, find_rule
from hlo_lint.text.edits import Edit, Fix, Safety
from hlo_lint.text.source import Span
from hlo_lint.xla.cpu import XlaCpu
from tests.conftest import ROOT
from tests.pages import BLOCK
from tests.texts import entry

FIXED = [
    pytest.param(type(rule), example, id=f"{rule.name()}-{number}")
    for rule in all_rules()
    for number, example in enumerate(rule.examples)
    if isinstance(example, Bad) and example.fixed and rule.name() != UNUSED
]


def planned(
    rule: type[Rule], example: Bad, folder: Path, old: str = "", new: str = ""
) -> tuple[Verdict, ...]:
    """Verdicts on the fixes of an example, with other words in their edits if some are given."""
    dump = as_dump(write_example(example, folder), Settings())
    before = rule.precondition.demanded_by if rule.precondition else None
    chosen = rule().with_options(example.options)
    rules = [*(each for each in all_rules() if each.name() != rule.name()), chosen]
    with XlaCpu() as xla:
        gate = Gate(Task(rules, before), xla, None)
        for compilation in dump:
            checker = Checker(Task([chosen], before))
            checker.check_compilation(compilation)
            plans: dict[PassDump, list[PlannedFix]] = {}
            for plan in checker.reporter.fixes:
                edits = tuple(e._replace(text=e.text.replace(old, new)) for e in plan.fix.edits)
                assert (edits != plan.fix.edits) is bool(old)
                plans.setdefault(plan.dump, []).append(
                    plan._replace(fix=plan.fix._replace(edits=edits))
                )
            gate.admit(compilation, plans)
    return tuple(gate.verdicts)


@pytest.mark.parametrize(("rule", "example"), FIXED)
def test_the_fix_of_an_example_is_proven(rule: type[Rule], example: Bad, tmp_path: Path) -> None:
    verdicts = planned(rule, example, tmp_path)
    assert verdicts
    for verdict in verdicts:
        assert verdict.passes, str(verdict)


def test_the_fix_that_the_tutorial_teaches_is_proven(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "writing-rules.md").read_text("utf-8")
    last = {block["file"]: block["text"] for block in BLOCK.finditer(page)}
    file = tmp_path / "reshapes_in_a_row.py"
    file.write_text(last["team_rules/reshapes_in_a_row.py"], "utf-8")
    rule: type[Rule] = runpy.run_path(str(file))["ReshapesInARow"]
    (bad,) = (example for example in rule.examples if isinstance(example, Bad))
    fixed = hlo_lint.fix(bad.source, [rule], verify=True)
    (verdict,) = fixed.verdicts
    assert verdict.passes, str(verdict)
    assert verdict.proof.level is Level.INDEX_MAPS
    assert hlo_lint.lint(fixed.text, [rule]).clean


WRONG = {
    # another move of the bytes
    "reshape-moves-data": ("dimensions={2,1,0}", "dimensions={0,1,2}", "not equal"),
    "transpose-off-normal-form": ("bitcast(p)", "reshape(p)", "not equal"),
    "reshape-runs-as-kernel": ("bitcast(p)", "bitcast(p), dimensions={0}", "a new finding"),
    # another value, and a copy that changes nothing
    "layout-changed": ("copy(q)", "negate(q)", "not equal"),
    "gemm-layout-unsupported": ("{2,1,0}", "{0,1,2}", "still found"),
    # another result in the operand's memory
    "alias-lost-in-fusion": ("(0, {})", "(0, {0})", "not proven"),
    "autotuning-runs-early": ("(1, {})", "(0, {})", "not proven"),
    # payloads that say something else
    "autotuned-aliases-differ": ("R\\345b", "R\\344b", "not proven"),
    "tma-descriptor-refused": ("\\322", "\\321", "not proven"),
    "dynamic-slice-config-disagrees": ("1792", "1536", "still found"),
    # a wait that waits for nothing
    "store-overtakes-copy": ("wait_group 0", "wait_group 1", "still found"),
}
"""By rule the words of a right fix, those of a wrong one, and what the gate says then."""


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_fix_of_each_rule_is_refused(name: str, tmp_path: Path) -> None:
    rule = type(find_rule(name))
    example = next(e for e in rule.examples if isinstance(e, Bad) and e.fixed)
    old, new, reason = WRONG[name]
    verdicts = planned(rule, example, tmp_path, old, new)
    assert verdicts
    for verdict in verdicts:
        assert not verdict.passes
        assert verdict.safety is Safety.UNSAFE
        assert reason in "; ".join(verdict.failures), str(verdict)


def test_every_rule_with_a_fix_has_a_wrong_one() -> None:
    fixable = {rule.name() for rule in all_rules() if type(rule).fixable()}
    assert fixable - {UNUSED} == WRONG.keys()


# Rules of others --------------------------------------------------------------------------------


class Negation(Rule):
    """A rule whose fix is a test's.

    ## Why
    To see what the gate says.
    """

    written = ""

    def check(self, computation: Computation) -> Findings:
        """Each negate."""
        for instruction in computation.with_opcode("negate"):
            yield Finding(instruction, "this negates")

    def fix(self, instruction: Instruction, module: Module) -> Fix:
        """The line with another one in its place."""
        return Fix("rewrite it", (Edit(module.span(instruction), self.written),), Safety.SAFE)


NEGATED = entry("""
  p = f32[4]{0} parameter(0)
  minus = f32[4]{0} constant({-1, -1, -1, -1})
  ROOT r = f32[4]{0} negate(p)
""")


def verdict_on(written: str, unsafe_fixes: bool = False) -> Verdict:
    """The verdict on a fix that writes this in place of the negate."""

    class Written(Negation):
        pass

    Written.written = written
    fixed = hlo_lint.fix(NEGATED, [Written], unsafe_fixes=unsafe_fixes, verify=True)
    (verdict,) = fixed.verdicts
    refused = not verdict.passes and (verdict.proof.differs or not unsafe_fixes)
    assert (written not in fixed.text) is refused
    return verdict


@pytest.mark.slow
def test_another_way_to_compute_the_same_is_executed() -> None:
    verdict = verdict_on("ROOT r = f32[4]{0} multiply(minus, p)")
    assert verdict.proof.level is Level.EXECUTED
    assert "4 elements of the result equal bit for bit on 3 seeded inputs" in str(verdict)


@pytest.mark.slow
def test_another_value_is_refused_with_the_element_that_shows_it() -> None:
    verdict = verdict_on("ROOT r = f32[4]{0} abs(p)", unsafe_fixes=True)
    assert verdict.proof.differs
    assert "not equal: executed with seed 0, result 0[0] is 1.5 and was -1.5" in str(verdict)
    zeros = "c = f32[] constant(0)\n  z = f32[4]{0} broadcast(c), dimensions={}"
    zero = verdict_on(f"{zeros}\n  ROOT r = f32[4]{{0}} subtract(z, p)")
    assert "is 0 and was -0" in str(zero)


def test_a_fix_that_leaves_its_finding_is_refused() -> None:
    assert "not idempotent" in str(verdict_on("ROOT r = f32[4]{0} negate(p), metadata={}"))


@pytest.mark.slow
def test_a_fix_that_adds_what_nothing_reads_is_refused() -> None:
    verdict = verdict_on("q = f32[4]{0} copy(p)\n  ROOT r = f32[4]{0} multiply(minus, p)")
    assert "not minimal: it adds %q, which is not read" in str(verdict)


@pytest.mark.slow
def test_a_fix_that_repeats_a_line_is_refused() -> None:
    class Repeating(Negation):
        def fix(self, instruction: Instruction, module: Module) -> Fix:
            """The line before is replaced by itself."""
            begin = module.span(instruction.computation.at(1)).start
            end = module.span(instruction).end
            text = module.file.text[begin:end].replace("negate(p)", "multiply(minus, p)")
            return Fix("rewrite it", (Edit(Span(begin, end), text),), Safety.SAFE)

    (verdict,) = hlo_lint.fix(NEGATED, [Repeating], verify=True).verdicts
    assert "an edit repeats the line 'minus = f32[4]{0} constant({-1, -1, -1, -1})'" in str(verdict)


def test_a_kernel_may_wait_and_nothing_else() -> None:
    kernel = "ld.shared.f32 %f1, [%r1];\nret;"
    assert prove_ptx(kernel, f"bar.sync 0;\n{kernel}").level is Level.STRUCTURE
    assert not prove_ptx(kernel, kernel.replace("ret;", "exit;")).holds
    assert not prove_ptx(kernel, f"st.shared.f32 [%r1], %f1;\n{kernel}").holds


def test_a_size_that_is_known_at_run_time_only_is_not_proven() -> None:
    dynamic = "HloModule m\nENTRY e {{ p = f32[4,<=3]{{1,0}} parameter(0) ROOT r = {}(p) }}"
    texts = (dynamic.format(f"f32[<=12]{{0}} {opcode}") for opcode in ("reshape", "bitcast"))
    assert not strongest_proof(*map(hlo_lint.parse, texts)).holds


CALLS = entry(
    """
  a = f32[4] call(), to_apply=f
  b = f32[4] call(), to_apply=f
  ROOT r = (f32[4], f32[4]) tuple(a, b)
""",
    "f { t = token[] after-all() i = (f32[4], token[]) infeed(t)\n"
    "  ROOT r = f32[4] get-tuple-element(i), index=0 }\n\n",
)


@pytest.mark.parametrize(
    "root",
    [
        "ROOT r = (f32[4], f32[4]) tuple(b, a)",
        "ROOT r = (f32[4], f32[4]) tuple(a, a)",
        "c = f32[4] call(), to_apply=f\n  ROOT r = (f32[4], f32[4]) tuple(a, b)",
    ],
)
def test_calls_that_act_outside_keep_their_number_and_order(root: str) -> None:
    after = CALLS.replace("ROOT r = (f32[4], f32[4]) tuple(a, b)", root)
    assert not strongest_proof(hlo_lint.parse(CALLS), hlo_lint.parse(after)).holds
    same = CALLS.replace("a, b", "a , b")
    assert strongest_proof(hlo_lint.parse(CALLS), hlo_lint.parse(same)).holds


FACTORED = entry("""
  x = f32[4] parameter(0)
  a = f32[4,4] parameter(1)
  y = f32[4] OPERATION(x)
  l = f32[4,4] cholesky(a), lower=true
  ROOT r = (f32[4], f32[4,4]) tuple(y, l)
""")


@pytest.mark.slow
def test_xla_cpu_runs_both_modules() -> None:
    pytest.importorskip("jaxlib")
    once, twice = "y = f32[4] negate(x)", "n = f32[4] negate(x)\n  y = f32[4] negate(n)"
    plain, negated, doubled = (
        hlo_lint.parse(FACTORED.replace("y = f32[4] OPERATION(x)", line))
        for line in ("y = f32[4] copy(x)", once, twice)
    )
    proof = strongest_proof(plain, doubled)
    assert proof.level is Level.EXECUTED
    assert str(proof) == "executed: 20 elements of the result equal bit for bit on 3 seeded inputs"
    wrong = strongest_proof(plain, negated)
    assert wrong.differs
    assert "executed with seed 0, result 0[" in wrong.reasons[0]
