"""`hlo-lint exec`: a program runs with its compiles dumped, and they are checked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hlo_lint.apps.cli.ending import ProgramEnd, PythonPlace, python_place
from hlo_lint.apps.cli.exec import environment
from hlo_lint.apps.cli.main import cli
from hlo_lint.apps.cli.xla_flags import dumped_to, knows_emitters, quoted
from hlo_lint.dumps.directory import open_dump
from hlo_lint.engine.values.given import read_inputs
from hlo_lint.text.errors import UsageError
from tests.conftest import PIPES, completed, present, started

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
def test_the_inputs_of_a_program_are_recorded_and_validate_begins_with_them() -> None:
    """The second parameter is not used, so XLA never sees it; the state is donated."""
    Path("step.py").write_text(
        "import jax, jax.numpy as jnp\n"
        "step = jax.jit(lambda s, _, x: s['a'] / x, donate_argnums=0)\n"
        "for x in (3, 4):\n"
        "    step({'a': jnp.arange(2.0, dtype='bfloat16')}, 1, jnp.float32(x))\n"
    )
    words = ["--record-inputs", "-q", "--dump-to", "dump", sys.executable, "step.py"]
    done = subprocess.run([*EXEC, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = Path("dump").glob("*.jit__lambda.inputs.npz")
    module = path.name.removesuffix(".inputs.npz")
    given = read_inputs(path, open_dump("dump")[module].dumps[0].module)
    assert [array.tolist() for array in given.values()] == [[0, 1], 3]
    final = next(Path("dump").glob(f"{module}.*after_optimizations.txt"))
    final.write_text(final.read_text().replace("divide", "multiply"))
    ran = CliRunner().invoke(cli, ["validate", "dump", "--module", module, "--show-inputs"])
    assert ran.exit_code == 1
    assert ", given, shows" in ran.output
    assert "inputs are made up" not in ran.output


def test_a_program_without_jax_records_no_inputs() -> None:
    Path("plain.py").write_text("import os; os.mkdir('dump/module_0000.f')\n")
    done = completed([*EXEC, "--record-inputs", "--dump-to", "dump", sys.executable, "plain.py"])
    assert "no inputs were recorded: no jax ran a module" in done.stderr


@pytest.mark.slow
def test_a_program_runs_and_its_dumps_are_checked_validated_and_drawn() -> None:
    flags = {**os.environ, "XLA_FLAGS": "--xla_cpu_enable_fast_math=false --xla_dump_to=mine"}
    done = completed(
        [*EXEC, "--validate", "--report", "page.html", sys.executable, "model.py"], env=flags
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
    command = [*EXEC, sys.executable, "model.py", "hang"]
    with started(command, start_new_session=True, **PIPES) as process:
        while present(process.stdout).readline() != "compiled\n":
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "hlo-lint: its dumps are in hlo-dump; its log is hlo-dump.log\n" in errors
    assert "hlo-lint: the program was interrupted\n" in errors
    assert "no findings in" in out


def test_the_exit_status_of_the_program_is_kept() -> None:
    ran = execute(sys.executable, "-c", "import sys; sys.exit(3)")
    assert ran.exit_code == 3
    assert ran.stderr == (
        "hlo-lint: the program exited with 3\nwhere: before XLA compiled anything\n"
    )
    assert not Path("hlo-dump").exists()


def test_a_program_that_compiles_nothing_is_not_clean() -> None:
    ran = execute(sys.executable, "-c", "")
    assert ran.exit_code != 0
    assert "compiled nothing with XLA: it left no dump" in ran.stderr


def test_a_program_that_cannot_be_started_leaves_no_folder() -> None:
    ran = execute("./model.py")
    assert "./model.py: cannot be started: Permission denied" in ran.stderr
    assert not Path("hlo-dump").exists()
    assert not Path("hlo-dump.log").exists()


DIE = """\
import os, shlex, shutil, signal, sys, time
from pathlib import Path
def die():
    {death}
[dump] = [f[14:] for f in shlex.split(os.environ["XLA_FLAGS"]) if f.startswith("--xla_dump_to=")]
if sys.argv[1:]:
    shutil.copytree(sys.argv[1], dump, dirs_exist_ok=True)
die()
"""
DUMPS = Path(__file__).parents[2] / "fixtures" / "dumps"
DIED = DUMPS / "gpu-jax0.10.2" / "no_reshape_decomposer_crash"
ENDED = DUMPS / "cpu-jax0.10.2"
CHECK_FAILED = "F1128 10:49:23.644469 25763 layout_normalization.cc:431] Check failed: is_bitcast"


def page_of(death: str, dumps: Path | None = None, *options: str) -> list[str]:
    """The page after a program that dies with the dumps of another program."""
    Path("die.py").write_text(DIE.format(death=death))
    words = [*options, sys.executable, "die.py", *([] if dumps is None else [str(dumps)])]
    ran = subprocess.run([*EXEC, "--quiet", *words], capture_output=True, text=True)
    assert ran.returncode != 0
    lines = ran.stderr.splitlines()
    return lines[max(n for n, line in enumerate(lines) if line.startswith("hlo-lint: ")) :]


@pytest.mark.parametrize(
    ("death", "first"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "died of SIGSEGV"),
        ("os.abort()", "died of SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGBUS)", "died of SIGBUS"),
        ("time.sleep(100)", "hung: 0.5 s without a line or a dump; it was killed"),
    ],
)
def test_a_signal_and_a_hang_lead_to_the_line(death: str, first: str) -> None:
    options = ["--hang-seconds", "0.5"] if "sleep" in death else []
    lines = page_of(death, None, *options)
    assert lines[0] == f"hlo-lint: the program {first}"
    assert lines[1] == "where: before XLA compiled anything"
    assert lines[2].startswith("Python: ")
    assert lines[2].endswith("die.py:4 in die")


def test_each_rank_has_a_folder_and_the_page_leads_to_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for rank in "01":
        monkeypatch.setenv("SLURM_PROCID", rank)
        lines = page_of("os.abort()", DIED)
        assert Path("hlo-dump", f"rank{rank}.log").exists()
    assert len(list(Path("hlo-dump", "rank1").glob("*.txt"))) > 1
    assert "next: hlo-lint ranks hlo-dump" in lines


def test_each_process_of_a_launcher_has_a_folder(tmp_path: Path) -> None:
    launcher = tmp_path / "torchrun"
    launcher.write_text(
        f"#!{sys.executable}\nimport os, subprocess, sys\n"
        "for rank in '01':\n"
        "    subprocess.run([sys.executable, *sys.argv[1:]], env={**os.environ, 'RANK': rank})\n"
        "sys.exit(3)\n"
    )
    launcher.chmod(0o755)
    Path("rank.py").write_text(
        "import os, re\nfrom pathlib import Path\n"
        "folder = Path(re.search(r'--xla_dump_to=(\\S+)', os.environ['XLA_FLAGS'])[1])\n"
        "folder.mkdir()\n"
        "name = 'module_0001.jit_f.cpu_after_optimizations.txt'\n"
        "(folder / name).write_text('HloModule jit_f\\n\\nENTRY e {\\n  ROOT p = f32[] "
        "parameter(0)\\n}\\n')\n"
        "os.write(2, b'the end of ' + folder.name.encode())\n"
        "os.abort()\n"
    )
    ran = subprocess.run([*EXEC, str(launcher), "rank.py"], capture_output=True, text=True)
    assert ran.returncode == 3, ran.stderr
    assert len(list(Path("hlo-dump").glob("rank[01]/module_0001.jit_f.*"))) == 2
    for rank in ("rank0", "rank1"):
        log = Path("hlo-dump", f"{rank}.log").read_text()
        assert log.startswith(f"the end of {rank}")
        assert "rank.py" in log, "the stack of Python's fault handler"
        assert log in Path("hlo-dump.log").read_text()
    place = Path("rank.py").absolute()
    assert "\nfirst: rank0, its log is hlo-dump/rank0.log\n" in ran.stderr
    assert f"\nPython: {place}:8 in <module> (rank0, rank1)\n" in ran.stderr
    assert "next: hlo-lint ranks hlo-dump\n" in ran.stderr
    assert "2 ranks, 1 module: the collectives agree\n" in ran.stdout


def test_the_children_of_a_program_that_hangs_are_killed() -> None:
    death = "import subprocess; subprocess.run(['sleep', '4321'])"
    lines = page_of(death, None, "--hang-seconds", "0.5")
    assert lines[0].startswith("hlo-lint: the program hung")
    commands = (path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline"))
    assert b"sleep\x004321\x00" not in commands


def test_a_program_that_prints_does_not_hang() -> None:
    prints = "import time\nfor _ in range(5): time.sleep(0.3); print('step')\nraise SystemExit(4)"
    ran = completed([*EXEC, "--hang-seconds", "1", sys.executable, "-c", prints])
    assert ran.returncode == 4
    assert ran.stdout == "step\n" * 5


def test_a_kill_from_outside_is_told_from_a_crash() -> None:
    assert page_of("os.kill(os.getpid(), signal.SIGKILL)")[0] == (
        "hlo-lint: the program was killed from outside: SIGKILL (`dmesg` tells whether memory ran "
        "out)"
    )
    assert str(ProgramEnd(-9, None, True)).endswith("by the kernel, out of memory: SIGKILL")
    assert str(ProgramEnd(139)) == "the program exited with 139 (SIGSEGV)"


def test_a_failed_check_in_a_compile_leads_to_the_pass_and_the_line() -> None:
    lines = page_of(f"print({CHECK_FAILED!r}, file=sys.stderr, flush=True); os.abort()", DIED)
    assert lines[0] == "hlo-lint: the program died of SIGABRT"
    assert lines[1] == (
        "where: it compiled module_0001.jit_transpose_and_flatten (XLA:GPU): the pass "
        "layout_normalization of layout_normalization"
    )
    assert lines[3] == "message: layout_normalization.cc:431: Check failed: is_bitcast"
    assert lines[-3].endswith("die.py:4 in die")
    assert lines[-2] == "next: hlo-lint explain - < hlo-dump.log"


def test_an_exception_in_python_is_not_blamed_on_xla() -> None:
    lines = page_of("raise ValueError('no data')", ENDED)
    assert lines[1].endswith("; after them it died in Python")
    assert "message: ValueError: no data" in lines


@pytest.mark.parametrize(
    ("message", "command"),
    [
        ("RESOURCE_EXHAUSTED: Out of memory", "check --select huge-temporary,copied-donation"),
        ("INTERNAL: ptxas fatal : Ptx assembly aborted", "check --ask-xla hlo-dump"),
        ("INTERNAL: Mosaic failed to compile TPU kernel", "validate --kernels hlo-dump"),
        ("INTERNAL: Shared memory size limit exceeded", "validate --kernels hlo-dump"),
    ],
)
def test_the_page_ends_with_the_command_for_the_message(message: str, command: str) -> None:
    lines = page_of(f"raise RuntimeError({message!r})", ENDED)
    assert lines[-1].startswith(f"next: hlo-lint {command}")


def test_a_signal_after_the_compiles_is_of_native_code() -> None:
    lines = page_of("os.kill(os.getpid(), signal.SIGSEGV)", ENDED)
    assert lines[1].endswith("it died in an emitter, a module that ran, or other native code")


@pytest.mark.slow
def test_a_custom_call_without_a_handler_is_named_with_its_line() -> None:
    Path("call.py").write_text(
        "import jax, jax.numpy as jnp\n"
        "@jax.jit\n"
        "def f(x):\n"
        "    of = jax.ShapeDtypeStruct((8,), x.dtype)\n"
        "    return jax.ffi.ffi_call('no_such_kernel', of)(x) + 1\n"
        "f(jnp.ones(8))\n"
    )
    ran = subprocess.run([*EXEC, sys.executable, "call.py"], capture_output=True, text=True)
    assert "; after them it died in an emitter or running a module\n" in ran.stderr
    assert "its custom calls: no_such_kernel\n" in ran.stderr
    assert "No FFI handler registered for no_such_kernel" in ran.stderr
    assert "call.py:6 in <module>\n" in ran.stderr


@pytest.mark.parametrize(
    ("log", "place"),
    [
        (
            'Traceback (most recent call last):\n  File "/p/train.py", line 9, in <module>\n'
            '    step()\n  File "/v/site-packages/jax/a.py", line 1, in b\n    c\nE: no\n',
            PythonPlace("/p/train.py", 9, "<module>"),
        ),
        (
            'Current thread 0x00 (most recent call first):\n  File "/v/site-packages/jax/a.py", '
            'line 1 in b\n  File "/p/train.py", line 5 in step\n',
            PythonPlace("/p/train.py", 5, "step"),
        ),
        (
            'Traceback (most recent call last):\n  File "/p/kernel.py", line 3, in kernel\n    x\n'
            "jax._src.source_info_util.JaxStackTraceBeforeTransformation: ValueError: no\n"
            'Traceback (most recent call last):\n  File "/p/train.py", line 9, in <module>\n'
            "    step()\nValueError: no\n",
            PythonPlace("/p/kernel.py", 3, "kernel"),
        ),
        ("Traceback of nothing", None),
    ],
)
def test_the_innermost_line_of_the_program(log: str, place: PythonPlace | None) -> None:
    assert python_place(log) == place


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
    ran = completed([*EXEC, "--dump-to", folder, sys.executable, "model.py"])
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
