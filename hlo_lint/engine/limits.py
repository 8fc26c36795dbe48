"""Limits of a run, which reports what they cut."""

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
    """Limits for a file, or for the dumps of a compilation; None for no limit."""

    megabytes: int | None = None
    """The size of an unpacked file; memory is at most about 20 times that."""
    seconds: int | None = None
    """The CPU time for the rules of a compilation."""
    nesting: int | None = None
    """The levels of brackets in a file."""


_LATE: Final = 0.1
"""Seconds after the end of the time when a rule is interrupted."""
NO_LIMITS = Limits()


class OutOfTimeError(BaseException):
    """The time for the rules of a compilation is over; rules do not catch it as their own error."""


class Stopwatch:
    """A limit on the CPU time of this process, counted from the start of the watch."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.process_time() + seconds

    def check(self) -> None:
        """Check that there is time left.

        Raises:
            OutOfTimeError: there is no time left.
        """
        if self.left <= 0:
            raise OutOfTimeError

    @property
    def left(self) -> float:
        """The seconds of CPU time that are left; infinite without a limit."""
        return inf if self._end is None else self._end - time.process_time()

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Interrupt the block by a signal when the time is over.

        Python handles signals in the main thread. In another thread, on Windows, and under a
        profiler that uses the signal, only `check` looks at the time.
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
        # Repeated, because Python ignores an exception that is raised in a callback.
        signal.setitimer(signal.ITIMER_PROF, max(self.left, 0) + _LATE, _LATE)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(number, before)


def within_limit(
    findings: Sequence[Diagnostic], most: int
) -> tuple[tuple[Diagnostic, ...], Iterator[Skipped]]:
    """The first findings of each rule in each file, and the number of omitted findings."""
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
