"""XLA_FLAGS: quoted values, the folder of the dumps, flags that a release knows."""

from __future__ import annotations

import mmap
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from hlo_lint.text.errors import UsageError, os_errors_as
from hlo_lint.text.patterns import late

EMITTERS = "--xla_dump_emitter_re"
"""Since August 2026 XLA writes `.ptx` and `.ll` only with it (e4cb9bfc02)."""
_PASSES = "--xla_dump_hlo_pass_re"

_find_folders = late(r"""--xla_dump_to=(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|(\S+))""").findall
_find_libraries = (
    "import importlib.util as i\n"
    "for name in 'jaxlib', 'jax_plugins', 'jax_cuda12_plugin', 'jax_cuda13_plugin', 'libtpu':\n"
    "    spec = i.find_spec(name)\n"
    "    for folder in spec and spec.submodule_search_locations or ():\n"
    "        print(folder)\n"
)


def dumping(flags: str, folder: Path, *more: str) -> str:
    """XLA_FLAGS that dump to a folder, each pass that changes the module; other flags stay.

    Raises:
        UsageError: the flags name a file that cannot be read.
    """
    flags = flags.strip()
    if flags and not flags.startswith("-"):  # XLA then reads them from a file of that name
        with os_errors_as(f"XLA_FLAGS: {flags}: cannot be read", UsageError):
            flags = " ".join(Path(flags).read_text("utf-8").split())
    added = [f"--xla_dump_to={quoted(str(folder.absolute()))}", f"{_PASSES}=.*", *more]
    unset = [
        flag
        for flag in added
        if flag.startswith("--xla_dump_to=") or flag.partition("=")[0] not in flags
    ]
    return " ".join([flags, *unset])


def quoted(value: str) -> str:
    r"""A value as XLA reads it: it cuts flags at white space outside quotes.

    >>> quoted("/tmp/dump"), quoted('/a b/"c"')
    ('/tmp/dump', '"/a b/\\"c\\""')
    """
    if re.fullmatch(r"[^\s\"'\\]+", value):
        return value
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'


def dumped_to(flags: str) -> str | None:
    """The folder that flags dump to; None without a folder.

    >>> dumped_to('--xla_dump_to="/a b" --xla_x=1')
    '/a b'
    """
    folders = [
        re.sub(r"\\(.)", r"\1", double) or single or bare
        for double, single, bare in _find_folders(flags)
    ]
    return folders[-1] if folders and folders[-1] != "-" else None


def knows_emitters(program: Sequence[str], variables: Mapping[str, str]) -> bool:
    """True if each XLA that a program may load knows `EMITTERS`: an unknown flag ends a program."""
    python = _python_of(program, variables.get("PATH"))
    if python is None:
        return False
    with suppress(OSError, subprocess.SubprocessError):
        listed = subprocess.run(
            [python, "-c", _find_libraries],
            capture_output=True,
            text=True,
            env=dict(variables),
            timeout=20,
        )
        answers = [
            knows for folder in listed.stdout.splitlines() for knows in _answers(Path(folder))
        ]
        return bool(answers) and all(answers)
    return False


def _python_of(program: Sequence[str], path: str | None) -> str | None:
    """The Python that a command names, or that its script begins with."""
    for word in program:
        if Path(word).name.startswith("python") and (python := shutil.which(word, path=path)):
            return python
    with suppress(OSError):
        with open(shutil.which(program[0], path=path) or "", "rb") as script:
            first = script.readline(4096).decode("utf-8", "replace").strip()
        if first.startswith("#!") and "python" in first:
            return shutil.which(first.split()[-1].removeprefix("#!"), path=path)
    return None


def _answers(folder: Path) -> Iterator[bool]:
    """For each library of a folder that reads XLA_FLAGS: True if it has the flag."""
    for path in folder.rglob("*.so"):
        with (
            suppress(OSError, ValueError),  # ValueError: an empty file
            open(path, "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as library,
        ):
            if library.find(_PASSES.removeprefix("--").encode()) >= 0:
                yield library.find(EMITTERS.removeprefix("--").encode()) >= 0
