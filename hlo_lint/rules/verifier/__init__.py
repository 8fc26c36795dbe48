"""Rules that mirror XLA's verifier, which release builds rarely run between passes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from inspect import cleandoc
from typing import ClassVar

from hlo_lint.analysis.verifier import Violation, Violations, marks_of
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.rules.base import Bad, Finding, Findings, Rule, Severity
from hlo_lint.rules.evidence import RefusedByXla, RuleEvidence
from hlo_lint.text.patterns import late
from hlo_lint.text.source import Span

_rows_of = late(r"^([\w-]+): ?([\w:]*)(?:\s+\(([^()]+)\))?\n  (.+)((?:\n {4}.*)*)", re.M).findall


class VerifierRule(Rule):
    """A rule that consists of checks of XLA's verifier.

    Its marked methods (`analysis/verifier/checks.py`) are checks. The engine runs the checks of all
    rules in a single pass (`engine/verifier.py`), and each rule claims its own violations.
    """

    checked_between_passes: ClassVar[bool] = True
    evidence: ClassVar[tuple[RuleEvidence, ...]] = (RefusedByXla("", passes="hlo-verifier"),)
    table: ClassVar[str]
    """For each check its name, its function in `hlo_verifier.cc` (empty if XLA has no such check),
    in parentheses the opcodes whose inferred shape it checks, and on the next line its demand; then
    an example that violates only this check, as for `Bad.entry`, unless it needs an option."""
    demands: ClassVar[Mapping[str, tuple[str, str]]]
    """The function and the demand of each check in `table`."""
    rows: ClassVar[Mapping[str, Bad]]
    """The example of each check in `table`."""
    shapes_of: ClassVar[Mapping[str, str]]
    """The opcodes of each check of inferred shapes in `table`."""
    counts_of: ClassVar[Mapping[str, str]] = {}
    """For each check of operand counts, its opcodes."""

    def __init_subclass__(cls) -> None:
        rows = _rows_of(cleandoc(cls.table))
        cls.demands = {check: (function, demand) for check, function, _, demand, _ in rows}
        cls.shapes_of = {check: opcodes for check, _, opcodes, *_ in rows if opcodes}
        cls.rows = {check: Bad.entry(text) for check, *_, text in rows if text}
        cls.examples = (*cls.rows.values(), *cls.examples)

    def check(self, violations: Violations) -> Findings:
        """Claim the violations of this rule's checks."""
        for check in self.demands:
            for violation in violations.by_check.get(check, ()):
                yield _finding(violation, violations.module)

    @classmethod
    def needs(cls) -> tuple[Iterable[str] | None, Iterable[str] | None]:
        """The opcodes and words of its checks, and those in `opcodes` and `mentions`."""
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
    """Convert a violation to a finding, with its span as offsets in the file."""
    place = violation.at
    if not isinstance(place, Instruction):
        place = Span(place.start + module.start, place.end + module.start)
    severity = Severity.WARNING if violation.is_warning else None
    return Finding(
        place, violation.message, violation.notes, violation.operand, severity, key=violation.check
    )
