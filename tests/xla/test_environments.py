"""Pythons with a release of jax."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path

import pytest

from hlo_lint.text.errors import CaptureError, UsageError
from hlo_lint.xla import environments
from hlo_lint.xla.environments import Platform, environment_of, interpreter_at, python_between
from tests.conftest import completed, written


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "hlo_lint"


@pytest.mark.parametrize(
    ("release", "platform", "message"),
    [
        ("0.4.27", Platform.CPU, "too old to compile for a CPU$"),
        ("0.4.37", Platform.GPU, "too old to compile for a GPU that is not there"),
        ("0.4.38", Platform.TPU, "too old to compile for a TPU that is not there"),
        ("newest", Platform.CPU, "newest is not a release of jax; give one as in"),
    ],
)
def test_an_unsuitable_release_is_an_error(release: str, platform: Platform, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        environment_of(release, platform=platform)


@pytest.mark.parametrize("platform", Platform)
def test_for_the_cpu_any_environment_of_a_release_will_do(cache: Path, platform: Platform) -> None:
    folder = platform.folder("0.11.1")
    assert folder.parent == cache
    folder.mkdir(parents=True)
    (folder / environments.INSTALLED).touch()
    found = environment_of("0.11.1", platform=Platform.CPU)
    assert (found.path, found.jax) == (folder / "bin" / "python", "0.11.1")


def test_this_python_will_do_where_it_has_the_release(cache: Path) -> None:
    release = version("jaxlib")
    assert environment_of(release, platform=Platform.CPU).path == Path(sys.executable)
    assert not cache.exists()


def test_a_python_without_jax_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be run: No such file"):
        interpreter_at(tmp_path / "python")


def test_the_newest_fit_python_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for minor in (12, 14):
        path = written(tmp_path / f"python3.{minor}", f"#!/bin/sh\necho 3 {minor}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert python_between((3, 12), (3, 14), this=(3, 11)) == str(tmp_path / "python3.14")
    assert python_between((3, 12), (3, 13), this=(3, 11)) == str(tmp_path / "python3.12")
    assert python_between((3, 15), (3, 15), this=(3, 11)) is None


def wheel_of(package: str, folder: Path) -> Path:
    """A wheel with one empty module."""
    path = folder / f"{package}-1.0-py3-none-any.whl"
    record = f"{package}-1.0.dist-info/{{}}"
    about = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{package}.py", "")
        wheel.writestr(record.format("METADATA"), about)
        wheel.writestr(record.format("WHEEL"), "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(record.format("RECORD"), "")
    return path


@pytest.mark.slow
def test_packages_lie_beside_an_environment_that_stays(tmp_path: Path, cache: Path) -> None:
    jax = pytest.importorskip("jax")
    here = interpreter_at(sys.executable)
    wheel = wheel_of("tinybeside", tmp_path)
    announced: list[str] = []
    beside = environments.with_packages(here, [str(wheel)], announced.append)
    assert beside.path.is_relative_to(cache)
    assert (beside.jax, beside.has_gpu_compiler) == (here.jax, here.has_gpu_compiler)
    code = "import jax, tinybeside; print(jax.__file__)"
    done = completed([beside.path, "-c", code])
    assert done.stdout.strip() == jax.__file__, done.stderr
    assert subprocess.run([here.path, "-c", code], capture_output=True).returncode == 1
    assert announced[0] == f"installing {wheel} beside jax {here.jax}, once …"
    with pytest.raises(UsageError, match="--with -e: give a package"):
        environments.with_packages(here, ["-e"], announced.append)


@pytest.mark.slow
def test_what_is_downloaded_is_announced_with_its_size(tmp_path: Path) -> None:
    """By pip itself, from an index of one package."""
    wheel_of("tiny", tmp_path)
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    announced: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = f"http://127.0.0.1:{server.server_address[1]}/"
        pip = [sys.executable, "-m", "pip", "--isolated", "--no-cache-dir", "install"]
        command = [*pip, "--no-index", "--find-links", page, "--target", str(tmp_path / "out")]
        try:
            environments.run_installer("0.11.2", [*command, "tiny"], announced.append)
            with pytest.raises(CaptureError, match=r"jax 0\.11\.2: .*No matching distribution"):
                environments.run_installer("0.11.2", [*command, "huge"], announced.append)
        finally:
            server.shutdown()
    downloading, unpacking = announced
    assert re.fullmatch(r"downloading tiny-1\.0-py3-none-any\.whl \(\d+ bytes\)", downloading)
    assert unpacking == "unpacking 1 package"
