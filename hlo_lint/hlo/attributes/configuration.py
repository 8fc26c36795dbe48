"""The backend configuration of an instruction: JSON, MLIR's attributes, or any text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from hlo_lint.hlo.attributes.cursor import unescape
from hlo_lint.hlo.parser.mlir_dictionary import Dictionary, read_dictionary
from hlo_lint.text.errors import PayloadError
from hlo_lint.text.patterns import late

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A JSON value. Values are shared between callers: read them only."""


def read_backend_config(text: str) -> Json | Dictionary:
    """The configuration as JSON, else as a dictionary of MLIR attributes, else as text.

    >>> read_backend_config('{"n":1}'), read_backend_config("{n = 1 : i32}").values
    ({'n': 1}, {'n': 1})
    >>> read_backend_config('{outer: {"n" :1}}')
    {'outer': {'n': 1}}
    """
    fields = json_fields(text)
    if fields is not None:
        return fields
    text = _unquoted(text)
    if not text.startswith("{"):
        return text
    try:
        return read_dictionary(text)
    except PayloadError:
        return text


def json_fields(text: str) -> Mapping[str, Json] | None:
    """The fields of a configuration in JSON, quoted or not; None for any other."""
    text = _unquoted(text)
    if not text.startswith("{"):
        return None
    fields = _object(text)
    # Protobuf's JSON reader accepts names without quotes, which occur in tests of XLA.
    return _object(_bare_names(r'"\1"', text)) if fields is None else fields


def _object(text: str) -> Mapping[str, Json] | None:
    """The JSON object in a text that begins with a brace; None for other text."""
    try:
        fields: Mapping[str, Json] = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return fields


_bare_names = late(r"(?<=[{,\s])([A-Za-z_]\w*)(?=\s*:)").sub


def _unquoted(text: str) -> str:
    is_string = text.startswith('"') and text.endswith('"') and len(text) > 1
    return unescape(text[1:-1]) if is_string else text
