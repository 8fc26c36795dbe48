"""Every rule there is: found by folder, chosen by name or family."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Sequence
from functools import cache

from hlo_lint.errors import RuleError, UsageError
from hlo_lint.rule import Rule


@cache
def all_rules() -> tuple[Rule, ...]:
    """One of each rule under `hlo_lint/rules`, by family and name.

    Raises:
        RuleError: where two have one name.
    """
    package = importlib.import_module("hlo_lint.rules")  # by name: rules stand above this module
    for found in pkgutil.walk_packages(package.__path__, "hlo_lint.rules."):
        if not found.ispkg:
            importlib.import_module(found.name)
    rules: dict[str, Rule] = {}
    for kind in Rule.__subclasses__():
        if not kind.__module__.startswith("hlo_lint.rules."):
            continue
        if kind.name() in rules:
            raise RuleError(f"two rules are named {kind.name()}")
        rules[kind.name()] = kind()
    return tuple(sorted(rules.values(), key=lambda rule: (rule.family(), rule.name())))


def find_rule(name: str) -> Rule:
    """The rule of that name.

    Raises:
        UsageError: naming the nearest there is.
    """
    for rule in all_rules():
        if rule.name() == name:
            return rule
    family = [rule.name() for rule in all_rules() if rule.family() == name]
    if family:
        raise UsageError(f"{name} is a family of rules: {', '.join(family)}")
    raise _unknown(name)


def select_rules(
    select: Sequence[str] | None = None, ignore: Sequence[str] | None = None
) -> tuple[Rule, ...]:
    """The rules whose name or family is in `select` and not in `ignore`.

    Where `select` is None, all but those that run only on request.

    Raises:
        UsageError: for a name that neither a rule nor a family has.
    """
    rules = all_rules()
    _check_names([*(select or ()), *(ignore or ())], rules)
    return tuple(
        rule
        for rule in rules
        if _is_wanted(rule, select) and {rule.name(), rule.family()}.isdisjoint(ignore or ())
    )


def _is_wanted(rule: Rule, select: Sequence[str] | None) -> bool:
    if select is None:
        return not rule.on_request
    return not {rule.name(), rule.family()}.isdisjoint(select)


def _check_names(names: Iterable[str], rules: Sequence[Rule]) -> None:
    known = {name for rule in rules for name in (rule.name(), rule.family())}
    for name in names:
        if name not in known:
            raise _unknown(name)


def _unknown(name: str) -> UsageError:
    from difflib import get_close_matches

    known = sorted({n for rule in all_rules() for n in (rule.name(), rule.family())})
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return UsageError(f"no rule or family is named {name}: {hint}")
