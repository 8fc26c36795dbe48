"""Kernels alone: `hlo-lint validate --kernels` on programs that are right, and on known errors.

    python -m benchmarks.kernels [--gpu] PATH…

Each PATH is a dump directory, or a module that is compiled here first: by the installed jaxlib, or
by the GPU of this machine. Prints a row of a Markdown table for each compilation.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hlo_lint.apps.hunt.judge import DUMPED
from hlo_lint.apps.isolation import GPU_LIMITS, judged_kernels
from hlo_lint.text.source import encode
from hlo_lint.xla.child import ChildDied, ChildError
from hlo_lint.xla.cpu import XlaCpu, final_text


def rows(path: Path, on_gpu: bool) -> Iterator[str]:
    """The rows of the compilations of a dump."""
    for compilation in judged_kernels(path, on_gpu=on_gpu):
        counts = Counter(kernel.verdict.status.value for kernel in compilation.kernels)
        bad = [
            f"`%{kernel.name}` ({kernel.emitter}): "
            f"{kernel.verdict.difference or kernel.verdict.message.partition(chr(10))[0][:200]}"
            for kernel in compilation.kernels
            if kernel.verdict.is_bad
        ]
        statuses = ", ".join(f"{count} {status}" for status, count in counts.most_common())
        why = {kernel.verdict.message.partition("\n")[0][:90] for kernel in compilation.kernels}
        cells = (f"{path.name} {compilation.title}", compilation.compiler, statuses)
        yield f"| {' | '.join(cells)} | {'; '.join(bad or sorted(why - {''}))} |"


def main(*arguments: str) -> None:
    """Print the table."""
    on_gpu = "--gpu" in arguments
    with XlaCpu(**(GPU_LIMITS if on_gpu else {})) as xla:
        for path in (Path(word) for word in arguments if word != "--gpu"):
            if path.is_dir():
                print(*rows(path, on_gpu), sep="\n", flush=True)
                continue
            with tempfile.TemporaryDirectory() as folder:
                dump = Path(folder, path.stem)
                flags = DUMPED | {"xla_dump_to": f"{dump}"}
                try:
                    xla.call(final_text, encode(path.read_text("utf-8")), flags=flags)
                except (ChildDied, ChildError) as error:
                    print(f"| {path.stem} | does not compile | | {f'{error}'[:200]} |")
                    continue
                print(*rows(dump, on_gpu), sep="\n", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
