"""The settings of a text: from the settings file above it, and from the client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hlo_lint.apps.settings.load import load_settings
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.dumps.pass_lists import known_pass
from hlo_lint.text.errors import UsageError

SECTION = "hlo-lint"
"""The section of the client's configuration for hlo-lint."""


@dataclass(frozen=True)
class Options:
    """The settings of a client; they override a settings file, like options of `check`."""

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    before: str | None = None

    def settings(self, path: Path | None) -> Settings:
        """The settings for a file; for a text without a file, those of the working directory.

        Raises:
            ConfigError: the settings file is invalid.
            UsageError: unknown rule.
        """
        loaded = load_settings([] if path is None else [path])
        chosen = loaded.reselected(self.select, self.ignore)
        return chosen.overridden("editor", before=self.before, jobs=1)


def read_options(given: object) -> Options:
    """Read the options that a client sends, with or without the section `hlo-lint` around them.

    >>> read_options({"hlo-lint": {"before": "layout_normalization", "select": ["layout"]}})
    Options(select=('layout',), ignore=(), before='layout_normalization')

    Raises:
        UsageError: unknown option, rule or pass.
    """
    if given is None:
        return Options()
    if isinstance(given, Mapping) and SECTION in given:
        given = given[SECTION]
    if not isinstance(given, Mapping):
        raise UsageError(f"expected an object with select, ignore and before, got {given!r}")
    for key in given:
        if key not in ("select", "ignore", "before"):
            raise UsageError(f"no option is named {key}; there are select, ignore, before")
    before = given.get("before") or None
    if not isinstance(before, str | None):
        raise UsageError(f"before: expected the name of a pass, got {before!r}")
    options = Options(_names(given, "select") or None, _names(given, "ignore"), known_pass(before))
    Settings().reselected(options.select, options.ignore)  # raises for a name that is not a rule
    return options


def _names(given: Mapping[str, object], key: str) -> tuple[str, ...]:
    names = given.get(key) or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{key}: expected a list of rules or families, got {names!r}")
    return tuple(names)
