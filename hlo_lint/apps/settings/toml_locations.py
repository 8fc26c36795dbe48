"""The places of keys in a TOML file, which the parser does not give."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from hlo_lint.text.errors import ConfigError
from hlo_lint.text.patterns import late
from hlo_lint.text.source import Position, shown

KeyPart = str | int
"""A name in a table, or a number in an array."""

_part = r"""(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[\w-]+)"""
_header = late(rf"[ \t]*(\[\[?)[ \t]*({_part}(?:[ \t]*\.[ \t]*{_part})*)[ \t]*\]")
_statement = late(rf"[ \t]*({_part}(?:[ \t]*\.[ \t]*{_part})*)[ \t]*=")


@dataclass(frozen=True)
class SettingPlace:
    """A value of a settings file."""

    path: Path
    text: str = field(repr=False)
    keys: tuple[KeyPart, ...] = ()
    """From the top of the file."""
    shown_from: int = 0
    """Number of leading keys that are the same for all settings."""
    value: str = ""
    """The text that stands there, to look for it in an array."""

    def at(self, key: KeyPart, value: object = None) -> SettingPlace:
        """A value in it."""
        text = value if isinstance(value, str) else ""
        return replace(self, keys=(*self.keys, key), value=text)

    @property
    def title(self) -> str:
        """`per-path-ignores.fixtures`, as a message names it."""
        keys = self.keys[self.shown_from :]
        named = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
        return "".join(named).removeprefix(".")

    @property
    def position(self) -> Position:
        """The place of its key."""
        return locate(self.text, self.keys, self.value)

    @property
    def label(self) -> str:
        """`path:line:column`"""
        line, column = self.position
        return f"{shown(str(displayed(self.path)))}:{line}:{column}"

    def error(self, message: str) -> ConfigError:
        """An error about the value, with its place."""
        named = f"{self.title}: " if self.title else ""
        return ConfigError(f"{self.label}: {shown(named + message)}")


def displayed(path: Path) -> Path:
    """A path as people write it: from the working directory, where it is below that."""
    folder = Path.cwd()
    return path.relative_to(folder) if path.is_absolute() and path.is_relative_to(folder) else path


def locate(text: str, keys: Sequence[KeyPart], value: str = "") -> Position:
    """The line and the column of a key, or of the nearest table around it.

    After a key that is the number in an array stands the text `value`.

    >>> locate('[tool.x]\\na = 1\\nb = { c = 2 }\\n', ("tool", "x", "b", "c"))
    Position(line=3, column=7)
    """
    best, span = 0, (0, 0)
    for written, start, end in _statements(text):
        length = min(len(written), len(keys))
        if length > best and written[:length] == tuple(keys[:length]):
            best, span = length, (start, end)
    start, end = span
    for key in keys[best:]:
        if isinstance(key, int):
            continue
        name = re.compile(rf"""(?<![\w-])["']?{re.escape(key)}["']?[ \t]*=""")
        inner = name.search(text, start, end)
        if inner is None:
            break
        start = inner.start()
    if value and keys and isinstance(keys[-1], int):
        places = (text.find(f"{quote}{value}{quote}", start, end) for quote in "\"'")
        start = next((place for place in places if place >= 0), start)
    line = text.count("\n", 0, start) + 1
    return Position(line, start - text.rfind("\n", 0, start))


def _statements(text: str) -> Iterator[tuple[tuple[KeyPart, ...], int, int]]:
    """Each table and each key with its start and the start of the next."""
    counts: dict[tuple[KeyPart, ...], int] = {}
    table: tuple[KeyPart, ...] = ()
    statements: list[tuple[tuple[KeyPart, ...], int]] = []
    offset = 0
    for line in re.split(r"(?<=\n)", text):
        header, statement = _header.match(line), _statement.match(line)
        if header is not None:
            table = _parts(header[2])
            if header[1] == "[[":
                number = counts[table] = counts.get(table, -1) + 1
                table = (*table, number)
            statements.append((table, offset + header.start(1)))
        elif statement is not None:
            statements.append(((*table, *_parts(statement[1])), offset + statement.start(1)))
        offset += len(line)
    statements.append(((), len(text)))
    for (keys, start), (_, end) in pairwise(statements):
        yield keys, start, end


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(_part, dotted))
