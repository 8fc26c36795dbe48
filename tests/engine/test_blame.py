"""The life of a finding through a run: the pass that it came with, and the one that resolved it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import hlo_lint
from hlo_lint import Diagnostic, PassPair, Severity
from hlo_lint.apps.cli.main import cli
from hlo_lint.dumps.directory import open_dump
from hlo_lint.engine.findings import PassRef
from hlo_lint.engine.runner import Checker, Task
from hlo_lint.hlo.ir import Computation, HloFile, Module
from hlo_lint.report.text import render_concise
from hlo_lint.rules.base import Findings, Rule, Stage
from hlo_lint.rules.findings import Finding
from hlo_lint.rules.registry import select_rules
from tests.commands import invoke
from tests.conftest import CRASH, DUMPS, FIXTURES, new_folder, present, written
from tests.texts import entry

ATTENTION = DUMPS / "gpu-jax0.11.2" / "attention"
FISSION = DUMPS / "gpu-jax0.10.2" / "cublaslt_fission"
NO_DECOMPOSER = [
    DUMPS / f"gpu-jax{release}" / "no_reshape_decomposer_crash"
    for release in ("0.10.0", "0.10.2", "0.11.2")
]


class NamedOpcode(Rule):
    """An instruction of one opcode."""

    severity = Severity.WARNING

    def __init__(self, opcode: str) -> None:
        self.opcode = opcode

    def check(self, computation: Computation) -> Findings:
        for found in computation.with_opcode(self.opcode):
            yield Finding(found, found.type_text)


class PromisedOpcode(NamedOpcode):
    """The same, which XLA promises never to have between two passes."""

    checked_between_passes = True


class BeforeLayouts(Rule):
    """A parameter while layouts do not bind."""

    def check(self, computation: Computation, stage: Stage) -> Findings:
        for found in computation.parameters:
            if not stage.layouts and computation.is_entry:
                yield Finding(found, found.type_text)


class Scheduled(Rule):
    """A module whose header says that it is scheduled."""

    def check(self, module: Module) -> Findings:
        if module.is_scheduled and module.entry and module.entry.root:
            yield Finding(module.entry.root, "scheduled")


class WordInText(Rule):
    """A word somewhere in a file."""

    def __init__(self, word: str) -> None:
        self.word = word

    def check(self, file: HloFile) -> Findings:
        at = file.text.find(self.word)
        if at >= 0:
            yield Finding(hlo_lint.Span(at, at + len(self.word)), "a word")


def lives(rule: Rule, path: Path, *, resolved: bool = True) -> list[Diagnostic]:
    """The findings of a rule in the program's own module."""
    dump = open_dump(path)
    dump.compilations = dump.compilations[:1]
    found = Checker(Task([rule], resolved=resolved)).check_dump(dump).diagnostics
    return sorted(found, key=lambda each: (each.step or 0, each.instruction or ""))


def passes(found: Diagnostic) -> tuple[str, str]:
    """The pass it came with, and the one that resolved it."""
    return tuple(
        f"{each.pass_name} {each.step}" if each else "none"
        for each in (found.introduced_by, found.resolved_by)
    )  # type: ignore[return-value]


@pytest.fixture
def attention(tmp_path: Path) -> Path:
    """A copy of a whole run, to take dumps away from."""
    return Path(shutil.copytree(ATTENTION, tmp_path / "attention"))


def steps(folder: Path, numbers: range) -> Iterator[Path]:
    for number in numbers:
        yield from folder.glob(f"*.{number:04d}.*")


# What a life is


def test_a_dot_is_followed_from_pass_to_pass() -> None:
    found = lives(NamedOpcode("dot"), ATTENTION)
    assert [(each.instruction, each.seen_in, *passes(each)) for each in found] == [
        ("dot_general.2", 8, "none", "dot_decomposer 6"),
        ("dot_general.3", 8, "none", "dot_decomposer 6"),
        ("dot", 23, "dot_decomposer 6", "dot_dimension_merger 29"),
        ("dot.1", 23, "dot_decomposer 6", "dot_dimension_merger 29"),
        ("dot.2", 3, "dot_dimension_merger 29", "triton-gemm-rewriter 32"),
        ("dot.3", 3, "dot_dimension_merger 29", "triton-gemm-rewriter 32"),
    ]


def test_what_no_pass_touches_is_one_finding_in_every_dump() -> None:
    found = lives(NamedOpcode("parameter"), ATTENTION)
    entry = [each for each in found if each.computation == "main.3"]
    assert {each.seen_in for each in entry} == {len(open_dump(ATTENTION).compilations[0].dumps)}
    assert {passes(each) for each in entry} == {("none", "none")}


def test_a_pass_that_renames_ends_no_life() -> None:
    """rename-instructions, step 47, gives every instruction another name."""
    before, after = (
        hlo_lint.parse(next(steps(ATTENTION, range(at, at + 1))).read_text()) for at in (46, 47)
    )
    names = [{each.name for each in module.instructions()} for module in (before, after)]
    (found,) = [
        each
        for each in lives(NamedOpcode("transpose"), ATTENTION)
        if each.instruction == "transpose.10"
    ]
    assert "transpose.10" in names[0] - names[1]
    assert (found.seen_in, passes(found)) == (23, ("layout_normalization 26", "priority-fusion 49"))


def test_a_life_begins_where_it_is_unbroken(attention: Path) -> None:
    """A dump without the parameter, in the midst: it is back with the next one."""
    for path in steps(attention, range(30, 31)):
        path.write_text(path.read_text().replace("parameter(", "negate("))
    found = lives(NamedOpcode("parameter"), attention)
    assert {passes(each) for each in found if each.computation == "main.3"} == {
        ("algsimp 31", "none")
    }


@pytest.mark.parametrize(
    ("rule", "since"),
    [
        # the schedule is there when a pipeline begins: no dump says which pass made it
        (Scheduled(), "none"),
        (WordInText("custom-call("), "none"),
        (WordInText("__triton_gemm"), "triton-gemm-rewriter 32"),
    ],
)
def test_a_module_and_a_text_are_followed_as_computations_are(rule: Rule, since: str) -> None:
    found = lives(rule, ATTENTION)
    assert {passes(each)[0] for each in found} <= {since}


def test_a_cure_that_left_no_dump_has_no_name(attention: Path) -> None:
    for path in steps(attention, range(32, 99)):
        path.unlink()
    dots = [each for each in lives(NamedOpcode("dot"), attention) if each.step == 29]
    last = str(next(attention.glob("*_after_optimizations.txt")))
    assert {each.resolved_by for each in dots} == {PassRef("", "", None, last)}
    assert "resolved by a pass that left no dump" in render_concise(dots[0])


def test_a_dump_whose_place_nobody_knows_breaks_no_life(attention: Path) -> None:
    """before_config_assignment with a comment in it: no numbered dump has its text."""
    (named,) = attention.glob("*before_config_assignment.txt")
    named.write_text("// a comment\n" + named.read_text())
    found = lives(NamedOpcode("transpose"), attention)
    assert [passes(each) for each in found] == [
        passes(each) for each in lives(NamedOpcode("transpose"), ATTENTION)
    ]


# What is told


def test_what_was_resolved_is_told_on_demand_and_counts_for_nothing() -> None:
    assert lives(NamedOpcode("dot"), ATTENTION, resolved=False) == []
    assert {each.severity for each in lives(NamedOpcode("dot"), ATTENTION)} == {Severity.INFO}


def test_what_is_there_at_the_end_is_told_in_any_case() -> None:
    rule = NamedOpcode("parameter")
    told = lives(rule, ATTENTION, resolved=False)
    assert told == [each for each in lives(rule, ATTENTION) if each.resolved_by is None]
    assert {each.severity for each in told} == {Severity.WARNING}


def test_what_xla_promises_between_passes_keeps_its_severity_though_it_was_resolved() -> None:
    assert lives(PromisedOpcode("dot"), ATTENTION, resolved=False) == []
    told = lives(PromisedOpcode("dot"), ATTENTION, resolved=True)
    assert {each.severity for each in told} == {Severity.WARNING}
    assert [passes(each) for each in told] == [
        passes(each) for each in lives(NamedOpcode("dot"), ATTENTION)
    ]


def test_what_the_autotuner_took_out_to_try_is_told_of_the_module() -> None:
    """Its helper modules repeat the reshapes that fission leaves in the program."""
    helpers = [each for each in open_dump(FISSION) if each.is_helper]
    reshapes = {
        each.type_text
        for compilation in helpers
        for module in compilation.dumps[-1].file.modules
        for each in module.instructions()
        if each.opcode == "reshape"
    }
    task = Task([NamedOpcode("reshape")], resolved=True)
    found = Checker(task).check_dump(open_dump(FISSION)).diagnostics
    told = {each.module for each in found if each.message in reshapes & {"f16[16,64,128]{2,1,0}"}}
    assert told == {"jit_batched_dot"}
    others = {each.message for each in found if each.module != "jit_batched_dot"}
    assert others == {"f16[16,32,64]{2,1,0}"}  # a reshape that the program never had


def test_files_picked_by_name_are_told_of_in_any_case() -> None:
    picked = list(steps(ATTENTION, range(31, 33)))
    checker = Checker(Task([NamedOpcode("dot")]))
    found = checker.check_dump(open_dump(picked)).diagnostics
    assert [passes(each)[1] for each in found] == ["triton-gemm-rewriter 32"] * 2
    assert {each.severity for each in found} == {Severity.WARNING}


def test_what_binds_no_more_is_not_called_resolved() -> None:
    found = lives(BeforeLayouts(), ATTENTION)
    assert len(found) == 3
    assert {each.resolved_by for each in found} == {None}
    note = "the dump after layout-assignment still has it, at a stage that allows it"
    assert {each.notes for each in found} == {(note,)}
    assert {each.severity for each in found} == {Severity.INFO}
    assert lives(BeforeLayouts(), ATTENTION, resolved=False) == []


def test_a_fix_mends_every_dump_of_a_life_at_once(crash: Path) -> None:
    loose = new_folder(crash / "folder")
    for path in steps(crash, range(30, 31)):
        for number in (28, 29, 30):
            name = path.name.replace(".0030.", f".{number:04d}.")
            shutil.copy(path, loose / name)
    fixed = hlo_lint.fix(loose, ["reshape-moves-data"], before="layout_normalization")
    assert len(fixed.files) == 3
    assert fixed.remaining.clean


def test_a_reshape_that_a_later_pass_resolved_is_told_with_that_pass() -> None:
    """Fission leaves it after when no layout_normalization is left to die of it."""
    report = hlo_lint.lint(FISSION, ["reshape-moves-data"], resolved=True)
    (found,) = report.findings
    assert passes(found) == ("autotuner 48", "fusion-wrapper 57")
    assert found.severity is Severity.INFO
    assert report.exit_status == 0
    assert hlo_lint.lint(FISSION, ["reshape-moves-data"]).findings == ()


@pytest.mark.parametrize("folder", ["gpu-jax0.10.2", "gpu-jax0.11.2", "tpu-jax0.10.2"])
def test_what_was_resolved_is_counted_where_it_is_not_told(folder: str) -> None:
    plain, told = (hlo_lint.lint(DUMPS / folder, resolved=asked) for asked in (False, True))
    assert plain.stats["resolved"] == len(told.resolved)
    assert told.stats["resolved"] == 0


# The command


def blame(*args: str | Path) -> Result:
    """`check --blame` of a path, by some rules."""
    path, *rules = map(str, args)
    select = [word for rule in rules for word in ("--select", rule)]
    return invoke("check", "--blame", path, *select)


@pytest.mark.parametrize("case", NO_DECOMPOSER, ids=lambda case: case.parts[-2])
def test_without_the_decomposer_the_crash_is_that_of_layout_assignment(case: Path) -> None:
    done = blame(case, "reshape-moves-data")
    assert "since: pass layout-assignment of layout_assignment, step 0012" in done.output
    assert "seen in: 2 dumps" in done.output
    assert "resolved by: none" in done.output


def test_what_is_found_in_the_last_module_is_followed_back_from_there() -> None:
    done = blame(FISSION, "reshape-runs-as-kernel")
    assert done.exit_code == 1
    lines = [line.strip() for line in done.output.splitlines()]
    assert lines.count("since: pass fusion-wrapper of pre-scheduling-passes, step 0057") == 2
    (first,) = FISSION.glob("*0001*.0057.*.after_fusion-wrapper.*")
    assert sum(line.startswith(f"first at: {first}:") for line in lines) == 2
    assert "from: programs.py:40 in batched_dot" in lines
    assert lines[-1] == "2 findings: 2 not resolved"


@pytest.mark.parametrize("release", ["0.10.0", "0.11.2"])
def test_what_may_break_is_followed_back_from_the_autotuner(release: str) -> None:
    """The layout that the reshape cannot have is born when the operands of a GEMM are swapped."""
    case = {"0.10.0": CRASH, "0.11.2": DUMPS / "gpu-jax0.11.2" / "cublaslt_fission"}[release]
    report = hlo_lint.lint(_until_autotuner(case), ["autotuning"])
    (found,) = [each for each in report.findings if each.instruction == "gemm_fusion_dot.2"]
    assert present(found.introduced_by).pass_name == "gemm-fusion-swap-operands"


def _until_autotuner(case: Path) -> list[Path]:
    """The dumps of a run up to the one that the autotuner meets."""
    dumps = open_dump(case).compilations[0]
    met = dumps.before_autotuner()
    return [dump.path for dump in dumps.dumps[: dumps.dumps.index(met) + 1]] if met else []


def test_a_history_is_written_to_a_file_as_it_is_printed(tmp_path: Path) -> None:
    target = tmp_path / "history.txt"
    written = invoke("check", "--blame", CRASH, "-o", target)
    assert (written.exit_code, written.output) == (1, "")
    assert target.read_text("utf-8") == blame(CRASH).output
    words = ["check", "--blame", str(CRASH), "--color", "always"]
    coloured = CliRunner().invoke(cli, words, color=True)
    assert "\x1b[" in coloured.output


@pytest.mark.parametrize("option", ["--fix", "--diff"])
def test_a_history_goes_with_no_fix(option: str) -> None:
    refused = invoke("check", "--blame", option, CRASH)
    assert (refused.exit_code, refused.stdout) == (2, "")


def test_what_only_an_artefact_shows_has_no_life() -> None:
    done = blame(FIXTURES / "autotune" / "new.textproto")
    assert "history: unknown: the rule does not check every dump" in done.output
    assert done.output.rstrip().endswith("not followed")


def test_the_json_of_blame_is_that_of_check() -> None:
    select = ("--select", "reshape-moves-data", "--output-format", "json")
    done = invoke("check", "--blame", FISSION, *select)
    (found,) = json.loads(done.output)["findings"]
    report = hlo_lint.lint(FISSION, ["reshape-moves-data"], resolved=True)
    assert json.loads(done.output) == json.loads(report.to_json())
    assert found["resolved_by"]["pass"] == "fusion-wrapper"
    assert (found["introduced_by"]["step"], found["resolved_by"]["step"]) == (48, 57)
    assert found["seen_in"] == 9


def test_the_program_itself_may_be_at_fault(tmp_path: Path) -> None:
    (given,) = CRASH.glob("*before_optimizations.txt")
    copy = written(tmp_path / given.name, given.read_text().replace("parameter(0)", "parameter(0"))
    done = blame(copy)
    assert "since: the input of XLA" in done.output


def test_a_file_on_its_own_has_no_pass(tmp_path: Path) -> None:
    path = tmp_path / "loose.hlo"
    path.write_text("HloModule m\n\nENTRY %e {\n  ROOT %p = f32[8]{0} parameter(0\n}\n")
    assert "since: unknown: the file is not part of a dump" in blame(path).output


def test_check_tells_what_was_resolved_when_asked() -> None:
    run = CliRunner().invoke
    args = ["check", str(FISSION), "--select", "reshape-moves-data"]
    for more in ([], ["--jobs", "2"], ["--output-format", "concise"]):
        shown = run(cli, [*args, *more]).output
        assert shown.endswith(" 1 resolved by a later pass (--resolved)\n")
    done = run(cli, [*args, "--resolved"])
    assert done.exit_code == 0
    assert "(--resolved)" not in done.output
    assert "= since: pass autotuner of autotuner, step 0048" in done.output
    assert "= resolved by: pass fusion-wrapper of pre-scheduling-passes, step 0057" in done.output
    concise = run(cli, [*args, "--resolved", "--output-format", "concise"]).output
    assert concise.endswith("(since autotuner, resolved by fusion-wrapper)\n")


def test_what_the_verifier_would_have_refused_is_an_error_once_resolved(attention: Path) -> None:
    for path in steps(attention, range(32, 36)):
        path.write_text(
            path.read_text().replace(
                "reduce_max.4 = f32[] parameter(1)", "reduce_max.4 = f32[] parameter(5)"
            )
        )
    assert hlo_lint.lint(attention, ["verifier"]).findings == ()
    (found,) = hlo_lint.lint(attention, ["verifier"], resolved=True).findings
    assert (found.rule, found.severity, found.seen_in) == ("broken-structure", Severity.ERROR, 4)
    assert passes(found) == ("triton-gemm-rewriter 32", "algsimp 36")


def test_the_verifier_is_a_promise_between_passes() -> None:
    assert {rule.checked_between_passes for rule in select_rules(["verifier"])} == {True}


# Rules about the modules around a pass


class LosesNegate(Rule):
    """A pass that drops the last negate."""

    def check(self, pair: PassPair, stage: Stage) -> Findings:
        root = None if pair.after.entry is None else pair.after.entry.root
        had = any(each.opcode == "negate" for each in pair.before.instructions())
        if had and root is not None and root.opcode == "exponential":
            yield Finding(root, f"{pair.pass_name} of {pair.pipeline} dropped a negate")


AROUND = entry("  %x = f32[8]{0} parameter(0)\n  ROOT %y = f32[8]{0} OPCODE(%x)")


def test_a_rule_about_passes_sees_each_with_its_modules(tmp_path: Path) -> None:
    names = {
        "0001.simplification.after_pipeline-start.before_one": "negate",
        "0002.simplification.after_one.before_two": "exponential",
        "0003.simplification.after_two.before_three": "negate",
        "0005.simplification.after_four.before_five": "exponential",  # three is not dumped
    }
    for name, opcode in names.items():
        (tmp_path / f"module_0001.jit_f.{name}.txt").write_text(AROUND.replace("OPCODE", opcode))
    (found,) = hlo_lint.lint(tmp_path, [LosesNegate]).findings
    assert found.message == "one of simplification dropped a negate"
    assert (found.step, found.instruction) == (2, "y")
    assert found.introduced_by is not None
    assert (found.introduced_by.pass_name, found.introduced_by.step) == ("one", 2)


_LOOP = """
HloModule m

b {{
  p = (s32[]{state}) parameter(0)
  g = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  n = s32[] add(g, one)
  v = f32[] constant(0)
  ROOT t = (s32[]{state}) tuple(n{value})
}}

c {{
  q = (s32[]{state}) parameter(0)
  ROOT always = pred[] constant(true)
}}

ENTRY e {{
  z = s32[] constant(0)
  w = f32[] constant(0)
  i = (s32[]{state}) tuple(z{init})
  ROOT {name} = (s32[]{state}) while(i), condition=c, body=b
}}
"""


ENDLESS = _LOOP.format(state="", value="", init="", name="w0")


def write_steps(folder: Path, steps: dict[str, str]) -> None:
    for name, text in steps.items():
        (folder / f"module_0001.m.{name}.txt").write_text(text)


def test_a_loop_with_another_name_and_a_wider_state_is_the_same(tmp_path: Path) -> None:
    wide = _LOOP.format(state=", f32[]", value=", v", init=", w", name="wide")
    steps = {"0001.p.after_pipeline-start.before_a": ENDLESS, "0002.p.after_a.before_b": wide}
    write_steps(tmp_path, steps)
    (found,) = hlo_lint.lint(tmp_path, ["loop-never-ends"]).findings
    assert found.introduced_by is None


@pytest.mark.parametrize(
    ("following", "guilty"), [("outer.after_b.before_c", "b"), ("other.after_b.before_c", None)]
)
def test_a_pass_that_runs_a_pipeline_is_blamed_for_its_first_dump(
    tmp_path: Path, following: str, guilty: str | None
) -> None:
    steps = {
        "0001.outer.after_pipeline-start.before_b": ENDLESS.replace("true", "false"),
        "0002.inner.after_pipeline-start.before_x": ENDLESS,
        "0003.inner.after_x.before_pipeline-end": ENDLESS,
        f"0004.{following}": ENDLESS,
    }
    write_steps(tmp_path, steps)
    (found,) = hlo_lint.lint(tmp_path, ["loop-never-ends"]).findings
    assert (found.introduced_by and found.introduced_by.pass_name) == guilty


def test_a_pass_that_only_annotates_others_is_not_blamed(tmp_path: Path) -> None:
    marked = ENDLESS.replace("add(g, one)", 'add(g, one), frontend_attributes={a="1"}')
    write_steps(tmp_path, {"0001.p.after_a.before_b": ENDLESS, "0002.p.after_b.before_c": marked})

    class Marked(Rule):
        """A loop of a module with marks."""

        def check(self, module: Module) -> Findings:
            if "frontend_attributes" in module.text and module.entry and module.entry.root:
                yield Finding(module.entry.root, "marked")

    (found,) = hlo_lint.lint(tmp_path, [Marked]).findings
    assert found.introduced_by is None


def test_a_pass_that_clones_a_computation_repeats_its_defect(tmp_path: Path) -> None:
    body = "f {\n  p = f32[8] parameter(0)\n  ROOT r = f32[7] add(p, p)\n}\n\n"
    clone = body.replace("f {", "f.clone {").replace("r =", "r.clone =")
    calls = (
        "ENTRY e {\n  x = f32[8] parameter(0)\n  c = f32[7] call(x), to_apply=f\n"
        "  d = f32[7] call(x), to_apply=f\n  ROOT t = (f32[7], f32[7]) tuple(c, d)\n}\n"
    )
    flat = clone + calls.replace("to_apply=f\n  ROOT", "to_apply=f.clone\n  ROOT")
    steps = {"0001.p.after_a.before_b": calls, "0002.p.after_b.before_c": flat}
    write_steps(tmp_path, {name: f"HloModule m\n\n{body}{rest}" for name, rest in steps.items()})
    found = hlo_lint.lint(tmp_path, ["wrong-result-shape"]).findings
    assert [each.introduced_by for each in found] == [None, None]
