"""The keys of a settings file: names, types, meanings. `Settings` has their defaults."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hlo_lint.analysis.stage import parse_stage, stage_pattern
from hlo_lint.apps.settings.settings import LEVELS, MAX_COUNT, OFF, SEVERITIES
from hlo_lint.apps.settings.toml import as_toml
from hlo_lint.apps.settings.toml_locations import SettingPlace, displayed
from hlo_lint.dumps.phases import AUTOTUNERS, DEMANDING
from hlo_lint.report.formats import FORMATS
from hlo_lint.rules.findings import Severity
from hlo_lint.rules.options import Option
from hlo_lint.rules.registry import all_rules, check_names, find_rule, known_names, rule_entries
from hlo_lint.text.errors import UsageError, nearest
from hlo_lint.text.phrases import shortened

if TYPE_CHECKING:
    from hlo_lint.engine.suppressions.allowances import Allowance

Schema = dict[str, Any]


@dataclass(frozen=True)
class SettingType:
    """A type of values: its reader and its JSON Schema."""

    title: str
    """In words, for the docs and for messages."""
    read: Callable[[Any, SettingPlace], Any]
    """The value as `Settings` holds it; a ConfigError, with the place, if it does not fit."""
    schema: Schema
    """Its JSON Schema."""

    def then(self, convert: Callable[[Any, SettingPlace], Any]) -> SettingType:
        """This type with converted values; a UsageError of `convert` is given the value's place."""

        def read(value: object, place: SettingPlace) -> object:
            try:
                return convert(self.read(value, place), place)
            except UsageError as error:
                raise place.error(str(error)) from error

        return SettingType(self.title, read, self.schema)


def _type(title: str, fits: Callable[[Any], bool], schema: Schema) -> SettingType:
    def read(value: object, place: SettingPlace) -> object:
        if not fits(value):
            raise place.error(f"takes {title}, not {_spelled(value)}")
        return value

    return SettingType(title, read, schema)


def _text(title: str, schema: Schema | None = None) -> SettingType:
    schema = {"type": "string", "minLength": 1} if schema is None else schema
    return _type(title, lambda value: isinstance(value, str) and value != "", schema)


def _choice(words: Sequence[str], title: str = "") -> SettingType:
    quoted = [f'"{word}"' for word in words]
    listed = " or ".join(part for part in (", ".join(quoted[:-1]), quoted[-1]) if part)
    text = _type(listed, lambda value: isinstance(value, str), {"enum": list(words)})

    def known(value: str, place: SettingPlace) -> str:
        if value in words:
            return value
        # Without a near word the hint is the list, which the message has already.
        hint = nearest(value, words, listed)
        raise place.error(
            f"{_spelled(value)} is not {listed}{'' if hint is listed else f': {hint}'}"
        )

    return SettingType(title or listed, text.then(known).read, text.schema)


def _listed(of: SettingType, title: str) -> SettingType:
    def read(values: list[object], place: SettingPlace) -> tuple[object, ...]:
        return tuple(of.read(value, place.at(i, value)) for i, value in enumerate(values))

    schema = {"type": "array", "items": of.schema}
    return _type(title, lambda value: isinstance(value, list), schema).then(read)


def _table(key: SettingType, of: SettingType, title: str) -> SettingType:
    def read(table: dict[str, object], place: SettingPlace) -> Mapping[str, object]:
        values = {}
        for name, value in table.items():
            key.read(name, place.at(name))
            values[name] = of.read(value, place.at(name))
        return values

    members = {"propertyNames": key.schema, "additionalProperties": of.schema}
    return _any_table(title, members).then(read)


def _any_table(title: str = "a table", members: Schema | None = None) -> SettingType:
    return _type(
        title, lambda value: isinstance(value, dict), {"type": "object", **(members or {})}
    )


def _closed(properties: Mapping[str, Schema], **more: Any) -> Schema:
    """The schema of a table that has these keys and no others."""
    return {"type": "object", "additionalProperties": False, **more, "properties": dict(properties)}


def _checked_name(name: str, _: SettingPlace) -> str:
    check_names([name])
    return name


def _read_options(rule: str, table: dict[str, Any], place: SettingPlace) -> Mapping[str, object]:
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
    return dict(table)  # as it is written: rules read their options themselves


def _options_schema() -> Schema:
    return _closed(
        {
            rule.name(): _closed({name: _option_schema(o) for name, o in rule.options().items()})
            for rule in all_rules()
        }
    )


def _option_schema(option: Option[Any]) -> Schema:
    types = {bool: "boolean", int: "integer", float: "number", str: "string"}
    schema: Schema = {
        "type": types[option.value_type],
        "default": option.default,
        "description": option.doc,
    }
    return schema if option.least is None else schema | {"minimum": option.least}


def _read_allowance(table: dict[str, Any], place: SettingPlace) -> Allowance:
    from hlo_lint.engine.suppressions.allowances import Allowance

    for name, value in table.items():
        if name not in ALLOWANCE:
            raise place.at(name).error(f"unknown key: {nearest(name, ALLOWANCE)}")
        ALLOWANCE[name].read(value, place.at(name))
    for name in ("rule", "reason"):
        if not str(table.get(name, "")).strip():
            raise place.error(f"an allowance needs a {name}")
    line = place.position.line
    return Allowance(**table, stated_in=str(displayed(place.path)), line=line)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_COUNT


def _spelled(value: object) -> str:
    """A value as TOML spells it, at most a line of it."""
    return shortened(as_toml(value))


_pattern = _text("a pattern")
_rule = _text("the name of a rule or of a family", {"$ref": "#/$defs/rule-or-family"}).then(
    _checked_name
)
_level = _choice(LEVELS, 'one of "error", "warning", "info", "off"').then(
    lambda word, _: None if word == OFF else Severity(word)
)
_stage = _type(
    'a stage such as "gpu post-layout"',
    lambda value: isinstance(value, str),
    {"type": "string", "minLength": 1, "pattern": stage_pattern()},
).then(lambda words, _: parse_stage(words))
_file_path = _text("a path, relative to the folder of the file").then(
    lambda path, place: place.path.parent / path
)
_processes = _type(
    '"auto" or a whole number from 1',
    lambda value: value == "auto" or _is_count(value),
    {"oneOf": [{"const": "auto"}, {"type": "integer", "minimum": 1}]},
).then(lambda value, _: None if value == "auto" else value)
_count = _type("a whole number from 1", _is_count, {"type": "integer", "minimum": 1})
_truth = _type("true or false", lambda value: isinstance(value, bool), {"type": "boolean"})
_names = _listed(_rule, "an array of rules and families")
_globs = _listed(_pattern, "an array of patterns")
_options = _table(_text("a text"), _any_table(), "a table of options for each rule").then(
    lambda tables, place: {
        name: _read_options(name, table, place.at(name)) for name, table in tables.items()
    }
)


@dataclass(frozen=True)
class Setting:
    """A key of a settings file; with `_` for `-` it is a field of `Settings`."""

    name: str
    type: SettingType
    doc: str

    @property
    def attribute(self) -> str:
        """The field of `Settings`."""
        return self.name.replace("-", "_")


ALLOWANCE: Final[Mapping[str, SettingType]] = {
    "rule": _rule,
    "reason": _text("a text", {"type": "string", "pattern": r"\S"}),
    **dict.fromkeys(("module", "computation", "op_name", "path"), _pattern),
}
"""The keys of an allowance; `hlo_lint.engine.suppressions.allowances` defines their meaning."""

_allowance = SettingType(
    "a table",
    _any_table().then(_read_allowance).read,
    _closed({name: of.schema for name, of in ALLOWANCE.items()}, required=["rule", "reason"]),
)

KEYS: Final = (
    Setting(
        "select", _names, "The only rules that run; by default all that are enabled by default."
    ),
    Setting("ignore", _names, "Rules that do not run."),
    Setting("extend-select", _names, "Rules that run in addition to those selected."),
    Setting(
        "per-path-ignores",
        _table(_pattern, _names, "a table of patterns with an array of rules each"),
        "Rules that report nothing in files that match a pattern.",
    ),
    Setting(
        "severity",
        _table(_rule, _level, "a table of rules and families with a severity each"),
        'The severity of findings of a rule: "error" and "warning" make the exit status 1, "info" '
        'does not, and "off" disables the rule.',
    ),
    Setting(
        "min-severity",
        _choice(SEVERITIES).then(lambda word, _: Severity(word)),
        "The least severe findings that are reported; less severe ones are counted. Commands "
        "report errors and warnings by default.",
    ),
    Setting("rules", _options, "Options of rules; the page of each rule lists its own."),
    Setting(
        "before",
        _choice((*DEMANDING, *AUTOTUNERS)),
        "The pass that comes next, if a dump does not say.",
    ),
    Setting(
        "stage",
        _stage,
        'The place in the pipeline of texts that do not state theirs: "gpu post-layout".',
    ),
    Setting(
        "per-path-stages",
        _table(_pattern, _stage, "a table of patterns with a stage each"),
        "The stage of files that match a pattern.",
    ),
    Setting("exclude", _globs, "Files and folders to leave out."),
    Setting("force-exclude", _truth, "True if `exclude` also applies to files given by name."),
    Setting("baseline", _file_path, "A file of findings that are not reported again."),
    Setting(
        "allow",
        _listed(_allowance, "an array of tables"),
        "Findings that may stay: each table has a `rule` and a `reason`, and patterns of `module`, "
        "`computation`, `op_name` and `path` that select what it allows.",
    ),
    Setting("jobs", _processes, 'Number of worker processes; "auto" is 1 for a small input.'),
    Setting(
        "cache",
        _truth,
        "False if findings of earlier runs are not used for files that did not change.",
    ),
    Setting(
        "max-findings",
        _count,
        "Findings of one rule in one file that are reported; the others are counted.",
    ),
    Setting("max-megabytes", _count, "Size of the largest file that is read."),
    Setting("max-seconds", _count, "CPU time for the rules of one compilation, in seconds."),
    Setting(
        "max-nesting", _count, "Levels of brackets in the most deeply nested file that is checked."
    ),
    Setting("output-format", _choice(tuple(FORMATS)), "The format of the report."),
    Setting(
        "unsafe-fixes",
        _truth,
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
        by_name[name].attribute: by_name[name].type.read(value, place.at(name))
        for name, value in table.items()
    }


def schema() -> Schema:
    """The schema of an `hlo_lint.toml`, or of the table `[tool.hlo_lint]` of a pyproject.toml."""
    families = {entry.family for entry in rule_entries()}
    properties = {key.name: {"description": key.doc, **key.type.schema} for key in KEYS}
    # The options of all rules, which `KEYS` does not import.
    properties["rules"] = {"description": properties["rules"]["description"], **_options_schema()}
    names = [*sorted(families), *sorted(known_names() - families)]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:hlo-lint:settings",
        "title": "Settings of hlo-lint",
        **_closed(properties),
        "$defs": {"rule-or-family": {"enum": names}},
    }


def schema_text() -> str:
    """The schema as `schema.json` beside this file has it; `make docs` writes that."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
