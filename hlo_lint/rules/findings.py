"""What a rule yields: a finding, with a severity."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hlo_lint.hlo.ir import Instruction
from hlo_lint.text.edits import Fix
from hlo_lint.text.source import Span


class Severity(Enum):
    """How bad it is."""

    ERROR = "error"
    """XLA dies, or the numbers are wrong."""
    WARNING = "warning"
    """It may be an error, or it costs."""
    INFO = "info"
    """Something to know; it does not count as a finding for the exit status."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule yields."""

    at: Instruction | Span
    """An instruction, or a stretch of the file."""
    message: str
    """The fact with its numbers; no full stop at the end."""
    notes: tuple[str, ...] = ()
    operand: int | None = None
    """Which operand the caret stands under; None for the whole instruction."""
    severity: Severity | None = None
    """Where it differs from the rule's own."""
    fixable: bool = True
    """True if the rule's fix mends this; a rule may find two things at one instruction."""
    file: int = 0
    """Which file `at` is in, where the rule looks at several."""
    key: str = ""
    """The kind of defect, where a rule finds several at one instruction: part of the identity in
    baselines, which the words of the message are not. At a stretch of text the default is the
    message without names and numbers."""
    fix: Fix | None = None
    """The fix, where the finding is in a text that is not HLO; else the rule's method makes it."""
