"""Checks one large pipeline in several processes, which share what was parsed.

Checks of one computation at a time are divided by computations: the other processes say which are
good, and what is left is checked here. Other checks are divided by check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from hlo_lint.engine.checks import Check
from hlo_lint.engine.executors.forks import run_forked
from hlo_lint.engine.views import Run
from hlo_lint.hlo.ir import Module
from hlo_lint.rules.base import Stage
from hlo_lint.rules.verifier import VerifierRule, mark_verified, verified_computations

if TYPE_CHECKING:
    from hlo_lint.engine.runner import Checker

_CHUNKS_PER_JOB: Final = 3
"""With fewer chunks the last one would be waited for."""


def check_split(
    checker: Checker, checks: Sequence[Check], run: Run, progress: Callable[[int], None]
) -> None:
    """Report what the checks find, in their order, as one process does."""
    whole = [check for check in checks if not isinstance(check.rule, VerifierRule)]
    functions: list[Callable[[], Any]] = []
    chunks: list[tuple[Module, Stage]] = []
    if len(whole) < len(checks):
        for module, stage in run.timeline.ends:
            for numbers in _chunks(module, checker.jobs * _CHUNKS_PER_JOB):
                functions.append(partial(_good_computations, module, stage, numbers))
                chunks.append((module, stage))
    functions += [partial(checker.outcome_of, check, run) for check in whole]
    values = run_forked(functions, checker.jobs, lambda _: progress(0))
    for (module, stage), good in zip(chunks, values, strict=False):
        mark_verified(module, stage, good)
    outcomes = dict(zip(map(id, whole), values[len(chunks) :], strict=True))
    for check in checks:
        progress(0)
        if id(check) in outcomes:
            checker.reporter.add_outcome(outcomes[id(check)])
        else:
            checker.run_check(check, run)


def _good_computations(module: Module, stage: Stage, numbers: Sequence[int]) -> list[int]:
    try:
        return verified_computations(module, stage, numbers)
    except Exception:  # raised again, and reported, when the rule itself is run
        return []


def _chunks(module: Module, count: int) -> list[range]:
    """The numbers of its computations, in stretches of about as many instructions."""
    sizes = [len(computation.rows) for computation in module.computations]
    least = sum(sizes) / count
    chunks, start, size = [], 0, 0
    for at, rows in enumerate(sizes):
        size += rows
        if size >= least:
            chunks.append(range(start, at + 1))
            start, size = at + 1, 0
    if start < len(sizes):
        chunks.append(range(start, len(sizes)))
    return chunks
