"""Signals, killed processes, outputs that end: the right exit status, and nothing left behind."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest

from benchmarks.faults import MODULE
from tests.conftest import CRASH, DUMPS, PIPES, ROOT, completed, new_folder, started
from tests.texts import counted

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="signals are those of POSIX"),
]

CLI = (sys.executable, "-m", "hlo_lint")
SEVERAL = str(DUMPS / "gpu-jax0.10.2")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = new_folder(tmp_path / "tree")
    for number in range(8):
        (folder / f"m{number}.hlo").write_text(MODULE)
    return folder


def fix(folder: Path) -> list[str]:
    return [*CLI, "fix", "--isolated", "--before", "layout_normalization", str(folder)]


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.fixture
def fixed(tree: Path, tmp_path: Path) -> str:
    """A module after `fix`."""
    out = tmp_path / "fixed.hlo"
    command = [*fix(tree / "m0.hlo"), "-o", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    return out.read_text()


# Kills


def test_after_a_kill_each_file_is_whole_and_the_next_run_leaves_nothing(tmp_path: Path) -> None:
    # In a process of its own, which forks: this one may have threads, of jax for one.
    code = (
        "import sys; from pathlib import Path; from benchmarks.faults import killed_fixes; "
        "o = killed_fixes(24, seed=3, parent=Path(sys.argv[1])); "
        "print(o.mixed, o.left_after_next, o.partly, o.left_over)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    ran = completed(command, check=True, cwd=ROOT)
    mixed, left_after_next, partly, left_over = map(int, ran.stdout.split())
    assert (mixed, left_after_next) == (0, 0)
    assert partly
    assert left_over


def test_two_fixes_of_one_tree_at_a_time_leave_it_fixed(tree: Path, fixed: str) -> None:
    with started(fix(tree), **PIPES) as one, started(fix(tree), **PIPES) as other:
        both = one, other
        outputs = [process.communicate()[1] for process in both]
    for process, errors in zip(both, outputs, strict=True):
        if process.returncode:
            assert process.returncode == 2
            assert re.search(
                r"Error: \S+m\d\.hlo: not written: (it has changed since it was read|another "
                r"process writes it); run again$",
                errors.strip(),
            )
    assert contents(tree) == {f"m{number}.hlo": fixed for number in range(8)}


def processes_with(mark: str) -> list[str]:
    """The command lines of the processes whose environment has a mark."""
    lines = []
    for folder in Path("/proc").iterdir():
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                lines.append((folder / "cmdline").read_text())
        except (OSError, UnicodeDecodeError):
            continue
    return lines


def ended_processes_with(mark: str) -> list[str]:
    """The processes that are left after at most ten seconds."""
    end = time.monotonic() + 10
    while (left := processes_with(mark)) and time.monotonic() < end:
        time.sleep(0.1)
    return left


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="this system has no /proc")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_a_signal_ends_the_workers_too(name: str, tmp_path: Path) -> None:
    number = signal.Signals[name]
    mark = f"FAULT={tmp_path}"
    environment = {**os.environ, "FAULT": str(tmp_path)}
    # The workers get work without an end, so that the signal comes while they are at it.
    code = (
        "import time; from hlo_lint.engine.executors import local; "
        "local.run_packed = lambda *_: time.sleep(1000); "
        "from hlo_lint.apps.cli.program import main; main()"
    )
    command = [sys.executable, "-c", code, "check", "-j", "2", "--no-cache", SEVERAL]
    with started(command, env=environment, **PIPES) as process:
        while len(processes_with(mark)) < 3:
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(0.2)
        process.send_signal(number)
        # Its workers hold its outputs open: these come to their end when nobody is left.
        output, errors = process.communicate(timeout=20)
    assert ended_processes_with(mark) == []
    assert output == ""
    if name == "SIGKILL":
        assert process.returncode == -number
        return
    message = {"SIGINT": "interrupted", "SIGTERM": "terminated"}.get(
        name, "the terminal was closed"
    )
    assert (process.returncode, errors) == (128 + number, f"{message}\n")


LONG_LOOP = counted(
    {"x": "f32[64,64]"},
    "y = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "y",
    """
  x = f32[64,64] parameter(0)
  w = LOOP(x)
  ROOT r = f32[64,64] get-tuple-element(w), index=1""",
    2_000_000_000,
)


@cache
def wide() -> str:
    """A module of 400,000 instructions."""
    line = "  x{0} = f32[4] add(x{1}, x{1})\n"
    body = "".join(line.format(at + 1, at) for at in range(400_000))
    begin = "HloModule m\n\nENTRY e {\n  x0 = f32[4] parameter(0)\n"
    return begin + body + "  ROOT r = f32[4] copy(x9)\n}\n"


SLOW = {
    "check": ["check", "--no-cache", "wide.hlo"],
    "strict": ["check", "--no-cache", "--strict", "wide.hlo"], "fix": ["fix", "--diff", "wide.hlo"],
    "report": ["report", "-o", "page.html", "wide.hlo"], "blame": ["check", "--blame", "wide"],
    "run": ["run", "loop.hlo"], "validate": ["validate", "steps"],
    "all steps": ["validate", "--all-steps", "-j", "2", "steps"],
    "reduce": ["reduce", "--interesting", "sh -c 'sleep 100'", "loop.hlo"],
    "watch": ["check", "--watch", "loop.hlo"], "server": ["server"],
}  # fmt: skip


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="this system has no /proc")
@pytest.mark.parametrize("name", SLOW)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_slow_commands(name: str, number: signal.Signals, tmp_path: Path) -> None:
    steps = LONG_LOOP, LONG_LOOP.replace("2000000000", "2000000001")
    files = {"loop.hlo": LONG_LOOP, "wide.hlo": wide()}
    for folder, texts in (("steps", steps), ("wide", (wide(), wide()))):
        for step, text in enumerate(texts):
            path = f"module_0001.m.{step:04d}.all.after_pass{step}.before_pass{step + 1}.txt"
            files[f"{folder}/{path}"] = text
    for path, text in files.items():
        if path.partition("/")[0] in SLOW[name]:
            (tmp_path / path).parent.mkdir(exist_ok=True)
            (tmp_path / path).write_text(text)
    environment = {**os.environ, "FAULT": str(tmp_path), "PYTHONPATH": str(ROOT)}
    if name == "reduce" and number == signal.SIGKILL:
        pytest.skip("the user's own command outlives a signal that nobody can answer")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started([*CLI, *SLOW[name]], env=environment, cwd=tmp_path, **pipes) as process:
        wait_until_signals_are_handled(process)
        mark, own = f"FAULT={tmp_path}", "sleep" if name == "reduce" else ""
        while not any(own in line for line in processes_with(mark)):
            time.sleep(0.1)  # the user's own command has to be there before it can be ended
        time.sleep(0.4)
        assert process.poll() is None
        process.send_signal(number)
        process.wait(20)  # at once, if nothing else wants the machine
    # Children look every half a second.
    assert ended_processes_with(mark) == []


def test_a_worker_that_is_killed_is_one_error(tmp_path: Path) -> None:
    code = (
        "import os, signal; from hlo_lint.engine.executors import local; "
        "local.run_packed = lambda *_: os.kill(os.getpid(), signal.SIGKILL); "
        "from hlo_lint.apps.cli.program import main; main()"
    )
    report = tmp_path / "report.json"
    command = [sys.executable, "-c", code, "check", "-j", "2", "--no-cache", "-o", str(report)]
    ran = completed([*command, SEVERAL])
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        "Error: a worker process died, perhaps of too little memory: try --jobs 1\n"
    )
    assert not report.exists()


def wait_until_signals_are_handled(process: subprocess.Popen[str]) -> None:
    """Wait for the handler of SIGTERM, which comes after that of SIGINT: see `man 5 proc`."""
    status = Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        caught = re.search(r"SigCgt:\s*(\w+)", status.read_text())
        if caught is not None and int(caught[1], 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.002)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_at_any_moment_leaves_whole_files(name: str, tree: Path, fixed: str) -> None:
    number = signal.Signals[name]
    draw = random.Random(7)
    statuses = set()
    begun = time.monotonic()
    subprocess.run(fix(tree), check=True, capture_output=True)
    duration = time.monotonic() - begun
    for _ in range(10):
        for path in tree.iterdir():
            path.write_text(MODULE)
        with started(fix(tree), **PIPES) as process:
            wait_until_signals_are_handled(process)
            time.sleep(draw.uniform(0, duration))
            process.send_signal(number)
            output, errors = process.communicate(timeout=30)
        statuses.add(process.returncode)
        assert "Traceback" not in errors, errors
        assert "Exception ignored" not in errors, errors
        assert output == ""
        after = contents(tree)
        assert len(after) == 8, sorted(after)  # it had the time to clean up
        assert set(after.values()) <= {MODULE, fixed}
    # A process that the signal ends before it has anything to clean up has the status -number.
    assert statuses <= {0, 128 + number, -number}
    assert statuses & {128 + number, -number}


@pytest.mark.parametrize(
    "patch",
    [
        "import hlo_lint.apps.cli.printing as it; it.output_report = lambda *_: fail()",
        "import hlo_lint.dumps.pass_dump as it; it.PassDump.file = property(fail)",
        "import hlo_lint.rules.layout.reshape_moves_data as it; it.ReshapeMovesData.check = fail",
    ],
    ids=["command", "reader", "rule"],
)
def test_an_interrupt_while_a_class_is_made_is_no_crash(patch: str, tree: Path) -> None:
    # Up to Python 3.11 it is the cause of a RuntimeError.
    code = (
        "import os, signal; from hlo_lint import Module\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # `nohup` ignores it
        "class Field:\n"
        "    def __set_name__(*_): os.kill(os.getpid(), signal.SIGINT)\n"
        "def fail(rule=None, module: Module = None):\n"
        "    class Made: field = Field()\n"
        f"{patch}\n"
        "from hlo_lint.apps.cli.program import main; main()"
    )
    options = ["--isolated", "--no-cache", "--before", "layout_normalization"]
    command = [sys.executable, "-c", code, "check", *options, str(tree)]
    ran = completed(command)
    assert (ran.returncode, ran.stderr) == (130, "interrupted\n")


def test_a_signal_in_a_callback_that_may_not_raise_is_not_lost(tree: Path) -> None:
    code = (
        "import os, signal, time, weakref\n"
        "import hlo_lint.apps.cli.printing as it\n"
        "class Dies: pass\n"
        "def fail(*_):\n"
        "    dies = Dies()\n"
        "    kept = weakref.ref(dies, lambda _: os.kill(os.getpid(), signal.SIGTERM))\n"
        "    del dies\n"
        "    time.sleep(5)\n"
        "it.output_report = fail\n"
        "from hlo_lint.apps.cli.program import main; main()"
    )
    command = [sys.executable, "-c", code, "check", "--isolated", "--no-cache", str(tree)]
    ran = completed(command)
    assert (ran.returncode, ran.stdout, ran.stderr) == (143, "", "terminated\n")


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="this system has no such signals")
def test_a_signal_that_interrupts_no_wait_is_obeyed_within_a_second() -> None:
    code = (
        "import signal, sys, threading, time\n"
        "from hlo_lint.apps.cli.program import handle_signals\n"
        "handle_signals(lambda *_: sys.exit(3))\n"
        "def kill():\n"
        "    time.sleep(0.5)\n"
        "    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)\n"
        "threading.Thread(target=kill).start()\n"
        "threading.Event().wait(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, timeout=30, check=False)
    assert ran.returncode == 3


def test_a_report_that_is_interrupted_is_not_there(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    code = (
        "import os, signal; from hlo_lint.text import files; "
        "fsync = os.fsync; "
        "files.os.fsync = lambda file: (fsync(file), os.kill(os.getpid(), signal.SIGTERM)); "
        "from hlo_lint.apps.cli.program import main; main()"
    )
    command = [sys.executable, "-c", code, "check", str(CRASH), "-o", str(report)]
    ran = completed(command)
    assert (ran.returncode, ran.stderr) == (143, "terminated\n")
    assert os.listdir(tmp_path) == []


# Outputs and inputs that end


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LINT": f"{sys.executable} -m hlo_lint"}
    (folder / "m.hlo").write_text(MODULE)
    return completed(["bash", "-o", "pipefail", "-c", line], cwd=folder, env=environment)


needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")


@needs_bash
@pytest.mark.parametrize(
    "words",
    [
        "rules", "check m.hlo", "fix - < m.hlo", "--help", "check --help",
        "explain reshape-moves-data",
    ],
)  # fmt: skip
def test_a_reader_that_goes_away_ends_it_as_sigpipe_does(words: str, tmp_path: Path) -> None:
    # The reader goes before anything is written.
    ran = shell(f"{{ sleep 0.2; $LINT {words}; }} | true", tmp_path)
    assert (ran.returncode, ran.stderr) == (141, "")


@needs_bash
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    "words", ["rules", "check m.hlo", "check --output-format json m.hlo", "fix - < m.hlo", "--help"]
)
def test_a_full_standard_output_is_one_error(words: str, tmp_path: Path) -> None:
    ran = shell(f"$LINT {words} > /dev/full", tmp_path)
    message = "Error: standard output cannot be written: No space left on device\n"
    assert (ran.returncode, ran.stderr.splitlines(keepends=True)[-1]) == (2, message)
    assert "Traceback" not in ran.stderr
    assert shell("$LINT check none.hlo 2> /dev/full", tmp_path).returncode == 2
    ran = shell("$LINT rules 1< /dev/null", tmp_path)
    message = "Error: standard output cannot be written: Bad file descriptor\n"
    assert (ran.returncode, ran.stderr) == (2, message)


@needs_bash
def test_a_closed_standard_input_is_one_error(tmp_path: Path) -> None:
    ran = shell("$LINT check - <&-", tmp_path)
    assert (ran.returncode, ran.stderr) == (2, "Error: standard input is closed\n")


@needs_bash
def test_a_closed_standard_output_changes_no_status(tmp_path: Path) -> None:
    assert shell("$LINT check m.hlo >&-", tmp_path).returncode == 1
    assert shell("$LINT check m.hlo >&- 2>&-", tmp_path).returncode == 1


@needs_bash
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFO")
def test_a_fifo_in_a_folder_is_waited_for_by_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.hlo")
    os.mkfifo(tmp_path / "y.txt")
    ran = shell("timeout 30 $LINT check . --output-format concise", tmp_path)
    assert ran.returncode == 1
    ran = shell("timeout 30 $LINT fix . -o out", tmp_path)
    assert ran.returncode in (0, 1), ran.stderr
    assert os.listdir(tmp_path / "out") == ["m.hlo"]
