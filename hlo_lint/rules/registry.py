"""The registry of rules: found by folder, selected by name or family."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

from hlo_lint.rules.entry import ChosenRule, ChosenRules, RuleEntry, rule_of
from hlo_lint.text.errors import RuleError, UsageError, nearest

if TYPE_CHECKING:
    from hlo_lint.rules.base import Rule
    from hlo_lint.rules.options import OptionValue

REMOVED: Final = frozenset(
    (
        "collective-moves-unread collective-of-equal-values constraint-ignored "
        "device-descriptor-misaligned donation-lost live-values-share-memory memory-space-lost "
        "needless-copy normal-form-lost offset-without-effect passes-undo-each-other "
        "permute-loses-target premature-operation subbyte-size-missing "
        "temporaries-outgrow-arguments tile-config-disagrees transfer-pairs-differ "
        "uncalled-computation unreduced-off-reduction unsupported-at-emission window-too-large"
    ).split()
)
"""Rules of earlier versions: without a defect of a real program, or in other rules now."""
_HOMES = ("hlo_lint.rules", "hlo_lint.kernels.rules")
_CHECKOUT_SECONDS = 60
"""A checkout writes all files within this time; files newer than the index by more were edited."""


def all_rules() -> tuple[Rule, ...]:
    """All rules of hlo_lint and of other packages, sorted by family and name.

    Raises:
        RuleError: two rules have the same name, or rules of another package cannot be loaded.
    """
    return tuple(entry.load() for entry in rule_entries())


def rule_entries() -> tuple[RuleEntry, ...]:
    """The index entries of all rules; imports own rules only if the index lacks them."""
    from hlo_lint.rules.plugins import is_isolated

    return _own_entries() if is_isolated() else _with_plugins()


@cache
def _own_entries() -> tuple[RuleEntry, ...]:
    from hlo_lint.rules import index

    as_indexed = os.stat(index.__file__).st_mtime + _CHECKOUT_SECONDS
    entries: list[RuleEntry] = []
    for module, changed in rule_modules():
        if module in index.INDEX and changed < as_indexed:
            entries += map(RuleEntry._make, index.INDEX[module])
        else:
            entries += entries_in(module)
    return _sorted((entry, "hlo_lint") for entry in entries)


def rule_modules() -> Iterator[tuple[str, float]]:
    """The name of each module of rules, and the modification time of its file."""
    for home in _HOMES:
        for folder in import_module(home).__path__:  # by name: rules are in a layer above
            with os.scandir(folder) as families:
                for family in families:
                    if family.is_dir() and family.name != "__pycache__":
                        yield from _files(f"{home}.{family.name}", family.path)


def _files(package: str, folder: str) -> Iterator[tuple[str, float]]:
    with os.scandir(folder) as entries:
        files = {entry.name: entry for entry in entries if entry.name.endswith(".py")}
    if files and files.pop("__init__.py", None) is None:
        raise RuleError(f"{folder} has no __init__.py, so its rules are not found")
    for name, file in files.items():
        yield f"{package}.{name.removesuffix('.py')}", file.stat().st_mtime


def entries_in(module: str) -> list[RuleEntry]:
    """Import a module and return the entries of the rules that it defines."""
    from hlo_lint.rules.base import Rule, entry_of

    classes = [value for value in vars(import_module(module)).values() if isinstance(value, type)]
    return [
        entry_of(rule) for rule in classes if issubclass(rule, Rule) and rule.__module__ == module
    ]


@cache
def _with_plugins() -> tuple[RuleEntry, ...]:
    from hlo_lint.rules.plugins import plugin_rules

    own, plugins = _own_entries(), list(plugin_rules())
    if not plugins:
        return own
    from hlo_lint.rules.base import entry_of

    brought = ((entry_of(rule), package) for rule, package in plugins)
    return _sorted((*((entry, "hlo_lint") for entry in own), *brought))


def _sorted(entries: Iterable[tuple[RuleEntry, str]]) -> tuple[RuleEntry, ...]:
    """Sort entries by family and name; each comes with its package, for errors."""
    packages: dict[str, str] = {}
    entries = list(entries)
    for entry, package in entries:
        if entry.name in packages:
            raise RuleError(
                f"two rules are named {entry.name}: in {packages[entry.name]} and in {package}"
            )
        packages[entry.name] = package
    for entry, package in entries:
        if entry.family in packages:
            raise RuleError(f"{package}: the family {entry.family} has the name of a rule")
    return tuple(
        sorted((entry for entry, _ in entries), key=lambda entry: (entry.family, entry.name))
    )


def find_rule(name: str) -> Rule:
    """The rule of that name.

    Raises:
        UsageError: there is no such rule; the message suggests the nearest name.
    """
    for entry in rule_entries():
        if entry.name == name:
            return entry.load()
    family = [entry.name for entry in rule_entries() if entry.family == name]
    if family:
        raise UsageError(f"{name} is a family of rules: {', '.join(family)}")
    raise _unknown(name)


def select_rules(
    select: Sequence[str | type[Rule]] | None = None,
    ignore: Sequence[str] | None = None,
    extend_select: Sequence[str] = (),
) -> ChosenRules:
    """The rules whose name or family is in `select` or `extend_select`, but not in `ignore`.

    The name of a rule takes precedence over its family. If `select` is None, all rules that are
    enabled by default. An unregistered rule is selected by its class.

    Raises:
        UsageError: a name is neither a rule nor a family.
    """
    names = {entry for entry in select or () if isinstance(entry, str)}
    wanted, unwanted = names | set(extend_select), set(ignore or ())
    check_names([*wanted, *unwanted])
    chosen = [
        ChosenRule(entry)
        for entry in rule_entries()
        if is_chosen(entry, wanted, unwanted, otherwise=select is None and entry.enabled_by_default)
    ]
    classes = [rule_of(rule) for rule in select or () if not isinstance(rule, str)]
    return ChosenRules([*chosen, *ChosenRules.of(classes).chosen])


def is_chosen(entry: RuleEntry, wanted: Set[str], unwanted: Set[str], *, otherwise: bool) -> bool:
    """True if a rule is selected: by its name, else by its family, else by the default `otherwise`.

    A family selects only its rules that are enabled by default.
    """
    for name in (entry.name, entry.family):
        if name in unwanted:
            return False
        if name in wanted:
            return entry.enabled_by_default or name == entry.name
    return otherwise


def known_names() -> frozenset[str]:
    """The names of all rules and families."""
    return frozenset(name for entry in rule_entries() for name in (entry.name, entry.family))


def check_names(names: Iterable[str]) -> None:
    """Check that all names are rules or families.

    Raises:
        UsageError: a name is neither; for the first such name.
    """
    for name in names:
        if name not in known_names():
            raise _unknown(name)


@cache
def configured(rule: Rule, options: tuple[tuple[str, OptionValue], ...]) -> Rule:
    """The rule with these options; returns the same object for equal options."""
    return rule.with_options(dict(options))


def _unknown(name: str) -> UsageError:
    if name in REMOVED:
        return UsageError(f"the rule {name} was removed: CHANGELOG.md says why")
    hint = nearest(name, known_names(), "`hlo-lint rules` lists them")
    return UsageError(f"no rule or family is named {name}: {hint}")
