"""Wherever compilations are checked, and in whatever order, the report is that of one process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

import hlo_lint
from hlo_lint import Findings, Module, Rule
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.engine.executors import Work
from hlo_lint.engine.executors.local import LocalExecutor
from hlo_lint.engine.parallel import check_in_parts, parts_of
from hlo_lint.engine.parts import check_part, content_digest, places, relocated
from hlo_lint.engine.runner import Checker, Task
from hlo_lint.rules.registry import all_rules
from tests.conftest import CRASH, DUMPS, FIXTURES

TASK = Task(all_rules(), resolved=True)


def report(path: Path, executor: str | None = None, jobs: int = 1) -> str:
    return hlo_lint.lint(path, settings=Settings(jobs=jobs), executor=executor).to_json()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dumps/gpu-jax0.10.2", "broken", "unsound"])
def test_files_that_were_moved_together_have_the_same_findings_there(
    name: str, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(FIXTURES / name, tmp_path / "copy"))
    compilations = [hlo_lint.open_dump(path).compilations for path in (FIXTURES / name, copy)]
    findings = 0
    pairs = list(zip(*compilations, strict=True))
    for here, there in pairs[:: 1 + len(pairs) // 20]:
        assert content_digest(TASK, here) == content_digest(TASK, there)
        part, expected = check_part(TASK, here), check_part(TASK, there)
        assert repr(relocated(part, places(here, there))) == repr(expected)
        assert str(FIXTURES) not in repr(expected)
        findings += len(part.result.diagnostics)
    assert findings


class Sent:
    """Stands for a compilation, and notes the thread that writes it."""

    writers: ClassVar[list[threading.Thread]] = []

    def __reduce__(self) -> tuple[type[Sent], tuple[()]]:
        self.writers.append(threading.current_thread())
        return Sent, ()


def _name(task: Task, sent: object) -> str:
    return type(sent).__name__


def test_compilations_are_written_for_others_before_this_process_goes_on_with_them() -> None:
    Sent.writers.clear()
    with LocalExecutor(2, TASK) as executor:
        results = executor.map(_name, cast("Any", [{0: Sent()}, {1: Sent()}]))
        assert Sent.writers == [threading.current_thread()] * 2
        assert sorted(results) == [(0, "Sent"), (1, "Sent")]
    assert len(Sent.writers) == 2


DIES = """
import os, sys
from dataclasses import replace
from pathlib import Path
import hlo_lint
from hlo_lint import Findings, Module, Rule
from hlo_lint import FinalModule, Findings, Rule
from hlo_lint.apps.settings.settings import Settings

class Dies(Rule):
    "Ends the process that runs it, if that is a worker."
    parent = os.getpid()

    def check(self, final: FinalModule) -> Findings:
        if os.getpid() != self.parent:
            os._exit(3)
        yield from ()

try:
    hlo_lint.lint(Path(sys.argv[1]), select=[Dies], settings=Settings(jobs=2))
except hlo_lint.DumpError as error:
    print(error)
"""
"""In a process of its own: one with other threads, as pytest-xdist has them, is not forked."""


@pytest.mark.slow
def test_a_worker_that_dies_is_an_error_that_says_what_to_try(tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text(DIES)
    command = [sys.executable, str(tmp_path / "dies.py"), str(ranks(tmp_path))]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "a worker process died" in ran.stdout
    assert "--jobs 1" in ran.stdout


def test_another_byte_or_name_is_another_content(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(CRASH, tmp_path / "copy"))

    def digest() -> object:
        return content_digest(TASK, hlo_lint.open_dump(copy).compilations[0])

    first = digest()
    options = next(copy.glob("*.debug_options"))
    options.write_bytes(options.read_bytes() + b"\n")
    second = digest()
    for path in list(copy.iterdir()):
        path.rename(path.with_name(path.name.replace("module_0001", "module_0002")))
    assert len({first, second, digest()}) == 3


def test_small_files_beside_a_large_one_are_sent_in_several_batches(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"{number}.hlo").write_text("HloModule m\n", "utf-8")
    os.truncate(tmp_path / "0.hlo", 8 << 20)

    class Noting(LocalExecutor):
        is_local = False
        sent: Sequence[int] = ()

        def map(self, work: Work, batches: Sequence[Mapping[int, Compilation]]) -> Iterator[Any]:
            self.sent = [len(batch) for batch in batches]
            return iter(())

    executor = Noting(2, TASK)
    parts_of(hlo_lint.open_dump(tmp_path).compilations, executor)
    assert executor.sent[0] == 1
    assert len(executor.sent) > 3


def ranks(folder: Path, count: int = 3) -> Path:
    """That many ranks with the same files, and one with another last line."""
    for number in range(count):
        shutil.copytree(CRASH, folder / f"rank{number}")
    other = Path(shutil.copytree(CRASH, folder / "rank9"))
    last = max(other.glob("*.after_autotuner.*"))
    last.write_bytes(last.read_bytes().replace(b"ROOT", b"ROOT ", 1))
    return folder


def test_files_of_equal_content_are_checked_once(tmp_path: Path) -> None:
    seen: list[int] = []
    dump = hlo_lint.open_dump(ranks(tmp_path))
    hlo_lint.lint(dump, progress=seen.append)
    files = len(dump.compilations[0].dumps)
    assert seen.count(1) == 2 * files  # of the first rank, and of the other one


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_equal_files_of_several_ranks_are_reported_of_each(jobs: int, tmp_path: Path) -> None:
    dump = hlo_lint.open_dump(ranks(tmp_path))
    result = check_in_parts(Checker(TASK), dump, jobs)
    assert result == Checker(TASK).check_dump(dump)
    assert result.diagnostics


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of two workers of Dask."""
    distributed = pytest.importorskip("distributed")
    # Threads in place of processes: the messages are the same, and the start takes no time.
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as made:
        yield made.scheduler_address.replace("tcp://", "dask://")


@pytest.mark.slow
@pytest.mark.parametrize("folder", [DUMPS, FIXTURES / "autotune"], ids=lambda path: path.name)
def test_workers_of_dask_report_what_one_process_reports(
    cluster: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert report(folder, cluster) == report(folder)
    monkeypatch.chdir(folder.parent)
    name = Path(folder.name)
    assert report(name, cluster) == report(name)


@pytest.mark.slow
def test_equal_files_are_checked_once_in_a_cluster(cluster: str, tmp_path: Path) -> None:
    assert report(ranks(tmp_path), cluster) == report(tmp_path)


class Slow(Rule):
    """Takes longer than a busy machine needs to end a worker: eight files are left by then."""

    def check(self, module: Module) -> Findings:
        time.sleep(1.5)
        yield from ()


@pytest.mark.slow
def test_a_cluster_that_loses_its_workers_reports_what_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import distributed

    from hlo_lint.engine.executors import dask

    monkeypatch.setattr(dask, "TIMEOUT_SECONDS", 1)
    for number in range(9):
        text = f"HloModule m{number}\n\nENTRY e {{\n  ROOT p = f32[] add(p, p)\n}}\n"
        (tmp_path / f"{number}.hlo").write_text(text, "utf-8")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0"
    ) as workers:
        address = workers.scheduler_address.replace("tcp://", "dask://")
        checked = hlo_lint.lint(
            tmp_path, [Slow], executor=address, progress=lambda _: workers.scale(0)
        )
        assert checked.is_incomplete
        assert 0 < checked.stats["files"] < 9
        (reason,) = checked.skipped_by_reason(minor=False)
        assert reason == f"{address}: the cluster lost all its workers, or its scheduler"
        with pytest.raises(hlo_lint.DumpError, match="the cluster has no worker"):
            report(tmp_path, address)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("dask", "takes dask://HOST:PORT"),
        ("ray://here:10001", "takes dask://HOST:PORT"),
        ("ssh://here", "takes dask://HOST:PORT"),
        ("dask://", "takes dask://HOST:PORT"),
    ],
)
def test_an_address_that_is_none_is_wrong_use(address: str, says: str) -> None:
    with pytest.raises(hlo_lint.UsageError, match=says):
        report(CRASH, address)


def test_a_worker_of_another_version_is_refused() -> None:
    task = TASK._replace(version="0.0.1")
    with pytest.raises(hlo_lint.DumpError, match=r"not 0\.0\.1"):
        check_part(task, hlo_lint.open_dump(CRASH).compilations[0])
