"""A dump directory at a URL is checked as the same directory on a disk is."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

import hlo_lint
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.engine.executors import open_executor
from hlo_lint.engine.parallel import parts_of
from hlo_lint.engine.runner import Task
from hlo_lint.rules.registry import all_rules
from tests.conftest import CRASH, DUMPS, FIXTURES

fsspec = pytest.importorskip("fsspec")


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


@pytest.mark.slow
def test_a_url_of_a_local_folder_is_that_folder() -> None:
    assert report(f"file://{DUMPS}", jobs=2) == report(DUMPS).replace(str(DUMPS), f"file://{DUMPS}")


@pytest.mark.parametrize("named", [True, False], ids=["archive", "folder"])
def test_an_archive_at_a_url_reads_as_the_folder_in_it(
    memory: str, tmp_path: Path, named: bool
) -> None:
    shutil.make_archive(str(tmp_path / "run" / "dump"), "gztar", CRASH)
    upload(tmp_path / "run", memory)
    remote = json.loads(report(f"{memory}/dump.tar.gz" if named else memory, jobs=2, cache=True))
    local = json.loads(report(CRASH).replace(str(CRASH), f"{memory}/dump.tar.gz"))
    assert remote["findings"] == local["findings"] != []
    assert remote["stats"] == local["stats"]


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
            remote = report(f"{url}/")
        finally:
            server.shutdown()
    assert remote == report(folder).replace(str(folder), url)
    assert set(_Counted.asked.values()) == {1}
    texts = {path.name for path in folder.glob("*.after_*.txt")}
    assert texts <= {path.rpartition("/")[2] for path in _Counted.asked}


def test_equal_files_of_a_store_are_known_by_the_checksums_of_the_listing(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that lists checksums need not be read to see that two ranks are equal."""
    for rank in range(3):
        upload(CRASH, f"{memory}/rank{rank}")
    from hlo_lint.dumps.remote import RemotePath

    read: Counter[str] = Counter()
    cat_file = RemotePath.read_range

    def counted(path: RemotePath, start: int | None, end: int | None) -> bytes:
        read[path.url] += end is None
        return cat_file(path, start, end)

    files = fsspec.filesystem("memory")
    find = files.find

    def listed(path: str, **options: object) -> dict[str, dict[str, object]]:
        return {
            name: info | {"ETag": str(hash(files.cat_file(name)))}
            for name, info in find(path, **options).items()
        }

    monkeypatch.setattr(files, "find", listed)
    dump = hlo_lint.open_dump(memory)
    task = Task(all_rules())
    seen: list[int] = []
    with open_executor(None, 1, task) as executor:
        parts = parts_of(dict(enumerate(dump)), executor, seen.append)
    assert len(parts) == 3
    assert seen.count(1) == len(dump.compilations[0].dumps)
    assert parts[2].result.diagnostics[0].path.startswith(f"{memory}/rank2/")


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
    one = json.loads(report(f"{memory}/{name}"))
    assert (
        one["findings"] == json.loads(report(CRASH / name).replace(str(CRASH), memory))["findings"]
    )
