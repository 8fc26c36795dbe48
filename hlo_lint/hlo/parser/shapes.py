"""A reader of all spellings of a shape, with the errors of malformed ones.

`hlo_lint.hlo.shape.parse_shape` reads plain arrays itself and leaves the rest to this module.
`grammars/shape.lark` specifies the syntax, and tests hold this reader to it. The elements of a
printed tuple go back to `parse_shape`, which caches them: of thousands, few are distinct.
"""

from __future__ import annotations

import re
from typing import Final

from hlo_lint.hlo.attributes.cursor import NEVER_CLOSES, AttributeSyntaxError, Cursor
from hlo_lint.hlo.comments import COMMENT
from hlo_lint.hlo.grammar import int64
from hlo_lint.hlo.shape import (
    PRINT_ORDER,
    UNBOUNDED,
    ArrayShape,
    BufferShape,
    Layout,
    OpaqueShape,
    Shape,
    ShapeSyntaxError,
    TupleShape,
    shape_or_none,
)
from hlo_lint.text.patterns import late

MAX_DEPTH: Final = 100
"""Maximum depth of brackets: real programs stay below ten, Python's own limit is near 1000."""

_find_tokens = late(rf"{COMMENT}|-?[0-9]+|[A-Za-z]\w*|<=|[^ \t\r\n]", re.S | re.A).finditer
# The set is open: a release adds types. The bracket after it tells a type from another word.
_is_type = late(r"(?!(?:token|opaque)\Z)[a-z][a-z0-9]*").fullmatch
_index = late(r"/\*index=\d+\*/")
_nests = re.compile(r"\((?![\d*])").search
"""Finds a tuple or a buffer: the parentheses of a layout contain numbers."""
_PARTS = {
    name: late(pattern).fullmatch
    for name, pattern in {
        "D": r"D \( [DCSH](?: [+~])*(?: , [DCSH](?: [+~])*)* \)",
        "T": r"T(?: \( (?:(?:[0-9]+|\*) (?:, (?:[0-9]+|\*) )*)?\))+",
        "L": r"L \( [0-9]+ \)",
        "#": r"# \( [a-z][a-z0-9]* \)",
        "*": r"\* \( [a-z][a-z0-9]* \)",
        "E": r"E \( -?[0-9]+ \)",
        "S": r"S \( -?[0-9]+ \)",
        "SC": r"SC(?: \( [0-9]+ : [0-9]+ (?:, [0-9]+ )*\))+",
        "M": r"M \( [0-9]+ \)",
    }.items()
}
"""The tokens of each part of a layout, except `P(shape)`."""
_NUMBERED = ("T", "L", "E", "S", "M")

_SHAPE = "expected a shape"
_BUFFER = "a buffer holds one array"
_OPAQUE = "a token has no sizes"
_SIZE = "expected a size"
_AFTER_SIZE = "expected `,` or `]` after a size"
_DIMENSION = "expected the number of a dimension"
_IN_LAYOUT = "expected `,`, `:` or `}` in a layout"
_PART = "expected a part of a layout: D, T, L, #, *, E, S, SC, P or M, in this order"
_NUMBER = "expected a number in parentheses"
_TRAILING = "nothing may follow a shape"


def read_shape(text: str) -> Shape:
    """The shape in a text, in any spelling.

    >>> str(read_shape("(f32 [2]{0:T(8,128)}, /*index=1*/(), token[])"))
    '(f32[2]{0:T(8,128)}, (), token[])'

    Raises:
        ShapeSyntaxError: if it is not a shape.
    """
    if text.startswith("(") and (printed := _read_printed_tuple(text)) is not None:
        return printed
    cursor = Cursor(text, _TRAILING, _find_tokens)
    try:
        shape = _shape_at(cursor, 0)
        cursor.finish()
    except AttributeSyntaxError as error:
        is_open = error.message == NEVER_CLOSES
        message = "a shape's brackets never close" if is_open else error.message
        raise ShapeSyntaxError(message, text, error.offset) from None
    return shape


def _read_printed_tuple(text: str) -> TupleShape | None:
    """A tuple of arrays as XLA prints it; None for any other text."""
    if not text.endswith(")") or _nests(text, 1):
        return None
    elements = [shape_or_none(element) for element in _index.sub("", text[1:-1]).split(", ")]
    if not all(isinstance(shape, ArrayShape) for shape in elements):
        return None
    return TupleShape(tuple(filter(None, elements)))


def _shape_at(cursor: Cursor, depth: int) -> Shape:
    if cursor.next == "(":
        inside = _deeper(cursor, depth, "tuples")
        return TupleShape(cursor.listed(lambda _: _shape_at(cursor, inside), _TRAILING, "()"))
    if cursor.take("b", "("):
        array = _array_at(cursor, depth, _BUFFER)
        cursor.demand(")", message=_BUFFER)
        return BufferShape(array)
    for kind in ("token", "opaque"):
        if cursor.take(kind, "["):
            cursor.demand("]", message=_OPAQUE)
            return OpaqueShape(kind)
    return _array_at(cursor, depth, _SHAPE)


def _deeper(cursor: Cursor, depth: int, what: str) -> int:
    """The depth inside the next bracket."""
    if depth == MAX_DEPTH:
        cursor.refuse(f"{what} nest deeper than {MAX_DEPTH}")
    return depth + 1


def _array_at(cursor: Cursor, depth: int, message: str) -> ArrayShape:
    begin = cursor.at
    if not cursor.follows(cursor.next, "["):
        cursor.refuse(message)
    dtype = cursor.read(_is_type, message)
    sizes = cursor.listed(lambda _: _size_at(cursor), _AFTER_SIZE, "[]")
    layout = _layout_at(cursor, depth) if cursor.take("{") else None
    if layout is not None and len(layout.minor_to_major) != len(sizes):
        cursor.refuse("a layout needs as many numbers as the shape has dimensions", begin)
    dims = tuple(size for size, _ in sizes)
    dynamic = tuple(is_dynamic for _, is_dynamic in sizes)
    return ArrayShape(dtype, dims, layout, dynamic if any(dynamic) else ())


def _size_at(cursor: Cursor) -> tuple[int, bool]:
    """Read a size, and whether it is dynamic: `8`, `<=8`, `?`."""
    if cursor.take("?"):
        return UNBOUNDED, True
    is_bound = cursor.take("<=")
    return cursor.count(_SIZE), is_bound


def _layout_at(cursor: Cursor, depth: int) -> Layout:
    """Read a layout after its opening brace."""
    order: list[int] = []
    if cursor.next not in (":", "}"):
        order.append(cursor.integer(_DIMENSION))
        while cursor.take(","):
            order.append(cursor.integer(_DIMENSION))
    if cursor.take("}"):
        return Layout(tuple(order))
    begin = cursor.at
    cursor.demand(":", message=_IN_LAYOUT)
    parts = {name: _part_at(cursor, depth, name) for name in PRINT_ORDER if cursor.next == name}
    cursor.demand("}", message=_PART)
    tiles = parts.pop("T", "")
    sizes = [tile.split(",") if tile else [] for tile in tiles[2:-1].split(")(")] if tiles else []
    try:
        return Layout(
            tuple(order),
            tuple(tuple(None if size == "*" else int64(size) for size in tile) for tile in sizes),
            int64(parts.pop("E", "E(0)")[2:-1]),
            int64(parts.pop("S", "S(0)")[2:-1]),
            tuple(parts.values()),
        )
    except OverflowError:
        cursor.refuse("a number does not fit", begin)


def _part_at(cursor: Cursor, depth: int, name: str) -> str:
    """Read a part of a layout, and return it without blanks and comments."""
    begin = cursor.at
    cursor.demand(name)
    if name == "P":
        inside = _deeper(cursor, depth, "brackets")
        cursor.demand("(", message=_SHAPE)
        _shape_at(cursor, inside)
        cursor.demand(")", message=_TRAILING)
        return "".join(cursor.tokens[begin : cursor.at])
    while cursor.take("("):
        while not cursor.take(")"):
            cursor.read(bool, _NUMBER)
    tokens = cursor.tokens[begin : cursor.at]
    if _PARTS[name](" ".join(tokens)) is None:
        cursor.refuse(_NUMBER if name in _NUMBERED else _SHAPE, begin + 1)
    return "".join(tokens)
