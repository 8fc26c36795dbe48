"""The same dump as another run might have written it: other numbers, another directory."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from hlo_lint.text.source import decode, encode

_name = re.compile(r"%([A-Za-z_][\w\-.]*?)\.(\d+)(?![\w.\-])", re.A)
_value = re.compile(
    r"((?:<\d+|name:|->|position:|^ *) ?[A-Za-z_][\w\-.]*?)\.(\d+)(?=[\s{@,:]|$)", re.A | re.M
)
"""A name in a buffer assignment, which prints no `%`."""
_step = re.compile(r"(?<=\.)\d{4}(?=\.)")


def renumbered(text: str, number: Callable[[int], int]) -> str:
    """The text with another number after each name that has one; `number` is injective."""
    return _name.sub(lambda found: f"%{found[1]}.{number(int(found[2]))}", text)


def another_run(dump: Path, target: Path, number: Callable[[int], int], steps: int) -> Path:
    """A copy of a dump, its names renumbered and its steps counted from another number."""
    for path in dump.rglob("*"):
        if path.is_dir():
            continue
        name = _step.sub(lambda found: f"{int(found[0]) + steps:04d}", path.name)
        copy = target / path.relative_to(dump).with_name(name)
        copy.parent.mkdir(parents=True, exist_ok=True)
        data = path.read_bytes()
        if path.suffix not in (".pb", ".gz"):
            text = renumbered(decode(data), number)
            if "buffer-assignment" in path.name:
                text = _value.sub(lambda found: f"{found[1]}.{number(int(found[2]))}", text)
            data = encode(text)
        copy.write_bytes(data)
    return target
