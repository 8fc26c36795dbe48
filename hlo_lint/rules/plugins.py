"""Rules of other packages, loaded through the entry-point group `hlo_lint.rules`.

    [project.entry-points."hlo_lint.rules"]
    team = "team_rules"

The value names a module or a package. The rules are the subclasses of `Rule` in it and in its
submodules, except those whose name begins with `_`. The entry point's name is their family.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

from hlo_lint.text.errors import RuleError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from types import ModuleType

    from hlo_lint.rules.base import Rule

GROUP = "hlo_lint.rules"
ISOLATED = "HLO_LINT_ISOLATED"
"""The environment variable that excludes rules of other packages."""


def is_isolated() -> bool:
    """True if rules of other packages are excluded."""
    return os.environ.get(ISOLATED, "") not in ("", "0")


def plugin_rules() -> Iterator[tuple[type[Rule], str]]:
    """The rules of other packages, each with a title of its package and entry point.

    Raises:
        RuleError: an entry point cannot be imported, or has no rules.
    """
    for entry in plugin_entries(GROUP):
        yield from ((rule, plugin_title(entry)) for rule in _rules_of(entry))


def plugin_entries(group: str) -> list[EntryPoint]:
    """The entry points of a group, of all packages."""
    if not _may_have_plugins(group):
        return []
    from importlib.metadata import entry_points

    return sorted(
        entry_points(group=group), key=lambda entry_point: (entry_point.name, entry_point.value)
    )


def plugin_title(entry: EntryPoint) -> str:
    """The title of an entry point: `team-rules 1.0 (entry point team = team_rules)`."""
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "a package"
    return f"{package} (entry point {entry.name} = {entry.value})"


def _may_have_plugins(group: str) -> bool:
    """True if any package on `sys.path` mentions the group.

    `importlib.metadata` takes some 20 ms to import and reads every package; without plugins, this
    takes less than 1 ms.
    """
    for folder in dict.fromkeys(sys.path):
        try:
            with os.scandir(folder or ".") as entries:
                names = [entry.name for entry in entries]
        except NotADirectoryError:
            return True  # an archive: leave it to importlib.metadata
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")) and _speaks_of_group(group, folder, name):
                return True
    return False


def _speaks_of_group(group: str, folder: str, name: str) -> bool:
    try:
        with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
            return group.encode() in file.read()
    except OSError:
        return False


def _rules_of(entry: EntryPoint) -> Iterator[type[Rule]]:
    if entry.attr:
        raise RuleError(f"{plugin_title(entry)} must name a module, not an object in one")
    try:
        modules = list(_modules(entry.module))
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise RuleError(
            f"{plugin_title(entry)} cannot be imported: {reason}; "
            f"repair or uninstall the package, or set {ISOLATED}=1 to ignore it"
        ) from error
    rules = list(dict.fromkeys(rule for module in modules for rule in _rules_in(module)))
    if not rules:
        raise RuleError(f"{plugin_title(entry)} has no rules: no subclass of hlo_lint.Rule")
    for rule in rules:
        rule.entry_point = entry.name
        if rule.__doc__ is None:
            raise RuleError(
                f"{plugin_title(entry)}: {rule.__name__} has no docstring, which is its page"
            )
        yield rule


def _modules(name: str) -> Iterator[ModuleType]:
    """A module and all its submodules."""
    import pkgutil  # slow to import, and most people have no plugin

    module = importlib.import_module(name)
    yield module
    spec: ModuleSpec | None = module.__spec__
    if spec is not None and spec.submodule_search_locations is not None:
        for submodule in pkgutil.iter_modules(spec.submodule_search_locations, f"{name}."):
            if not submodule.name.endswith(".__main__"):  # importing it would run a program
                yield from _modules(submodule.name)


def _rules_in(module: ModuleType) -> Iterator[type[Rule]]:
    from hlo_lint.rules.base import Rule

    for value in vars(module).values():
        is_rule = isinstance(value, type) and issubclass(value, Rule)
        if is_rule and value.__module__ == module.__name__ and not value.__name__.startswith("_"):
            yield value
