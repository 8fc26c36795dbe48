"""Checks of rules: the method, the types of its parameters, and its call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any

from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.rules.base import Rule, Stage
from hlo_lint.rules.findings import Finding
from hlo_lint.text.errors import RewriteError, RuleError

if TYPE_CHECKING:
    from hlo_lint.text.edits import Fix

STAGE = "Stage"
UNMET = "UnmetPreconditions"
VIOLATIONS = "Violations"
CYCLES = "Cycles"

OnCrash = Callable[[Rule, object, Exception], None]
"""Callback for a rule that crashed on a subject: the rule, the subject and the exception."""


class Check:
    """A method `check` or `check_…` of a rule."""

    def __init__(
        self,
        rule: Rule,
        method: str,
        view: str,
        parameters: Mapping[str, str],
        on_crash: OnCrash | None = None,
        before_each: Callable[[], None] = lambda: None,
        seen_as: Callable[[Any], object] = lambda subject: subject,
    ) -> None:
        self.rule = rule
        self.method = method
        self.view = view
        self.parameters = parameters
        """The parameter name for each type that it takes."""
        self._on_crash = on_crash
        self._before_each = before_each
        self._seen_as = seen_as
        self._subject = parameters[view]
        self._function: Any = getattr(rule, method)
        self.takes_stage = STAGE in parameters or view == VIOLATIONS
        """True if the findings may depend on the stage of the run."""
        self.claims: Mapping[str, object] = getattr(rule, "demands", {})
        """The verifier checks whose violations are findings of the rule, by name."""

    def reporting(self, on_crash: OnCrash, before_each: Callable[[], None]) -> Check:
        """A copy of the check that reports crashes and keeps the findings up to a crash.

        An exception of `before_each`, which is called before each subject, ends the check.
        """
        return Check(self.rule, self.method, self.view, self.parameters, on_crash, before_each)

    def seeing(self, seen_as: Callable[[Any], object]) -> Check:
        """A copy of the check that applies a function to each subject first."""
        watched = self._on_crash, self._before_each
        return Check(self.rule, self.method, self.view, self.parameters, *watched, seen_as)

    @property
    def artefacts(self) -> Iterable[str]:
        """The parameter types other than the view and the stage."""
        return (name for name in self.parameters if name not in (self.view, STAGE))

    def run(
        self,
        subject: object,
        stage: Stage | None = None,
        artefacts: Mapping[str, object] | None = None,
    ) -> tuple[Finding, ...]:
        """The findings in a subject.

        Raises:
            RuleError: the rule crashed and there is no crash callback.
        """
        self._before_each()
        views = {self._subject: self._seen_as(subject)}
        if STAGE in self.parameters:
            views[self.parameters[STAGE]] = stage
        if artefacts:
            views.update({self.parameters[name]: value for name, value in artefacts.items()})
        findings: list[Finding] = []
        try:
            findings.extend(self._function(**views))
        except Exception as error:
            if self._on_crash is not None:
                self._on_crash(self.rule, subject, error)
                return tuple(findings)
            shown = ", ".join(map(repr, views.values()))
            raise RuleError(f"{self.rule.name()} crashed on {shown}: {error!r}") from error
        return tuple(findings)


def call_fix(rule: Rule, instruction: Instruction, module: Module, stage: Stage) -> Fix | None:
    """The fix of a rule for its finding at an instruction; None if XLA would refuse the rewrite."""
    fix: Any = rule.fix
    code: CodeType = type(rule).fix.__code__
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    arguments = {"stage": stage} if "stage" in parameters else {}
    try:
        return fix(instruction, module, **arguments)  # type: ignore[no-any-return]
    except RewriteError:
        return None
