"""Findings, as rules yield them."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from hlo_lint.hlo.ir import Instruction
from hlo_lint.text.phrases import short_repr
from hlo_lint.text.source import Span

if TYPE_CHECKING:
    from hlo_lint.text.edits import Fix

INTERNAL_ERROR = "internal-error"
"""The rule name of findings that report a crash: no suppression or selection hides them."""


class Severity(Enum):
    """The severity of a finding."""

    ERROR = "error"
    """XLA crashes, or the numbers are wrong."""
    WARNING = "warning"
    """A possible error, or a cost in time or memory."""
    INFO = "info"
    """Information; it does not affect the exit status."""

    @property
    def rank(self) -> int:
        """The place in the order of severities: 0 for an error."""
        return list(Severity).index(self)


class Finding(NamedTuple):
    """A defect that a rule reports."""

    at: Instruction | Span
    """The instruction or the span of the file to which it applies."""
    message: str
    """The fact with its numbers; no full stop at the end."""
    notes: tuple[str, ...] = ()
    operand: int | None = None
    """The number of the operand to underline; None for the whole instruction."""
    severity: Severity | None = None
    """The severity, if it differs from the rule's."""
    fixable: bool = True
    """True if the rule's fix resolves it; a rule may report unfixable defects too."""
    file: int = 0
    """The index of the file that contains `at`, if the rule checks several files."""
    key: str = ""
    """The kind of defect, if a rule reports several at the same instruction. It is part of the
    identity in baselines, unlike the message. For a span, the default is the message without names
    and numbers."""
    word: str = ""
    """The opcode, type, attribute or value to underline in place of the instruction's name."""
    fix: Fix | None = None
    """The fix of a finding in a text other than HLO; for HLO, `Rule.fix` makes it."""

    def __repr__(self) -> str:
        return short_repr(self)
