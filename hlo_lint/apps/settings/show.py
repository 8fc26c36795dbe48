"""Settings as TOML, each with where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hlo_lint.apps.settings.keys import ALLOWANCE, KEYS, OFF
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.apps.settings.toml import key_of, spelled
from hlo_lint.engine.suppressions.allowances import Allowance
from hlo_lint.text.source import shown


def settings_text(settings: Settings) -> str:
    """Every setting, as a settings file would say it; what is not set stands in a comment."""
    return "\n".join(_lines(settings)) + "\n"


def _lines(settings: Settings) -> Iterator[str]:
    file = settings.file
    yield f"# file: {shown(str(file.resolve())) if file is not None else 'none'}"
    tables = []
    for key in KEYS:
        value = getattr(settings, key.attribute)
        if key.name == "jobs" and value is None:
            value = "auto"
        if key.name == "allow":
            value = [_allowance(one) for one in settings.allow]
        origin = shown(settings.origin(key.attribute))
        if value is None:
            yield f"# {key.name} is not set"
        elif isinstance(value, Mapping) and value:
            tables.append((key.name, value, origin))
        else:
            yield f"{key.name} = {spelled(value)}  # {origin}"
    for name, value, origin in tables:
        yield from _table(name, value, origin)


def _allowance(one: Allowance) -> dict[str, str]:
    given = {name: getattr(one, name) for name in ALLOWANCE}
    return {name: value for name, value in given.items() if value is not None}


def _table(name: str, table: Mapping[str, object], origin: str) -> Iterator[str]:
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    if len(inner) < len(table):
        yield f"\n[{name}]  # {origin}"
    for key, value in table.items():
        if key not in inner:
            yield f"{key_of(key)} = {spelled(OFF if value is None else value)}"
    for key, value in inner.items():
        yield from _table(f"{name}.{key_of(key)}", value, origin)
