"""The compiler's choices that tell the bad runs of a program from its good runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hlo_lint.dumps.artefacts.autotune import read_autotuning
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.run_records import settings_of_run
from hlo_lint.dumps.selection import modules_of


class RunChoice(NamedTuple):
    """A choice that tells bad runs from good ones."""

    kind: str
    """`autotuner`, `kernel` or `setting`, in this order."""
    subject: str
    """The fingerprint of a fusion, the name of a kernel, a flag."""
    bad: str
    """The choice of every bad run; empty if they all lack the subject."""
    good: tuple[str, ...]
    """The choices of the good runs."""


_KINDS = ("autotuner", "kernel", "setting")


def choices_of_bad(good: Sequence[Compilation], bad: Sequence[Compilation]) -> list[RunChoice]:
    """The choices that all bad runs of a program made, and no good run."""
    ours, theirs = (
        [dict(_choices(compilation)) for compilation in compilations]
        for compilations in (good, bad)
    )
    subjects = {subject for compilation in (*ours, *theirs) for subject in compilation}
    result = []
    for kind, subject in sorted(subjects, key=lambda at: (_KINDS.index(at[0]), at[1])):
        made = {compilation.get((kind, subject), "") for compilation in theirs}
        others = {compilation.get((kind, subject), "") for compilation in ours}
        if len(made) == 1 and made.isdisjoint(others):
            result.append(RunChoice(kind, subject, made.pop(), tuple(sorted(others))))
    return result


def _choices(compilation: Compilation) -> Iterator[tuple[tuple[str, str], str]]:
    text = compilation.artefact("autotune_results.pbtxt")
    for winner in read_autotuning(text).results if text is not None else ():
        yield ("autotuner", winner.fingerprint or winner.hlo), f"{winner.backend} {winner.config}"
    for module in modules_of(compilation.final) if compilation.final is not None else ():
        for row in module.instructions():
            if "backend_config=" in row.attributes_text:
                yield ("kernel", f"%{row.name}"), row.attributes["backend_config"]
    for name, values in settings_of_run(compilation).items():
        yield ("setting", name), ", ".join(values)
