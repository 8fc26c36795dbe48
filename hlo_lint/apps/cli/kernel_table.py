"""The table of `validate --kernels`: each kernel alone, with the verdict on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import click

from hlo_lint.apps.cli.common import print_json
from hlo_lint.apps.cli.tables import print_table
from hlo_lint.apps.isolation import JudgedKernel, KernelCompilation
from hlo_lint.text.phrases import counted
from hlo_lint.text.source import shown

MAX_WORDS = 300
"""The most characters of a message: MLIR's repeat the whole function."""


def show_kernels(compilations: Iterable[KernelCompilation], *, verbose: bool) -> int:
    """Print a table for each compilation; the number of bad kernels.

    Without `verbose` the kernels that are right, or only compile, are counted.
    """
    bad = 0
    for compilation in compilations:
        kernels = compilation.kernels
        bad += sum(kernel.verdict.is_bad for kernel in kernels)
        rows = [_row(kernel) for kernel in kernels if verbose or kernel.verdict.is_bad]
        if rows:
            print_table(
                [("kernel", "emitter", "Python", "", "largest error, or XLA's words"), *rows]
            )
        counts = Counter(kernel.verdict.status.value for kernel in kernels)
        outcomes = ", ".join(f"{count} {status}" for status, count in counts.most_common())
        total = counted(len(kernels), "kernel")
        click.echo(
            shown(f"{compilation.title}: {total} alone: {outcomes} ({compilation.compiler})")
        )
        reasons = Counter(
            kernel.verdict.message
            for kernel in kernels
            if kernel.verdict.message and not kernel.verdict.is_bad
        )
        for reason, count in reasons.most_common():
            click.echo(shown(f"  {counted(count, 'kernel')}: {reason.partition(chr(10))[0]}"))
    return bad


def _row(kernel: JudgedKernel) -> tuple[str, ...]:
    verdict = kernel.verdict
    words = f"{verdict.difference or verdict.message.strip().partition(chr(10))[0][:MAX_WORDS]}"
    if kernel.named:
        words += f" (it names {'; '.join(kernel.named)})"
    return tuple(
        map(shown, (f"%{kernel.name}", kernel.emitter, kernel.source, verdict.status.value, words))
    )


def print_kernels_as_json(compilations: Iterable[KernelCompilation]) -> int:
    """Print all kernels as JSON; the number of bad kernels."""
    everything = list(compilations)
    print_json(
        compilations=[
            {
                "module": compilation.title,
                "compiler": compilation.compiler,
                "kernels": [
                    {
                        "name": kernel.name,
                        "emitter": kernel.emitter,
                        "source": kernel.source,
                        "status": kernel.verdict.status.value,
                        "message": kernel.verdict.message,
                        "named": kernel.named,
                        "difference": kernel.verdict.difference and str(kernel.verdict.difference),
                        "error": kernel.verdict.difference and kernel.verdict.difference.error,
                        "hlo": kernel.verdict.cut.text if kernel.verdict.is_bad else None,
                    }
                    for kernel in compilation.kernels
                ],
            }
            for compilation in everything
        ]
    )
    return sum(
        kernel.verdict.is_bad for compilation in everything for kernel in compilation.kernels
    )
