"""The backend configuration of an instruction: JSON, MLIR's attributes, or any text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from hlo_lint.hlo.attributes.cursor import unescape
from hlo_lint.hlo.parser.mlir_dictionary import Dictionary, read_dictionary
from hlo_lint.text.errors import PayloadError

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A JSON value. Values are shared between callers: read them only."""


def read_backend_config(text: str) -> Json | Dictionary:
    """JSON, or a dictionary of MLIR attributes; text where it is neither.

    >>> read_backend_config('{"n":1}'), read_backend_config("{n = 1 : i32}").values
    ({'n': 1}, {'n': 1})
    """
    if text.startswith('"') and text.endswith('"') and len(text) > 1:
        text = unescape(text[1:-1])
    if not text.startswith("{"):
        return text
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError):
        pass
    else:
        return value
    try:
        return read_dictionary(text)
    except PayloadError:
        return text
