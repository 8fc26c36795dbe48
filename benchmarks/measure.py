"""The tools of the benchmarks: texts, rounds, and the cost of a command.

`python -m benchmarks.measure COMMAND…` runs a command and prints its cost: the peak of a process
that measures more than one would be that of the largest, or its own.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
ROUNDS = int(os.environ.get("ROUNDS", "3"))
"""The number of times that a figure is measured, in turns with what it is compared with."""
NOTES = "## Notes\n"
"""The heading of what people wrote about a page of figures."""
MAX_SECONDS = 300
"""Seconds after which a command is stopped."""


class Rounds(NamedTuple):
    """One figure, once for each round."""

    values: tuple[float, ...]

    def __str__(self) -> str:
        low, high = min(self.values), max(self.values)
        return f"{median(self.values):.2f} [{low:.2f}-{high:.2f}]"


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


class Cost(NamedTuple):
    """Of a process and its children: seconds of CPU, and the peak of the largest in MB."""

    seconds: float
    peak: float


def cost_of(command: Sequence[str | Path], **variables: str) -> Cost | None:
    """The cost of a command; None if it was stopped after `MAX_SECONDS`.

    Raises:
        SystemExit: it failed.
    """
    environment = {**os.environ, **variables}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # pip writes it: to compile takes 0.3 s a run
    measured = [sys.executable, "-m", "benchmarks.measure", *map(str, command)]
    done = subprocess.run(measured, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    figures = json.loads(done.stdout)
    return None if figures is None else Cost(*figures)


def write_page(path: Path, lines: Sequence[str]) -> None:
    """Print lines and write them to a page, whose notes stay at its end."""
    _, heading, notes = path.read_text("utf-8").partition(NOTES)
    text = "\n".join([*lines, heading + notes])
    print(text)
    path.write_text(text, "utf-8")


def main() -> None:
    command = sys.argv[1:]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        _, errors = process.communicate(timeout=MAX_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        print("null")
        return
    if process.returncode not in (0, 1):
        sys.exit(f"{command}: {process.returncode}: {errors.decode()}")
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps([usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3]))


if __name__ == "__main__":
    main()
