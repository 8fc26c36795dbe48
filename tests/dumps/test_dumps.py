"""Dump directories: what their files are, what a run still holds for each, and what that binds."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Container, Iterable
from itertools import chain
from pathlib import Path

import pytest

import hlo_lint
from hlo_lint import Severity
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.directory import Dump, open_dump
from hlo_lint.dumps.gaps import NO_PASSES
from hlo_lint.dumps.names import DumpName, parse_name
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.phases import RESHAPES_ARE_BITCASTS
from hlo_lint.dumps.run_records import read_debug_options, read_pass_runs
from hlo_lint.dumps.upcoming import Fate, status_of
from tests.conftest import CRASH, DUMPS, FIXTURES, ROOT, completed, present
from tests.texts import entry

CASES = sorted(path for path in DUMPS.glob("*/*") if not path.name.endswith("_refused"))
"""Dumps of compilations that ended, or that a pass died in; not those that XLA's verifier ended."""
NO_DECOMPOSER = [
    DUMPS / f"gpu-jax{release}" / "no_reshape_decomposer_crash"
    for release in ("0.10.0", "0.10.2", "0.11.2")
]
ONLY_ONE_PASS = DUMPS / "gpu-jax0.11.2" / "layout_normalization_only"
HELPERS = DUMPS / "gpu-jax0.10.2" / "cublaslt_fission"
BAD = entry("  p = f32[8,3]{1,0} parameter(0)\n  ROOT r = f32[4,2,3]{0,1,2} reshape(p)")
GOOD = BAD.replace("{0,1,2} reshape", "{2,1,0} reshape")


def title(case: Path) -> str:
    return "/".join(case.parts[-2:])


def name_of(text: str) -> DumpName:
    return present(parse_name(text))


def main_pipeline(case: Path) -> Compilation:
    """The pipeline of the program, not of what the autotuner tried."""
    return open_dump(case).compilations[0]


def outcomes_of(compilation: Compilation) -> dict[int | None, Fate]:
    """The fate of a reshape that moves bytes in each dump whose layouts bind, by its step."""
    return {
        step_of(dump): status_of(compilation, dump, RESHAPES_ARE_BITCASTS).outcome
        for dump in compilation.dumps
        if compilation.layouts_bind(dump)
    }


def outcome_of(compilation: Compilation) -> Fate:
    """That in the last of them."""
    return [*outcomes_of(compilation).values()][-1]


def step_of(dump: PassDump) -> int | None:
    return dump.name.step if dump.name else None


def releases(target: Path) -> list[list[str]]:
    dump = open_dump(target)
    return [[release.name for release in compilation.releases] for compilation in dump]


def errors_in(target: Path) -> list[hlo_lint.Diagnostic]:
    return [f for f in hlo_lint.lint(target).findings if f.severity is Severity.ERROR]


def copy_of(case: Path, folder: Path) -> Path:
    return Path(shutil.copytree(case, folder))


def rewrite(folder: Path, bad: Container[int] | None = None) -> Path:
    """Puts a small module in every dump of a folder: a bad one at some steps, or everywhere."""
    for path in sorted(folder.glob("*.txt")):
        step = name_of(path.name).step
        path.write_text(BAD if bad is None or (step is not None and step in bad) else GOOD)
    return folder


def copied(paths: Iterable[Path], folder: Path) -> Path:
    """The folder, with copies of files."""
    for path in paths:
        shutil.copy(path, folder)
    return folder


def without_options(case: Path, folder: Path) -> Path:
    """A copy without the record of flags."""
    copy = copy_of(case, folder / "copy")
    next(copy.glob("*.debug_options")).unlink()
    return copy


# Names


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "module_0012.jit_f.0003.hlo_normalization.after_algsimp.before_cse.txt",
            ("", 12, "jit_f", 3, "hlo_normalization", "algsimp", "cse", ".txt"),
        ),
        (
            "1795266497058651.module_0000.jit_f.0001.cse.after_dce.before_dce.txt",
            ("1795266497058651", 0, "jit_f", 1, "cse", "dce", "dce", ".txt"),
        ),
        (  # from within a pass: no next pass
            "module_0001.jit_f.0319.copy-insertion.after_removing_unnecessary_copies.txt",
            ("", 1, "jit_f", 319, "copy-insertion", "removing_unnecessary_copies", "", ".txt"),
        ),
        (  # a module may have dots in its name
            "module_0005.gemm_fusion_dot.2_computation.0001.cublaslt_rewriter.after_a.before_b.txt",
            ("", 5, "gemm_fusion_dot.2_computation", 1, "cublaslt_rewriter", "a", "b", ".txt"),
        ),
    ],
)
def test_a_step_is_taken_apart(text: str, parts: tuple[str | int, ...]) -> None:
    name = name_of(text)
    assert tuple(name)[: len(parts)] == parts
    without_time = name_of(text.removeprefix(f"{name.timestamp}."))
    assert (name.key != without_time.key) == bool(name.timestamp)


@pytest.mark.parametrize(
    ("rest", "is_final"),
    [
        ("before_optimizations.txt", False),
        ("after_spmd_partitioner.txt", False),
        ("before_config_assignment.txt", False),
        ("cpu_after_optimizations.txt", True),
        ("sm_9.0a_gpu_after_optimizations.txt", True),
        ("sm_8.0_gpu_after_optimizations.hlo.pb", True),
        ("gfx942_gpu_after_optimizations.txt", True),
        ("sm_9.0a_gpu_after_optimizations-buffer-assignment.txt", False),
        ("cpu_after_optimizations-memory-usage-report.txt", False),
        ("thunk_sequence.txt", False),
        ("debug_options", False),
    ],
)
def test_named_dumps_and_artefacts_have_no_step(rest: str, is_final: bool) -> None:
    name = name_of(f"module_0001.jit_f.{rest}")
    assert (name.module, name.step, name.rest, name.is_final) == ("jit_f", None, rest, is_final)


def test_metadata_belongs_to_no_module_by_name() -> None:
    name = name_of("module_0001.metadata.textproto")
    assert (name.module_id, name.module, name.rest) == (1, "", "metadata.textproto")


@pytest.mark.parametrize("text", ["MANIFEST.json", "x.hlo", "module_.txt", "module_1", "", "m.txt"])
def test_what_no_compiler_named_has_no_name(text: str) -> None:
    assert parse_name(text) is None


@pytest.mark.parametrize("case", CASES, ids=title)
def test_every_file_of_a_dump_has_a_name(case: Path) -> None:
    names = [parse_name(path.name) for path in case.iterdir() if path.is_file()]
    assert names.count(None) == 1  # the manifest


# Grouping


def test_files_are_grouped_by_module() -> None:
    assert {compilation.title: len(compilation.dumps) for compilation in open_dump(HELPERS)} == {
        "module_0001.jit_batched_dot": 73,
        "module_0003.wrapped_transpose_computation": 1,
        "module_0004.fused_reduce": 1,
        "module_0005.gemm_fusion_dot.2_computation": 3,
        "module_0006.gemm_fusion_dot.2_computation": 3,
    }


def test_dumps_stand_in_the_order_of_the_run() -> None:
    compilation = main_pipeline(HELPERS)
    numbers = [step_of(dump) for dump in compilation.dumps]
    assert numbers[:2] == [None, None]
    assert numbers[-1] is None
    assert numbers[2:-1] == list(range(70))
    rests = [present(dump.name).rest for dump in compilation.dumps if step_of(dump) is None]
    assert rests[:2] == ["before_optimizations.txt", "after_spmd_partitioner.txt"]
    assert rests[2:] == ["sm_9.0a_gpu_after_optimizations.txt"]


def test_two_compilations_of_one_module_are_told_apart_by_their_time(tmp_path: Path) -> None:
    times = "1795266497058651", "1795266499999999"
    for path in (DUMPS / "cpu-jax0.11.2" / "with_timestamp").glob("1*"):
        for time in times:
            shutil.copy(path, tmp_path / path.name.replace(times[0], time))
    dump = open_dump(tmp_path)
    assert [len(compilation.dumps) for compilation in dump] == [22, 22]
    first = (present(compilation.dumps[0].name) for compilation in dump)
    assert {name.timestamp for name in first} == {*times}


def test_debug_options_without_a_time_belong_to_dumps_that_have_one() -> None:
    compilation = main_pipeline(DUMPS / "cpu-jax0.11.2" / "with_timestamp")
    assert compilation.records_every_change


def test_a_proto_beside_its_text_is_not_read_twice() -> None:
    case = DUMPS / "cpu-jax0.11.2" / "as_proto"
    assert [dump.path.suffix for dump in main_pipeline(case).dumps] == [".txt", ".txt"]


@pytest.mark.parametrize("case", ["as_proto", "as_compressed_proto"])
def test_compile_options_are_no_hlo(case: str) -> None:
    report = hlo_lint.lint(DUMPS / "cpu-jax0.11.2" / case)
    assert (report.stats["files"], report.findings) == (2, ())
    assert not any(entry.reason.startswith(entry.path) for entry in report.skipped)


# Records beside the dumps


def test_debug_options_give_every_value_of_a_flag() -> None:
    options = read_debug_options(
        'xla_disable_hlo_passes: "a"\nxla_disable_hlo_passes: "b"\nxla_dump_to: "d\\"x"\n'
        "xla_flag: 7\n# xla_no: 1\n"
    )
    assert options.values["xla_disable_hlo_passes"] == ("a", "b")
    assert options.values["xla_flag"] == ("7",)
    assert "xla_no" not in options.values
    assert (options.disabled("b"), options.disabled("c")) == (True, False)


def test_a_list_of_the_only_passes_disables_all_others() -> None:
    options = read_debug_options('xla_enable_hlo_passes_only: "cse"\n')
    assert (options.disabled("cse"), options.disabled("reshape-decomposer")) == (False, True)


@pytest.mark.parametrize("case", NO_DECOMPOSER, ids=title)
def test_the_pass_that_a_run_disabled_is_known(case: Path) -> None:
    options = present(main_pipeline(case).options)
    assert options.disabled("reshape-decomposer")
    assert options.pass_pattern == ".*"


def test_metadata_lists_the_passes_that_ran_with_and_without_a_change() -> None:
    compilation = main_pipeline(DUMPS / "gpu-jax0.11.2" / "attention")
    runs = present(compilation.pass_runs)
    assert len(runs) > 300
    written = {name for run in runs for name in run.dumps}
    assert {dump.path.name for dump in compilation.steps} >= written
    assert any(run.changed and run.dumps for run in runs)
    assert any(run.name == "layout_normalization" and not run.changed for run in runs)
    assert main_pipeline(CRASH).pass_runs is None


@pytest.mark.parametrize("text", ["", "pass_metadata {", "pass_metadata {\n}\n", "\x00"])
def test_metadata_that_was_cut_lists_nothing(text: str) -> None:
    assert read_pass_runs(text) == ()


# Releases


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("gpu-jax0.10.0/cublaslt_fission_crash", ["gpu-jax0.10.0"]),
        ("gpu-jax0.10.0/no_reshape_decomposer_crash", ["gpu-jax0.10.0"]),
        ("gpu-jax0.10.2/cublaslt_fission", ["gpu-jax0.10.2"]),
        (
            "gpu-jax0.10.2/no_reshape_decomposer_crash",
            ["gpu-jax0.8.0", "gpu-jax0.9.0", "gpu-jax0.10.2"],
        ),
        ("gpu-jax0.11.2/attention", ["gpu-jax0.11.2"]),
        ("gpu-jax0.11.2/cublaslt_fission", ["gpu-jax0.11.2"]),
        ("gpu-jax0.11.2/no_reshape_decomposer_crash", ["gpu-jax0.11.2"]),
        ("cpu-jax0.10.2/mlp_train", ["cpu-jax0.10.2"]),
        ("cpu-jax0.11.2/mlp_train", ["cpu-jax0.11.2", "cpu-jax0.12.0"]),
        ("cpu-jax0.11.2/with_timestamp", ["cpu-jax0.11.2", "cpu-jax0.12.0"]),
        ("cpu-jax0.11.2/as_proto", []),
    ],
)
def test_a_release_is_known_by_its_passes(case: str, expected: list[str], tmp_path: Path) -> None:
    assert releases(DUMPS / case)[0] == expected
    elsewhere = copy_of(DUMPS / case, tmp_path / "gpu-jax0.10.2" / "cublaslt_fission")
    assert releases(elsewhere)[0] == expected


@pytest.mark.parametrize("case", ["layout_normalization_only", "short_text"])
def test_a_run_of_one_pass_fits_several_releases_its_own_among_them(case: str) -> None:
    (found,) = releases(DUMPS / "gpu-jax0.11.2" / case)
    assert "gpu-jax0.11.2" in found
    assert "gpu-jax0.10.0" not in found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("post-layout_assignment.after_autotuner.before_x", ["gpu-jax0.9.0", "gpu-jax0.10.0"]),
        ("post-layout_assignment.after_x.before_autotuner", ["gpu-jax0.9.0", "gpu-jax0.10.0"]),
        ("autotuner.after_pipeline-start.before_x", ["gpu-jax0.10.2"]),
        ("config-assigner.after_pipeline-start.before_x", ["gpu-jax0.11.2", "gpu-jax0.12.0"]),
        ("nonsense.after_pipeline-start.before_y", []),
    ],
)
def test_a_file_is_recognised_by_its_pass(name: str, expected: list[str], tmp_path: Path) -> None:
    path = tmp_path / f"module_0001.jit_f.0100.{name}.txt"
    path.write_text(BAD)
    assert releases(path) == [expected]
    assert releases(tmp_path) == [expected]


def test_what_one_module_contradicts_holds_of_no_module_of_its_folder(tmp_path: Path) -> None:
    names = (
        "0001.jit_f.0000.async-collective.after_pipeline-start.before_async-collective-replacer",
        "0002.jit_g.0000.sharding-removal.after_flatten-call-graph.before_sharding-remover",
        "0002.jit_g.0001.sharding-removal.after_shardy-xla.before_flatten-call-graph",
        "0002.jit_g.0002.sharding-removal.after_dce.before_shardy-xla",
    )
    paths = [tmp_path / f"module_{name}.txt" for name in names]
    paths[0].write_text(BAD)
    (alone,) = open_dump(tmp_path)
    assert [release.name for release in alone.releases] == ["cpu-jax0.10.2"]
    assert alone.is_of_known_release
    for path in paths[1:]:
        path.write_text(BAD)
    for target in (tmp_path, paths[0]):
        for compilation in open_dump(target):
            assert not compilation.is_of_known_release
            assert compilation.release_title == "XLA:CPU of a release with unknown passes"


def test_a_folder_without_contradictions_tells_the_release_of_its_smallest_module() -> None:
    for archive in ("gpu-jax0.7.2", "gpu-jax0.8.0"):
        folder = open_dump(FIXTURES / "releases" / f"{archive}.tar.xz")
        assert {present(compilation.release).name for compilation in folder} == {archive}


# Layouts and what comes next


@pytest.mark.parametrize("case", [CRASH, *NO_DECOMPOSER], ids=title)
def test_layouts_bind_from_layout_assignment_on(case: Path) -> None:
    compilation = main_pipeline(case)
    names = (dump.name for dump in compilation.steps if dump.name)
    assigned = present(next(name.step for name in names if name.after == "layout-assignment"))
    for dump in compilation.dumps:
        step = step_of(dump)
        assert compilation.layouts_bind(dump) is (step is not None and step >= assigned)


def test_a_pipeline_that_runs_twice_has_two_places() -> None:
    compilation = main_pipeline(DUMPS / "gpu-jax0.11.2" / "attention")
    (release,) = compilation.releases
    starts = [
        compilation.place_range(release, dump)
        for dump in compilation.steps
        if dump.name.pipeline == "float_normalization" and dump.name.after == "pipeline-start"
    ]
    assert starts == [(211, 211), (233, 233)]


def test_layouts_bind_in_the_final_dump_and_not_in_the_first() -> None:
    compilation = main_pipeline(ONLY_ONE_PASS)
    bound = [dump.path.name for dump in compilation.dumps if compilation.layouts_bind(dump)]
    assert len(bound) == len(compilation.dumps) - 2
    assert not any("before_optimizations" in name or "spmd" in name for name in bound)


@pytest.mark.parametrize("case", CASES, ids=title)
def test_what_becomes_of_each_module_is_what_its_manifest_says(case: Path) -> None:
    outcome = json.loads((case / "MANIFEST.json").read_text())["outcome"]
    compiled = outcome == "compiled"
    compilation = main_pipeline(case)
    assert outcome_of(compilation) is (Fate.NEVER if compiled else Fate.BREAKS)
    assert (compilation.final is not None, compilation.crashed) == (compiled, not compiled)
    assert len(errors_in(case)) == (not compiled)


def test_a_pass_that_was_disabled_does_not_die(crash: Path) -> None:
    with next(crash.glob("*.debug_options")).open("a") as options:
        options.write('xla_disable_hlo_passes: "layout_normalization"\n')
    assert outcome_of(main_pipeline(crash)) is Fate.NEVER


def test_before_a_reshape_decomposer_the_reshape_is_repaired() -> None:
    outcomes = outcomes_of(main_pipeline(CRASH))
    repaired = [step for step, outcome in outcomes.items() if outcome is Fate.REPAIRED]
    assert repaired[:2] == [17, 18]
    assert outcomes[30] is outcomes[29] is outcomes[28] is Fate.BREAKS


@pytest.mark.parametrize("case", NO_DECOMPOSER, ids=title)
def test_without_options_the_next_pass_in_a_name_shows_a_cause(case: Path, tmp_path: Path) -> None:
    """Release 0.11.2 names the next pass of the list, others the next that is not disabled."""
    (found,) = hlo_lint.lint(without_options(case, tmp_path)).findings
    assert present(found.introduced_by).pass_name == "layout-assignment"
    is_named = case != NO_DECOMPOSER[2]
    assert found.severity is (Severity.ERROR if is_named else Severity.WARNING)
    assert is_named or "debug_options" in " ".join(found.notes)


@pytest.mark.parametrize("case", [CRASH, *NO_DECOMPOSER], ids=title)
@pytest.mark.parametrize("options", [True, False])
def test_the_last_dump_by_name_is_never_clean(case: Path, options: bool, tmp_path: Path) -> None:
    last = main_pipeline(case).steps[-1].path
    copied((last, *(case.glob("*.debug_options") if options else ())), tmp_path)
    found = hlo_lint.lint(tmp_path / last.name).findings
    if "before_reshape-decomposer" in last.name and not options:
        assert found == ()  # the pass that repairs it is named as the next
    elif options or case == CRASH:
        assert [f.severity for f in found] == [Severity.ERROR]
    else:
        assert len(found) == 1


@pytest.mark.parametrize("case", [CRASH, NO_DECOMPOSER[2]], ids=title)
def test_what_ran_is_cut_short_and_the_last_file_still_tells(case: Path, tmp_path: Path) -> None:
    last = main_pipeline(case).steps[-1].path
    (found,) = hlo_lint.lint(copied((last, *case.glob("*.debug_options")), tmp_path)).findings
    assert (found.severity, Path(found.path).name) == (Severity.ERROR, last.name)


def test_a_crash_before_layout_assignment_binds_nothing(crash: Path) -> None:
    for path in crash.glob("*.txt"):
        step = name_of(path.name).step
        if step is not None and step > 16:
            path.unlink()
    cut = rewrite(crash)
    assert hlo_lint.lint(cut, ["reshape-moves-data"]).findings == ()


def test_a_healthy_run_is_not_fatal_when_its_final_dump_is_lost(tmp_path: Path) -> None:
    for release in ("0.10.2", "0.11.2"):
        copy = copy_of(DUMPS / f"gpu-jax{release}" / "cublaslt_fission", tmp_path / release)
        for path in copy.glob("*after_optimizations*"):
            path.unlink()
        assert errors_in(copy) == []


@pytest.mark.parametrize("case", ["cpu-jax0.10.2/mlp_train", "cpu-jax0.11.2/mlp_train"])
@pytest.mark.parametrize("final", [True, False])
def test_dumps_of_the_cpu_never_bind(case: str, final: bool, tmp_path: Path) -> None:
    copy = rewrite(copy_of(DUMPS / case, tmp_path / "copy"))
    if not final:
        for path in copy.glob("*cpu_after_optimizations*"):
            path.unlink()
    assert hlo_lint.lint(copy, ["reshape-moves-data"]).findings == ()


def test_helper_modules_of_the_autotuner_never_bind(tmp_path: Path) -> None:
    dump = open_dump(rewrite(copied(HELPERS.glob("module_000[3-6]*.txt"), tmp_path)))
    assert all(compilation.is_helper and not compilation.crashed for compilation in dump)
    assert hlo_lint.lint(dump).findings == ()


def test_helper_modules_beside_a_crash_change_nothing(crash: Path) -> None:
    copied(HELPERS.glob("module_000[3-6]*.txt"), crash)
    assert [found.module for found in errors_in(crash)] == ["jit_batched_dot"]


def test_the_caller_may_say_what_comes_next_for_a_helper_too(tmp_path: Path) -> None:
    folder = rewrite(copied(HELPERS.glob("module_0003*0000*.txt"), tmp_path))
    (found,) = hlo_lint.lint(folder, before="layout_normalization").findings
    assert found.severity is Severity.ERROR


# Who is at fault


@pytest.mark.parametrize(
    ("bad", "since", "step"),
    [
        (range(30, 31), "autotuner", 30),
        (range(24, 31), "splitk-rewriter", 24),
        (range(17, 31), "layout-assignment", 17),
        (range(31), "layout-assignment", 17),
        ((17, 18, 30), "autotuner", 30),
        ((20, 21, 22, 27, 28, 29, 30), "gemm-fusion-swap-operands", 27),
    ],
)
def test_one_reshape_through_many_dumps_is_one_finding_with_its_pass(
    bad: Container[int], since: str, step: int, crash: Path
) -> None:
    (found,) = hlo_lint.lint(rewrite(crash, bad), ["reshape-moves-data"]).findings
    guilty = present(found.introduced_by)
    assert (guilty.pass_name, guilty.step) == (since, step)
    assert f".{step:04d}." in guilty.path
    assert present(found.step) >= step


def test_the_finding_stands_at_the_first_dump_in_which_it_binds(crash: Path) -> None:
    (found,) = hlo_lint.lint(rewrite(crash, range(31)), ["reshape-moves-data"]).findings
    outcomes = outcomes_of(main_pipeline(crash))
    binding = {step for step, outcome in outcomes.items() if outcome is Fate.BREAKS}
    assert found.step == min(step for step in binding if step and {*range(step, 31)} <= binding)


@pytest.mark.parametrize("bad", [range(17, 30), range(17), (25,)])
def test_a_reshape_that_is_gone_at_the_end_killed_nobody(bad: Container[int], crash: Path) -> None:
    assert hlo_lint.lint(rewrite(crash, bad), ["reshape-moves-data"]).findings == ()


def test_a_pass_between_two_pipelines_has_no_name(crash: Path) -> None:
    (found,) = hlo_lint.lint(rewrite(crash, range(28, 31)), ["reshape-moves-data"]).findings
    assert (found.introduced_by, found.step) == (None, 28)


@pytest.mark.parametrize("case", NO_DECOMPOSER, ids=title)
def test_layout_assignment_is_at_fault_where_nothing_repairs_what_it_chose(case: Path) -> None:
    (found,) = errors_in(case)
    guilty = present(found.introduced_by)
    assert (guilty.pass_name, guilty.step) == ("layout-assignment", 12)
    assert any("reshape-decomposer" in note and "disabled" in note for note in found.notes)


def test_two_crashes_in_folders_of_one_directory_are_two_findings(tmp_path: Path) -> None:
    copy_of(CRASH, tmp_path / "a" / "deep")
    copy_of(NO_DECOMPOSER[1], tmp_path / "b")
    first, second = hlo_lint.lint(tmp_path).findings
    assert [found.instruction for found in (first, second)] == ["reshape.15", "reshape.1"]
    for found, folder in ((first, "a/deep"), (second, "b")):
        paths = found.path, present(found.introduced_by).path
        assert {Path(path).parent for path in paths} == {tmp_path / folder}


def test_two_crashes_in_one_folder_are_two_findings(crash: Path) -> None:
    for path in sorted(crash.glob("module_0001*")):
        shutil.copy(path, crash / path.name.replace("module_0001", "module_0002"))
    paths = [Path(found.path).name[:11] for found in errors_in(crash)]
    assert paths == ["module_0001", "module_0002"]


# Transitions


def pairs(compilation: Compilation) -> list[tuple[int | None, int | None]]:
    return [(step_of(t.before), step_of(t.after)) for t in compilation.transitions()]


def test_where_every_change_was_dumped_a_pass_met_the_last_dump_of_its_pipeline() -> None:
    followed = {(step, step + 1) for step in (18, 19, 20, 23, 24, 25, 26)}
    assert followed | {(28, 30)} <= set(pairs(main_pipeline(CRASH)))


@pytest.mark.parametrize("case", CASES, ids=title)
def test_a_transition_leads_from_a_dump_outside_of_a_pass_to_one_behind_it(case: Path) -> None:
    for transition in chain.from_iterable(each.transitions() for each in open_dump(case)):
        before, after = present(transition.before.name), present(transition.after.name)
        assert present(before.step) < present(after.step)
        assert after.after != "pipeline-start"
        assert before.before
        assert after.before
        inside = before.pipeline == after.after != after.pipeline
        assert not inside, (transition.before.path.name, transition.after.path.name)


@pytest.mark.parametrize("midst", ["negate", "abs"])
def test_a_pipeline_without_a_dump_as_a_pass_is_not_the_next(tmp_path: Path, midst: str) -> None:
    options = next(CRASH.glob("*.debug_options"))
    shutil.copy(options, tmp_path / "module_0001.m.debug_options")
    steps = {
        "outer.after_pipeline-start.before_convolution-folding": "negate",
        "inner.after_pipeline-start.before_algsimp": midst,
        "inner.after_algsimp.before_pipeline-end": "sine",
        "outer.after_cse.before_pipeline-end": "cosine",
    }
    for step, (place, opcode) in enumerate(steps.items()):
        text = entry(f"  p = f32[] parameter(0)\n  ROOT r = f32[] {opcode}(p)")
        (tmp_path / f"module_0001.m.{step:04}.{place}.txt").write_text(text)
    (compilation,) = open_dump(tmp_path)
    # A pass that had changed the module before runs that pipeline itself.
    assert pairs(compilation) == [(1, 2), (2 if midst == "negate" else 0, 3)]


def test_where_one_pass_was_dumped_only_a_name_makes_a_transition() -> None:
    compilation = main_pipeline(ONLY_ONE_PASS)
    assert not compilation.records_every_change
    assert pairs(compilation) == [(0, 1), (2, 3), (4, 5)]


def test_without_options_dumps_tell_if_every_change_is_there(crash: Path, tmp_path: Path) -> None:
    known = pairs(main_pipeline(crash))
    next(crash.glob("*.debug_options")).unlink()
    assert pairs(main_pipeline(crash)) == known
    main_pipeline(crash).steps[3].path.unlink()
    assert not main_pipeline(crash).records_every_change
    one = main_pipeline(without_options(ONLY_ONE_PASS, tmp_path))
    assert not one.records_every_change
    assert pairs(one) == pairs(main_pipeline(ONLY_ONE_PASS))


# What cannot be read


def reasons(dump: Dump | Path) -> dict[str, str]:
    return {Path(e.path).name: e.reason for e in hlo_lint.lint(dump).skipped}


@pytest.mark.parametrize("name", ["x.hlo", "x.txt", "module_0001.jit_f.before_optimizations.txt"])
@pytest.mark.parametrize("target", ["nothing", "itself"])
def test_a_link_to_nothing_is_skipped_by_name(name: str, target: str, tmp_path: Path) -> None:
    (tmp_path / name).symlink_to(name if target == "itself" else target)
    assert name in reasons(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
@pytest.mark.parametrize("name", ["x.hlo", "x.txt"])
def test_a_file_without_permission_is_skipped_by_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(BAD)
    path.chmod(0)
    assert name in reasons(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user for a while")
def test_a_folder_that_cannot_be_listed_is_skipped_by_name(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    (tmp_path / "closed").mkdir()
    (tmp_path / "x.hlo").write_text(GOOD)
    (tmp_path / "closed" / "x.hlo").write_text(GOOD)
    (tmp_path / "closed").chmod(0)
    hlo_lint.open_dump(tmp_path)
    os.seteuid(65534)
    try:
        some, none = (hlo_lint.open_dump(path) for path in (tmp_path, tmp_path / "closed"))
    finally:
        os.seteuid(0)
    (closed,), (given,) = some.skipped, none.skipped
    assert (closed.path, closed.given) == (str(tmp_path / "closed"), False)
    assert closed.reason == "cannot be listed: Permission denied"
    assert (given.reason, given.given) == ("it cannot be listed: Permission denied", True)


def test_a_pipe_in_a_directory_does_not_stop_the_run(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.txt")
    os.mkfifo(tmp_path / "module_0001.jit_f.debug_options")
    (tmp_path / "module_0001.jit_f.before_optimizations.txt").write_text(GOOD)
    program = f"import hlo_lint; print(hlo_lint.lint({str(tmp_path)!r}).stats['files'])"
    done = completed([sys.executable, "-c", program], env={"PYTHONPATH": str(ROOT)}, timeout=5)
    assert done.stdout == "1\n"


@pytest.mark.parametrize("name", ["x.hlo", "module_0001.jit_f.before_optimizations.txt"])
def test_an_empty_file_by_name_is_no_hlo_and_no_reason_to_raise(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    (found,) = hlo_lint.lint(tmp_path / name).findings
    assert found.rule == "unreadable-text"


def test_a_directory_of_nothing_or_of_an_empty_text_holds_nothing(tmp_path: Path) -> None:
    empty = hlo_lint.lint(tmp_path)
    assert [skipped.reason for skipped in empty.skipped] == ["there is no HLO in it"]
    (tmp_path / "x.txt").touch()
    for report in (empty, hlo_lint.lint(tmp_path)):
        assert (report.findings, report.stats["files"], len(report.skipped)) == ((), 0, 1)


def test_a_dump_that_was_cut_in_the_middle_is_read_as_far_as_it_goes(crash: Path) -> None:
    last = main_pipeline(crash).steps[-1].path
    text = last.read_text()
    last.write_text(text[: text.index("%constant = ")])
    rules = {found.rule for found in hlo_lint.lint(crash).findings}
    assert rules >= {"reshape-moves-data", "unreadable-text"}


def test_records_that_are_no_text_are_no_reason_to_raise(crash: Path) -> None:
    next(crash.glob("*.debug_options")).write_bytes(bytes(range(256)))
    (crash / "module_0001.metadata.textproto").write_bytes(bytes(range(256)))
    assert len(errors_in(crash)) == 1


def test_a_dump_without_those_of_passes_says_so_once(tmp_path: Path) -> None:
    text = entry("  ROOT c = s32[] constant(0)")
    for number in (1, 2):
        path = tmp_path / f"module_000{number}.jit_f.cpu_after_optimizations.txt"
        path.write_text(text)
    reasons = [skipped.reason for skipped in open_dump(tmp_path).skipped]
    assert reasons == [NO_PASSES]
    assert not open_dump(path).skipped  # given by name
    (tmp_path / "module_0001.jit_f.0001.simplification.after_dce.before_cse.txt").write_text(text)
    assert not open_dump(tmp_path).skipped
