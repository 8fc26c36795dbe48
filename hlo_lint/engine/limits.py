"""The bounds of a run: what they cut is in the report, and in the exit status."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from hlo_lint.dumps.directory import Skipped
from hlo_lint.text.phrases import counted

if TYPE_CHECKING:
    from hlo_lint.engine.findings import Diagnostic


class Limits(NamedTuple):
    """The cost allowed to one file, or to the dumps of one compilation; None for no limit."""

    megabytes: int | None = None
    """Size of a file, unpacked; memory is at most some 20 times that."""
    seconds: int | None = None
    """CPU time for the rules of one compilation."""
    nesting: int | None = None
    """Levels of brackets in a file."""


_LATE: Final = 0.1
"""Seconds after the end at which a rule is ended."""
NO_LIMITS = Limits()


class OutOfTimeError(BaseException):
    """The rules of one compilation have had their time; no rule catches it for a failure of its."""


class Stopwatch:
    """The CPU time of this process since it began."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.process_time() + seconds

    def check(self) -> None:
        """Go on, if there is time left.

        Raises:
            OutOfTimeError: there is none.
        """
        if self.left <= 0:
            raise OutOfTimeError

    @property
    def left(self) -> float:
        """Seconds of CPU time; infinite without a limit."""
        return inf if self._end is None else self._end - time.process_time()

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """End what runs in the block when the time is over, by a signal.

        Python handles signals in the main thread. In another one, on Windows, and under a profiler
        that has the signal, only `check` looks at the time.
        """
        number = getattr(signal, "SIGPROF", None)
        is_main = threading.current_thread() is threading.main_thread()
        if self._end is None or number is None or not is_main:
            yield
            return
        before = signal.getsignal(number)
        if before is not signal.SIG_DFL:
            yield
            return
        signal.signal(number, lambda *_: self.check())
        # Again, where what was raised went into a callback, which Python goes on after.
        signal.setitimer(signal.ITIMER_PROF, max(self.left, 0) + _LATE, _LATE)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(number, before)


def within_limit(
    findings: Sequence[Diagnostic], most: int
) -> tuple[tuple[Diagnostic, ...], Iterator[Skipped]]:
    """The first findings of each rule in each file, and how many were left out of the report."""
    counts: Counter[tuple[str, str, str]] = Counter()
    kept = []
    for finding in findings:
        key = finding.rule, finding.path, finding.severity.value
        counts[key] += 1
        if counts[key] <= most:
            kept.append(finding)
    skipped = (
        Skipped(path, f"{counted(count - most, severity)} more of {rule} (max-findings)", rule)
        for (rule, path, severity), count in counts.items()
        if count > most
    )
    return tuple(kept), skipped
