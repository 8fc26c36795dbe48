"""Kernels alone: `hlo-lint validate --kernels` on programs that are right, and on known errors.

    python -m benchmarks.kernels [--gpu] [--python PYTHON --chip h200] WORK…

Each WORK is a dump directory, a module in a file, or a program of `benchmarks.programs`; the last
two are compiled first: by the installed jaxlib, by the GPU of this machine, or by the jax of PYTHON
for a chip that is absent. Prints a row of a Markdown table for each compilation.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hlo_lint.apps.isolation import GPU_LIMITS, judged_kernels
from hlo_lint.dumps.directory import open_dump
from hlo_lint.text.source import encode
from hlo_lint.xla.child import ChildDied, ChildError
from hlo_lint.xla.cpu import XlaCpu, final_text
from hlo_lint_hunt.judge import DUMPED

_COMPILE = """
import sys
from benchmarks.programs import PROGRAMS, compiled, device_of
name, target, folder = sys.argv[1:]
options = {"xla_dump_to": folder, "xla_dump_hlo_pass_re": ".*", "xla_dump_hlo_as_text": True}
compiled(PROGRAMS[name](), device_of(target), **options)
"""


def rows(path: Path, **compiler: Any) -> Iterator[str]:
    """The rows of the compilations of a dump."""
    for compilation in judged_kernels(open_dump(path), **compiler):
        verdicts = [(kernel, kernel.verdict) for kernel in compilation.kernels]
        counts = Counter(verdict.status.value for _, verdict in verdicts)
        statuses = ", ".join(f"{count} {status}" for status, count in counts.most_common())
        bad = [
            f"`%{kernel.name}` ({kernel.emitter}): {verdict.difference or _first(verdict.message)}"
            for kernel, verdict in verdicts
            if verdict.is_bad
        ]
        why = {_first(verdict.message) for _, verdict in verdicts} - {""}
        cells = (path.name, compilation.title, compilation.compiler, statuses)
        yield f"| {' | '.join(cells)} | {'; '.join(bad or sorted(why))} |"


def _first(message: str) -> str:
    return message.partition("\n")[0][:160]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--python")
    parser.add_argument("--chip")
    parser.add_argument("work", nargs="+")
    given = parser.parse_args()
    compiler = {"on_gpu": given.gpu, "python": given.python, "chip": given.chip}
    for work in given.work:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(work)
            dump = path if path.is_dir() else Path(folder, path.stem)
            if not path.is_dir():
                dump.mkdir()
                if refusal := _dumped(work, dump, given):
                    print(f"| {path.stem} | | | does not compile | {refusal} |", flush=True)
                    continue
            print(*rows(dump, **compiler), sep="\n", flush=True)


def _dumped(work: str, folder: Path, given: argparse.Namespace) -> str:
    """The reason why a module or a program does not compile; empty if it does, and left dumps."""
    if not Path(work).is_file():
        command = [given.python or sys.executable, "-c", _COMPILE, work, given.chip or "cpu"]
        own = {"JAX_PLATFORMS": "cpu"} if given.chip else {}
        done = subprocess.run(
            [*command, f"{folder}"], capture_output=True, text=True, env={**os.environ, **own}
        )
        return _first(done.stderr.strip().rpartition("\n")[2]) if done.returncode else ""
    with XlaCpu(**(GPU_LIMITS if given.gpu else {})) as xla:
        text = encode(Path(work).read_text("utf-8"))
        try:
            xla.call(final_text, text, flags=DUMPED | {"xla_dump_to": f"{folder}"})
        except (ChildDied, ChildError) as error:
            return _first(f"{error}")
    return ""


if __name__ == "__main__":
    main()
