"""The tools of the benchmarks: texts of dumps, and what a command or a parser costs.

    python -m benchmarks.measure command WORD…     its seconds and peak
    python -m benchmarks.measure parser PLACE      seconds of XLA's parser for a file or folder
    python -m benchmarks.measure lint PLACE        seconds of `hlo_lint.lint` for it
    python -m benchmarks.measure check PLACE       the same as the command does it: no collections

A command is measured by a process of its own: the peak of a process that measures more than one
would be that of the largest. The others read a small dump before, so that what a process does
once is not counted; their seconds are CPU time of the thread that reads.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
MAX_SECONDS = 120
"""Seconds on the clock after which a command is stopped."""
_KNOWN = ROOT / "fixtures/dumps/cpu-jax0.10.2"


def hlo_texts(folder: Path) -> list[Path]:
    """The files below a folder whose first word is HloModule."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                if file.read(9) == b"HloModule":
                    found.append(path)
    return found


def unpacked(folder: Path, scratch: Path) -> Path:
    """The place of a folder's dumps: in it, or in `scratch` if it holds them in archives."""
    import tarfile

    archives = sorted(folder.glob("*.tar.xz"))
    for archive in archives:
        with tarfile.open(archive) as tar:
            tar.extractall(scratch, filter="data")
    return scratch if archives else folder


def write_made_text(path: Path, megabytes: float) -> None:
    """Write one text of that size, of a step of training that is made up."""
    from benchmarks import big_dump

    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        big_dump.write(Path(folder), 2.4 * megabytes / 1000, 2, 0)
        hlo_texts(Path(folder))[-1].rename(path)


class Cost(NamedTuple):
    """Of a process and its children: seconds of CPU, and the peak of the largest in MB."""

    seconds: float
    peak: float


def cost_of(command: Sequence[str | Path], **variables: str) -> Cost | str:
    """The cost of a command, or why there is none: it failed, or took too long."""
    environment = {**os.environ, **variables}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # pip writes it: to compile takes 0.3 s a run
    measured = [sys.executable, "-m", "benchmarks.measure", "command", *map(str, command)]
    done = subprocess.run(measured, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
    figures = json.loads(done.stdout)
    return figures if isinstance(figures, str) else Cost(*figures)


def seconds_of(python: str | Path, kind: str, place: Path) -> float:
    """The seconds of one of the other kinds in a process of a Python, the less of two.

    Raises:
        CalledProcessError: it failed; where XLA's parser refuses a text, it fails.
    """
    command = [python, "-m", "benchmarks.measure", kind, place]
    return min(
        float(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)
        for _ in range(2)
    )


def _of_command(words: Sequence[str]) -> object:
    process = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        _, errors = process.communicate(timeout=MAX_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return f"over {MAX_SECONDS} s"
    if process.returncode not in (0, 1) or b"Traceback" in errors:
        print(f"{words}: {process.returncode}: {errors.decode()}", file=sys.stderr)
        return "failed"
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3


def _parsed_by_xla(place: Path) -> None:
    from jaxlib import _hlo  # type: ignore[attr-defined]  # private, and without stubs

    for path in hlo_texts(place) if place.is_dir() else [place]:
        _hlo.hlo_module_from_text(path.read_text("utf-8", "surrogateescape"))


def _linted(place: Path) -> None:
    import hlo_lint

    hlo_lint.lint(place)


def main() -> None:
    match sys.argv[1:]:
        case ["command", *words]:
            print(json.dumps(_of_command(words)))
        case ["parser" | "lint" | "check" as kind, place]:
            work = _parsed_by_xla if kind == "parser" else _linted
            if kind == "check":
                gc.disable()
            work(_KNOWN)
            begun = time.thread_time()  # jaxlib's other threads may still be starting
            work(Path(place))
            print(time.thread_time() - begun)


if __name__ == "__main__":
    main()
