"""The names that lists of operands refer to, of many instructions at once."""

from __future__ import annotations

import re
from typing import Final

_is_no_index = re.compile(r"#(?:(?<=[ \n]#)|(?<=\A#)|(?![0-9]+(?:[# \n]|\Z)))").search
# One after part of a name stays, and makes the list one that is not plain.
_remove_comments = re.compile(r"/\*(?<![\w.\-#%]/\*)[^*\n]*\*/").sub
_ARRAY = re.compile(
    r"[a-z][a-z0-9]*+\[(?:[^()\[\]{}=\n]|<=)*\]"
    r"(?:\{(?:[ \t]*[-\d:?][^()\[\]{}\n]*(?:\([^()\[\]{}\n]*\)[^()\[\]{}\n]*)*)?\})?"
)
_no_name = re.compile(r"%(?:(?<![ \n/]%)(?<!\A%)|(?![A-Za-z_]))").search
_TUPLE = re.compile(r"b?\([^()\[\]{}\n]*\)")
_SHAPE = "\1"
"""Stands for a shape."""
_LEADING_SHAPE = re.compile(rf"(?<![^,\n]){_SHAPE} ")

NAME_BYTES: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-\n"
_REFERENCE_BYTES = NAME_BYTES + b"# "
_FIRST_LETTERS = bytes.maketrans(b"0123456789.-\n", b"0" * 12 + b" ")
"""Makes `0` of what no name begins with, and a blank of what ends a line of operands."""


def utf8(text: str) -> bytes:
    """The bytes of a text, surrogates among them."""
    return text.encode("utf-8", "surrogatepass")


def read_references(operands: list[str], by_people: bool = False) -> list[tuple[str, ...]] | None:
    """The names that each list of operands refers to; None if one is not plain enough.

    Operands are names that `, ` stands between, each after its shape or without one, as releases
    before jax 0.5 print it. No list has a line break in it. Only lists that were
    written `by_people` are searched for `%` in the midst of a name.

    >>> read_references(["%a, b#1", "", "f32[2]{0} %x, (f32[], s32[]) %y"])
    [('a', 'b#1'), (), ('x', 'y')]
    """
    joined = "\n".join(operands)
    if "/" in joined:
        joined = _remove_comments("", joined)
    if by_people and joined.count(",") != joined.count(", "):
        joined = joined.replace(", ", ",").replace(",", ", ")
    if is_typed := joined.count(" ") != joined.count(", "):
        plain = _without_shapes(joined.replace(", ", ","))
        if plain is None or " " in plain:
            return None
        joined = plain.replace(",", ", ")
    if "%" in joined:
        if (is_typed or by_people) and _no_name(joined):
            return None
        joined = joined.replace("%", "")
    joined = joined.replace(", ", " ")
    encoded = utf8(joined)
    if encoded.translate(None, _REFERENCE_BYTES) or _has_a_gap(joined):
        return None
    if b" 0" in b" " + encoded.translate(_FIRST_LETTERS):
        return None
    if "#" in joined and _is_no_index(joined):
        return None
    return list(map(tuple, map(str.split, joined.split("\n"))))


def _without_shapes(joined: str) -> str | None:
    """The lists of operands without their shapes; None if parentheses are not in pairs."""
    plain = _ARRAY.sub(_SHAPE, joined)
    while "(" in plain:
        shorter = _TUPLE.sub(_SHAPE, plain)
        if shorter == plain:
            return None
        plain = shorter
    return _LEADING_SHAPE.sub("", plain)


def _has_a_gap(joined: str) -> bool:
    """True if an operand is missing between two others, or before or after one."""
    if joined[:1] == " " or joined[-1:] == " ":
        return True
    return "  " in joined or "\n " in joined or " \n" in joined
