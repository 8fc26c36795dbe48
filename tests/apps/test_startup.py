"""A check of a small file imports what it needs: most of its time is that of imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hlo_lint.engine.input_size import CACHE_MIN_BYTES
from hlo_lint.rules import index
from tests.conftest import completed

TEXT = """\
HloModule m

ENTRY e {
  p = f32[8]{0} parameter(0)
  ROOT n = f32[8]{0} negate(p)
}
"""
MAX_MODULES = 127
MAX_MODULES_OF_A_HIT = 103
LATE = (
    *"concurrent ctypes html importlib.resources jax jinja2 json lark multiprocessing".split(),
    *"networkx numpy pathspec pickle pkgutil rich shutil sqlite3 subprocess tempfile".split(),
    *("tomllib", "xml"),
)
"""Modules that no plain check needs."""
CHECK = """\
import sys
from hlo_lint.apps.cli.program import main
sys.argv[1:] = ["check", "small.hlo"]
try:
    main()
except SystemExit as end:
    assert end.code in (0, 1)
"""
RULES = {
    "form.dropped_operand", "form.malformed_text", "form.unknown_word", "form.unreadable_text",
    "layout.layout_changed", "memory.huge_temporary", "verifier.bad_schedule",
    "verifier.broken_structure", "verifier.invalid_layout", "verifier.mixed_float_operands",
    "verifier.wrong_result_shape",
}  # fmt: skip
"""The rules that have something to look at in the text."""


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    """The modules that a check of the text has imported."""
    # A rule that was edited since the index was written is imported and asked; test_index.py holds
    # that the index is what it would say.
    Path(index.__file__).touch()
    folder = tmp_path_factory.mktemp("startup")
    (folder / "small.hlo").write_text(TEXT)
    return imported(CHECK, folder)


def imported(program: str, folder: Path, **variables: str) -> frozenset[str]:
    shown = "\nimport sys; print(*sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", program + shown]
    done = completed(command, cwd=folder, check=True, env={**os.environ, **variables})
    return frozenset(done.stderr.split())


def test_a_check_imports_the_rules_that_have_something_to_look_at(modules: frozenset[str]) -> None:
    rules = {
        ".".join(name.split(".")[-2:])
        for name in modules
        if ".rules." in name and len(name.partition(".rules.")[2].split(".")) == 2
    }
    assert rules == RULES


def test_a_check_imports_few_modules(modules: frozenset[str]) -> None:
    own = {name for name in modules if name.startswith("hlo_lint")}
    assert len(own) <= MAX_MODULES, sorted(own)
    assert not {top for name in modules for top in (name, name.partition(".")[0])} & set(LATE)


def test_a_check_of_what_is_known_imports_no_rule(tmp_path: Path) -> None:
    """Neither the rules, nor the verifier, nor shape inference: the cache has what they found."""
    (tmp_path / "small.hlo").write_text(TEXT + "\n" * CACHE_MIN_BYTES)
    for _ in range(2):
        modules = imported(CHECK, tmp_path, HLO_LINT_CACHE_DIR=str(tmp_path))
    own = {name for name in modules if name.startswith("hlo_lint")}
    assert not {name for name in own if name.count(".") == 3 and ".rules." in name}
    assert not {name for name in own if "verifier" in name or "shape_inference" in name}
    assert len(own) <= MAX_MODULES_OF_A_HIT, sorted(own)


def test_a_report_that_no_terminal_shows_needs_no_rich(tmp_path: Path) -> None:
    (tmp_path / "small.hlo").write_text(TEXT.replace("ROOT n = f32[8]", "ROOT n = f32[9]"))
    modules = imported(CHECK, tmp_path)
    assert "hlo_lint.report.text" in modules
    assert "rich" not in modules


def test_the_package_imports_nothing_of_its_own(tmp_path: Path) -> None:
    """Until a name is asked for: pytest imports it for its plug-in in every run."""
    own = {name for name in imported("import hlo_lint", tmp_path) if name.startswith("hlo_lint")}
    assert own == {"hlo_lint"}


def test_packages_are_asked_for_commands_only_if_the_word_is_not_ours(tmp_path: Path) -> None:
    own, other = (
        imported(CHECK.replace("(0, 1)", "(0, 1, 2)").replace('"check"', word), tmp_path)
        for word in ('"rules"', '"rule"')
    )
    name = "hlo_lint.apps.cli.other_packages"
    assert (name in own, name in other) == (False, True)


def test_every_command_prints_its_help_without_the_extras() -> None:
    code = """\
import sys
from click.testing import CliRunner
for name in ("numpy", "ml_dtypes", "jax", "jaxlib", "google.protobuf", "pygls", "fsspec"):
    sys.modules[name] = None
from hlo_lint.apps.cli.main import COMMANDS, cli
for name in COMMANDS:
    ran = CliRunner().invoke(cli, [name, "--help"])
    assert ran.exit_code == 0 and ran.output.startswith("Usage: "), (name, ran.output)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
