"""Rules that mirror XLA's verifier, which release builds hardly run between passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from hlo_lint.analysis.verifier import Violation, Violations, marks_of
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.rules.base import Bad, Findings, Rule
from hlo_lint.rules.findings import Finding, Severity
from hlo_lint.text.source import Span


class VerifierRule(Rule):
    """A rule that stands for some checks of XLA's verifier.

    Its methods that are marked (`analysis/verifier/checks.py`) are checks. The engine runs those of
    all rules in one pass (`engine/verifier.py`), and each rule claims the violations of its own.
    """

    checked_between_passes: ClassVar[bool] = True
    demands: ClassVar[Mapping[str, tuple[str, str]]]
    """By the name of each check: its place in `hlo_verifier.cc`, empty if XLA has no such check,
    and what it demands."""
    rows: ClassVar[Mapping[str, Bad]]
    """A text that violates each check, and that no other rule reports; none for a check that only
    an option of the stage turns on."""
    shapes_of: ClassVar[Mapping[str, str]] = {}
    """The opcodes whose inferred shape is a check of this rule, by the name of the check."""
    counts_of: ClassVar[Mapping[str, str]] = {}
    """The opcodes whose number of operands is a check of this rule, by the name of the check."""

    def check(self, violations: Violations) -> Findings:
        """Claim the violations of this rule's checks."""
        for check in self.demands:
            for violation in violations.by_check.get(check, ()):
                yield _finding(violation, violations.module)

    @classmethod
    def needs(cls) -> tuple[Iterable[str] | None, Iterable[str] | None]:
        """The opcodes and words of its checks, and those that the class names for the others."""
        marks = list(marks_of(cls))
        inferred = {**cls.shapes_of, **cls.counts_of}
        is_of_whole = any(mark.is_of_whole for mark in marks)
        is_of_any = not marks and not inferred.keys() >= cls.demands.keys()
        if cls.opcodes is None and cls.mentions is None and (is_of_whole or is_of_any):
            return None, None
        opcodes = {opcode for opcodes in inferred.values() for opcode in opcodes.split()}
        words = set(cls.mentions or ())
        for mark in marks:
            (words if mark.subject == "attribute" else opcodes).update(mark.words)
        return opcodes.union(cls.opcodes or ()), words


def _finding(violation: Violation, module: Module) -> Finding:
    """The violation, in characters of the file."""
    at = violation.at
    if not isinstance(at, Instruction):
        at = Span(at.start + module.start, at.end + module.start)
    severity = Severity.WARNING if violation.is_warning else None
    return Finding(
        at, violation.message, violation.notes, violation.operand, severity, key=violation.check
    )
