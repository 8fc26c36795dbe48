"""`passes` on a compilation: counts add up, a new name is not a change."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from hlo_lint.analysis.pass_stats import Effect, PassStats, passes
from hlo_lint.dumps.directory import open_dump
from hlo_lint.dumps.run_records import read_pass_runs
from hlo_lint.dumps.selection import dump_at, in_order, longest_run
from hlo_lint.text.errors import UsageError
from tests.apps.test_cli import run
from tests.conftest import CRASH, DUMPS, FIXTURES, present
from tests.texts import entry

ATTENTION = DUMPS / "gpu-jax0.11.2" / "attention"
BEFORE = entry("""
  p = f32[4,8]{1,0} parameter(0)
  a = f32[4,8]{1,0} negate(p)
  b = f32[4,8]{1,0} abs(a)
  ROOT c = f32[4,8]{1,0} copy(b)
""")
BODY = """\
fused {
  q = f32[4,8]{1,0} parameter(0)
  a.1 = f32[4,8]{1,0} negate(q)
  ROOT b.1 = f32[4,8]{1,0} abs(a.1)
}

"""
FUSED = entry(
    """
  p = f32[4,8]{1,0} parameter(0)
  f = f32[4,8]{1,0} fusion(p), kind=kLoop, calls=fused
  ROOT c = f32[4,8]{1,0} copy(f)
""",
    BODY,
)


def steps_of(folder: Path, *texts: str) -> list[PassStats]:
    """The steps of a run that left these texts, one pass each."""
    for number, text in enumerate(texts):
        name = f"module_0001.jit_f.{number:04d}.p.after_pass{number}.before_pass{number + 1}.txt"
        (folder / name).write_text(text)
    return list(passes(longest_run(folder, None)))


def test_the_first_dump_is_counted_as_a_whole(tmp_path: Path) -> None:
    (step,) = steps_of(tmp_path, BEFORE)
    assert (step.effect, step.instructions, step.fusions) == (Effect.FIRST, 4, 0)
    assert (step.added, step.removed) == ({}, {})


def test_a_fusion_takes_arrays_out_of_memory(tmp_path: Path) -> None:
    _, step = steps_of(tmp_path, BEFORE, FUSED)
    assert step.effect is Effect.CHANGED
    assert (step.added, step.removed) == ({"parameter": 1, "fusion": 1}, {})
    assert (step.bytes_added, step.bytes_removed) == (0, 4 * 8 * 4)
    assert (step.instructions, step.fusions) == (6, 1)


def test_a_name_that_changes_is_no_change(tmp_path: Path) -> None:
    renamed = FUSED.replace("fused", "other").replace(" f ", " g ").replace("(f)", "(g)")
    _, same, names, layout = steps_of(
        tmp_path, FUSED, FUSED, renamed, renamed.replace("{1,0} copy", "{0,1} copy")
    )
    effects = [step.effect for step in (same, names, layout)]
    assert effects == [Effect.NOTHING, Effect.NAMES, Effect.CHANGED]
    assert (names.added, names.removed, names.bytes_added) == ({}, {}, 0)
    assert (layout.added, layout.bytes_added, layout.bytes_removed) == ({}, 128, 128)


def test_what_nobody_calls_any_more_takes_no_memory(tmp_path: Path) -> None:
    _, _, step = steps_of(tmp_path, BEFORE, FUSED, BEFORE.replace("ENTRY", f"{BODY}ENTRY"))
    assert (step.bytes_added, step.bytes_removed) == (128, 0)


@pytest.mark.parametrize("folder", [ATTENTION, CRASH, *sorted((FIXTURES / "bisect").glob("*/all"))])
def test_counts_add_up_from_dump_to_dump(folder: Path) -> None:
    compilation = longest_run(folder, None)
    first, *steps = list(passes(compilation))
    opcodes = Counter(i.opcode for i in in_order(compilation)[0].module.instructions())
    assert first.instructions == opcodes.total()
    for step in steps:
        opcodes.update(step.added)
        opcodes.subtract(step.removed)
        assert +opcodes == Counter(i.opcode for i in step.dump.module.instructions())
        assert step.instructions == opcodes.total()
        assert step.fusions == opcodes["fusion"]


def test_what_xla_says_it_changed_has_changed() -> None:
    """XLA's own record of the run: a pass that reports no change left the same text."""
    compilation = longest_run(ATTENTION, None)
    runs = {name: run for run in compilation.pass_runs or () for name in run.dumps}
    reported = [
        (step, runs[step.dump.path.name])
        for step in passes(compilation)
        if step.dump.path.name in runs and step.name != "pipeline-start"
    ]
    assert len(reported) > 20
    for step, run_of in reported:
        assert run_of.changed
        assert step.microseconds == run_of.microseconds
        assert step.microseconds is not None
    text = present(compilation.artefact(".metadata.textproto"))
    assert sum(r.microseconds or 0 for r in read_pass_runs(text)) > 1000
    assert all(r.microseconds is None for r in read_pass_runs(re.sub(r".*timestamp.*", "", text)))


def test_dumps_whose_place_is_not_known_are_left_out() -> None:
    names = [dump.path.name for dump in in_order(longest_run(ATTENTION, None))]
    assert not [name for name in names if "after_spmd" in name or "before_config" in name]
    assert "before_optimizations" in names[0]
    assert "after_optimizations" in names[-1]


@pytest.mark.parametrize(
    ("which", "step"), [("30", 30), ("0030", 30), ("autotuner", 30), ("reshape-decomposer", 19)]
)
def test_a_dump_is_named_by_its_step_or_its_pass(which: str, step: int) -> None:
    name = present(dump_at(longest_run(CRASH, "jit_batched_dot"), which).name)
    assert name.step == step
    with pytest.raises(UsageError, match="has no dump nothing"):
        dump_at(longest_run(CRASH, None), "nothing")


# ---- the command


def test_passes_prints_a_table() -> None:
    lines = run("passes", str(CRASH), "--changed").out.splitlines()
    assert lines[0] == "module_0001.jit_batched_dot"
    assert lines[1].split() == "step pipeline pass changed bytes fusions ms instructions".split()
    last = lines[-1].split(maxsplit=3)
    assert last[:3] == ["0030", "post-layout_assignment", "autotuner"]
    assert "+3 reshape" in last[3]
    assert "-1 fusion" in last[3]


def test_passes_as_json_has_a_time_for_each_pass() -> None:
    (module,) = run("passes", str(ATTENTION), "--output-format", "json").json["modules"]
    assert module["module"] == "module_0001.jit_grouped_attention"
    row = next(row for row in module["passes"] if row["pass"] == "dot_decomposer")
    assert row["changed"] == "yes"
    assert row["added"] == {"reshape": 6, "transpose": 4}
    assert row["microseconds"] > 0


def test_a_directory_without_dumps_is_wrong_use(tmp_path: Path) -> None:
    shutil.copy(next(CRASH.glob("*0030*")), tmp_path / "loose.hlo")
    ran = run("passes", str(tmp_path))
    assert ran.status == 2
    assert "no compiler's dumps are in it" in ran.errors


def test_without_times_of_xla_those_between_the_files_count(tmp_path: Path) -> None:
    steps = ["before_optimizations", "0001.fusion.after_cse.before_dce", "cpu_after_optimizations"]
    files = [tmp_path / f"module_0001.jit_f.{step}.txt" for step in steps]
    for number, file in enumerate(files):
        file.write_text(BEFORE)
        os.utime(file, ns=(0, 10**9 + number * 7_000_000))
    (compilation,) = open_dump(tmp_path)
    assert [step.microseconds for step in passes(compilation)] == [None, 7000, 7000]
    os.utime(files[0], ns=(0, 3 * 10**9))  # as a copy in the order of the names has it
    (compilation,) = open_dump(tmp_path)
    assert [step.microseconds for step in passes(compilation)] == [None, None, None]
