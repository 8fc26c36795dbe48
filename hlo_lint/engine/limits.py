"""The bounds of a run: what they cut is in the report, and in the exit status."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from hlo_lint.dumps.directory import Skipped
from hlo_lint.text.patterns import late
from hlo_lint.text.phrases import counted

if TYPE_CHECKING:
    from hlo_lint.engine.findings import Diagnostic
    from hlo_lint.engine.reporter import Part


class Limits(NamedTuple):
    """The cost allowed to one file, or to the dumps of one compilation; None for no limit."""

    megabytes: int | None = None
    """Size of a file, unpacked; memory is at most some 20 times that."""
    seconds: int | None = None
    """CPU time for the rules of one compilation."""
    nesting: int | None = None
    """Levels of brackets in a file."""


NO_LIMITS = Limits()
# A string or a comment that never ends is taken up to the end: each character is looked at once.
_brackets = late(
    r'"(?:[^"\\\n]++|\\.)*+"?|//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+|[({\[]|[)}\]]', re.S
).findall


def nests_deeper(text: str, levels: int) -> bool:
    """True if brackets of a text stand in each other deeper than so many levels.

    >>> nests_deeper("{ { ( /* [ */ ) } }", 2), nests_deeper("{ [ ] ( ) }", 2)
    (True, False)
    """
    depth = 0
    for token in _brackets(text):
        if token in "({[":
            depth += 1
            if depth > levels:
                return True
        elif token in ")}]":
            depth = max(0, depth - 1)
    return False


class OutOfTimeError(Exception):
    """The rules of one compilation have had their time."""


class Stopwatch:
    """The CPU time of this process since it began."""

    def __init__(self, seconds: int | None) -> None:
        self._end = None if seconds is None else time.process_time() + seconds

    def check(self) -> None:
        """Go on, if there is time left.

        Raises:
            OutOfTimeError: there is none.
        """
        if self._end is not None and time.process_time() > self._end:
            raise OutOfTimeError


def is_incomplete(part: Part) -> bool:
    """True if a crash or a limit kept something from being checked: another run may do better."""
    return bool(part.internal_errors) or any(entry.cut for entry in part.skipped)


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
