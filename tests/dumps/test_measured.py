"""Profiles of real runs, and bytes that are none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hlo_lint.dumps.artefacts.measured import find_measured, read_measured
from hlo_lint.dumps.selection import longest_run
from hlo_lint.engine.cost_figures import final_module, measured_kernels
from hlo_lint.text.errors import DumpError, PayloadError
from tests.conftest import FIXTURES, present

PROFILES = FIXTURES / "profiles"


def test_each_instruction_has_its_time_in_one_run() -> None:
    """The program ran five times; its loop has two iterations."""
    compilation = longest_run(PROFILES / "all", None)
    measured = present(find_measured(PROFILES / "all"))
    names = {instruction.name for instruction in final_module(compilation).instructions()}
    assert {name for module, name in measured.runs if module == "jit_step"} <= names
    assert measured.runs["jit_step", "ynn_fusion"] == 10
    longest, *_ = measured_kernels(compilation, measured)
    assert longest.instruction.opcode == "fusion"
    assert longest.seconds == measured.picoseconds["jit_step", longest.instruction.name] * 1e-12 / 5
    assert str(longest.origin).startswith("profiled.py:")
    # A profile has an event for the whole loop, too: it would count twice.
    assert any(name.startswith("while") for _, name in measured.runs)
    opcodes = {kernel.instruction.opcode for kernel in measured_kernels(compilation, measured)}
    assert "while" not in opcodes


def test_a_folder_without_a_profile_measured_nothing(tmp_path: Path) -> None:
    assert find_measured(tmp_path) is None
    assert find_measured(tmp_path / "absent") is None


def test_a_profile_is_found_where_jax_writes_it(tmp_path: Path) -> None:
    folder = tmp_path / "plugins" / "profile" / "2026_01_01"
    folder.mkdir(parents=True)
    shutil.copy(PROFILES / "all" / "host.xplane.pb", folder)
    assert find_measured(tmp_path) == find_measured(PROFILES / "all")


@pytest.mark.parametrize("data", [b"\x0a\xff", b"\x0a\x02\x1a\x07", b"HloModule m"])
def test_bytes_that_are_no_profile_are_named(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(PayloadError):
        read_measured(data)
    (tmp_path / "broken.xplane.pb").write_bytes(data)
    with pytest.raises(DumpError, match=r"broken.xplane.pb: not a profile"):
        find_measured(tmp_path)


def test_no_cut_of_a_profile_raises_anything_else() -> None:
    data = (PROFILES / "all" / "host.xplane.pb").read_bytes()
    for end in range(0, len(data), 997):
        try:
            read_measured(data[:end])
        except PayloadError:
            continue
