"""A dump directory at a URL is checked as the same directory on a disk is."""

from __future__ import annotations

import functools
import http.server
import json
import pickle
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

import hlo_lint
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.text import remote
from hlo_lint.text.stored import read_stored
from tests.conftest import CRASH, DUMPS, FIXTURES

fsspec = pytest.importorskip("fsspec")
MemoryFile = pytest.importorskip("fsspec.implementations.memory").MemoryFile


def report(path: str | Path, **settings: object) -> str:
    return hlo_lint.lint(str(path), settings=Settings(**settings)).to_json()  # type: ignore[arg-type]


@pytest.fixture
def memory() -> Iterator[str]:
    """A folder of files in the memory of this process."""
    files = fsspec.filesystem("memory")
    yield "memory://run"
    files.rm("/run", recursive=True)


def upload(folder: Path, url: str) -> None:
    fsspec.filesystem("memory").put(str(folder) + "/", url.partition(":/")[2], recursive=True)


@pytest.mark.parametrize("folder", [DUMPS, FIXTURES / "autotune"], ids=lambda path: path.name)
def test_files_in_memory_have_the_findings_of_those_on_a_disk(memory: str, folder: Path) -> None:
    upload(folder, memory)
    assert report(memory) == report(folder).replace(str(folder), memory)


def test_a_url_of_a_local_folder_is_that_folder() -> None:
    assert report(f"file://{CRASH}") == report(CRASH)


@pytest.mark.parametrize("named", [True, False], ids=["archive", "folder"])
def test_an_archive_at_a_url_reads_as_its_folder(memory: str, tmp_path: Path, named: bool) -> None:
    shutil.make_archive(str(tmp_path / "run" / "dump"), "gztar", CRASH)
    upload(tmp_path / "run", memory)
    found = json.loads(report(f"{memory}/dump.tar.gz" if named else memory, jobs=2))
    local = json.loads(report(CRASH).replace(str(CRASH), f"{memory}/dump.tar.gz"))
    assert found["findings"] == local["findings"] != []
    assert found["stats"] == local["stats"]


class _Counted(http.server.SimpleHTTPRequestHandler):
    asked: ClassVar[Counter[str]] = Counter()

    def do_GET(self) -> None:
        self.asked[self.path] += 1
        super().do_GET()

    def log_message(self, *_: object) -> None:
        return


def test_a_server_is_asked_once_for_each_file(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    folder = Path(shutil.copytree(CRASH, tmp_path / "dumps"))
    handler = functools.partial(_Counted, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/dumps"
        try:
            found = report(f"{url}/")
        finally:
            server.shutdown()
    assert found == report(folder).replace(str(folder), url)
    assert set(_Counted.asked.values()) == {1}
    texts = {path.name for path in folder.glob("*.after_*.txt")}
    assert texts <= {path.rpartition("/")[2] for path in _Counted.asked}


def test_a_process_without_the_copy_of_a_folder_copies_single_files(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker on another machine gets the paths, not the copy."""
    upload(CRASH, memory)
    dump = hlo_lint.open_dump(memory)
    monkeypatch.setattr(remote, "_copies", {})
    for path in (step.path for run in dump for step in run.dumps):
        assert read_stored(pickle.loads(pickle.dumps(path))) == (CRASH / path.name).read_bytes()


def test_no_file_of_a_store_is_copied_to_another_place(memory: str) -> None:
    fsspec.filesystem("memory").store["/run/../../outside.txt"] = MemoryFile(data=b"HloModule m")
    upload(CRASH, memory)
    assert hlo_lint.open_dump(memory).compilations
    assert not (remote._copies[memory].parents[1] / "outside.txt").exists()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("memory://nowhere/at/all", "no such file or directory"),
        ("nothing://host/x", "Protocol not known"),
    ],
)
def test_a_url_that_cannot_be_read_is_an_error(url: str, says: str) -> None:
    with pytest.raises(hlo_lint.DumpError, match=says):
        report(url)


def test_a_file_of_a_store_is_checked_alone(memory: str) -> None:
    upload(CRASH, memory)
    name = max(CRASH.glob("*.after_autotuner.*")).name
    there = json.loads(report(f"{memory}/{name}"))
    here = json.loads(report(CRASH / name).replace(str(CRASH), memory))
    assert there["findings"] == here["findings"]
