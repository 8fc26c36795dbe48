"""The registry of rules: found by folder, chosen by name or family."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Sequence, Set
from functools import cache
from pathlib import Path

from hlo_lint.rules.base import Rule
from hlo_lint.rules.options import Value
from hlo_lint.rules.plugins import is_isolated, plugin_rules
from hlo_lint.text.errors import RuleError, UsageError, nearest

_HOMES = ("hlo_lint.rules", "hlo_lint.kernels.rules")


def all_rules() -> tuple[Rule, ...]:
    """One of each rule under `hlo_lint/rules` and of other packages' rules, by family and name.

    Raises:
        RuleError: where two have one name, or where those of another package cannot be had.
    """
    return _own_rules() if is_isolated() else _with_plugins()


@cache
def _own_rules() -> tuple[Rule, ...]:
    for home in _HOMES:
        package = importlib.import_module(home)  # by name: rules stand above this module
        for folder in map(Path, package.__path__):
            _check_families(folder)
        for submodule in pkgutil.walk_packages(package.__path__, f"{home}."):
            if not submodule.ispkg:
                importlib.import_module(submodule.name)
    prefixes = tuple(f"{home}." for home in _HOMES)
    kinds = [kind for kind in Rule.__subclasses__() if kind.__module__.startswith(prefixes)]
    return _sorted((kind, "hlo_lint") for kind in kinds)


def _check_families(home: Path) -> None:
    """Refuses a folder that `walk_packages` would pass over without a word."""
    for family in home.glob("*/"):
        if not (family / "__init__.py").exists() and any(family.glob("*.py")):
            raise RuleError(f"{family} has no __init__.py, so that its rules are not found")


@cache
def _with_plugins() -> tuple[Rule, ...]:
    own = _own_rules()
    plugins = tuple(plugin_rules())
    return _sorted((*((type(rule), "hlo_lint") for rule in own), *plugins)) if plugins else own


def _sorted(kinds: Iterable[tuple[type[Rule], str]]) -> tuple[Rule, ...]:
    """One of each, by family and name; with each comes the package that has it."""
    rules: dict[str, tuple[Rule, str]] = {}
    for kind, package in kinds:
        if kind.name() in rules:
            raise RuleError(
                f"two rules are named {kind.name()}: one of {rules[kind.name()][1]}, "
                f"one of {package}"
            )
        rules[kind.name()] = kind(), package
    for rule, package in rules.values():
        if rule.family() in rules:
            raise RuleError(f"{package}: the family {rule.family()} has the name of a rule")
    return tuple(
        sorted((rule for rule, _ in rules.values()), key=lambda rule: (rule.family(), rule.name()))
    )


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
    select: Sequence[str | type[Rule]] | None = None,
    ignore: Sequence[str] | None = None,
    extend_select: Sequence[str] = (),
) -> tuple[Rule, ...]:
    """The rules whose name or family is in `select`, or is added to it, and not in `ignore`.

    The name of a rule counts more than that of its family. Where `select` is None, all but those
    that run only on request. A rule that nobody registered is selected by its class.

    Raises:
        UsageError: for a name that neither a rule nor a family has.
    """
    names = {entry for entry in select or () if isinstance(entry, str)}
    wanted, unwanted = names | set(extend_select), set(ignore or ())
    check_names([*wanted, *unwanted])
    rules = all_rules()
    chosen = tuple(
        rule
        for rule in rules
        if is_chosen(rule, wanted, unwanted, otherwise=select is None and rule.enabled_by_default)
    )
    registered = {type(rule): rule for rule in rules}
    kinds = [entry for entry in select or () if not isinstance(entry, str)]
    return (*chosen, *(registered.get(kind) or kind() for kind in kinds))


def is_chosen(rule: Rule, wanted: Set[str], unwanted: Set[str], *, otherwise: bool) -> bool:
    """True if a rule runs: its own name decides, else its family's, else what is so otherwise."""
    for name in (rule.name(), rule.family()):
        if name in unwanted:
            return False
        if name in wanted:
            return True
    return otherwise


def known_names() -> frozenset[str]:
    """The names of all rules and families."""
    return frozenset(name for rule in all_rules() for name in (rule.name(), rule.family()))


def check_names(names: Iterable[str]) -> None:
    """Refuses what is not a name.

    Raises:
        UsageError: for the first that neither a rule nor a family has.
    """
    names_known = known_names()
    for name in names:
        if name not in names_known:
            raise _unknown(name)


@cache
def configured(rule: Rule, options: tuple[tuple[str, Value], ...]) -> Rule:
    """A rule with options, always the same one for the same options.

    Raises:
        UsageError: for an option that it does not have, or a value that does not fit.
    """
    return rule.with_options(dict(options))


def _unknown(name: str) -> UsageError:
    hint = nearest(name, known_names(), "`hlo-lint rules` lists them")
    return UsageError(f"no rule or family is named {name}: {hint}")
