"""A run with a cache reports what a run without one reports, whatever happens to the cache."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import hlo_lint
from hlo_lint.apps.cli.main import cli
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.engine import input_size
from hlo_lint.engine.cache.cached_parts import CachedParts, from_json, to_json
from hlo_lint.engine.cache.store import FILE, FOLDER_VARIABLE, Store
from hlo_lint.engine.parallel import check_in_parts
from hlo_lint.engine.reporter import Part
from hlo_lint.engine.runner import Checker, Task
from hlo_lint.rules.registry import all_rules
from tests.conftest import CRASH, DUMPS, FIXTURES, present, started


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, which takes small files, too."""
    folder = tmp_path / "cache"
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    monkeypatch.setattr(input_size, "CACHE_MIN_BYTES", 0)
    return folder


def report(*paths: Path, cached: bool = True, **settings: Any) -> str:
    chosen = Settings(cache=cached).overridden(**settings)
    return hlo_lint.lint([str(path) for path in paths], settings=chosen).to_json()


def entries(folder: Path) -> int:
    return Store(folder).info().entries


def every_field(value: object) -> object:
    """A value with all fields of its dataclasses, also those that `==` leaves out."""
    if isinstance(value, tuple | list):
        return [every_field(element) for element in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: every_field(getattr(value, field.name)) for field in fields(value)}
    return value


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dumps", "unsound", "broken"])
def test_a_part_is_the_same_after_a_trip_through_json(name: str) -> None:
    seen: list[Part] = []

    class Kept(CachedParts):
        def __init__(self) -> None:
            pass

        def get(self, compilations: object, digests: object) -> dict[int, Part]:
            return {}

        def put(self, compilation: object, digest: object, part: Part) -> None:
            seen.append(part)

    dump = hlo_lint.open_dump(FIXTURES / name)
    check_in_parts(Checker(Task(all_rules(), resolved=True)), dump, cache=Kept())
    assert any(part.result.diagnostics for part in seen)
    for part in seen:
        again = from_json(Part, json.loads(json.dumps(to_json(part))))
        assert again == part
        again = again._replace(unread=part.unread, of_modules=part.of_modules)
        assert every_field(again) == every_field(part)


def test_a_second_run_reports_the_same_and_checks_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = report(DUMPS)
    assert first == report(DUMPS, cached=False)
    stored = entries(folder)
    assert stored > 10
    monkeypatch.setattr(Checker, "check_compilation", None)
    assert report(DUMPS) == first
    assert entries(folder) == stored


def test_many_small_files_that_a_hook_names_are_not_checked_again(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hook sniffs: what it read to see if it is HLO is not taken for a text of the caller's."""
    monkeypatch.setattr(input_size, "CACHE_MIN_BYTES", 1 << 30)
    texts = sorted((FIXTURES / "roundtrip").glob("[h-m]*.hlo"))
    assert sum(text.stat().st_size for text in texts) < 1 << 16
    command = ["check", "--sniff", "--force-exclude", *map(str, texts)]
    first = CliRunner().invoke(cli, command)
    assert entries(folder) > 50
    monkeypatch.setattr(Checker, "check_compilation", None)
    second = CliRunner().invoke(cli, command)
    assert (second.exit_code, second.output) == (first.exit_code, first.output)


def test_a_file_that_changed_is_checked_alone(folder: Path, crash: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(DUMPS / "gpu-jax0.10.2", tmp_path / "other"))
    report(crash, other)
    before = entries(folder)
    last = max(crash.glob("*.after_autotuner.*"))
    last.write_text(last.read_text().replace(" reshape(", " bitcast("))
    changed = report(crash, other)
    assert changed == report(crash, other, cached=False)
    assert entries(folder) == before + 1


@pytest.mark.parametrize(
    "settings",
    [
        {"ignore": ("reshape-moves-data",)},
        {"rules": {"reshape-moves-data": {"move-as": "copy"}}},
        {"before": "layout_normalization"},
        {"severity": {"reshape-moves-data": hlo_lint.Severity.INFO}},
        {"baseline": "EMPTY"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_other_settings_do_not_get_these_findings(
    settings: dict[str, Any], tmp_path: Path, folder: Path
) -> None:
    if "baseline" in settings:
        settings = {"baseline": tmp_path / "baseline.json"}
        (tmp_path / "baseline.json").write_text('{"version": 2, "findings": []}')
    report(CRASH)
    before = entries(folder)
    assert report(CRASH, **settings) == report(CRASH, cached=False, **settings)
    checks_alike = settings.keys() == {"severity"}
    assert (entries(folder) == before) == checks_alike


def test_the_name_of_a_file_counts(crash: Path) -> None:
    first = json.loads(report(crash))
    for path in list(crash.iterdir()):
        path.rename(path.with_name(path.name.replace("module_0001", "module_0007")))
    second = json.loads(report(crash))
    assert second["findings"][0]["path"] != first["findings"][0]["path"]
    assert second == json.loads(report(crash, cached=False))


@pytest.mark.parametrize("damage", ["noise", "cut", "empty", "directory", "table", "value"])
def test_a_damaged_cache_is_replaced_or_left_aside(damage: str, folder: Path) -> None:
    first = report(CRASH)
    path = folder / FILE
    data = path.read_bytes()
    match damage:
        case "noise":
            path.write_bytes(bytes(range(256)) * 64)
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case "empty":
            path.write_bytes(b"")
        case "directory":
            path.unlink()
            path.mkdir()
        case "table" | "value":
            with sqlite3.connect(path) as connection:
                if damage == "table":
                    connection.execute("ALTER TABLE results RENAME TO others")
                    connection.execute("CREATE TABLE results (key TEXT)")
                else:
                    connection.execute("UPDATE results SET value = x'00'")
            connection.close()
    assert report(CRASH) == first
    assert report(CRASH) == first


def test_a_cache_that_cannot_be_written_is_left_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "file" / "cache"))
    assert report(CRASH) == report(CRASH, cached=False)


def test_a_locked_cache_is_left_aside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hlo_lint.engine.cache.store._LOCK_SECONDS", 0.05)
    first = report(CRASH)
    with sqlite3.connect(folder / FILE, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert report(CRASH, before="autotuner") == report(CRASH, cached=False, before="autotuner")
        other.execute("COMMIT")
    other.close()
    assert report(CRASH) == first


def test_the_oldest_values_go(folder: Path) -> None:
    store = Store(folder, max_bytes=4_000)
    values = {bytes([number]) * 20: os.urandom(500) for number in range(7)}
    store.put(values)
    assert store.get(values) == values
    new = bytes([99]) * 20
    store.put({new: os.urandom(600)})
    assert store.get([*values, new]).keys() == {*list(values)[-2:], new}


@pytest.mark.slow
def test_runs_that_are_killed_leave_no_wrong_finding(folder: Path) -> None:
    """A kill at a time that differs from trial to trial; `make kills` has more of them."""
    expected = report(CRASH, cached=False)
    code = (
        "import hlo_lint; from hlo_lint.apps.settings.settings import Settings; "
        "from hlo_lint.engine import input_size; input_size.CACHE_MIN_BYTES = 0; "
        "hlo_lint.lint([], settings=Settings()); print(flush=True); "
        f"hlo_lint.lint({str(CRASH)!r}, settings=Settings(cache=True))"
    )
    trials = int(os.environ.get("HLO_LINT_KILLS", "4"))
    draw = random.Random(14)
    for _ in range(trials):
        shutil.rmtree(folder, ignore_errors=True)
        with started([sys.executable, "-c", code], stdout=subprocess.PIPE) as run:
            present(run.stdout).readline()
            end = time.monotonic() + 30
            while not (folder / FILE).exists() and time.monotonic() < end and run.poll() is None:
                time.sleep(0.001)
            time.sleep(draw.random() * 0.01)
            run.send_signal(signal.SIGKILL)
        assert report(CRASH) == expected


@pytest.mark.slow
def test_two_processes_and_a_cache_report_what_one_does(folder: Path) -> None:
    dumps = DUMPS / "gpu-jax0.10.2"
    expected = report(dumps, cached=False)
    assert report(dumps, jobs=2) == expected
    assert report(dumps, jobs=2) == expected


@pytest.mark.slow
def test_the_commands_say_what_is_there_and_remove_it(folder: Path) -> None:
    def run(*words: str) -> str:
        command = [sys.executable, "-m", "hlo_lint", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr
        return done.stdout

    assert run("cache", "info").endswith("0 entries, 0.0 MB\n")
    once = run("check", str(CRASH))
    assert run("cache", "info").startswith(f"{folder / FILE}: {entries(folder)} entr")
    assert run("check", str(CRASH)) == once
    assert run("check", str(CRASH), "--no-cache") == once
    assert run("cache", "clear") == ""
    assert run("cache", "info").endswith("0 entries, 0.0 MB\n")


def test_files_that_were_moved_together_are_not_checked_again(
    folder: Path, crash: Path, tmp_path: Path
) -> None:
    report(CRASH)
    stored = entries(folder)
    assert report(crash) == report(crash, cached=False)
    assert entries(folder) == stored
