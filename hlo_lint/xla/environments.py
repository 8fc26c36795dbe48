"""Pythons with a release of jax: the current one, or environments in the user's cache.

jaxlib alone takes 300 MB of disk for each release, with the GPU compiler 1.2 GB (380 MB of
downloads), with the TPU compiler 1.3 GB.

Packages that a script imports beside jax are installed in a separate environment on top of the
release's environment, which stays unchanged for other scripts and for comparisons.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from hlo_lint.text.errors import CaptureError, UsageError, os_errors_as
from hlo_lint.text.files import cache_folder, lock
from hlo_lint.text.phrases import counted
from hlo_lint.text.source import shown
from hlo_lint.xla.pjrt import plugin_path

PTX_ASSEMBLER = "nvidia-cuda-nvcc-cu12"
"""The package with `ptxas`, which XLA:GPU needs unless a CUDA toolkit is installed."""
MOSAIC_GPU = "absl-py"
"""Imported by Pallas kernels for GPUs up to jax 0.10, which does not require it."""


class Platform(Enum):
    """The platform that an environment compiles for, with its packages."""

    CPU = ("CPU", "jaxlib-{}", (0, 4, 28), ("jaxlib=={}",))
    """The parser, without jax."""
    GPU = (
        "GPU",
        "jax-{}",
        (0, 4, 38),
        (
            *("jax=={}", "jaxlib=={}", "jax-cuda12-plugin=={}", "jax-cuda12-pjrt=={}"),
            *(PTX_ASSEMBLER, MOSAIC_GPU),
        ),
    )
    TPU = ("TPU", "jax-{}-tpu", (0, 5, 3), ("jax[tpu]=={}", "jaxlib=={}"))

    def __init__(
        self, title: str, name: str, oldest: tuple[int, ...], packages: tuple[str, ...]
    ) -> None:
        self.title, self._name, self.packages = title, name, packages
        self.oldest = oldest
        """The first release that compiles without the chip."""

    @property
    def is_here(self) -> bool:
        """True if the current Python has the compiler."""
        plugin = {"GPU": "cuda", "TPU": "tpu"}.get(self.name)
        return plugin is None or plugin_path(plugin) is not None

    def folder(self, release: str) -> Path:
        """The folder of an environment."""
        return cache_folder() / self._name.format(release)


UNFIT = {(Platform.GPU, (0, 4, 36))}
"""Later releases that compile for no absent chip: 0.4.36 finds no platform for a GPU."""
FROM_PYTHON_3_12 = (0, 11)
"""The first release of jax that needs Python 3.12."""
TO_PYTHON_3_14 = (0, 7, 1)
"""The first release of jax for Python 3.14."""
_download = re.compile(r"\s*Downloading (\S+) \(([\d.]+ ?\w+)\)").match
_unpacking = re.compile(r"Installing collected packages: (.*)").match
PACKAGES = {
    "PIL": "pillow",
    "absl": "absl-py",
    "cv2": "opencv-python",
    "orbax": "orbax-checkpoint",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Packages that have another name than the module that they install."""
INSTALLED = "installed"
"""The file that marks a complete installation."""


_ASK = """
import json
from importlib import metadata
from importlib.util import find_spec
plugins = [find_spec("jax_plugins") and find_spec("jax_plugins.xla_cuda" + n) for n in ("12", "13")]
print(json.dumps([metadata.version("jax"), any(plugins), bool(find_spec("libtpu"))]))
"""
"""Prints the fields of an `Interpreter` after its path."""

_SITES = """
import json, sys
from importlib import metadata
print(json.dumps([metadata.version("jaxlib"), [p for p in sys.path if p.endswith("-packages")]]))
"""
"""Prints the release of jaxlib, and the folders of packages."""

_PIP = ("-m", "pip", "install", "--progress-bar=off", "--disable-pip-version-check")


class Interpreter(NamedTuple):
    """A Python with jax, or only jaxlib."""

    path: Path
    jax: str
    """The release of jax."""
    has_gpu_compiler: bool = False
    has_tpu_compiler: bool = False


def interpreter_at(path: str | Path) -> Interpreter:
    """Find the jax of a Python, without importing it.

    Raises:
        UsageError: if it cannot be run, or has no jax.
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
    oldest: tuple[int, ...] | None = None,
) -> Interpreter:
    """The Python of an environment with a release of jax, which is created if necessary.

    It is the current Python if that has the release; for the CPU any environment with the release
    suffices. Each step is announced, downloads with their sizes. `oldest` is the first release that
    the caller can use.

    Raises:
        UsageError: for an invalid release, or a release that is too old.
        CaptureError: if the environment cannot be created.
    """
    check_release(release, platform, oldest)
    if _is_here(release, platform):
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


def check_release(release: str, platform: Platform, oldest: tuple[int, ...] | None = None) -> None:
    """Check that a release can compile for a platform, whether its environment is there or not.

    `oldest` is the first release that the caller can use, by default that of the platform.

    Raises:
        UsageError: for an invalid release, or a release that is too old.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+(\.\w+)*", release):
        raise UsageError(f"{release} is not a release of jax; give one as in 0.11.2")
    version = version_of(release)
    if version < (oldest or platform.oldest) or (platform, version) in UNFIT:
        absent = " that is not there" if platform is not Platform.CPU else ""
        raise UsageError(f"jax {release} is too old to compile for a {platform.title}{absent}")


def needs_download(release: str, platform: Platform) -> bool:
    """True if `environment_of` has to make an environment."""
    fitting = Platform if platform is Platform.CPU else (platform,)
    return not _is_here(release, platform) and not any(
        (other.folder(release) / INSTALLED).exists() for other in fitting
    )


def installed(platform: Platform) -> list[str]:
    """The releases that have an environment for a platform, the oldest first."""
    names = " ".join(marker.parent.name for marker in cache_folder().glob(f"*/{INSTALLED}"))
    releases = set(re.findall(r"\d+\.\d+\.\d+", names))
    made = [name for name in releases if (platform.folder(name) / INSTALLED).exists()]
    return sorted(made, key=version_of)


def _is_here(release: str, platform: Platform) -> bool:
    return release == release_here() and platform.is_here


def with_packages(
    interpreter: Interpreter, packages: Sequence[str], announce: Callable[[str], None]
) -> Interpreter:
    """An interpreter with more packages, in an environment that reads that of another.

    It is made once for each interpreter and set of packages. jax stays as it is: packages that
    need another release of it are refused.

    Raises:
        UsageError: for a package that pip would take for an option.
        CaptureError: where they cannot be installed.
    """
    if options := [package for package in packages if package.startswith("-")]:
        raise UsageError(f"--with {options[0]}: give a package, as in --with optax==0.2.6")
    done = subprocess.run([str(interpreter.path), "-c", _SITES], capture_output=True, check=True)
    jaxlib, sites = json.loads(done.stdout)
    content = "\n".join([f"{interpreter.path}", *sites, interpreter.jax, *sorted(packages)])
    folder = cache_folder() / f"with-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    # A package that is read from a folder may have changed since.
    is_fresh = any("/" in package and Path(package).exists() for package in packages)
    with _locked(folder.with_suffix(".lock")):
        if is_fresh or not (folder / INSTALLED).exists():
            announce(f"installing {', '.join(packages)} beside jax {interpreter.jax}, once …")
            shutil.rmtree(folder, ignore_errors=True)
            python = _python_in(folder)
            without_pip = ("-m", "venv", "--without-pip", str(folder))
            run_installer(interpreter.jax, [str(interpreter.path), *without_pip], announce)
            (own,) = folder.glob("lib/python*/site-packages")
            added = "; ".join(["import site", *(f"site.addsitedir({site!r})" for site in sites)])
            (own / "jax.pth").write_text(f"{added}\n", "utf-8")
            releases = f"jax=={interpreter.jax}\njaxlib=={jaxlib}\n"
            (folder / "constraints").write_text(releases, "utf-8")
            chosen = ("--constraint", str(folder / "constraints"), "--", *packages)
            # pip sees that jax is installed. uv does not, and links it from its cache once more.
            has_pip = subprocess.run([python, "-c", "import pip"], capture_output=True)
            command = [str(python), *_PIP] if has_pip.returncode == 0 else _uv(python)
            run_installer(interpreter.jax, [*command, *chosen], announce)
            (folder / INSTALLED).write_text(content, "utf-8")
    return interpreter._replace(path=_python_in(folder))


def _uv(python: Path) -> list[str]:
    """The start of a command that installs packages with uv."""
    uv = shutil.which("uv")
    if uv is None:
        raise CaptureError(f"{python} has no pip to install packages with; install pip or uv")
    return [uv, "pip", "install", "--python", str(python)]


def release_here() -> str:
    """The release of the installed jaxlib; empty without it."""
    try:
        return metadata.version("jaxlib")
    except metadata.PackageNotFoundError:
        return ""


def _python_in(folder: Path) -> Path:
    return folder / "bin" / "python"


def _make(
    folder: Path, release: str, packages: Sequence[str], announce: Callable[[str], None]
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
            # uv does not read pip's settings, such as a private index.
    if base is None:
        raise CaptureError(
            f"jax {release} needs Python 3.{oldest[1]} to 3.{newest[1]}, and none is found; "
            "install uv, which fetches one, or give --python"
        )
    shutil.rmtree(folder, ignore_errors=True)
    run_installer(release, [base, "-m", "venv", str(folder)], announce)
    run_installer(release, [str(python), *_PIP, *wanted], announce)
    (folder / INSTALLED).touch()


def python_between(
    oldest: tuple[int, int], newest: tuple[int, int], this: tuple[int, ...] = sys.version_info[:2]
) -> str | None:
    """The current or an installed Python between two releases, else None."""
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
    """The version, (3, 12); empty if it does not run, like some shims of pyenv."""
    code = "import sys; print(*sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    except OSError:
        return ()
    return tuple(map(int, done.stdout.split())) if done.returncode == 0 else ()


def run_installer(release: str, command: Sequence[str], announce: Callable[[str], None]) -> None:
    """Run pip or uv, and announce its downloads: `jaxlib-0.11.2-….whl (86.1 MB)`.

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
            elif unpacking := _unpacking(line):
                announce(f"unpacking {counted(unpacking[1].count(',') + 1, 'package')}")
    if running.returncode:
        # pip's last line about a conflict only says where to read on.
        errors = [line for line in lines if re.search("(?i)error(?!: ResolutionImpossible)", line)]
        reason = (errors or [line for line in lines if line] or ["no reason given"])[-1]
        raise CaptureError(f"no environment for jax {release}: {reason}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let a single process at a time create an environment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        lock(file, wait=True)
        yield
