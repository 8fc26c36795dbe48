"""Which arrays of the program before optimization a value stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hlo_lint.syntax.attributes.exact import Language, integer, parse_text
from hlo_lint.syntax.attributes.strings import unescape
from hlo_lint.syntax.grammar import tokens, trees

if TYPE_CHECKING:
    from lark import Token, Tree


class OriginalArray(NamedTuple):
    """An array of the program before optimization: `{"call/x" {1}}`."""

    name: str
    """The instruction, behind the calls that lead to it."""
    shape_index: tuple[int, ...] = ()
    """Which element of its tuple."""


OriginTree: TypeAlias = "OriginalArray | tuple[OriginTree, ...] | None"
"""One leaf for each array of a value; None where nothing is known of it.

An `OriginalArray` is a tuple, too: ask for it first.
"""


@dataclass(frozen=True, slots=True)
class Origin:
    """What `origin={…}` says, formerly `original_value={…}`."""

    tree: OriginTree
    call_hierarchy: str | None = None
    """The calls around a synthetic call; None where nothing is said of any."""
    is_synthetic_call: bool = False


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
    """Which arrays a value stands for.

    >>> read_origin('{({"x" {1}}, {})}').tree
    (OriginalArray(name='x', shape_index=(1,)), None)

    Raises:
        AttributeSyntaxError: where the text is none of its values.
    """
    tree = parse_text(_LANGUAGE, text)
    leaves = tokens(tree)
    if leaves and leaves[0].type == "SYNTHETIC":
        return Origin((), "", True)
    hierarchy = unescape(leaves[0][1:-1]) if leaves else None
    return Origin(_tree(trees(tree)[0], text), hierarchy)


def _tree(tree: Tree[Token], text: str) -> OriginTree:
    if str(tree.data) == "tuple":
        return tuple(_tree(each, text) for each in trees(tree))
    names = tokens(tree)
    if not names:
        return None
    index = trees(tree)
    numbers = tuple(integer(token, text) for token in tokens(index[0])) if index else ()
    return OriginalArray(unescape(names[0][1:-1]), numbers)
