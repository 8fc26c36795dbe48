"""Checks of rules: the method, the types of its parameters, its call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import signature
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


@dataclass(frozen=True, eq=False, slots=True)
class Check:
    """A method `check` or `check_…` of a rule."""

    rule: Rule
    method: str
    view: str
    parameters: Mapping[str, str]
    """The parameter name for each type that it takes."""
    on_crash: OnCrash | None = None
    """Receives crashes: the findings up to a crash are kept. Without it, a crash is raised."""
    before_each: Callable[[], None] = lambda: None
    """Called before each subject; its exceptions end the check."""
    seen_as: Callable[[Any], object] = lambda subject: subject
    """Applied to each subject first."""

    @property
    def takes_stage(self) -> bool:
        """True if the findings may depend on the stage of the run."""
        return STAGE in self.parameters or self.view == VIOLATIONS

    @property
    def claims(self) -> Mapping[str, object]:
        """The verifier checks whose violations are findings of the rule, by name."""
        return getattr(self.rule, "demands", {})

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
        self.before_each()
        views = {self.parameters[self.view]: self.seen_as(subject)}
        if STAGE in self.parameters:
            views[self.parameters[STAGE]] = stage
        if artefacts:
            views.update({self.parameters[name]: value for name, value in artefacts.items()})
        findings: list[Finding] = []
        try:
            findings.extend(getattr(self.rule, self.method)(**views))
        except Exception as error:
            if self.on_crash is not None:
                self.on_crash(self.rule, subject, error)
                return tuple(findings)
            shown = ", ".join(map(repr, views.values()))
            raise RuleError(f"{self.rule.name()} crashed on {shown}: {error!r}") from error
        return tuple(findings)


def call_fix(rule: Rule, instruction: Instruction, module: Module, stage: Stage) -> Fix | None:
    """The fix of a rule for its finding at an instruction; None if XLA would refuse the rewrite."""
    fix: Any = rule.fix
    arguments = {"stage": stage} if "stage" in signature(fix).parameters else {}
    try:
        return fix(instruction, module, **arguments)  # type: ignore[no-any-return]
    except RewriteError:
        return None
