r"""The bytes that the text of a `backend_config` represents.

XLA prints the bytes unquoted if they lex as a dictionary in braces (JSON or MLIR), and otherwise in
quotes with C escapes. `HloParserImpl::ParseAttributeHelper` accepts both forms for any content, so
a dictionary may be quoted too; then it is written back in quotes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from hlo_lint.hlo.attributes.configuration import Json
from hlo_lint.hlo.parser.strings import c_escape, c_unescape
from hlo_lint.text.errors import PayloadError
from hlo_lint.text.source import decode, encode


def content_of(text: str) -> bytes:
    """The bytes that a `backend_config` represents: those of the payload."""
    if not text.startswith('"'):
        return encode(text)
    if len(text) < 2 or not text.endswith('"'):
        raise PayloadError("its quote is not closed", 0, "character")
    try:
        return c_unescape(text[1:-1])
    except PayloadError as error:
        raise PayloadError(error.message, (error.offset or 0) + 1, "character") from None


def with_content(text: str, content: bytes) -> str:
    """The text for other bytes, with the same kind of quoting; unchanged for equal bytes."""
    if content == content_of(text):
        return text
    return f'"{c_escape(content)}"' if text.startswith('"') else decode(content)


def read_json(content: bytes) -> Mapping[str, Json]:
    """Parse a JSON object."""
    try:
        value = json.loads(content)
    except RecursionError:
        raise PayloadError("its brackets are nested too deep", 0, "character") from None
    except json.JSONDecodeError as error:
        raise PayloadError(f"invalid JSON: {error.msg}", error.pos, "character") from None
    except ValueError as error:  # not UTF-8, or a number of too many digits
        raise PayloadError(f"invalid JSON: {error}") from None
    if not isinstance(value, dict):
        raise PayloadError("expected a JSON object", 0, "character")
    return value
