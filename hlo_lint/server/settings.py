"""What a client sets: which rules run, and which pass comes next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hlo_lint.api import known_pass
from hlo_lint.errors import UsageError
from hlo_lint.registry import select_rules
from hlo_lint.rule import Rule

SECTION = "hlo-lint"
"""The section of a client's configuration that is ours."""


@dataclass(frozen=True)
class Settings:
    """What `check` takes as options."""

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] | None = None
    before: str | None = None

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that run."""
        return select_rules(self.select, self.ignore)


def read_settings(given: object) -> Settings:
    """The settings in what a client sends: an object, or one whose section `hlo-lint` is it.

    >>> read_settings({"hlo-lint": {"before": "layout_normalization", "select": ["layout"]}})
    Settings(select=('layout',), ignore=None, before='layout_normalization')

    Raises:
        UsageError: for a setting, a rule or a pass that nothing knows.
    """
    if given is None:
        return Settings()
    if isinstance(given, Mapping) and SECTION in given:
        given = given[SECTION]
    if not isinstance(given, Mapping):
        raise UsageError(f"settings are an object with select, ignore and before, not {given!r}")
    for key in given:
        if key not in ("select", "ignore", "before"):
            raise UsageError(f"no setting is named {key}; there are select, ignore, before")
    before = given.get("before") or None
    if not isinstance(before, str | None):
        raise UsageError(f"before is the name of a pass, not {before!r}")
    settings = Settings(_names(given, "select"), _names(given, "ignore"), known_pass(before))
    select_rules(settings.select, settings.ignore)
    return settings


def _names(given: Mapping[str, object], key: str) -> tuple[str, ...] | None:
    names = given.get(key)
    if names is None or names == []:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{key} is a list of rules or families, not {names!r}")
    return tuple(names)
