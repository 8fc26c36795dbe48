"""Values as TOML spells them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from hlo_lint.analysis.stage import Stage
from hlo_lint.text.patterns import late

_bare = late(r"[A-Za-z0-9_-]+").fullmatch


def as_toml(value: object) -> str:
    """A value as a line of TOML.

    >>> as_toml({"severity": {"needless-transpose": "off"}, "jobs": 2, "a b": [True, 0.5]})
    '{ severity = { needless-transpose = "off" }, jobs = 2, "a b" = [true, 0.5] }'
    """
    match value:
        case Mapping():
            pairs = (f"{_key(str(key))} = {as_toml(item)}" for key, item in value.items())
            return f"{{ {', '.join(pairs)} }}" if value else "{}"
        case str() | Path() | Stage():
            return f'"{"".join(map(_character, str(value)))}"'
        case list() | tuple():
            return f"[{', '.join(map(as_toml, value))}]"
        case Enum():
            return as_toml(value.value)
        case bool():
            return str(value).lower()
        case int() if value.bit_length() > 1000:  # Python spells no more than 4,300 digits
            return f"{value:#x}"
        case _:
            return str(value)


def _key(name: str) -> str:
    return name if _bare(name) else as_toml(name)


def _character(character: str) -> str:
    """A character of a string, escaped if it ends the string or a terminal would obey it."""
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
