"""`hlo-lint exec`: a program runs with its compiles dumped, and they are checked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hlo_lint.apps.cli.exec import environment
from hlo_lint.apps.cli.main import cli
from hlo_lint.apps.cli.xla_flags import dumped_to, knows_emitters, quoted
from hlo_lint.text.errors import UsageError
from tests.conftest import started

PROGRAM = """\
import os, sys
import jax, jax.numpy as jnp
print(os.environ["XLA_FLAGS"], flush=True)
jax.jit(lambda x: jnp.tanh(x) + 1)(jnp.ones(8)).block_until_ready()
print("compiled", flush=True)
if "hang" in sys.argv:
    import time
    time.sleep(100)
"""
EXEC = [sys.executable, "-m", "hlo_lint", "exec"]


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(PROGRAM)


def execute(*words: str) -> Result:
    return CliRunner().invoke(cli, ["exec", *words])


@pytest.mark.slow
def test_a_program_runs_and_its_dumps_are_checked_validated_and_drawn() -> None:
    flags = {**os.environ, "XLA_FLAGS": "--xla_cpu_enable_fast_math=false --xla_dump_to=mine"}
    done = subprocess.run(
        [*EXEC, "--validate", "--report", "page.html", sys.executable, "model.py"],
        capture_output=True,
        text=True,
        env=flags,
    )
    assert done.returncode == 0, done.stderr
    folder = Path("hlo-dump").absolute()
    assert done.stdout.startswith(f"{flags['XLA_FLAGS']} --xla_dump_to={folder} ")
    assert "no findings in" in done.stdout
    assert ": 0 changed" not in done.stdout
    assert "equal" in done.stdout
    assert done.stderr.startswith("hlo-lint: its dumps are in hlo-dump\n")
    assert list(Path("hlo-dump").glob("*.jit__lambda.*.after_*.txt"))
    assert Path("page.html").read_text().startswith("<!DOCTYPE html>")
    assert not Path("mine").exists()


@pytest.mark.slow
def test_ctrl_c_ends_the_program_and_what_it_dumped_is_checked() -> None:
    with started(
        [*EXEC, sys.executable, "model.py", "hang"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        while process.stdout.readline() != "compiled\n":
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "hlo-lint: the program exited with 130; its dumps are in hlo-dump\n" in errors
    assert "no findings in" in out


def test_the_exit_status_of_the_program_is_kept() -> None:
    ran = execute(sys.executable, "-c", "import sys; sys.exit(3)")
    assert ran.exit_code == 3
    assert ran.stderr == "hlo-lint: the program exited with 3 before XLA compiled anything\n"
    assert not Path("hlo-dump").exists()


def test_a_program_that_compiles_nothing_is_not_clean() -> None:
    ran = execute(sys.executable, "-c", "")
    assert ran.exit_code != 0
    assert "compiled nothing with XLA: it left no dump" in ran.stderr


def test_a_program_that_cannot_be_started_leaves_no_folder() -> None:
    ran = execute("./model.py")
    assert "./model.py: cannot be started: Permission denied" in ran.stderr
    assert not Path("hlo-dump").exists()


def test_dumps_of_two_runs_are_not_mixed() -> None:
    ran = execute("--dump-to", ".", "true")
    assert ". is not empty: dumps of two runs in it would be mixed" in ran.stderr


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (None, "--xla_dump_to={} --xla_dump_hlo_pass_re=.*"),
        ("--xla_a=1", "--xla_a=1 --xla_dump_to={} --xla_dump_hlo_pass_re=.*"),
        ("--xla_dump_hlo_pass_re=.+", "--xla_dump_hlo_pass_re=.+ --xla_dump_to={}"),
        ("flags.txt", "--xla_b=2 --xla_c=3 --xla_dump_to={} --xla_dump_hlo_pass_re=.*"),
    ],
)
def test_other_flags_stay(flags: str | None, expected: str) -> None:
    Path("flags.txt").write_text("--xla_b=2\n--xla_c=3\n")
    variables = {"HOME": "h"} | ({} if flags is None else {"XLA_FLAGS": flags})
    made = environment(variables, Path("d"), ["true"])
    assert made["XLA_FLAGS"] == expected.format(Path("d").absolute())
    assert made["HOME"] == "h"
    assert made["JAX_ENABLE_COMPILATION_CACHE"] == "false"


@pytest.mark.slow
def test_a_path_with_a_space_and_quotes_is_dumped_to() -> None:
    folder = Path("a b", "c\"d'e\\f")
    ran = subprocess.run(
        [*EXEC, "--dump-to", folder, sys.executable, "model.py"], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert "--xla_dump_emitter_re=.*" in ran.stdout
    assert list(folder.glob("*.jit__lambda.*.after_*.txt"))


def test_a_release_without_the_flag_of_the_emitters_does_not_get_it() -> None:
    Path("jaxlib").mkdir()
    Path("jaxlib", "__init__.py").touch()
    library = Path("jaxlib", "xla.so")
    variables = {**os.environ, "PYTHONPATH": os.getcwd()}
    for text, expected in (("", False), ("xla_dump_emitter_re", True)):
        library.write_text(f"xla_dump_hlo_pass_re {text}")
        program = [sys.executable, "model.py"]
        assert knows_emitters(program, variables) is expected
    Path("jaxlib", "plugin.so").write_text("xla_dump_hlo_pass_re")
    assert not knows_emitters(program, variables)


def test_a_file_of_flags_that_is_not_there_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"^XLA_FLAGS: nowhere: cannot be read"):
        environment({"XLA_FLAGS": "nowhere"}, Path("d"), ["true"])


@pytest.mark.parametrize("folder", ["/d", "/a b", '/a"b', "/a'b\\c d"])
def test_the_folder_of_the_dumps_is_read_from_flags(folder: str) -> None:
    assert dumped_to(f"--xla_a=1 --xla_dump_to={quoted(folder)} --xla_b=2") == folder


def test_flags_that_dump_to_no_folder() -> None:
    assert dumped_to("--xla_dump_to=-") is None
    assert dumped_to("--xla_dump_to='/a b'") == "/a b"
