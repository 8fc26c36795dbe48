"""The cost of a hostile input: a run of the command line with limits on CPU time and memory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.hostile.inputs import Hostile

MAX_SECONDS = 60
"""CPU time after which a run is killed."""
MAX_BYTES = 4 << 30
"""Address space of a run."""
MICROSECONDS = 20
"""CPU time for a byte that is linear time: most of what is reported of each finding."""


@dataclass(frozen=True)
class Run:
    """The cost of one run."""

    bytes: int
    seconds: float
    megabytes: float
    says: str
    status: int

    @property
    def is_within_bounds(self) -> bool:
        """True if it ends soon, or in time that is linear in its bytes, and says something."""
        if self.status < 0 or self.says.startswith("INTERNAL"):
            return False
        is_small = self.seconds <= 5 and self.megabytes <= 256
        return is_small or self.seconds <= MICROSECONDS * self.bytes / 1e6


_LIMITED = f"""\
import json, os, resource, sys
child = os.fork()
if not child:
    resource.setrlimit(resource.RLIMIT_CPU, ({MAX_SECONDS}, {MAX_SECONDS}))
    resource.setrlimit(resource.RLIMIT_AS, ({MAX_BYTES}, {MAX_BYTES}))
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
_, status, usage = os.wait4(child, 0)
with open(sys.argv[1], "w") as file:
    json.dump([status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3], file)
"""
"""A small process that starts the one to be measured: what a large one starts begins with its
memory, as the kernel counts, and where jax has threads it must not fork."""


def run(hostile: Hostile, size: int, folder: Path) -> Run:
    """Check an input in a process of its own."""
    path = hostile.write(folder, size)
    length = sum(
        file.lstat().st_size
        for file in ([path] if path.is_file() else path.rglob("*"))
        if file.is_file() and not file.is_symlink()
    )
    out, errors, used = (folder.parent / name for name in ("out", "errors", "used"))
    with (
        open(path if path.is_file() else os.devnull, "rb") as stdin,
        out.open("wb") as stdout,
        errors.open("wb") as stderr,
    ):
        command = [sys.executable, "-c", _LIMITED, str(used), "-m", "hlo_lint"]
        subprocess.run(
            [*command, *hostile.command(path)],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=folder if path.is_dir() else folder.parent,
            check=True,
        )
    status, seconds, megabytes = json.loads(used.read_text())
    status = os.waitstatus_to_exitcode(status)
    report, complaints = (file.read_text("utf-8", "replace") for file in (out, errors))
    return Run(length, seconds, megabytes, _says(report, complaints, status), status)


def _says(report: str, errors: str, status: int) -> str:
    if status < 0:
        return f"killed by signal {-status}"
    if "Traceback" in errors or "internal error" in errors or "internal-error" in report:
        return "INTERNAL ERROR: " + (errors.strip().splitlines() or ["a rule crashed"])[-1][:150]
    lines = errors.strip().splitlines() or report.strip().splitlines() or ["nothing"]
    last = lines[-2] if lines[-1].endswith(("`", "unsafe-fixes")) and len(lines) > 1 else lines[-1]
    return re.sub(r"/tmp/\S*/input(?:/input)?", "PATH", last)[:100]


def measure(hostile: Hostile) -> tuple[Hostile, Run]:
    """The cost of an input of its size."""
    with tempfile.TemporaryDirectory(prefix="hostile") as scratch:
        folder = Path(scratch, "input")
        folder.mkdir()
        return hostile, run(hostile, hostile.size, folder)
