"""The places of the texts, and helpers of many tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

# The same cases on each machine, however busy it is; `make fuzz` draws others.
settings.register_profile(
    "same", derandomize=True, deadline=None, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
settings.load_profile("same")

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "fixtures"
DUMPS = FIXTURES / "dumps"
ROUNDTRIP = FIXTURES / "roundtrip"
BROKEN = FIXTURES / "broken"
UNSOUND = FIXTURES / "unsound"
CRASH = DUMPS / "gpu-jax0.10.0" / "cublaslt_fission_crash"


Value = TypeVar("Value")


def present(value: Value | None) -> Value:
    """The value, which is not None."""
    assert value is not None
    return value


def written(path: Path, text: str, encoding: str | None = None) -> Path:
    """The path of a file that has this text now."""
    path.write_text(text, encoding)
    return path


def new_folder(path: Path) -> Path:
    path.mkdir()
    return path


def completed(command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    """A process that is over, with what it wrote as text."""
    return subprocess.run(command, capture_output=True, text=True, **options)


def program(path: Path) -> Path:
    """A script of the shell that is `hlo-lint`."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hlo_lint "$@"\n')
    path.chmod(0o755)
    return path


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that one of the processes of pytest-xdist makes for all of them."""
    import os

    from hlo_lint.text.files import lock

    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    made = folder.with_suffix(".made")
    with folder.with_suffix(".lock").open("w") as file:
        lock(file, wait=True)
        if not made.exists():
            folder.mkdir(exist_ok=True)
            make(folder)
            made.touch()
    return folder


_OBEYS = """\
import os, signal, sys
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""The process itself restores its signals: a `preexec_fn` forks this one, where jax has threads."""


def calls_of(function: Callable[[], object]) -> int:
    """The calls of functions, also those in C, that a function makes: a count, not a time."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


PIPES: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process that is over after the block, whatever happens there, and that obeys signals.

    What a shell runs in the background, or `nohup` runs, ignores some, and hands that on to what
    it starts: a test that sends one would wait for ever.
    """
    with subprocess.Popen([sys.executable, "-c", _OBEYS, *command], **options) as process:
        try:
            yield process
        finally:
            process.kill()


def hlo_files(folder: Path) -> list[Path]:
    """Every HLO text below a folder."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".txt", ".hlo") and (path.suffix == ".hlo" or _is_hlo(path))
    ]


def _is_hlo(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(9) == b"HloModule"


def pytest_configure(config: pytest.Config) -> None:
    # Without the plugin `timeout` of pyproject.toml is unknown, an error in the midst of pytest.
    if not config.pluginmanager.hasplugin("timeout"):
        raise pytest.UsageError(
            "pytest-timeout is not installed; "
            "pip install --constraint tests/constraints.txt --editable '.[test]' installs it"
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts a browser as slow: `make check` leaves it out."""
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def crash(tmp_path: Path) -> Path:
    """A copy of the dump of the RET_CHECK crash of jax 0.10.0, to write in."""
    import shutil

    return Path(shutil.copytree(CRASH, tmp_path / "crash"))


@pytest.fixture(autouse=True, scope="session")
def no_cache_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the findings that the user's own runs have cached."""
    import os

    os.environ["HLO_LINT_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
    yield
    del os.environ["HLO_LINT_CACHE_DIR"]
