"""Phrases of messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hlo_lint.text.source import shown

NOT_LOOKED_AT = "not looked at: "
"""The start of a reason for not checking an input that is not broken, instead of `skipped: `."""

_EXACT = 10_000
_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def counted(number: int, name: str) -> str:
    """A number of things: `1 file`, `2 files`."""
    return f"{number} {name}{'' if number == 1 else 's'}"


def sized(count: int) -> str:
    """A number of bytes as people read it: exact below 10,000, else in four digits.

    >>> sized(4096), sized(262144), sized(51539607552)
    ('4096 bytes', '256 KiB', '48 GiB')
    """
    if count < _EXACT:
        return counted(count, "byte")
    power = min((count.bit_length() - 1) // 10, len(_UNITS))
    return f"{count / (1 << 10 * power):.4g} {_UNITS[power - 1]}"


def shortened(text: str, most: int = 60) -> str:
    """A text of at most `most` characters, cut at the end with `…`.

    >>> shortened("reshape", 7), shortened("reshape", 4)
    ('reshape', 'res…')
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def cut_in_middle(text: str, most: int) -> str:
    """A text of at most `most` characters, cut in the middle with `…`.

    >>> cut_in_middle("(f32[8], f32[8], f32[16])", 15)
    '(f32[8]…32[16])'
    """
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}"


def in_a_line(text: str, most: int = 120) -> str:
    """A text for a line of a terminal, as in a `repr`, cut in the middle if it is too long.

    >>> in_a_line("<Fix: spell it\\nout>")
    '<Fix: spell it\\\\x0aout>'
    """
    return cut_in_middle(shown(text), most)


def short_repr(node: Any) -> str:
    """The `repr` of a dataclass or named tuple in a line: the fields that are not their defaults.

    >>> from hlo_lint.text.edits import Edit
    >>> from hlo_lint.text.source import Span
    >>> short_repr(Edit(Span(0, 9), "x" * 500))[:60]
    "Edit(span=Span(start=0, end=9), text='xxxxxxxxxxxxxxxxxxxxxx"
    """
    defaults: dict[str, object] = {}
    if isinstance(node, tuple):
        names = node._fields  # type: ignore[attr-defined]  # of every named tuple
        defaults = node._field_defaults  # type: ignore[attr-defined]
    else:
        fields = node.__dataclass_fields__
        names = [name for name, field in fields.items() if field.repr and name[:1] != "_"]
        for name in names:
            factory = fields[name].default_factory
            # A field without a default has MISSING, which equals no value.
            defaults[name] = factory() if callable(factory) else fields[name].default
    values = [(name, getattr(node, name)) for name in names]
    shown_values = [
        f"{name}={value!r}"
        for name, value in values
        if name not in defaults or value != defaults[name]
    ]
    return in_a_line(f"{type(node).__name__}({', '.join(shown_values)})")


def an(noun: str) -> str:
    """The noun with its article.

    >>> an("add"), an("reshape")
    ('an add', 'a reshape')
    """
    return f"{'an' if noun[:1] in tuple('aeiou') else 'a'} {noun}"


def listed(items: Iterable[object], most: int = 8, separator: str = ", ") -> str:
    """The first items of a list, and the number of further items.

    >>> listed(range(5), 3)
    '0, 1, 2 and 2 more'
    """
    words = list(map(str, items))
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return separator.join(words[:most]) + more


def first_of(notes: Sequence[str], rest: str, most: int = 8) -> tuple[str, ...]:
    """The first notes, and a note with the number of further notes.

    >>> first_of(["a", "b", "c"], "more logs", 1)
    ('a', '2 more logs')
    """
    left = len(notes) - most
    return (*notes[:most], *([f"{left} {rest}"] if left > 0 else []))
