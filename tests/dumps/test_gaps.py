"""Dumps that an earlier run left in a folder are not mixed with those of the last one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from hlo_lint.dumps.directory import open_dump
from hlo_lint.dumps.gaps import EARLIER
from tests.conftest import FIXTURES, written
from tests.texts import entry

TEXT = entry("  ROOT c = s32[] constant(0)")
FIRST = ("0000.a.after_pipeline-start.before_x", "0001.a.after_x.before_y", "0002.a.after_y")
SECOND = ("0000.a.after_pipeline-start.before_x", "0001.a.after_z.before_y")


def run(folder: Path, steps: tuple[str, ...], time: float) -> None:
    """Write what a run writes, at a time in seconds."""
    names = ("before_optimizations", *steps, "cpu_after_optimizations")
    for number, name in enumerate(names):
        path = written(folder / f"module_0001.jit_f.{name}.txt", TEXT)
        os.utime(path, (time + number / 1000,) * 2)


def read(folder: Path) -> tuple[list[str], int]:
    """The steps that are read, and the number of files that an earlier run left."""
    dump = open_dump(folder)
    (compilation,) = dump.compilations
    steps = [step.path.name.removeprefix("module_0001.jit_f.") for step in compilation.steps]
    return steps, sum(entry.reason == EARLIER for entry in dump.skipped)


def test_what_an_earlier_run_left_is_passed_over(tmp_path: Path) -> None:
    run(tmp_path, FIRST, 1_000_000)
    run(tmp_path, SECOND, 1_000_060)
    assert read(tmp_path) == ([f"{step}.txt" for step in SECOND], 2)


def test_in_a_copy_times_say_nothing(tmp_path: Path) -> None:
    run(tmp_path, FIRST, 1_000_000)
    run(tmp_path, SECOND, 1_000_000.5)
    steps, left = read(tmp_path)
    assert (len(steps), left) == (4, 0)


def test_steps_of_one_run_stay_whatever_their_times(tmp_path: Path) -> None:
    run(tmp_path, FIRST, 1_000_000)
    os.utime(tmp_path / "module_0001.jit_f.before_optimizations.txt", (2_000_000,) * 2)
    steps, left = read(tmp_path)
    assert (len(steps), left) == (3, 0)


@pytest.mark.parametrize("death", ["copy_left", "stable_sort"])
def test_a_module_that_was_not_emitted_is_named(death: str) -> None:
    (gap,) = open_dump(FIXTURES / "deaths" / death).skipped
    assert "the emission of module_0001.jit_program" in gap.reason


def test_thunks_beside_a_module_show_its_emission(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "deaths" / "copy_left", tmp_path, dirs_exist_ok=True)
    (tmp_path / "module_0001.jit_program.thunk_sequence.txt").write_text("000: kGemm")
    assert not any("emission" in entry.reason for entry in open_dump(tmp_path).skipped)
