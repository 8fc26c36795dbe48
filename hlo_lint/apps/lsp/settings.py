"""Settings of a text: those of the settings file above it, and those of the client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hlo_lint.apps.settings.load import load_settings
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.dumps.pass_lists import known_pass
from hlo_lint.text.errors import UsageError

SECTION = "hlo-lint"
"""The section of a client's configuration that is ours."""


@dataclass(frozen=True)
class Options:
    """Settings of a client; they override a settings file, as options of `check` do."""

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    before: str | None = None

    def settings(self, path: Path | None) -> Settings:
        """The settings of a file; of a text without one, those of the working directory.

        Raises:
            ConfigError: for a settings file that is wrong.
            UsageError: for a rule that nothing knows.
        """
        loaded = load_settings([] if path is None else [path])
        chosen = loaded.reselected(self.select, self.ignore)
        return chosen.overridden("editor", before=self.before, jobs=1)


def read_options(given: object) -> Options:
    """The options in what a client sends: an object, or one whose section `hlo-lint` is it.

    >>> read_options({"hlo-lint": {"before": "layout_normalization", "select": ["layout"]}})
    Options(select=('layout',), ignore=(), before='layout_normalization')

    Raises:
        UsageError: for an option, a rule or a pass that nothing knows.
    """
    if given is None:
        return Options()
    if isinstance(given, Mapping) and SECTION in given:
        given = given[SECTION]
    if not isinstance(given, Mapping):
        raise UsageError(f"options are an object with select, ignore and before, not {given!r}")
    for key in given:
        if key not in ("select", "ignore", "before"):
            raise UsageError(f"no option is named {key}; there are select, ignore, before")
    before = given.get("before") or None
    if not isinstance(before, str | None):
        raise UsageError(f"before is the name of a pass, not {before!r}")
    options = Options(_names(given, "select") or None, _names(given, "ignore"), known_pass(before))
    Settings().reselected(options.select, options.ignore)  # raises for a name that is not a rule
    return options


def _names(given: Mapping[str, object], key: str) -> tuple[str, ...]:
    names = given.get(key) or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{key} is a list of rules or families, not {names!r}")
    return tuple(names)
