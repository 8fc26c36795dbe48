"""The arrays of the program before optimization that a value stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hlo_lint.hlo.attributes.exact import Language, integer, parse_text, refuse
from hlo_lint.hlo.attributes.strings import unescape
from hlo_lint.hlo.grammar import tokens, trees

if TYPE_CHECKING:
    from lark import Token, Tree


class OriginalArray(NamedTuple):
    """An array of the program before optimization: `{"call/x" {1}}`."""

    name: str
    """The instruction, after the calls that lead to it."""
    shape_index: tuple[int, ...] = ()
    """Index in its tuple."""


OriginTree: TypeAlias = "OriginalArray | tuple[OriginTree, ...] | None"
"""One leaf for each array of a value; None where nothing is known of it.

An `OriginalArray` is a tuple, too: ask for it first.
"""


@dataclass(frozen=True, slots=True)
class Origin:
    """The value of `origin={…}`, formerly `original_value={…}`."""

    tree: OriginTree
    call_hierarchy: str | None = None
    """The calls around a synthetic call; None if the text has none."""
    is_synthetic_call: bool = False


class Recovery(NamedTuple):
    """A recipe for an array that optimization replaced, from the one in its place."""

    old: OriginalArray | None
    new: OriginalArray | None
    module: str = ""
    """The text of the module that computes it; empty where both are the same array."""


class DebugEntry(NamedTuple):
    """The debug attributes of an array."""

    array: OriginalArray | None
    records: tuple[Mapping[str, str], ...]
    """The value of each field, by its name, as text."""


_TABLES = Language(
    "origin_tables",
    'expected a table, like { {"old"} : {"new"} }',
    {
        'expected an array, like {"x" {1}} or {}': ["{x", '{{"x"} : x'],
        "expected `:` and what belongs to the array": ['{{"x"} x', '{{"x"}}'],
    },
)
_LANGUAGE = Language(
    "origin",
    'expected the origin of each array, like {{"x" {1}}}',
    {
        'expected an array, like {"x" {1}} or {}': ["{x", "{(x", "{({},x", '{{"x"},x'],
        "expected a name in double quotes": ["{{x", "{{1", "{{}, [x"],
        "expected an index, like {1,0}": ['{{"x" x', '{{"x" {x', '{{"x" {1,x'],
    },
)


def read_origin(text: str) -> Origin:
    """The arrays that a value stands for.

    >>> read_origin('{({"x" {1}}, {})}').tree
    (OriginalArray(name='x', shape_index=(1,)), None)

    Raises:
        AttributeSyntaxError: where the text is not a value of it.
    """
    tree = parse_text(_LANGUAGE, text)
    leaves = tokens(tree)
    if leaves and leaves[0].type == "SYNTHETIC":
        return Origin((), "", True)
    hierarchy = unescape(leaves[0][1:-1]) if leaves else None
    return Origin(_tree(trees(tree)[0], text), hierarchy)


def _tree(tree: Tree[Token], text: str) -> OriginTree:
    if str(tree.data) == "tuple":
        return tuple(_tree(element, text) for element in trees(tree))
    return _array(tree, text)


def _array(tree: Tree[Token], text: str) -> OriginalArray | None:
    names = tokens(tree)
    if not names:
        return None
    index = trees(tree)
    numbers = tuple(integer(token, text) for token in tokens(index[0])) if index else ()
    return OriginalArray(unescape(names[0][1:-1]), numbers)


def read_recovery_table(text: str) -> tuple[Recovery, ...]:
    """The value of `origin_recovery_table={…}`.

    >>> read_recovery_table('{ {"old" {1}} : {"new"} }')[0].new
    OriginalArray(name='new', shape_index=())

    Raises:
        AttributeSyntaxError: where it is not such a table.
    """
    recoveries = []
    for row in trees(parse_text(_TABLES, text)):
        if str(row.data) != "recovery":
            refuse("expected an array after `:`", text, row)
        old, new = (_array(side, text) for side in trees(row))
        module = unescape(tokens(row)[0][1:-1]) if tokens(row) else ""
        recoveries.append(Recovery(old, new, module))
    return tuple(recoveries)


def read_debug_attributes(text: str) -> tuple[DebugEntry, ...]:
    """The value of `debug_attributes={…}`.

    Raises:
        AttributeSyntaxError: where it is not such a table.
    """
    entries = []
    for row in trees(parse_text(_TABLES, text)):
        if str(row.data) != "debug_entry":
            refuse("expected records after `:`", text, row)
        array, *records = trees(row)
        entries.append(DebugEntry(_array(array, text), tuple(map(_record, records))))
    return tuple(entries)


def _record(tree: Tree[Token]) -> Mapping[str, str]:
    pairs = (map(str, tokens(pair)) for pair in trees(tree))
    return {
        name[:-1]: unescape(value[1:-1]) if value.startswith('"') else value
        for name, value in pairs
    }
