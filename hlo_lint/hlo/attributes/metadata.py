"""The origin of an instruction in the program, and its frontend attributes.

No grammar is asked on the way: of all that is printed metadata repeats the least.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from hlo_lint.hlo.attributes.errors import AttributeSyntaxError
from hlo_lint.hlo.attributes.splitting import STRING, split_attributes_strictly
from hlo_lint.hlo.attributes.strings import unescape
from hlo_lint.hlo.comments import COMMENT
from hlo_lint.hlo.grammar import int64
from hlo_lint.text.patterns import late

_is_integer = late(r"-?[0-9]{1,20}").fullmatch
_is_integers = late(r"\{(?:\s*+-?[0-9]{1,18}\s*+(?:,(?!\s*\})|(?=\})))*+\s*+\}").fullmatch
_INT32 = 1 << 31
_find_integers = late(r"-?[0-9]+").findall
_match_field = late(
    rf"\s*(?:,\s*)?([A-Za-z_][A-Za-z0-9_]*)=\s*({STRING}|[^\s{{}}\",]+|\{{(?:[^{{}}\"]++|{STRING})*+\}})\s*",
    re.S,
).match
_match_pair = late(
    rf"\s*([A-Za-z_][A-Za-z0-9_.\-]*)=\s*({STRING}|[^\s{{}}\",]+|\{{(?:[^{{}}\"]++|{STRING})*+\}})"
    r"\s*(?:,|\Z)",
    re.S,
).match


_is_pair_value = late(rf"{STRING}|\{{.*\}}|[^\s{{}}\",]+", re.S).fullmatch


@dataclass(frozen=True, slots=True)
class OpMetadata:
    """The origin of an instruction in the program; fields that are not printed are empty or 0.

    >>> read_metadata('{op_name="jit(f)/add" stack_frame_id=3}').op_name
    'jit(f)/add'
    """

    op_type: str = ""
    op_name: str = ""
    """The path through transformations and name scopes: `jit(step)/jvp(Model)/add`."""
    source_file: str = ""
    source_line: int = 0
    source_end_line: int = 0
    source_column: int = 0
    source_end_column: int = 0
    stack_frame_id: int = 0
    """A row of the module's StackFrames table; 0 where there is none."""
    scheduling_name: str = ""
    deduplicated_name: str = ""
    metadata_payload: str = ""
    preserve_layout: bool = False
    profile_type: tuple[int, ...] = ()
    """Numbers of `ProfileType` in `xla_data.proto`."""


def read_metadata(text: str) -> OpMetadata:
    """The value of `metadata={…}`; fields of later releases are passed over.

    Raises:
        AttributeSyntaxError: where it is not a list of fields in braces.
    """
    fields = {
        name: value
        for name, value in _fields(text, _match_field, "expected `field=value` in metadata")
        if name in _METADATA_FIELDS
    }
    values: dict[str, str | int | bool | tuple[int, ...]] = {}
    for name, value in fields.items():
        kind = _METADATA_FIELDS[name]
        if kind is str and value[0] in "\"'":
            values[name] = unescape(value[1:-1])
        elif kind is int and (number := _int32(value)) is not None:
            values[name] = number
        elif kind is bool and value in ("true", "false"):
            values[name] = value == "true"
        elif kind is tuple and _is_integers(value):
            values[name] = tuple(map(int, _find_integers(value)))
        else:
            wanted = _WANTED[kind]
            raise AttributeSyntaxError(f"{name} is {wanted}", text, text.find(f"{name}="))
    return OpMetadata(**values)  # type: ignore[arg-type]  # checked field by field above


def _int32(text: str) -> int | None:
    """An integer as XLA reads it; None if it has more than 32 bits."""
    if not _is_integer(text):
        return None
    with suppress(OverflowError):
        if -_INT32 <= (number := int64(text)) < _INT32:
            return number
    return None


_WANTED = {
    str: "a string",
    int: "an integer",
    bool: "true or false",
    tuple: "a list of integers",
}
_METADATA_FIELDS: dict[str, type] = {
    field: type(getattr(OpMetadata(), field)) for field in OpMetadata.__slots__
}


def read_frontend_attributes(text: str) -> Mapping[str, str]:
    """The value of `frontend_attributes={name="text",…}`; a value in braces stays as it is.

    Raises:
        AttributeSyntaxError: where it is not a list of pairs in braces.
    """
    try:
        pairs = _fields(text, _match_pair, 'expected `name="text"`')
    except AttributeSyntaxError as error:
        pairs = _nested_pairs(text, error)
    return {
        name: unescape(value[1:-1]) if value.startswith('"') else value for name, value in pairs
    }


def _nested_pairs(text: str, error: AttributeSyntaxError) -> list[tuple[str, str]]:
    """The same pairs, whose values in braces may nest."""
    tail = f",{text.rstrip()[1:-1]}"
    try:
        spans = split_attributes_strictly(tail)
    except AttributeSyntaxError:
        raise error from None
    pairs = [(name, tail[start:end]) for name, (start, end) in spans.items()]
    if not text.startswith("{") or not all(_is_pair_value(value) for _, value in pairs):
        raise error
    return pairs


def _blanked(match: re.Match[str]) -> str:
    """A string as it is, a comment as blanks: what stands after stays where it is."""
    return match[0] if match[0].startswith('"') else " " * len(match[0])


_comments_or_strings = late(rf'"(?:[^"\\]|\\.)*+"|{COMMENT}', re.S).sub


def _fields(
    text: str, match: Callable[[str, int, int], re.Match[str] | None], message: str
) -> list[tuple[str, str]]:
    inside = text.rstrip()
    if "/*" in inside or "//" in inside:
        inside = _comments_or_strings(_blanked, inside)
    if not inside.startswith("{") or not inside.endswith("}") or len(inside) < 2:
        raise AttributeSyntaxError("expected braces", text, 0)
    at, end = 1, len(inside) - 1
    fields: list[tuple[str, str]] = []
    while at < end:
        field = match(inside, at, end)
        if field is None:
            if not inside[at:end].strip():
                break
            raise AttributeSyntaxError(message, text, at)
        fields.append((field[1], field[2]))
        at = field.end()
    return fields
