"""Children: what they answer, how they end, and that they end with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hlo_lint.text.errors import UsageError
from hlo_lint.xla import limits
from hlo_lint.xla.child import Child, ChildDied, ChildError, Forks, Pool
from hlo_lint.xla.limits import MEMORY, SECONDS, ChildLimits
from tests.conftest import PIPES, ROOT, present, started
from tests.xla import called

pytestmark = pytest.mark.slow
TEN_SECONDS = ChildLimits(10)
FORKS: tuple[Forks, ...] = ("never", "after death", "each time")


@pytest.mark.parametrize("forks", FORKS)
def test_a_function_is_called_in_the_child(forks: Forks) -> None:
    with Child(limits=TEN_SECONDS, setup=called.about, forks=forks) as child:
        value, blocks = child.call(called.echo, b"\x00\xff", b"", words=["a", None, 1.5])
        assert (value, blocks) == (["a", None, 1.5], [b"\x00\xff", b""])
        assert child.state["process"] != os.getpid()


@pytest.mark.parametrize("forks", FORKS)
def test_what_is_printed_is_in_the_log_and_not_in_the_answer(forks: Forks) -> None:
    with Child(limits=TEN_SECONDS, forks=forks) as child:
        assert child.call(called.chatter, text="hello") == (None, [])
        assert child.log() == "hello\nhello\n"
        child.call(called.about)
        assert child.log() == ""


@pytest.mark.parametrize("forks", FORKS)
def test_an_exception_and_a_death_cost_their_request_alone(forks: Forks) -> None:
    with Child(limits=TEN_SECONDS, forks=forks) as child:
        with pytest.raises(ChildError, match=r"^no$") as raised:
            child.call(called.refuse, text="no")
        assert raised.value.class_name == "ValueError"
        with pytest.raises(ChildDied) as died:
            child.call(called.die, number=signal.SIGABRT)
        assert f"{died.value}" == "XLA was ended by SIGABRT: pass.cc:12] Check failed: a == b"
        assert child.call(called.echo, words=1) == (1, [])


def test_a_fork_for_each_request_is_a_new_process_with_what_is_set_up() -> None:
    with Child(limits=TEN_SECONDS, setup=called.about, forks="each time") as child:
        first, _ = child.call(called.about)
        second, _ = child.call(called.about)
    assert first["process"] != second["process"]
    assert first["parent"] == second["parent"] == child.state["process"]


@pytest.mark.parametrize("forks", FORKS)
def test_a_request_that_takes_too_long_ends_the_child(forks: Forks) -> None:
    with Child(limits=ChildLimits(0.5), forks=forks) as child:
        child.start()
        begun = time.monotonic()
        with pytest.raises(ChildDied, match=rf"still at it after 0\.5 seconds \({SECONDS} sets"):
            child.call(called.sleep, seconds=60)
        assert time.monotonic() - begun < 1.5
        assert child.call(called.echo, words=1) == (1, [])


def test_more_memory_than_the_limit_says_which_limit() -> None:
    with Child(limits=ChildLimits(10, 200 << 20)) as child, pytest.raises(ChildError) as raised:
        child.call(called.allocate, size=1 << 30)
    assert raised.value.class_name == "MemoryError"
    with (
        Child(limits=ChildLimits(10, 200 << 20), forks="after death") as child,
        pytest.raises(ChildDied, match=rf"needed more memory than it may have \({MEMORY}"),
    ):
        child.call(called.die_of_memory)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("forks", FORKS)
def test_children_end_with_their_parent(number: int, forks: Forks) -> None:
    """While they are at work, in C code that holds no lock of Python's."""
    code = f"""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be inherited as ignored
from hlo_lint.xla.child import Child
from hlo_lint.xla.limits import ChildLimits
from tests.xla import called
with Child(limits=ChildLimits(60), setup=called.about, forks={forks!r}) as child:
    print(child.call(called.about)[0]["process"], child._process and child._process.pid, flush=True)
    child.call(called.sleep, seconds=60)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = PIPES | {"stderr": subprocess.DEVNULL}
    with started([sys.executable, "-c", code], env=environment, **pipes) as parent:
        try:
            children = {int(word) for word in present(parent.stdout).readline().split()} - {0}
            assert children
            time.sleep(0.3)
        finally:
            parent.send_signal(number)
    end = time.monotonic() + 3
    while time.monotonic() < end and any(Path(f"/proc/{child}").exists() for child in children):
        time.sleep(0.05)
    assert not [child for child in children if Path(f"/proc/{child}").exists()]


def test_no_local_module_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the current directory')")
    monkeypatch.chdir(tmp_path)
    with Child(limits=TEN_SECONDS) as child:
        assert child.call(called.echo, words=1) == (1, [])


def test_a_pool_has_a_child_for_each_thread_at_a_time() -> None:
    both = threading.Barrier(2)
    processes: list[int] = []

    def ask() -> None:
        with pool.one() as child:
            both.wait()
            processes.append(child.call(called.about)[0]["process"])

    with Pool(lambda: Child(limits=TEN_SECONDS)) as pool:
        for _ in range(2):
            threads = [threading.Thread(target=ask, daemon=True) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert len(processes) == 4
    assert len(set(processes)) == 2
    assert not [process for process in processes if Path(f"/proc/{process}").exists()]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system forks no process")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
# jax, if another test has imported it here, warns of its threads.
@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_fork_of_a_process_that_has_a_child_has_its_own() -> None:
    def ask() -> int:
        with pool.one() as child:
            return int(child.call(called.about)[0]["process"])

    with Pool(lambda: Child(limits=TEN_SECONDS)) as pool:
        here = ask()
        reader, writer = os.pipe()
        fork = os.fork()
        if not fork:
            try:
                os.write(writer, str(ask()).encode())
                pool.close()
            finally:
                os._exit(0)
        os.close(writer)
        there = os.read(reader, 20)
        os.close(reader)
        os.waitpid(fork, 0)
        assert there
        assert int(there) != here
        assert ask() == here


@pytest.mark.parametrize("value", ["0", "-1", "nan", "soon"])
def test_a_limit_is_a_positive_number(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECONDS, value)
    with pytest.raises(UsageError, match=f"{SECONDS} is a positive number, not '{value}'"):
        ChildLimits.by_default(1)


def test_variables_set_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(limits.SECONDS, "2.5")
    monkeypatch.setenv(limits.MEMORY, "2.5")
    assert ChildLimits.by_default(1, 1) == ChildLimits(2.5, 5 << 19)
