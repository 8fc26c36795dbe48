"""Pythons with a release of jax: those at hand, and environments made once in the user's cache.

jaxlib alone comes to 300 MB of disk for each release, with the GPU compiler to 1.0 GB (300 MB of
downloads), with the TPU compiler to 1.3 GB.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from importlib import metadata
from pathlib import Path

from hlo_lint.text.errors import CaptureError, UsageError, os_errors_as
from hlo_lint.text.files import lock
from hlo_lint.text.source import shown
from hlo_lint.xla.pjrt import plugin_path

PTX_ASSEMBLER = "nvidia-cuda-nvcc-cu12"
"""Has `ptxas`, without which XLA:GPU compiles nothing where no CUDA toolkit is installed."""


class Platform(Enum):
    """The platform that an environment compiles for: what is installed in it."""

    CPU = ("CPU", "jaxlib-{}", (0, 4, 38), ("jaxlib=={}",))
    """With the parser, and no jax."""
    GPU = (
        "GPU",
        "jax-{}",
        (0, 4, 38),
        ("jax=={}", "jaxlib=={}", "jax-cuda12-plugin=={}", "jax-cuda12-pjrt=={}", PTX_ASSEMBLER),
    )
    TPU = ("TPU", "jax-{}-tpu", (0, 5, 3), ("jax[tpu]=={}", "jaxlib=={}"))

    def __init__(
        self, title: str, name: str, oldest: tuple[int, ...], packages: tuple[str, ...]
    ) -> None:
        self.title, self._name, self.packages = title, name, packages
        self.oldest = oldest
        """The first release that needs no such chip."""

    @property
    def is_here(self) -> bool:
        """True if this Python has the compiler."""
        plugin = {"GPU": "cuda", "TPU": "tpu"}.get(self.name)
        return plugin is None or plugin_path(plugin) is not None

    def folder(self, release: str) -> Path:
        """The folder of an environment."""
        return cache_folder() / self._name.format(release)


FROM_PYTHON_3_12 = (0, 11)
"""The first release of jax that needs Python 3.12."""
TO_PYTHON_3_14 = (0, 7, 1)
"""The first release of jax for Python 3.14."""
_download = re.compile(r"\s*Downloading (\S+) \(([\d.]+ ?\w+)\)").match
INSTALLED = "installed"
"""The file that says that nothing is missing."""


_ASK = """
import json
from importlib import metadata
from importlib.util import find_spec
plugins = [find_spec("jax_plugins") and find_spec("jax_plugins.xla_cuda" + n) for n in ("12", "13")]
print(json.dumps([metadata.version("jax"), any(plugins), bool(find_spec("libtpu"))]))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that has jax, or jaxlib alone."""

    path: Path
    jax: str
    """Its release."""
    has_gpu_compiler: bool = False
    has_tpu_compiler: bool = False


def interpreter_at(path: str | Path) -> Interpreter:
    """Find the jax of a Python, without importing it.

    Raises:
        UsageError: where it cannot be run, or has no jax.
    """
    with os_errors_as(f"{path} cannot be run", UsageError):
        done = subprocess.run([str(path), "-c", _ASK], capture_output=True)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise UsageError(f"{path} is not a Python in which jax is installed") from None
    return Interpreter(Path(path), *answer)


def version_of(release: str) -> tuple[int, ...]:
    """The numbers of a release: "0.11.2.dev5" is (0, 11, 2).

    >>> version_of("0.10.0") < version_of("0.11.2")
    True
    """
    return tuple(int(part) for part in re.findall(r"\d+", release)[:3])


def environment_of(
    release: str,
    announce: Callable[[str], None] = lambda _: None,
    platform: Platform = Platform.GPU,
) -> Interpreter:
    """The Python of an environment with that jax; made where it is not there yet.

    This Python where it has that release; for the CPU any environment with it will do. Each step
    is announced, downloads with their sizes.

    Raises:
        UsageError: for what is not a release, or one that is too old.
        CaptureError: where it cannot be made.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+(\.\w+)*", release):
        raise UsageError(f"{release} is not a release of jax; give one as in 0.11.2")
    if version_of(release) < platform.oldest:
        absent = " that is not there" if platform is not Platform.CPU else ""
        raise UsageError(f"jax {release} is too old to compile for a {platform.title}{absent}")
    if release == _release_here() and platform.is_here:
        here = Path(sys.executable)
        return Interpreter(here, release) if platform is Platform.CPU else interpreter_at(here)
    for other in Platform if platform is Platform.CPU else ():
        if (other.folder(release) / INSTALLED).exists():
            return Interpreter(_python_in(other.folder(release)), release)
    folder = platform.folder(release)
    with _locked(folder.with_suffix(f"{folder.suffix}.lock")):
        if not (folder / INSTALLED).exists():
            announce(f"installing jax {release} and its {platform.title} compiler, once …")
            _make(folder, release, platform.packages, announce)
    if platform is Platform.CPU:
        return Interpreter(_python_in(folder), release)
    return interpreter_at(_python_in(folder))


def _release_here() -> str:
    try:
        return metadata.version("jaxlib")
    except metadata.PackageNotFoundError:
        return ""


def _python_in(folder: Path) -> Path:
    return folder / "bin" / "python"


def cache_folder() -> Path:
    """The folder of the environments: `$XDG_CACHE_HOME/hlo_lint`, by default below `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "hlo_lint"


def _make(
    folder: Path,
    release: str,
    packages: Sequence[str],
    announce: Callable[[str], None],
) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    python = _python_in(folder)
    wanted = [package.format(release) for package in packages]
    oldest = (3, 12) if version_of(release) >= FROM_PYTHON_3_12 else (3, 11)
    newest = (3, 14) if version_of(release) >= TO_PYTHON_3_14 else (3, 13)
    base = python_between(oldest, newest)
    if uv := shutil.which("uv"):
        try:
            shutil.rmtree(folder, ignore_errors=True)
            for words in (
                ("venv", "--python", base or "3.12", str(folder)),
                ("pip", "install", "--python", str(python), *wanted),
            ):
                run_installer(release, [uv, *words], announce)
            (folder / INSTALLED).touch()
            return
        except CaptureError:
            if base is None:
                raise
            # uv reads none of pip's settings, an index of one's own among them.
    if base is None:
        raise CaptureError(
            f"jax {release} needs Python 3.{oldest[1]} to 3.{newest[1]}, and none is found; "
            "install uv, which fetches one, or give --python"
        )
    shutil.rmtree(folder, ignore_errors=True)
    run_installer(release, [base, "-m", "venv", str(folder)], announce)
    install = ("-m", "pip", "install", "--progress-bar=off", "--disable-pip-version-check")
    run_installer(release, [str(python), *install, *wanted], announce)
    (folder / INSTALLED).touch()


def python_between(
    oldest: tuple[int, int], newest: tuple[int, int], this: tuple[int, ...] = sys.version_info[:2]
) -> str | None:
    """A Python between two releases: `this` one, or one of those that are installed."""
    if oldest <= this <= newest:
        return sys.executable
    return next((python for python in _pythons() if oldest <= _version(python) <= newest), None)


def _pythons() -> Iterator[str]:
    for minor in (14, 13, 12, 11):
        if path := shutil.which(f"python3.{minor}"):
            yield path
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from map(str, sorted(versions.glob("3.1[1234].*/bin/python3"), reverse=True))


def _version(python: str) -> tuple[int, ...]:
    """(3, 12); empty where it does not run, as a shim of pyenv may not."""
    code = "import sys; print(*sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    except OSError:
        return ()
    return tuple(map(int, done.stdout.split())) if done.returncode == 0 else ()


def run_installer(release: str, command: Sequence[str], announce: Callable[[str], None]) -> None:
    """Run pip or uv, and announce what it downloads: `jaxlib-0.11.2-….whl (86.1 MB)`.

    Raises:
        CaptureError: it fails.
    """
    lines: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            lines.append(line.strip())
            if download := _download(line):
                announce(f"downloading {shown(download[1].rpartition('/')[2])} ({download[2]})")
    if running.returncode:
        errors = [line for line in lines if "error" in line.lower()]
        reason = (errors or [line for line in lines if line] or ["no reason given"])[-1]
        raise CaptureError(f"no environment for jax {release}: {reason}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time makes an environment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        lock(file, wait=True)
        yield
