"""A dictionary of MLIR attributes: the values with their positions in the text.

`grammars/mlir_dictionary.lark` specifies the syntax and reads it: there are few such dictionaries
in a dump. A single value can be replaced; all other text is kept byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from hlo_lint.hlo.grammar import grammar_parser, offset_of, terminals, trees
from hlo_lint.hlo.parser.strings import mlir_escape, mlir_unescape
from hlo_lint.text.errors import PayloadError

if TYPE_CHECKING:
    from lark import Token, Tree

MlirValue: TypeAlias = (
    "bool | int | float | bytes | str | tuple[MlirValue, ...] | Mapping[str, MlirValue] | None"
)
"""A string is bytes; an attribute kept as text, `#gpu.address_space<global>`, is str; a unit is
None."""

MAX_DIGITS: Final = 4000
"""The longest number that Python reads by default."""


class Entry(NamedTuple):
    """A named value."""

    value: MlirValue
    type: str
    """The type after the colon: `i32`; empty if there is none."""
    start: int
    """Position of the value without its type, in characters of the dictionary's text."""
    end: int


@dataclass(frozen=True)
class Dictionary:
    """The text and its entries. The first of duplicate names wins."""

    text: str
    entries: Mapping[str, Entry]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    @property
    def values(self) -> Mapping[str, MlirValue]:
        """The names and values, in order."""
        return {name: entry.value for name, entry in self.entries.items()}

    def with_value(self, name: str, value: MlirValue) -> Dictionary:
        """The text with a value replaced; the value's type is kept.

        >>> read_dictionary("{n = 1 : i32, s = unit}").with_value("n", 8).text
        '{n = 8 : i32, s = unit}'

        Raises:
            KeyError: if the name is missing.
        """
        _, _, start, end = self.entries[name]
        text = spelled(value)
        if self.text.startswith("array<", start):
            dialect_type, _, _ = self.text[start:end].rstrip(">").partition(":")
            text = f"{dialect_type}: {text[1:-1]}>" if text != "[]" else f"{dialect_type}>"
        return read_dictionary(f"{self.text[:start]}{text}{self.text[end:]}")


def read_dictionary(text: str) -> Dictionary:
    """The dictionary in a text.

    >>> read_dictionary("{on = true, n = 3 : i32}").values
    {'on': True, 'n': 3}

    Raises:
        PayloadError: if it is not a dictionary of attributes, with the character.
    """
    from lark import UnexpectedInput

    entries: dict[str, Entry] = {}
    try:
        (dictionary,) = trees(grammar_parser("mlir_dictionary").parse(text))
        for entry in trees(dictionary):
            entries.setdefault(_name(entry), _entry(entry, text))
    except UnexpectedInput as error:
        offset = offset_of(error, text)
        raise PayloadError("expected `name = value` of MLIR", offset, "character") from None
    except RecursionError:
        raise PayloadError("its brackets are nested too deep", 0, "character") from None
    return Dictionary(text, entries)


def spelled(value: MlirValue) -> str:
    r"""A value as MLIR spells it.

    >>> spelled((1, b"\x9c", {"on": True}))
    '[1, "\\9C", {on = true}]'
    """
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return f'"{mlir_escape(value)}"'
        case str():
            return value
        case None:
            return "unit"
        case int():
            return str(value)
        case float():
            return f"{value:.6e}" if float(f"{value:.6e}") == value else f"{value:.17e}"
        case tuple():
            return f"[{', '.join(map(spelled, value))}]"
    return f"{{{', '.join(f'{name} = {spelled(item)}' for name, item in value.items())}}}"


def _name(entry: Tree[Token]) -> str:
    token = terminals(entry)[0]
    return mlir_unescape(token[1:-1]).decode("utf-8", "replace") if token[0] == '"' else str(token)


def _entry(entry: Tree[Token], text: str) -> Entry:
    values = trees(entry)
    if not values:  # a unit has only a name
        end = terminals(entry)[0].end_pos or 0
        return Entry(None, "", end, end)
    (tree,) = values
    start, end = tree.meta.start_pos, tree.meta.end_pos
    if str(tree.data) not in ("string", "integer", "float"):
        return Entry(_value(tree, text), "", start, end)
    literal_end = terminals(tree)[0].end_pos or end
    return Entry(_value(tree, text), text[literal_end:end].lstrip(" \t\r\n:"), start, literal_end)


def _value(tree: Tree[Token], text: str) -> MlirValue:
    leaves = terminals(tree)
    match str(tree.data):
        case "string":
            token = leaves[0]
            try:
                return mlir_unescape(token[1:-1])
            except PayloadError as error:
                offset = (token.start_pos or 0) + 1 + (error.offset or 0)
                raise PayloadError(error.message, offset, "character") from None
        case "integer" | "float" | "boolean":
            return _scalar(leaves[0])
        case "list":
            return tuple(_value(child, text) for child in trees(tree))
        case "numbers":
            return tuple(map(_scalar, leaves[1:]))
        case "dictionary":
            inner: dict[str, MlirValue] = {}
            for entry in trees(tree):
                values = trees(entry)
                inner.setdefault(_name(entry), _value(values[0], text) if values else None)
            return inner
    kept = text[tree.meta.start_pos : tree.meta.end_pos]
    return None if kept == "unit" else kept


def _scalar(token: Token) -> bool | int | float:
    if len(token) > MAX_DIGITS:
        raise PayloadError("a number does not fit", token.start_pos, "character")
    match token.type:
        case "BOOL":
            return str(token) == "true"
        case "FLOAT":
            return float(token)
        case "HEX":
            return int(token, 16)
    return int(token)
