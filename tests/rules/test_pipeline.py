"""Rules about whole runs: contracts between passes, deaths, changes, what flags leave out."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

import hlo_lint
from hlo_lint.apps.asking import refusals
from hlo_lint.apps.cli.main import cli
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.dumps.changes import adds_only_unread, disagreements, resizes_only_workspaces
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.contracts import (
    Contract,
    Order,
    OrderKind,
    broken_orders,
    contracts,
    unlisted_passes,
)
from hlo_lint.dumps.crash import find_crash_site
from hlo_lint.dumps.directory import open_dump
from hlo_lint.dumps.pass_lists import PassName, jax_release, pass_list, pass_lists
from hlo_lint.dumps.passes_run import breaches, passes_run
from hlo_lint.dumps.run_records import differences, read_pass_runs
from hlo_lint.rules.base import Bad
from hlo_lint.rules.findings import Severity
from hlo_lint.rules.registry import all_rules, find_rule
from tests.conftest import CRASH, DUMPS, FIXTURES, completed, present
from tests.contract_names import check_contract_names
from tests.texts import entry

GPU_0_10_2 = DUMPS / "gpu-jax0.10.2" / "cublaslt_fission"
GPU_0_11_2 = DUMPS / "gpu-jax0.11.2" / "attention"
CPU = DUMPS / "cpu-jax0.11.2" / "mlp_train"
HEALTHY = [GPU_0_10_2, GPU_0_11_2, DUMPS / "gpu-jax0.11.2" / "cublaslt_fission", CPU]
DIED = [CRASH, *sorted(DUMPS.glob("gpu-*/no_reshape_decomposer_crash"))]
ORDERS = [(contract, order) for contract in contracts() for order in contract.orders]


def main(case: Path) -> Compilation:
    return max(open_dump(case), key=lambda compilation: len(compilation.dumps))


def copy_of(case: Path, folder: Path) -> Path:
    return Path(shutil.copytree(case, folder / "dump"))


def set_options(folder: Path, text: str) -> None:
    next(folder.glob("*.debug_options")).write_text(text)


def title(value: object) -> str | None:
    if isinstance(value, Path):
        return f"{value.parent.name}/{value.name}"
    if isinstance(value, Contract):
        return str(value.number)
    return value.text.replace(" ", "_") if isinstance(value, Order) else None


# Contracts


def test_the_rules_passes_and_pipelines_of_contracts_are_there() -> None:
    check_contract_names([rule.name() for rule in all_rules()])


CONTRACT = """\
unlisted = []

[[contract]]
relies = "dce"
promise = "p"
kept_by = "dce"
broken_by = "b"
source = "s"
symptom = "s"
rules = ["layout-changed"]
orders = [{ kind = "needs", first = ["dce"], then = ["copy-insertion"] }]
"""


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("layout-changed", "layout-chnged", "rule layout-chnged: did you mean layout-changed"),
        ("copy-insertion", "copy-insertoin", "pass copy-insertoin: did you mean copy-insertion"),
        ('then = ["copy', 'pipelines = ["fusin"], then = ["copy', "pipeline fusin: did you mean"),
        ("promise", "promis", "key promis: did you mean promise"),
        ("first", "frist", "key of an order frist: did you mean first"),
        ("needs", "neds", "kind of an order neds: did you mean needs"),
        ('broken_by = "b"\n', "", "broken_by is missing"),
        ("rules", 'backends = ["gpus"]\nrules', "backend gpus: did you mean gpu"),
        ('relies = "dce"', 'precondition = "call-graph"', "did you mean call-graph-is-flat"),
        ('relies = "dce"', 'precondition = "call-graph-is-flat"', "key promise"),
    ],
)
def test_a_contract_that_is_misspelt_is_an_error_that_names_the_nearest(
    right: str, wrong: str, message: str
) -> None:
    text = CONTRACT.replace(right, wrong, 1)
    with pytest.raises(hlo_lint.ConfigError, match=message):
        check_contract_names(["layout-changed", "layout-assigned"], text)


def test_releases_from_0_10_on_keep_every_order_but_the_one_that_killed_0_10_0() -> None:
    for each in pass_lists():
        orders = broken_orders(each.backend, each.passes)
        broken = [(contract.number, guilty) for contract, _, guilty in orders]
        if jax_release(each.name) < (0, 10):  # these have no scan_expander, among others
            assert {number for number, _ in broken} <= {1, 14, 15, 37, 41}
        else:
            known = [(1, ("hlo_normalization", "layout_normalization"))]
            assert broken == (known if each.name == "gpu-jax0.10.0" else [])


@pytest.mark.parametrize(("contract", "order"), ORDERS, ids=title)
def test_an_order_is_broken_by_what_it_forbids(contract: Contract, order: Order) -> None:
    """No order holds whatever passes run."""
    where = order.pipelines[0] if order.pipelines else "p"
    first, then = [(where, order.first[0])], [(where, order.then[0])]
    breaker = [(where, order.breakers[0])] if order.breakers else []
    good: list[PassName] = first + then
    bad = {
        OrderKind.BEFORE: then + first,
        OrderKind.NEEDS: then,
        OrderKind.RENEWS: first + breaker + then,
        OrderKind.FOLLOWS: then + first,
        OrderKind.NOT_BETWEEN: first + breaker + then,
    }[order.kind]
    assert order.broken_by(good) is None
    guilty = present(order.broken_by(bad))
    assert guilty in bad
    assert guilty[1] in order.breach(guilty[1])
    assert order.broken_by(()) is None


@pytest.mark.parametrize(("contract", "order"), ORDERS, ids=title)
def test_an_order_is_of_passes_that_a_release_runs(contract: Contract, order: Order) -> None:
    if unlisted_passes().isdisjoint((*order.first, *order.then)):
        lists = [release for release in pass_lists() if release.backend in contract.backends]
        names = [{name for _, name in release.passes} for release in lists]
        assert any(run & {*order.first} and run & {*order.then} for run in names), order.text


def test_the_passes_of_a_run_are_those_of_its_metadata_in_whatever_spelling() -> None:
    (run,) = passes_run(main(GPU_0_11_2))
    assert run.how == "the module's metadata lists the passes"
    assert ("layout_normalization", "layout_normalization") in run.passes
    text = next(GPU_0_11_2.glob("*.metadata.textproto")).read_text()
    runs = read_pass_runs(text)
    assert len(runs) > 300
    assert read_pass_runs(text.replace("\n  pass_name", "\n   pass_name", 5)) == runs


@pytest.mark.parametrize("case", HEALTHY, ids=title)
def test_a_healthy_run_has_no_finding_about_its_passes(case: Path) -> None:
    for compilation in open_dump(case):
        assert breaches(compilation) == []
    assert hlo_lint.lint(case, ["compilation-died", "incomplete-dump"]).findings == ()


def without(disabled: str, folder: Path, pattern: str = "xla_dump_hlo_pass_re: '.*'") -> Path:
    """A copy of a dump whose options disable a pass."""
    copy = copy_of(GPU_0_10_2, folder)
    set_options(copy, f'{pattern}\nxla_disable_hlo_passes: "{disabled}"\n')
    return copy


def test_a_pass_that_was_switched_off_is_missed_by_those_that_rely_on_it(tmp_path: Path) -> None:
    copy = without("dot_normalizer", tmp_path)
    (found,) = hlo_lint.lint(copy, ["required-pass-order"]).findings
    assert found.severity is Severity.INFO
    assert found.message.startswith("triton-gemm-rewriter runs without dot_normalizer before it")
    assert "dot_normalizer: disabled by xla_disable_hlo_passes" in found.notes


def test_a_switched_off_pass_that_nothing_relies_on_is_no_breach(tmp_path: Path) -> None:
    copy = without("priority-fusion", tmp_path)
    assert hlo_lint.lint(copy, ["required-pass-order"]).findings == ()


def test_what_a_release_breaks_anyway_is_not_told_of_each_run() -> None:
    assert breaches(main(CRASH)) == []
    assert broken_orders("gpu", pass_list("gpu-jax0.10.0").passes)


def test_where_only_named_dumps_are_left_no_order_is_judged(tmp_path: Path) -> None:
    copy = without("dot_normalizer", tmp_path, "")
    for path in copy.glob("module_*.[0-9][0-9][0-9][0-9].*"):
        path.unlink()
    assert hlo_lint.lint(copy, ["required-pass-order"]).findings == ()


# Deaths


@pytest.mark.parametrize("case", DIED, ids=title)
def test_one_death_is_one_finding_that_names_the_pass_and_the_reshape(case: Path) -> None:
    (found,) = hlo_lint.lint(case, ["compilation-died"]).findings
    assert found.severity is Severity.ERROR
    assert found.message.startswith("compilation died in layout_normalization: this reshape moves")
    assert "reshape" in present(found.instruction)
    assert [found.rule for found in hlo_lint.lint(case).findings] == ["reshape-moves-data"]


def cut(compilation: Compilation, number: int) -> Compilation:
    """A run as it would have been left had it died after a numbered dump."""
    named = [
        dump for dump in compilation.dumps if dump.name and dump.name.rest.startswith("before_opt")
    ]
    kept = [path for path in compilation.artefacts if not path.name.endswith("metadata.textproto")]
    died = Compilation([*named, *compilation.steps[: number + 1]], kept)
    assert died.crashed
    return died


@pytest.mark.parametrize("case", HEALTHY, ids=title)
def test_a_run_cut_anywhere_has_the_pass_that_came_next_among_the_suspects(case: Path) -> None:
    """Of the runs that XLA finished, we know which pass came next."""
    compilation = main(case)
    judged = 0
    for number, dump in enumerate(compilation.steps[1:]):
        death = find_crash_site(cut(compilation, number))
        after, before = present(dump.name), present(compilation.steps[number].name)
        is_pass = after.before and after.after not in ("pipeline-start", before.pipeline)
        if death.is_complete and is_pass and not after.after.startswith("apply-xla-transforms"):
            assert after.after in [name for _, name in death.suspects], dump.path.name
            judged += 1
    assert judged > len(compilation.steps) / 6


def cut_after(crash: Path, last: int) -> None:
    """Delete the dumps of steps after a last one."""
    for path in crash.glob("*.txt"):
        step = path.name.split(".")[2]
        if step.isdecimal() and int(step) > last:
            path.unlink()


def test_an_unexplained_death_is_a_warning_and_lists_its_suspects(crash: Path) -> None:
    cut_after(crash, 5)
    (found,) = hlo_lint.lint(crash).findings
    assert (found.rule, found.severity) == ("compilation-died", Severity.WARNING)
    assert any(note.startswith("it was in one of ") for note in found.notes)
    assert any("xla_dump_hlo_pass_re=.+" in note for note in found.notes)


def test_with_every_pass_dumped_the_suspect_is_one(crash: Path) -> None:
    cut_after(crash, 5)
    set_options(crash, 'xla_dump_hlo_pass_re: ".+"\n')
    (found,) = hlo_lint.lint(crash).findings
    last = present(main(crash).steps[-1].name)
    said = f"it was in {last.before} of {last.pipeline} (XLA:GPU with the passes of jax 0.10.0)"
    assert found.notes == (said,)


def mend(crash: Path) -> None:
    """Write what `fix` makes of a dump, as a person would, who leaves no record of it."""
    for file in hlo_lint.fix(crash).files:
        present(file.path).write_text(file.after)


def test_a_mended_dump_of_a_death_is_still_that_of_a_death(crash: Path) -> None:
    mend(crash)
    (found,) = hlo_lint.lint(crash).findings
    assert (found.rule, found.severity) == ("compilation-died", Severity.WARNING)


@pytest.mark.parametrize("options", [["-o"], ["--in-place"]], ids=str)
def test_a_fixed_dump_is_not_of_a_death(options: list[str], crash: Path, tmp_path: Path) -> None:
    fixed = crash if options == ["--in-place"] else tmp_path / "fixed"
    target = [] if fixed == crash else [str(fixed)]
    assert CliRunner().invoke(cli, ["fix", str(crash), *options, *target]).exit_code == 0
    assert hlo_lint.lint(fixed).findings == ()
    assert hlo_lint.lint(fixed, settings=Settings(jobs=2)).findings == ()


LOG = """\
E1121 06:59:24.375787    2516 status_macros.cc:58] INTERNAL: RET_CHECK failure \
(external/xla/xla/service/gpu/other_pass.cc:12) a && b
E1121 06:59:24.375787    2516 status_macros.cc:58] INTERNAL: RET_CHECK failure \
(external/xla/xla/hlo/transforms/expanders/scatter_simplifier.cc:95) reduce->inputs()
"""
CHECK = "F1121 06:59:24.375787 2516 scatter_simplifier.cc:95] Check failed: reduce->inputs() \n"


@pytest.mark.parametrize("log", [LOG, CHECK], ids=["RET_CHECK", "CHECK"])
@pytest.mark.parametrize("name", ["crash/stderr.log", "crash.log"])
def test_a_log_beside_a_dump_names_the_pass_that_died(log: str, name: str, crash: Path) -> None:
    mend(crash)
    (crash.parent / name).write_text(log)
    (found,) = hlo_lint.lint(crash).findings
    said = "the compilation died in scatter_simplifier (scatter_simplifier.cc:95: reduce->inputs()"
    assert found.message.startswith(said)
    assert found.severity is Severity.WARNING


def test_a_log_of_no_pass_that_was_to_come_is_quoted(crash: Path) -> None:
    mend(crash)
    (crash / "run.err").write_text(LOG.splitlines()[0])
    (found,) = hlo_lint.lint(crash).findings
    assert "run.err says: other_pass.cc:12: a && b" in found.notes
    assert any("it was in one of 5 passes, " in note for note in found.notes)


def test_a_named_dump_alone_proves_no_death(tmp_path: Path) -> None:
    path = next(CRASH.glob("*.before_optimizations.txt"))
    shutil.copy(path, tmp_path)
    assert hlo_lint.lint(tmp_path).findings == ()


def test_of_a_release_of_tomorrow_only_the_name_of_the_last_dump_is_believed(crash: Path) -> None:
    cut_after(crash, 12)
    for path in sorted(crash.glob("*.txt")):
        parts = path.name.split(".")
        if parts[2].isdecimal() and int(parts[2]) < 10:
            path.rename(crash / f"{'.'.join(parts[:3])}.tomorrow.after_a.before_b.txt")
    (found,) = hlo_lint.lint(crash, ["compilation-died"]).findings
    assert any("the last dump names the pass that is next in the list" in n for n in found.notes)


def test_a_death_that_no_rule_explains_is_put_down_to_a_broken_contract(tmp_path: Path) -> None:
    copy = without("dot_normalizer", tmp_path)
    compilation = main(copy)
    starts = [dump.name for dump in compilation.steps if dump.name]
    last = next(name.step for name in starts if name.pipeline == "hlo_normalization")
    for dump in compilation.dumps:
        name = present(dump.name)
        begun = name.rest.startswith("before_optimizations")
        if not begun and (name.step is None or name.step > present(last)):
            dump.path.unlink()
    (found,) = hlo_lint.lint(copy, ["compilation-died"]).findings
    assert found.message.endswith(", and triton-gemm-rewriter ran without a pass that it relies on")
    assert any("every dot has a contracting dimension" in note for note in found.notes)


# What dumps and passes say of changes


def edited(folder: Path, first: int, edit: Callable[[str], str]) -> Path:
    """A copy in which the dumps from a step on are edited."""
    copy = copy_of(CPU, folder)
    for dump in main(copy).steps:
        if present(present(dump.name).step) >= first:
            dump.path.write_text(edit(dump.path.read_text()))
    return copy


def start_after_a_pass() -> int:
    """The first step that begins a pipeline after a pass of another."""
    names = (dump.name for dump in main(CPU).steps if dump.name)
    return next(
        present(name.step)
        for before, name in pairwise(names)
        if before.after != name.after == "pipeline-start"
    )


def test_a_change_that_no_pass_reported_shows_at_the_next_start(tmp_path: Path) -> None:
    start = start_after_a_pass()
    copy = edited(tmp_path, start, lambda text: text.replace("HloModule ", "HloModule x", 1))
    (found,) = hlo_lint.lint(copy, ["silent-change"]).findings
    assert (found.severity, found.step) == (Severity.WARNING, start)


BEFORE = entry("  p = f32[8] parameter(0)\n  ROOT n = f32[8] negate(p)")


@pytest.mark.parametrize(
    ("line", "harmless"),
    [
        ("  d = f32[8] bitcast(p)\n  ROOT n", True),
        ("  d = f32[8] bitcast(p)\n  e = f32[8] bitcast(d)\n  ROOT n", True),
        ("  n", False),
        ("  ROOT d", False),
        ("  c = f32[8] abs(p)\n  ROOT n", True),
    ],
)
def test_what_nobody_reads_is_a_harmless_change(line: str, harmless: bool) -> None:
    after = BEFORE.replace("  ROOT n", line)
    assert adds_only_unread(hlo_lint.parse(BEFORE), hlo_lint.parse(after)) is harmless
    assert not adds_only_unread(hlo_lint.parse(after), hlo_lint.parse(BEFORE))


ATTENTION = entry("""
  q = bf16[4,64]{1,0} parameter(0)
  a = (bf16[4,64]{1,0}, u8[0]{0}) custom-call(q, q, q), custom_call_target="__cudnn$fmhaSoftmax", \
backend_config={"cudnn_fmha_backend_config":{"dropout_rate":0.0}}
  ROOT o = bf16[4,64]{1,0} get-tuple-element(a), index=0
""")


@pytest.mark.parametrize(
    ("old", "new", "resized"),
    [
        ("u8[0]", "u8[16384]", True),
        ('"dropout_rate":0.0', '"dropout_rate":0,"force_deterministic":false', True),
        ("(q, q, q)", "(q, q)", False),
        ("fmhaSoftmax", "fmhaScaleBiasSoftmax", False),
        ("index=0", "index=1", False),
        ("e {", "e {", False),
    ],
)
def test_the_workspace_of_cudnn_is_no_silent_change(old: str, new: str, resized: bool) -> None:
    after = hlo_lint.parse(ATTENTION.replace(old, new))
    assert resizes_only_workspaces(hlo_lint.parse(ATTENTION), after) is resized


def test_what_a_pass_left_unread_in_silence_is_told_for_information(tmp_path: Path) -> None:
    start = start_after_a_pass()
    unread = r"\1  %unread = f32[] constant(0)\n"
    copy = edited(tmp_path, start, lambda text: re.sub(r"(\nENTRY .*\n)", unread, text))
    (found,) = hlo_lint.lint(copy, ["silent-change"]).findings
    assert (found.severity, found.step) == (Severity.INFO, start)
    assert found.notes[-1] == "it only added instructions without users"


def test_a_deleted_dump_is_no_silent_change(tmp_path: Path) -> None:
    copy = edited(tmp_path, 8, lambda text: text.replace("HloModule ", "HloModule x", 1))
    dump = main(copy).steps[7]
    dump.path.unlink()
    assert hlo_lint.lint(copy, ["silent-change"]).findings == ()


@pytest.mark.parametrize("case", [*HEALTHY, *DIED], ids=title)
def test_no_real_run_changes_in_silence_or_shares_computations(case: Path) -> None:
    for compilation in open_dump(case):
        assert all(each.reported for each in disagreements(compilation))
    assert hlo_lint.lint(case, ["call-graph-not-flat"]).findings == ()


def test_a_pass_of_the_name_of_its_pipeline_reports_without_effect(tmp_path: Path) -> None:
    names = (
        "0001.layout_normalization.after_pipeline-start.before_layout_normalization",
        "0002.layout_normalization.after_layout_normalization.before_broadcast_canonicalizer",
    )
    for name in names:
        path = tmp_path / f"module_0001.f.{name}.txt"
        path.write_text(entry("  ROOT p = f32[8]{0} parameter(0)"))
    (tmp_path / "module_0001.f.debug_options").write_text('xla_dump_hlo_pass_re: ".*"\n')
    (found,) = hlo_lint.lint(tmp_path).findings
    assert (found.rule, found.severity) == ("change-without-effect", Severity.INFO)
    assert "layout_normalization reported a change" in found.message
    # Passes that report a change by design are left out.
    assert hlo_lint.lint(CPU, ["change-without-effect"]).findings == ()


# What flags leave out


def test_a_folder_of_two_runs_is_said_once(tmp_path: Path) -> None:
    copy = copy_of(CPU, tmp_path)
    first = main(copy).steps[3].path
    shutil.copy(first, copy / first.name.replace("jit_mlp_train", "jit_other"))
    (found,) = hlo_lint.lint(copy, ["incomplete-dump"]).findings
    assert found.severity is Severity.INFO
    assert "module 0000 is both jit_mlp_train and jit_other" in found.notes[0]


def test_each_compiler_of_a_process_counts_modules_by_itself(tmp_path: Path) -> None:
    copy = copy_of(CPU, tmp_path)
    for path in GPU_0_11_2.iterdir():
        number, dot, rest = path.name.partition(".")
        if dot and number.startswith("module_"):
            shutil.copy(path, copy / f"module_0000.{rest}")
    assert len({compilation.backend for compilation in open_dump(copy).compilations}) == 2
    assert not hlo_lint.lint(copy, ["incomplete-dump"]).findings


def test_two_passes_of_one_number_are_two_runs(tmp_path: Path) -> None:
    copy = copy_of(CPU, tmp_path)
    first = main(copy).steps[3].path
    shutil.copy(first, copy / "module_0000.jit_mlp_train.0003.fusion.after_dce.before_cse.txt")
    (found,) = hlo_lint.lint(copy, ["incomplete-dump"]).findings
    assert "step 0003 of module_0000.jit_mlp_train is both" in found.notes[0]


@pytest.mark.parametrize(
    ("option", "flag"),
    [
        ("xla_dump_max_hlo_modules: 1", "--xla_dump_max_hlo_modules=-1"),
        ('xla_dump_hlo_pipeline_re: "fusion"', "--xla_dump_hlo_pipeline_re=.*"),
        ("xla_dump_hlo_as_long_text: false", "--xla_dump_hlo_as_long_text=true"),
    ],
)
def test_a_flag_that_hides_something_comes_with_the_one_that_shows_it(
    option: str, flag: str, tmp_path: Path
) -> None:
    copy = copy_of(CPU, tmp_path)
    set_options(copy, f'xla_dump_hlo_pass_re: ".*"\n{option}\n')
    (found,) = hlo_lint.lint(copy, ["incomplete-dump"]).findings
    assert found.notes[-1] == f"to dump all of it: XLA_FLAGS={flag}"


# What two runs were told


BISECT = FIXTURES / "bisect"


@pytest.mark.parametrize(
    ("case", "disabled"),
    [
        ("cpu_without_cse", "cse"),
        ("gpu_without_priority_fusion", "priority-fusion"),
        ("gpu_without_hoist_fused_bitcasts", "hoist-fused-bitcasts"),
    ],
)
def test_a_disabled_pass_is_what_two_runs_differ_by(case: str, disabled: str) -> None:
    (found,) = differences(main(BISECT / case / "all"), main(BISECT / case / "without"))
    assert (found.name, found.before, found.after) == ("xla_disable_hlo_passes", (), (disabled,))


def compare_settings(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["compare", "--settings", *arguments])
    return result.exit_code, result.output


def test_compare_prints_the_settings_of_both_sides() -> None:
    folders = [str(BISECT / "cpu_without_cse" / side) for side in ("all", "without")]
    status, out = compare_settings(*folders)
    assert status == 1
    assert out == "debug_options: xla_disable_hlo_passes\n  - not set\n  + cse\n"
    status, out = compare_settings("--output-format", "json", *folders)
    assert json.loads(out)["differences"][0]["after"] == ["cse"]


def test_settings_are_compared_with_records_of_the_same_module(tmp_path: Path) -> None:
    assert compare_settings(str(CPU), str(CPU)) == (0, "the same\n")
    for other, says in ((tmp_path, "no record of flags"), (CRASH, "no module is in both")):
        status, out = compare_settings(str(CPU), str(other))
        assert (status, says in out) == (2, True)


def test_a_target_is_compared_field_by_field(tmp_path: Path) -> None:
    compilations = []
    for number, cores in enumerate((132, 108)):
        copy = copy_of(CPU, tmp_path / str(number))
        text = f"gpu_device_info {{ core_count: {cores} threads_per_warp: 32 }}\n"
        (copy / "module_0000.jit_mlp_train.gpu_target_config.pbtxt").write_text(text)
        compilations.append(main(copy))
    (found,) = differences(*compilations)
    assert (found.record, found.name) == ("gpu_target_config.pbtxt", "gpu_device_info.core_count")
    assert (found.before, found.after) == (("132",), ("108",))


# XLA is the judge

DEATHS = FIXTURES / "deaths"
CAUSES = {
    "shared_computation": ("call-graph-not-flat", "has 2 callers", "flattened"),
    "reduce_of_columns": (
        "reduce-off-normal-form",
        "whose layout is not descending",
        "Default layout should be enforced on reduction operand",
    ),
    "stable_sort": ("compiler-refuses", "this sort: Stable sort", "Stable sort"),
    "triton_gemm_left": ("compiler-refuses", "this fusion: Block", "Block level fusion config"),
    "not_wrapped": ("compiler-refuses", "opcode: reverse", "opcode: reverse"),
    "triangular_solve_left": ("compiler-refuses", "triangular-solve", "opcode: triangular-solve"),
    "constant_of_odd_name": ("compiler-refuses", "this constant: ptxas", "ptxas"),
    "copy_left": ("compiler-refuses", "this copy: RET_CHECK", "LayoutUtil::LayoutsInShapesEqual"),
    "topk_left": ("compiler-refuses", "opcode: topk", "opcode: topk"),
}
"""For each death: the rule that finds it, what it says, what XLA said."""


def test_each_death_of_the_fixtures_has_a_cause() -> None:
    outcomes = json.loads((DEATHS / "OUTCOMES.json").read_text())
    assert outcomes.keys() == CAUSES.keys() == {p.name for p in DEATHS.iterdir() if p.is_dir()}
    for name, (_, _, xla) in CAUSES.items():
        assert xla in outcomes[name]


@pytest.mark.parametrize(
    ("name", "guilty"),
    [
        ("shared_computation", "copy-insertion"),
        ("reduce_of_columns", "reduction-dimension-grouper"),
    ],
)
def test_what_xla_died_of_is_found_and_the_pass_is_named(name: str, guilty: str) -> None:
    (death,) = hlo_lint.lint(DEATHS / name, ["compilation-died"]).findings
    assert death.severity is Severity.ERROR
    assert death.message.startswith(f"compilation died in {guilty}: ")
    rule, said, _ = CAUSES[name]
    found = [f for f in hlo_lint.lint(DEATHS / name).findings if f.rule != "required-pass-order"]
    assert [(f.rule, said in f.message) for f in found] == [(rule, True)]


@pytest.mark.slow
@pytest.mark.skipif("HLO_LINT_RELEASES" not in os.environ, reason="needs compilers for chips")
@pytest.mark.parametrize("name", [name for name in CAUSES if CAUSES[name][0] == "compiler-refuses"])
def test_xla_says_of_what_its_emitters_died(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ["HLO_LINT_RELEASES"])
    refused, unasked = refusals(open_dump(DEATHS / name))
    if unasked:
        pytest.skip(unasked[0].reason)  # no environment of that release is made for the tests
    assert [CAUSES[name][1] in diagnostic.message for diagnostic in refused] == [True]


def test_a_loop_that_host_offloading_moves_half_of_is_found_where_it_was_left() -> None:
    report = hlo_lint.lint(DUMPS / "gpu-jax0.11.2" / "offloaded_scan_refused")
    errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    assert {finding.rule for finding in errors} == {"broken-while", "wrong-result-shape"}
    for finding in errors:
        assert present(finding.introduced_by).pass_name == "host-offloader"
        assert "S(5)" in finding.message


PROGRAM = """
import jax, jax.numpy as jnp
inner = jax.jit(lambda x: jnp.tanh(x) @ x)
def f(x):
    y = jax.lax.fori_loop(0, 3, lambda _, y: inner(inner(y)), x)
    return jax.lax.cond(y[0, 0] > 0, inner, lambda z: inner(z) + 1, y)
jax.jit(f).lower(jax.ShapeDtypeStruct((8, 8), "float32")).compile()
"""
"""A computation with several callers, in a loop and in branches."""


def compiled(folder: Path, *flags: str) -> str:
    """The result of XLA:CPU on the program, compiled in a child process that dumps a folder."""
    pytest.importorskip("jax")
    flags = (f"--xla_dump_to={folder}", *flags)
    environment = {**os.environ, "XLA_FLAGS": " ".join(flags), "JAX_PLATFORMS": "cpu"}
    return completed([sys.executable, "-c", PROGRAM], env=environment).stderr


@pytest.mark.slow
@pytest.mark.parametrize("pattern", [".*", ".+", "copy-insertion"])
def test_a_shared_computation_kills_copy_insertion_as_said(pattern: str, tmp_path: Path) -> None:
    off = "--xla_disable_hlo_passes=flatten-call-graph,call-inliner"
    said = compiled(tmp_path, off, f"--xla_dump_hlo_pass_re={pattern}")
    assert "Call graph must be flattened before copy insertion" in said
    findings = hlo_lint.lint(tmp_path).findings
    assert {found.rule for found in findings} == {"call-graph-not-flat"}
    assert all(found.severity is Severity.ERROR for found in findings)
    (found,) = hlo_lint.lint(tmp_path, ["compilation-died"]).findings
    assert found.message.startswith("compilation died in copy-insertion: ")


@pytest.mark.slow
def test_with_every_pass_switched_on_the_same_program_has_no_findings(tmp_path: Path) -> None:
    assert "Error" not in compiled(tmp_path, "--xla_dump_hlo_pass_re=.+")
    findings = hlo_lint.lint(tmp_path).findings
    assert [found for found in findings if found.severity is not Severity.INFO] == []
    (ran,) = passes_run(main(tmp_path))
    assert ran.how == "each pass left a dump"


@pytest.mark.slow
def test_a_loose_text_may_share_computations(tmp_path: Path) -> None:
    compiled(tmp_path)
    path = next(tmp_path.glob("*jit_f.before_optimizations.txt"))
    (bad,) = [f for f in find_rule("call-graph-not-flat").examples if isinstance(f, Bad)]
    for text in (path.read_text(), bad.source):
        assert hlo_lint.lint(text, ["call-graph-not-flat"]).findings == ()
        assert hlo_lint.lint(text, ["call-graph-not-flat"], before="copy-insertion").findings


def changes_of_meaning(folder: Path, *texts: str) -> int:
    """The findings about a step of algsimp."""
    steps = ("after_pipeline-start.before_algsimp", "after_algsimp.before_pipeline-end")
    for number, (step, text) in enumerate(zip(steps, texts, strict=True), 1):
        (folder / f"module_0001.m.000{number}.simplification.{step}.txt").write_text(text)
    return len(hlo_lint.lint(folder, select=["meaning-changed"]).findings)


@pytest.mark.parametrize(("before", "after", "count"), [("nan", "-nan", 0), ("nan", "1", 1)])
def test_a_nan_equals_itself(before: str, after: str, count: int, tmp_path: Path) -> None:
    texts = (
        entry(f"""
  p = f32[] parameter(0)
  c{number} = f32[] constant({value})
  ROOT s = f32[] add(p, c{number})
""")
        for number, value in enumerate((before, after))
    )
    assert changes_of_meaning(tmp_path, *texts) == count


@pytest.mark.parametrize(
    ("limited", "count"),
    [
        ("maximum(p, p)", 0),
        ("maximum(p, lowest)", 0),
        ("clamp(lowest, p, p)", 0),
        ("maximum(p, zero)", 1),
        ("minimum(p, lowest)", 1),
        ("clamp(zero, p, p)", 1),
        ("abs(p)", 1),
    ],
)
def test_a_limit_that_no_value_meets_may_go(limited: str, count: int, tmp_path: Path) -> None:
    program = entry(f"""
  p = s8[4] parameter(0)
  z = s8[] constant(0)
  zero = s8[4] broadcast(z), dimensions={{}}
  low = s8[] constant(-128)
  lowest = s8[4] broadcast(low), dimensions={{}}
  m = s8[4] {limited}
  ROOT n = s8[4] negate(m)
""")
    after = program.replace("negate(m)", "negate(p)")
    assert changes_of_meaning(tmp_path, program, after) == count
