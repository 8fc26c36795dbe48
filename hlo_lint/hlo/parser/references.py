"""The names in lists of operands, of many instructions at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hlo_lint.text.patterns import late

_is_no_index = late(r"#(?:(?<=[ \n]#)|(?<=\A#)|(?![0-9]+(?:[# \n]|\Z)))").search
# A comment inside a name is kept, so the list is left to the general parser.
_remove_comments = late(r"/\*(?<![\w.\-#%]/\*)[^*\n]*\*/").sub
_no_name = late(r"%(?:(?<![ \n/]%)(?<!\A%)|(?![A-Za-z_]))").search
_ARRAY = (
    r"[a-z][a-z0-9]*+\[[^()\[\]{}=<\n]*+(?:<=?[^()\[\]{}=<\n]*+)*+\]"
    r"(?:\{(?:[ \t]*+[-\d:?][^()\[\]{}\n]*+(?:\([^()\[\]{}\n]*+\)[^()\[\]{}\n]*+)*+)?+\})?+"
)


def _shape() -> str:
    """A pattern of arrays, and of tuples of these, at most six deep."""
    shape = _ARRAY
    for _ in range(6):
        shape = rf"(?:{_ARRAY}|b?\((?:{shape}|[^()\[\]{{}}\n])*+\))"
    return shape


_remove_shapes = late(rf", ?+{_shape()} ").sub

NAME_BYTES: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-\n"
_REFERENCE_BYTES = NAME_BYTES + b"# "
_FIRST_LETTERS = bytes.maketrans(b"0123456789.-\n", b"0" * 12 + b" ")
"""Maps characters that cannot begin a name to `0`, and line breaks to blanks."""


def utf8(text: str) -> bytes:
    """The bytes of a text, surrogates among them."""
    return text.encode("utf-8", "surrogatepass")


def read_references(operands: Iterable[str]) -> list[tuple[str, ...]] | None:
    """The names in each list of operands; None if any list is not plain enough.

    Operands are names separated by `, `, each with or without its shape (releases before jax 0.5
    print shapes). Lists have no line breaks.

    >>> read_references(["%a, b#1", "", "f32[2]{0} %x, (f32[], s32[]) %y"])
    [('a', 'b#1'), (), ('x', 'y')]
    """
    joined = "\n".join(operands)
    if "/" in joined:
        joined = _remove_comments("", joined)
    if is_typed := joined.count(" ") != joined.count(", "):
        # With a comma before each operand, the pattern is only tried at commas.
        joined = joined.replace(", ", ",").replace("\n", "\n,")
        joined = _remove_shapes(",", f",{joined}")[1:]
        if " " in joined:
            return None
        joined = joined.replace("\n,", "\n").replace(",", ", ")
    if "%" in joined:
        if is_typed and _no_name(joined):
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


def _has_a_gap(joined: str) -> bool:
    """True if an operand is missing between, before or after others."""
    if joined[:1] == " " or joined[-1:] == " ":
        return True
    return "  " in joined or "\n " in joined or " \n" in joined
