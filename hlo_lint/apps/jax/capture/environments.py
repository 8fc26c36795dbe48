"""Environments with a release of jax and a compiler, made once and kept in the user's cache.

The GPU compiler comes to about 300 MB of downloads and 1.0 GB of disk for each release, the TPU
compiler to 1.3 GB of disk.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hlo_lint.apps.jax.capture.children import Interpreter, interpreter_at
from hlo_lint.apps.jax.capture.targets import version_of
from hlo_lint.text.errors import CaptureError, UsageError
from hlo_lint.text.files import lock
from hlo_lint.text.source import shown

GPU_PACKAGES = ("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda12-pjrt")
TPU_PACKAGES = ("jax[tpu]", "jaxlib")
OLDEST = {False: (0, 4, 38), True: (0, 5, 3)}
"""The first releases of jax whose compilers for a GPU, and for a TPU, need none of it."""
FROM_PYTHON_3_12 = (0, 11)
"""The first release of jax that needs Python 3.12."""
NEWEST_PYTHON = (3, 13)
_download = re.compile(r"\s*Downloading (\S+) \(([\d.]+ ?\w+)\)").match
INSTALLED = "installed"
"""The file that says that nothing is missing."""


def environment_of(
    release: str, announce: Callable[[str], None] = lambda _: None, *, for_tpu: bool = False
) -> Interpreter:
    """The Python of an environment with that jax; made where it is not there yet.

    Each step is announced, downloads with their sizes.

    Raises:
        UsageError: for what is not a release, or one that is too old.
        CaptureError: where it cannot be made.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+(\.\w+)*", release):
        raise UsageError(f"{release} is not a release of jax; give one as in 0.11.2")
    if version_of(release) < OLDEST[for_tpu]:
        chip = "TPU" if for_tpu else "GPU"
        raise UsageError(f"jax {release} is too old to compile for a {chip} that is not there")
    folder = cache_folder() / f"jax-{release}{'-tpu' if for_tpu else ''}"
    python = folder / "bin" / "python"
    with _locked(folder.with_suffix(f"{folder.suffix}.lock")):
        if not (folder / INSTALLED).exists():
            compiler = f"{'TPU' if for_tpu else 'GPU'} compiler"
            announce(f"installing jax {release} and its {compiler}, once …")
            packages = TPU_PACKAGES if for_tpu else GPU_PACKAGES
            _make(folder, python, release, packages, announce)
    return interpreter_at(python)


def cache_folder() -> Path:
    """The folder of the environments: `$XDG_CACHE_HOME/hlo_lint`, by default below `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "hlo_lint"


def _make(
    folder: Path,
    python: Path,
    release: str,
    packages: Sequence[str],
    announce: Callable[[str], None],
) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    wanted = [f"{package}=={release}" for package in packages]
    oldest = (3, 12) if version_of(release) >= FROM_PYTHON_3_12 else (3, 11)
    base = _python(oldest)
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
            f"jax {release} needs Python {oldest[0]}.{oldest[1]} to 3.13, and none is found; "
            "install uv, which fetches one, or give --python"
        )
    shutil.rmtree(folder, ignore_errors=True)
    run_installer(release, [base, "-m", "venv", str(folder)], announce)
    install = ("-m", "pip", "install", "--progress-bar=off", "--disable-pip-version-check")
    run_installer(release, [str(python), *install, *wanted], announce)
    (folder / INSTALLED).touch()


def _python(at_least: tuple[int, int]) -> str | None:
    """A Python that is new enough: this one, or one of those that are installed."""
    if at_least <= sys.version_info[:2] <= NEWEST_PYTHON:
        return sys.executable
    fitting = (python for python in _pythons() if at_least <= _version(python) <= NEWEST_PYTHON)
    return next(fitting, None)


def _pythons() -> Iterator[str]:
    for name in ("python3.13", "python3.12", "python3.11"):
        if path := shutil.which(name):
            yield path
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from map(str, sorted(versions.glob("3.1[123].*/bin/python3"), reverse=True))


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
