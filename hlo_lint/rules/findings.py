"""Findings, as rules yield them, and severities."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from hlo_lint.hlo.ir import Instruction
from hlo_lint.text.source import Span

if TYPE_CHECKING:
    from hlo_lint.text.edits import Fix

INTERNAL_ERROR = "internal-error"
"""The name in the place of a rule, where a finding stands for a crash: no suppression and no choice
of rules hides it."""


class Severity(Enum):
    """The severity of a finding."""

    ERROR = "error"
    """XLA dies, or the numbers are wrong."""
    WARNING = "warning"
    """It may be an error, or it costs."""
    INFO = "info"
    """Something to know; it does not count as a finding for the exit status."""

    def is_at_least(self, other: Severity) -> bool:
        """True if this is as severe as another, or more."""
        order = list(Severity)
        return order.index(self) <= order.index(other)


class Finding(NamedTuple):
    """A defect that a rule reports."""

    at: Instruction | Span
    """An instruction, or a stretch of the file."""
    message: str
    """The fact with its numbers; no full stop at the end."""
    notes: tuple[str, ...] = ()
    operand: int | None = None
    """The operand under which the caret stands; None for the whole instruction."""
    severity: Severity | None = None
    """The severity, if it differs from the rule's own."""
    fixable: bool = True
    """True if the rule's fix mends this; a rule may find two things at one instruction."""
    file: int = 0
    """The number of the file that `at` is in, if the rule looks at several."""
    key: str = ""
    """The kind of defect, where a rule finds several at one instruction: part of the identity in
    baselines, which the words of the message are not. At a stretch of text the default is the
    message without names and numbers."""
    fix: Fix | None = None
    """The fix, where the finding is in a text that is not HLO; else the rule's method makes it."""
