"""Limits of a child process in which XLA runs: its time, its memory."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from hlo_lint.text.errors import HloLintError, UsageError

if TYPE_CHECKING:
    from hlo_lint.xla.child import Child

SECONDS: Final = "HLO_LINT_XLA_SECONDS"
"""The variable with the seconds that XLA may take per request."""
MEMORY: Final = "HLO_LINT_XLA_MEMORY"
"""The variable with the MB, of 2^20 bytes, that a child may allocate."""


class NoTimeLeft(HloLintError):
    """The time for all requests is up."""

    def __init__(self) -> None:
        super().__init__("the time was over (--seconds)")


class Deadline:
    """The time at which a command must end, with its children."""

    def __init__(self, seconds: float = inf) -> None:
        self._end = time.monotonic() + seconds
        self._children: WeakSet[Child] = WeakSet()

    def restart(self, seconds: float) -> None:
        """Move the end to this many seconds from now."""
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """The seconds left; 0 or less when the time is up."""
        return self._end - time.monotonic()

    def check(self) -> None:
        """Raise NoTimeLeft if the time is up."""
        if self.left <= 0:
            raise NoTimeLeft

    def register(self, child: Child) -> None:
        """Let `end_now` end this child."""
        self._children.add(child)

    def end_now(self) -> None:
        """End the time now, also for other threads that wait for a child."""
        self._end = 0.0
        for child in list(self._children):
            child.end()


@dataclass(frozen=True)
class ChildLimits:
    """The resource limits of a child."""

    seconds: float
    """The time per request, from question to answer."""
    memory: int | None = None
    """Bytes that it may allocate; None for the memory of the machine."""
    deadline: Deadline = field(default_factory=Deadline, compare=False)
    """The end of the time for all requests."""

    @classmethod
    def by_default(cls, seconds: float, memory: int | None = None) -> ChildLimits:
        """Limits that the environment variables override.

        Raises:
            UsageError: for a variable that is not a positive number.
        """
        megabytes = _positive(MEMORY)
        memory = memory if megabytes is None else int(megabytes * (1 << 20))
        return cls(_positive(SECONDS) or seconds, memory)

    @property
    def effective_memory(self) -> int | None:
        """`memory`, or the memory of the machine; None if that is unknown."""
        if self.memory is not None:
            return self.memory
        try:
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError, OSError):
            return None


def _positive(variable: str) -> float | None:
    text = os.environ.get(variable, "")
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number < 1e12:
        raise UsageError(f"{variable} is a positive number, not {text!r}")
    return number


# ---- in the child


def begin(terms: Mapping[str, Any]) -> None:
    """Limit this process to `memory` bytes, unless None, and end it with the process `parent`."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # XLA aborts on failed checks: no dumps
        _lower(resource.RLIMIT_DATA, terms["memory"])
    end_with(terms["parent"])


def end_with(parent: int) -> None:
    """End this process when its parent has ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def limit_time(seconds: float) -> None:
    """Limit the processor time of this process from now on.

    The parent watches the clock. This is for a child in C++ whose parent was killed.
    """
    if sys.platform != "win32":
        import resource

        usage = resource.getrusage(resource.RUSAGE_SELF)
        used = usage.ru_utime + usage.ru_stime
        # XLA may keep all processors busy.
        _lower(resource.RLIMIT_CPU, used + seconds * (os.cpu_count() or 1) + 1)


def _lower(limit: int, value: float | None) -> None:
    """Set a soft limit, unless `value` is None or the hard limit is lower."""
    import resource

    _, hard = resource.getrlimit(limit)
    if value is not None and (hard == resource.RLIM_INFINITY or value < hard):
        resource.setrlimit(limit, (int(value), hard))
