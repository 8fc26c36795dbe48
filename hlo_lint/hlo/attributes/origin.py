"""The arrays of the unoptimized program that a value corresponds to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from hlo_lint.hlo.attributes.cursor import Cursor, reads

MAX_DEPTH = 100
"""Maximum depth of tuples: real values stay below five, Python's own limit is near 1000."""


class OriginalArray(NamedTuple):
    """An array of the program before optimization: `{"call/x" {1}}`."""

    name: str
    """The instruction, after the calls that lead to it."""
    shape_index: tuple[int, ...] = ()


OriginTree: TypeAlias = "OriginalArray | tuple[OriginTree, ...] | None"
"""A leaf for each array of a value; None if its origin is unknown.

An `OriginalArray` is a tuple, too: check for it first.
"""


@dataclass(frozen=True, slots=True)
class Origin:
    """The value of `origin={…}`, formerly `original_value={…}`."""

    tree: OriginTree
    call_hierarchy: str | None = None
    """The calls around a synthetic call; None if the text has none."""
    is_synthetic_call: bool = False


_ARRAY = 'expected an array, like {"x" {1}} or {}'


@reads('expected the origin of each array, like {{"x" {1}}}')
def read_origin(cursor: Cursor) -> Origin:
    """The value of `origin={…}`.

    >>> read_origin('{({"x" {1}}, {})}').tree
    (OriginalArray(name='x', shape_index=(1,)), None)
    """
    cursor.demand("{")
    if cursor.take("[", "synthetic_call", "]"):
        origin = Origin((), "", True)
    else:
        tree = _tree_at(cursor, 0)
        hierarchy = None
        if cursor.take(","):
            cursor.demand("[")
            hierarchy = cursor.string("expected a name in double quotes")
            cursor.demand("]")
        origin = Origin(tree, hierarchy)
    cursor.demand("}")
    return origin


def _tree_at(cursor: Cursor, depth: int) -> OriginTree:
    if cursor.next != "(":
        return _array_at(cursor)
    if depth == MAX_DEPTH:
        cursor.refuse(f"brackets nest deeper than {MAX_DEPTH}")
    return cursor.listed(lambda _: _tree_at(cursor, depth + 1), _ARRAY, "()")


def _array_at(cursor: Cursor) -> OriginalArray | None:
    cursor.demand("{", message=_ARRAY)
    if cursor.take("}"):
        return None
    name = cursor.string("expected a name in double quotes")
    index: tuple[int, ...] = ()
    if cursor.next != "}":
        index = cursor.listed(cursor.count, "expected an index, like {1,0}")
    cursor.demand("}")
    return OriginalArray(name, index)
