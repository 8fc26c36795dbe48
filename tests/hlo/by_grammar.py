"""Values of attributes read by the grammars alone: the slow and exact way, an oracle for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hlo_lint.hlo.attributes import AttributeSyntaxError, OpMetadata, plain, reading
from hlo_lint.hlo.attributes.exact import Language, parse_text
from hlo_lint.hlo.attributes.metadata import _METADATA_FIELDS, _find_integers
from hlo_lint.hlo.attributes.strings import unescape
from hlo_lint.hlo.grammar import tokens, trees

if TYPE_CHECKING:
    from lark import Token

    from hlo_lint.hlo.attributes import AttributeValue

_BY_GRAMMAR = {
    "dim_labels": "windows.dim_labels_by_grammar",
    "entry_computation_layout": "shapes.program_shape_by_grammar",
    "operand_layout_constraints": "shapes.shape_list_by_grammar",
    "replica_groups": "devices.replica_groups_by_grammar",
    "sharding": "sharding.sharding_by_grammar",
    "window": "windows.window_by_grammar",
}


def read_by_grammar(name: str, text: str) -> AttributeValue:
    """The value that `read_attribute` reads; AttributeSyntaxError where the grammar has none."""
    if name == "metadata":
        return metadata_by_grammar(text)
    if name == "frontend_attributes":
        return frontend_attributes_by_grammar(text)
    reader = _BY_GRAMMAR.get(name, reading._READERS.get(name))
    return plain.plain_by_grammar(name, text) if reader is None else reading._reader(reader)(text)


def metadata_by_grammar(text: str) -> OpMetadata:
    """The value that `read_metadata` reads, by `attribute.lark`.

    Raises:
        AttributeSyntaxError: where it is not a list of fields in braces.
    """
    fields = {name: _field(name, value) for name, value in _by_grammar("metadata", text)}
    return OpMetadata(**{k: v for k, v in fields.items() if k in _METADATA_FIELDS})  # type: ignore[arg-type]


def frontend_attributes_by_grammar(text: str) -> Mapping[str, str]:
    """The value that `read_frontend_attributes` reads, by `attribute.lark`.

    Raises:
        AttributeSyntaxError: where it is not a list of pairs in braces.
    """
    return {name: str(_scalar(value)) for name, value in _by_grammar("frontend_attributes", text)}


def _by_grammar(name: str, text: str) -> list[tuple[str, Token]]:
    language = Language("attribute", 'expected `name="text"` or `name=value`')
    try:
        (tree,) = trees(parse_text(language, f"{name}={text}"))
    except AttributeSyntaxError as error:
        offset = max(0, error.offset - len(name) - 1)
        raise AttributeSyntaxError(error.message, text, offset) from None
    pairs = (tokens(pair) for pair in trees(tree))
    return [(str(key)[:-1], value) for key, value in pairs]


def _field(name: str, token: Token) -> bool | int | str | tuple[int, ...]:
    if _METADATA_FIELDS.get(name) is tuple:
        return tuple(map(int, _find_integers(token)))
    return _scalar(token)


def _scalar(token: Token) -> bool | int | str:
    match token.type:
        case "INT":
            return int(token)
        case "BOOL":
            return str(token) == "true"
        case "STRING":
            return unescape(token[1:-1])
        case _:
            return str(token)
