"""What a rule looks at: the types of its `check`'s parameters."""

from __future__ import annotations

from functools import cache
from typing import Any, get_type_hints

from hlo_lint.errors import RuleError
from hlo_lint.findings import Finding
from hlo_lint.ir import Computation, HloFile
from hlo_lint.rule import Rule

VIEWS = {
    Computation: "each computation of every dump, bodies of fusions left out unless asked for",
    HloFile: "every file as a text",
}
"""What there is to look at."""


@cache
def view_of(rule: Rule) -> type:
    """The type that a rule's `check` asks for.

    Raises:
        RuleError: where it asks for nothing, or for what the engine does not have.
    """
    check = getattr(rule, "check", None)
    if check is None:
        raise RuleError(f"{rule.name()} has no check")
    asked = [hint for name, hint in get_type_hints(check).items() if name != "return"]
    if len(asked) != 1 or asked[0] not in VIEWS:
        known = ", ".join(view.__name__ for view in VIEWS)
        raise RuleError(f"the check of {rule.name()} has to ask for one of {known}")
    view: type = asked[0]
    return view


def run_check(rule: Rule, view: object) -> tuple[Finding, ...]:
    """What a rule finds in what it looks at.

    Raises:
        RuleError: where the rule crashes, naming both.
    """
    check: Any = getattr(rule, "check")  # noqa: B009  # each rule has its own signature
    try:
        return tuple(check(view))
    except Exception as error:
        raise RuleError(f"{rule.name()} crashed on {view!r}: {error!r}") from error
