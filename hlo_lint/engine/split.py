"""Checks one large pipeline in several processes, which share what was parsed.

Most checks are divided by check. XLA's verifier is divided by computations: where none violates
anything, as in nearly every module, its rules have nothing left to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from hlo_lint.analysis.calls import holders
from hlo_lint.analysis.kinds import kinds_of
from hlo_lint.engine.checks import VIOLATIONS, Check
from hlo_lint.engine.executors.forks import run_forked
from hlo_lint.engine.views import Run
from hlo_lint.hlo.ir import Module
from hlo_lint.rules.base import Stage

if TYPE_CHECKING:
    from hlo_lint.engine.runner import Checker
    from hlo_lint.engine.verifier import Verifier

_CHUNKS_PER_JOB: Final = 8
"""With fewer chunks the last one would be waited for: some hold what was not met before."""


def check_split(
    checker: Checker, checks: Sequence[Check], run: Run, progress: Callable[[int], None]
) -> None:
    """Report what the checks find, in their order, as one process does."""
    whole = [check for check in checks if check.kind != VIOLATIONS]
    functions: list[Callable[[], Any]] = [
        partial(checker.outcome_of, check, run) for check in whole
    ]
    ends: list[tuple[Module, Stage]] = []
    """The module of each part of the verifier's work."""
    if len(whole) < len(checks):
        for module, stage in run.timeline.ends:
            kinds_of(module)  # here, since most checks ask for them
            holders(module)
            # These come last: they are short, and fill the time that long checks leave.
            # ENTRY, which is the largest most often, stands last.
            chunks = list(_chunks(module, checker.jobs * _CHUNKS_PER_JOB))
            for numbers in (None, *reversed(chunks)):
                functions.append(
                    partial(_is_verified, run.timeline.memo.verifier, module, stage, numbers)
                )
                ends.append((module, stage))
    values = run_forked(functions, checker.jobs, lambda _: progress(0))
    outcomes = dict(zip(map(id, whole), values, strict=False))
    is_good = dict.fromkeys(ends, True)
    for end, good in zip(ends, values[len(whole) :], strict=True):
        is_good[end] &= good
    for (module, stage), good in is_good.items():
        if good:
            run.timeline.mark_verified(module, stage)
    for check in checks:
        progress(0)
        if id(check) in outcomes:
            checker.reporter.add_outcome(outcomes[id(check)])
        else:
            checker.run_check(check, run)


def _is_verified(
    verifier: Verifier, module: Module, stage: Stage, numbers: Sequence[int] | None
) -> bool:
    try:
        return verifier.is_verified(module, stage, numbers)
    except Exception:  # raised again, and reported, when the rule itself is run
        return False


def _chunks(module: Module, count: int) -> Iterator[range]:
    """The numbers of its computations, in stretches of about as many instructions."""
    sizes = [len(computation.rows) for computation in module.computations]
    least = sum(sizes) / count
    start, size = 0, 0
    for at, rows in enumerate(sizes):
        size += rows
        if size >= least:
            yield range(start, at + 1)
            start, size = at + 1, 0
    if start < len(sizes):
        yield range(start, len(sizes))
