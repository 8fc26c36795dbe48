"""After a fix of a dump: what helps the next compile."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.commands import invoke
from tests.conftest import CRASH

NO_COMPILE = "note: editing a dump does not change the next compile"


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CRASH, tmp_path / "dump"))


def fixed(*arguments: str) -> str:
    return invoke("fix", "--in-place", *arguments).output


def test_the_last_lines_name_the_line_of_python_and_the_release_that_mends_it(dump: Path) -> None:
    *_, first, second = fixed(str(dump)).splitlines()
    assert first.startswith(NO_COMPILE)
    assert second == (
        "note: reshape-moves-data comes from programs.py:40 in batched_dot; "
        "since jax 0.10.2 XLA runs reshape-decomposer before each layout_normalization"
    )
    assert NO_COMPILE not in fixed(str(dump))  # nothing is left to fix


def test_a_flag_that_switches_the_repair_off_is_named(dump: Path) -> None:
    (options,) = dump.glob("*.debug_options")
    with options.open("a") as file:
        file.write('xla_disable_hlo_passes: "reshape-decomposer"\n')
    assert fixed(str(dump)).endswith(
        "XLA_FLAGS disables reshape-decomposer, which repairs it (xla_disable_hlo_passes)\n"
    )


@pytest.mark.parametrize("option", ["--quiet", "--fix-only", "--diff"])
def test_hooks_and_differences_get_no_advice(dump: Path, option: str) -> None:
    assert NO_COMPILE not in fixed(option, str(dump))


def test_a_text_of_a_repository_gets_none(tmp_path: Path, dump: Path) -> None:
    (file,) = dump.glob("*.0030.*.txt")
    text = shutil.copy(file, tmp_path / "reshape.hlo")
    printed = fixed("--before", "layout_normalization", str(text))
    assert "fixed 1 finding" in printed
    assert NO_COMPILE not in printed
