"""The settings of a run: rules, severities, excluded paths, output."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hlo_lint.analysis.stage import Stage
from hlo_lint.rules.base import Rule
from hlo_lint.rules.entry import ChosenRule, ChosenRules
from hlo_lint.rules.findings import Severity
from hlo_lint.rules.options import OptionValue
from hlo_lint.rules.registry import check_names, configured, is_chosen, rule_entries, select_rules
from hlo_lint.text.phrases import short_repr

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

    from hlo_lint.engine.findings import Diagnostic
    from hlo_lint.engine.suppressions.allowances import Allowance

Name = TypeVar("Name", bound=object)

OFF = "off"
SEVERITIES = tuple(severity.value for severity in Severity)
"""The values of the setting `min-severity`."""
LEVELS = (*SEVERITIES, OFF)
"""The values of the setting `severity`."""
MAX_COUNT = (1 << 31) - 1
"""No number of a setting is larger: it is a count of things, or of bytes by the megabyte."""
DEFAULT = "default"
COMMAND_LINE = "command line"


class Globs:
    """Patterns as in .gitignore: a pattern without a slash matches at any depth.

    A folder that matches stands for all files in it. Paths are relative to a folder; outside of it
    they begin at the root of the file system.
    """

    def __init__(self, patterns: Sequence[str], root: Path) -> None:
        self.patterns = tuple(patterns)
        self._root = root

    @cached_property
    def _spec(self) -> GitIgnoreSpec:
        from pathspec import GitIgnoreSpec  # nothing is matched in most runs

        return GitIgnoreSpec.from_lines(self.patterns)

    def match(self, path: Path) -> bool:
        """True if a file or a folder is meant."""
        absolute = os.path.abspath(path)
        inside = os.path.relpath(absolute, self._root)
        outside = inside == os.pardir or inside.startswith(os.pardir + os.sep)
        return self._spec.match_file((absolute if outside else inside).lstrip(os.sep))


@dataclass(frozen=True, repr=False)
class Settings:
    """The settings of a run; the defaults hold where neither a file nor an option sets a field.

    A field up to `allow` is a key of the settings file, with `_` for `-`; `keys.KEYS` says what it
    means. Rules are named by their own name or by that of their family, and the own name counts
    more.
    """

    select: tuple[str | type[Rule], ...] | None = None
    """None for all but those that run only on request. A rule of one's own may be its class."""
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    per_path_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    severity: Mapping[str, Severity | None] = field(default_factory=dict)
    """By rule or family, instead of what the rule says; None switches it off."""
    rules: Mapping[str, Mapping[str, OptionValue]] = field(default_factory=dict)
    before: str | None = None
    stage: Stage | None = None
    per_path_stages: Mapping[str, Stage] = field(default_factory=dict)
    """Stages by pattern of paths; the last pattern that fits counts."""
    exclude: tuple[str, ...] = ()
    force_exclude: bool = False
    unsafe_fixes: bool = False
    jobs: int | None = None
    """Number of worker processes. None: `hlo-lint check` chooses by the size of the input, and
    from Python it is one."""
    cache: bool | None = None
    """True if findings of earlier runs are used for files that did not change. None: commands use
    them, and from Python nothing does."""
    max_findings: int | None = None
    """Findings of one rule in one file that are reported; the others are counted. None: `check`
    reports 1000, and from Python all are."""
    max_megabytes: int | None = 2048
    max_seconds: int | None = None
    """CPU time for the rules of one compilation; None for no limit."""
    max_nesting: int | None = None
    """Levels of brackets in a file that is checked; None for no limit."""
    min_severity: Severity | None = None
    """Severity of the least severe findings that are reported; less severe ones are counted. None:
    commands report errors and warnings, and from Python all findings are reported."""
    output_format: str = "text"
    baseline: Path | None = None
    allow: tuple[Allowance, ...] = ()
    file: Path | None = None
    """The file they were read from; None if no file was read."""
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The source of each field that was set: `hlo_lint.toml:3`, or the command line."""

    __repr__ = short_repr

    @property
    def root(self) -> Path:
        """The folder that patterns of paths are relative to."""
        return (self.file.parent if self.file is not None else Path()).resolve()

    def origin(self, name: str) -> str:
        """The source of a field."""
        return self.origins.get(name, DEFAULT)

    def overridden(self, origin: str = COMMAND_LINE, **given: Any) -> Settings:
        """A copy in which the given fields take precedence; None leaves a field as it is."""
        changed = {
            name: value
            for name, value in given.items()
            if value is not None and value != getattr(self, name)
        }
        origins = {**self.origins, **dict.fromkeys(changed, origin)}
        return replace(self, **changed, origins=origins)

    def with_option(self, rule: str, name: str, value: OptionValue) -> Settings:
        """A copy in which an option of a rule is set."""
        options = {**self.rules.get(rule, {}), name: value}
        return self.overridden(rules={**self.rules, rule: options})

    def restaged(self, stage: Stage | None) -> Settings:
        """A copy with this stage for all paths; the settings themselves for None."""
        return self if stage is None else replace(self, stage=stage, per_path_stages={})

    def reselected(
        self,
        select: Sequence[str | type[Rule]] | None = None,
        ignore: Sequence[str] = (),
        extend_select: Sequence[str] = (),
    ) -> Settings:
        """A copy in which the given choice of rules takes precedence.

        What is selected stands in place of every choice made here; what is ignored or added
        changes that choice.

        Raises:
            UsageError: for a name that neither a rule nor a family has.
        """
        named = [entry for entry in select or () if isinstance(entry, str)]
        check_names([*named, *ignore, *extend_select])
        if select is not None:
            return self.overridden(
                select=tuple(select),
                ignore=tuple(ignore),
                extend_select=tuple(extend_select),
                severity={name: level for name, level in self.severity.items() if level},
            )
        if not ignore and not extend_select:
            return self
        on: set[str] = set()
        off: set[str] = set()
        for entry in rule_entries():
            if is_chosen(entry, set(extend_select), set(ignore), otherwise=False):
                on.add(entry.name)
            elif not {entry.name, entry.family}.isdisjoint(ignore):
                off.add(entry.name)
        return self.overridden(
            select=None if self.select is None else _without(self.select, off),
            ignore=(*_without(self.ignore, on), *sorted(off)),
            extend_select=(*_without(self.extend_select, off), *sorted(on)),
            severity={
                name: level
                for name, level in self.severity.items()
                if level is not None or name not in on
            },
        )

    def chosen_rules(self) -> ChosenRules:
        """The rules that run, with their options.

        Raises:
            UsageError: for a name or an option that nothing has.
        """
        return self._chosen_rules

    @cached_property
    def _chosen_rules(self) -> ChosenRules:
        check_names(self.severity)
        off = {name for name, level in self.severity.items() if level is None}
        spared = {  # those with a level of their own, where their family has none
            name for name, family in self._families.items() if family in off
        } & (self.severity.keys() - off)
        chosen = select_rules(self.select, (*self.ignore, *off), (*self.extend_select, *spared))
        return ChosenRules([self._with_options(rule) for rule in chosen.chosen])

    def _with_options(self, chosen: ChosenRule) -> ChosenRule:
        options = self.rules.get(chosen.entry.name)
        if not options:
            return chosen
        return ChosenRule(chosen.entry, configured(chosen.rule, tuple(sorted(options.items()))))

    @cached_property
    def _ignored(self) -> tuple[tuple[Globs, frozenset[str]], ...]:
        return tuple(
            (Globs((pattern,), self.root), frozenset(names))
            for pattern, names in self.per_path_ignores.items()
        )

    @cached_property
    def _excluded(self) -> Globs:
        return Globs(self.exclude, self.root)

    @cached_property
    def _families(self) -> Mapping[str, str]:
        return {entry.name: entry.family for entry in rule_entries()}

    @property
    def has_stages(self) -> bool:
        """True if the stage of any file is stated."""
        return self.stage is not None or bool(self.per_path_stages)

    def stage_of(self, path: Path) -> Stage | None:
        """The stage that is stated for a file."""
        fitting = [stage for globs, stage in self._staged if globs.match(path)]
        return fitting[-1] if fitting else self.stage

    @cached_property
    def _staged(self) -> tuple[tuple[Globs, Stage], ...]:
        return tuple(
            (Globs((pattern,), self.root), stage) for pattern, stage in self.per_path_stages.items()
        )

    def excludes(self, path: Path) -> bool:
        """True if a file or a folder is not to be looked at."""
        return bool(self.exclude) and self._excluded.match(path)

    def ignores(self, rule: str, path: str | Path) -> bool:
        """True if findings of a rule in a file are not reported."""
        if not self.per_path_ignores:
            return False
        names = {rule, self._families.get(rule, "")}
        return any(
            not names.isdisjoint(listed) and globs.match(Path(path))
            for globs, listed in self._ignored
        )

    def reported(self, findings: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
        """The findings that are not ignored in their files, as `judged` gives them."""
        return tuple(
            self.judged(finding)
            for finding in findings
            if not self.ignores(finding.rule, finding.path)
        )

    def judged(self, finding: Diagnostic) -> Diagnostic:
        """The finding with the severity that the settings give it.

        A finding that a later pass resolved, and that is an info, stays one.
        """
        if not self.severity:
            return finding
        own, family = finding.rule, self._families.get(finding.rule, "")
        level = self.severity.get(own, self.severity.get(family))
        if level is None or finding.is_resolved:
            return finding
        return replace(finding, severity=level)


def _without(names: Iterable[Name], dropped: set[str]) -> tuple[Name, ...]:
    return tuple(name for name in names if name not in dropped)
