"""Run the mirror of XLA's verifier once over each module; rules claim its violations."""

from __future__ import annotations

from collections.abc import Iterable

from hlo_lint.analysis.verifier import Checks, VerifierMemo, Violations, verify
from hlo_lint.hlo.ir import Module
from hlo_lint.rules.base import Stage
from hlo_lint.rules.checks import VIOLATIONS
from hlo_lint.rules.entry import RuleEntry, contents_of
from hlo_lint.rules.registry import rule_entries
from hlo_lint.rules.verifier import VerifierRule


class Verifier:
    """The checks of all rules that ask for violations, selected or not."""

    def __init__(self, entries: Iterable[RuleEntry] | None = None) -> None:
        """Use the rules of `entries`, by default of all registered rules."""
        self.memo = VerifierMemo()
        every = rule_entries() if entries is None else entries
        self._unread = [entry for entry in every if (VIOLATIONS,) in entry.asks]
        self._rules: list[VerifierRule] = []
        self._checks = Checks.of(())

    def violations(self, module: Module, stage: Stage) -> Violations:
        """The violations of a module."""
        return verify(module, stage, self.checks(module), self.memo)

    def checks(self, module: Module) -> Checks:
        """The loaded checks, which include all that may find something in a module."""
        if self._unread:
            contents = contents_of((module,))
            wanted = [entry for entry in self._unread if entry.applies(contents)]
            if wanted:
                self._unread = [entry for entry in self._unread if entry not in wanted]
                rules = (entry.load() for entry in wanted)
                self._rules += [rule for rule in rules if isinstance(rule, VerifierRule)]
                self._checks = Checks.of(self._rules)
        return self._checks
