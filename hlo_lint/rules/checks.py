"""One check of one rule: the method, the types that it asks for, and how it is called."""

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
VIOLATIONS = "Violations"
CYCLES = "Cycles"

OnCrash = Callable[[Rule, object, Exception], None]
"""Callback for a rule that crashed on a subject."""


class WatchedStage:
    """A stage that records what was read of it: a field that was not read made no difference."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.asked: dict[str, object] = {}

    def __getattr__(self, name: str) -> object:
        value = self.asked[name] = getattr(self._stage, name)
        return value

    def is_equivalent(self, stage: Stage) -> bool:
        """True if another stage has the same values in every field that was read."""
        return all(getattr(stage, name) == value for name, value in self.asked.items())


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
        """The type of view that it looks at, `Module`."""
        self.parameters = parameters
        """The parameter of each type that it asks for."""
        self._on_crash = on_crash
        self._before_each = before_each
        self._seen_as = seen_as
        self._subject = parameters[view]
        self._function: Any = getattr(rule, method)
        self.takes_stage = STAGE in parameters or view == VIOLATIONS
        """True if the findings may depend on the stage of the run."""
        self.claims: Mapping[str, object] = getattr(rule, "demands", {})
        """The checks of XLA's verifier whose violations are findings of the rule, by name."""

    def reporting(self, on_crash: OnCrash, before_each: Callable[[], None]) -> Check:
        """The same check; a crash is reported, and the findings so far are kept.

        What `before_each` raises before a subject ends the check.
        """
        return Check(self.rule, self.method, self.view, self.parameters, on_crash, before_each)

    def seeing(self, seen_as: Callable[[Any], object]) -> Check:
        """The same check, which is given what a function makes of each subject."""
        watched = self._on_crash, self._before_each
        return Check(self.rule, self.method, self.view, self.parameters, *watched, seen_as)

    @property
    def artefacts(self) -> Iterable[str]:
        """The types besides the view and the stage."""
        return (name for name in self.parameters if name not in (self.view, STAGE))

    def run(
        self,
        subject: object,
        stage: Stage | WatchedStage | None = None,
        artefacts: Mapping[str, object] | None = None,
    ) -> tuple[Finding, ...]:
        """The findings in one subject.

        Raises:
            RuleError: the rule crashed, and nobody reports it; names the rule and the subject.
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
    arguments = {"stage": stage} if _asks_for_stage(type(rule).fix) else {}
    try:
        return fix(instruction, module, **arguments)  # type: ignore[no-any-return]
    except RewriteError:
        return None


def _asks_for_stage(fix: Any) -> bool:
    code: CodeType = fix.__code__
    return "stage" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
