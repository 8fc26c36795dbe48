"""Every key of a settings file: its type, its default, what it means."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Protocol

from hlo_lint.analysis.stage import Stage, parse_stage
from hlo_lint.apps.settings.toml_locations import SettingPlace, displayed
from hlo_lint.engine.suppressions.allowances import Allowance
from hlo_lint.rules.findings import Severity
from hlo_lint.rules.options import Option
from hlo_lint.rules.registry import all_rules, check_names, find_rule, known_names
from hlo_lint.text.errors import UsageError, nearest

Schema = dict[str, Any]

OFF: Final = "off"
LEVELS: Final = (*(severity.value for severity in Severity), OFF)


class ValueKind(Protocol):
    """A type of values: how one is read, and how the JSON Schema says it."""

    @property
    def title(self) -> str:
        """In words, for the docs and for messages."""

    def read(self, value: object, place: SettingPlace) -> object:
        """The value as `Settings` holds it.

        Raises:
            ConfigError: where it does not fit.
        """

    def schema(self) -> Schema:
        """The JSON Schema of the value."""


@dataclass(frozen=True)
class _Text:
    """A text."""

    title: str = "a text"

    def read(self, value: object, place: SettingPlace) -> str:
        if not isinstance(value, str) or not value:
            raise place.error(f"takes {self.title}, not {_spelled(value)}")
        return value

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True)
class _StageWords:
    """Words that describe a stage."""

    title: str = 'a stage such as "gpu post-layout"'

    def read(self, value: object, place: SettingPlace) -> Stage:
        if not isinstance(value, str):
            raise place.error(f"takes {self.title}, not {_spelled(value)}")
        try:
            return parse_stage(value)
        except UsageError as error:
            raise place.error(str(error)) from error

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True)
class _Reason(_Text):
    """A text with something in it."""

    def schema(self) -> Schema:
        return {"type": "string", "pattern": r"\S"}


@dataclass(frozen=True)
class _Truth:
    """True or false."""

    title: str = "true or false"

    def read(self, value: object, place: SettingPlace) -> bool:
        if not isinstance(value, bool):
            raise place.error(f"takes {self.title}, not {_spelled(value)}")
        return value

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True)
class _Choice:
    """One of several words."""

    words: Callable[[], Sequence[str]]

    @property
    def title(self) -> str:
        """The words."""
        *most, last = [f'"{word}"' for word in self.words()]
        return f"{', '.join(most)} or {last}" if most else last

    def read(self, value: object, place: SettingPlace) -> str:
        words = self.words()
        if not isinstance(value, str):
            raise place.error(f"takes {self.title}, not {_spelled(value)}")
        if value not in words:
            raise place.error(f"{_spelled(value)} is not {self.title}{_near(value, words)}")
        return value

    def schema(self) -> Schema:
        return {"enum": list(self.words())}


@dataclass(frozen=True)
class _Level:
    """A severity, or `off`."""

    title: str = 'one of "error", "warning", "info", "off"'

    def read(self, value: object, place: SettingPlace) -> Severity | None:
        word = _Choice(lambda: LEVELS).read(value, place)
        return None if word == OFF else Severity(word)

    def schema(self) -> Schema:
        return {"enum": list(LEVELS)}


@dataclass(frozen=True)
class _FilePath:
    """A path, relative to the folder of the settings file."""

    title: str = "a path, relative to the folder of the file"

    def read(self, value: object, place: SettingPlace) -> Path:
        return place.path.parent / _Text(self.title).read(value, place)

    def schema(self) -> Schema:
        return _Text().schema()


@dataclass(frozen=True)
class _Processes:
    """A number of processes."""

    title: str = '"auto" or a whole number from 1'

    def read(self, value: object, place: SettingPlace) -> int | None:
        if value == "auto":
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise place.error(f"takes {self.title}, not {_spelled(value)}")
        return value

    def schema(self) -> Schema:
        return {"oneOf": [{"const": "auto"}, {"type": "integer", "minimum": 1}]}


@dataclass(frozen=True)
class _Listed:
    """An array of one kind."""

    each: ValueKind
    title: str

    def read(self, value: object, place: SettingPlace) -> tuple[object, ...]:
        if not isinstance(value, list):
            raise place.error(f"takes {self.title}, not {_spelled(value)}")
        return tuple(self.each.read(one, place.at(at, one)) for at, one in enumerate(value))

    def schema(self) -> Schema:
        return {"type": "array", "items": self.each.schema()}


@dataclass(frozen=True)
class _RuleName:
    """The name of a rule or a family."""

    title: str = "the name of a rule or of a family"

    def read(self, value: object, place: SettingPlace) -> str:
        name = _Text(self.title).read(value, place)
        try:
            check_names([name])
        except UsageError as error:
            raise place.error(str(error)) from error
        return name

    def schema(self) -> Schema:
        return {"$ref": "#/$defs/rule-or-family"}


@dataclass(frozen=True)
class _Table:
    """A table whose keys are of one kind and whose values are of another."""

    key: ValueKind
    each: ValueKind
    title: str

    def read(self, value: object, place: SettingPlace) -> Mapping[str, object]:
        if not isinstance(value, dict):
            raise place.error(f"takes {self.title}, not {_spelled(value)}")
        values: dict[str, object] = {}
        for name, one in value.items():
            self.key.read(name, place.at(name))
            values[name] = self.each.read(one, place.at(name))
        return values

    def schema(self) -> Schema:
        return {
            "type": "object",
            "propertyNames": self.key.schema(),
            "additionalProperties": self.each.schema(),
        }


@dataclass(frozen=True)
class _RuleOptions:
    """Tables of the options of rules."""

    title: str = "a table of options for each rule"

    def read(self, value: object, place: SettingPlace) -> Mapping[str, Mapping[str, object]]:
        tables = _Table(_Text(), _AnyTable(), self.title).read(value, place)
        return {name: self._options(name, table, place.at(name)) for name, table in tables.items()}

    def _options(self, rule: str, table: object, place: SettingPlace) -> Mapping[str, object]:
        assert isinstance(table, dict)
        try:
            options = find_rule(rule).options()
        except UsageError as error:
            raise place.error(str(error)) from error
        for name, value in table.items():
            if name not in options:
                raise place.at(name).error(f"unknown option of {rule}: {nearest(name, options)}")
            try:
                options[name].read(value)
            except UsageError as error:
                raise place.at(name).error(
                    f"takes {options[name].expected}, not {_spelled(value)}"
                ) from error
        return dict(table)

    def schema(self) -> Schema:
        return {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                rule.name(): {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        name: _option_schema(option) for name, option in rule.options().items()
                    },
                }
                for rule in all_rules()
            },
        }


@dataclass(frozen=True)
class _Allowances:
    """Tables that allow findings."""

    title: str = "an array of tables"

    def read(self, value: object, place: SettingPlace) -> tuple[Allowance, ...]:
        tables = _Listed(_AnyTable(), self.title).read(value, place)
        return tuple(self._allowance(one, place.at(at)) for at, one in enumerate(tables))

    def _allowance(self, table: object, place: SettingPlace) -> Allowance:
        assert isinstance(table, dict)
        for name, value in table.items():
            if name not in ALLOWANCE:
                raise place.at(name).error(f"unknown key: {nearest(name, ALLOWANCE)}")
            ALLOWANCE[name].read(value, place.at(name))
        for name in ("rule", "reason"):
            if not str(table.get(name, "")).strip():
                raise place.error(f"an allowance needs a {name}")
        line = place.position.line
        return Allowance(**table, stated_in=str(displayed(place.path)), line=line)

    def schema(self) -> Schema:
        one = {
            "type": "object",
            "additionalProperties": False,
            "required": ["rule", "reason"],
            "properties": {name: kind.schema() for name, kind in ALLOWANCE.items()},
        }
        return {"type": "array", "items": one}


@dataclass(frozen=True)
class _AnyTable:
    title: str = "a table"

    def read(self, value: object, place: SettingPlace) -> dict[str, object]:
        if not isinstance(value, dict):
            raise place.error(f"takes {self.title}, not {_spelled(value)}")
        return value

    def schema(self) -> Schema:
        return {"type": "object"}


@dataclass(frozen=True)
class Key:
    """A key of a settings file; with `_` for `-` it is a field of `Settings`."""

    name: str
    kind: ValueKind
    doc: str

    @property
    def attribute(self) -> str:
        """The field of `Settings`."""
        return self.name.replace("-", "_")


def _formats() -> Sequence[str]:
    from hlo_lint.report.formats import FORMATS

    return tuple(FORMATS)


def _passes() -> Sequence[str]:
    from hlo_lint.dumps.phases import AUTOTUNERS, PRECONDITIONS

    return (*dict.fromkeys(demand.demanded_by for demand in PRECONDITIONS), *AUTOTUNERS)


_names = _Listed(_RuleName(), "an array of rules and families")
_globs = _Listed(_Text("a pattern"), "an array of patterns")

ALLOWANCE: Final[Mapping[str, ValueKind]] = {
    "rule": _RuleName(),
    "reason": _Reason(),
    "module": _Text("a pattern"),
    "computation": _Text("a pattern"),
    "op_name": _Text("a pattern"),
    "path": _Text("a pattern"),
}
"""The keys of an allowance; `hlo_lint.engine.suppressions.allowances` defines their meaning."""

KEYS: Final = (
    Key(
        "select",
        _names,
        "The only rules that run; by default all that are enabled by default.",
    ),
    Key("ignore", _names, "Rules that do not run."),
    Key("extend-select", _names, "Rules that run in addition to those selected."),
    Key("extend-ignore", _names, "Rules that do not run, in addition to those ignored."),
    Key(
        "per-path-ignores",
        _Table(_Text("a pattern"), _names, "a table of patterns with an array of rules each"),
        "Rules that report nothing in files that match a pattern.",
    ),
    Key(
        "severity",
        _Table(_RuleName(), _Level(), "a table of rules and families with a severity each"),
        'The severity of findings of a rule: "error" and "warning" make the exit status 1, "info" '
        'does not, and "off" disables the rule.',
    ),
    Key("rules", _RuleOptions(), "Options of rules; the page of each rule lists its own."),
    Key(
        "before",
        _Choice(_passes),
        "The pass that comes next, if a dump does not say.",
    ),
    Key(
        "stage",
        _StageWords(),
        'The place in the pipeline of texts that do not state theirs: "gpu post-layout".',
    ),
    Key(
        "per-path-stages",
        _Table(_Text("a pattern"), _StageWords(), "a table of patterns with a stage each"),
        "The stage of files that match a pattern.",
    ),
    Key("exclude", _globs, "Files and folders to leave out."),
    Key(
        "force-exclude",
        _Truth(),
        "True if `exclude` also applies to files given by name.",
    ),
    Key(
        "baseline",
        _FilePath(),
        "A file of findings that are not reported again.",
    ),
    Key(
        "allow",
        _Allowances(),
        "Findings that may stay: each table has a `rule` and a `reason`, and patterns of `module`, "
        "`computation`, `op_name` and `path` that select what it allows.",
    ),
    Key("jobs", _Processes(), 'Number of worker processes; "auto" is 1 for a small input.'),
    Key("output-format", _Choice(_formats), "The format of the report."),
    Key(
        "unsafe-fixes",
        _Truth(),
        "True if `fix` also applies fixes that may change a value or the cost.",
    ),
)
"""In the order of the docs."""


def read_settings(table: Mapping[str, object], place: SettingPlace) -> dict[str, object]:
    """The fields of `Settings` that a table sets.

    Raises:
        ConfigError: for a key that is none, or a value that does not fit.
    """
    by_name = {key.name: key for key in KEYS}
    for name in table:
        if name not in by_name:
            raise place.at(name).error(f"unknown key: {nearest(name, by_name)}")
    return {
        by_name[name].attribute: by_name[name].kind.read(value, place.at(name))
        for name, value in table.items()
    }


def rule_names() -> Iterator[str]:
    """The names of all rules and families, families first."""
    families = {rule.family() for rule in all_rules()}
    yield from sorted(families)
    yield from sorted(known_names() - families)


def _option_schema(option: Option[Any]) -> Schema:
    types = {bool: "boolean", int: "integer", float: "number", str: "string"}
    schema: Schema = {
        "type": types[option.kind],
        "default": option.default,
        "description": option.doc,
    }
    return schema if option.least is None else schema | {"minimum": option.least}


def _spelled(value: object) -> str:
    """A value as TOML spells it, at most a line of it."""
    from hlo_lint.apps.settings.toml import spelled

    text = spelled(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _near(value: str, words: Sequence[str]) -> str:
    near = get_close_matches(value, words, n=1, cutoff=0.5)
    return f": did you mean {near[0]}?" if near else ""
