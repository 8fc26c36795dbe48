"""Make text of a dump safe for a page: visible, left to right, without the end of an element."""

from __future__ import annotations

import json
import zlib
from base64 import b64encode

from hlo_lint.text.source import shown

MAX_LENGTH = 2000
"""Maximum characters of a string on the page."""


def visible(value: object) -> object:
    """Data with every string made visible, and cut to `MAX_LENGTH`.

    >>> visible({"name": "a\\u202eb"})
    {'name': 'a\\\\u202eb'}
    """
    match value:
        case str():
            if len(value) > MAX_LENGTH:
                value = f"{value[:MAX_LENGTH]}… ({len(value) - MAX_LENGTH} more characters)"
            return shown(value)
        case dict():
            return {key: visible(item) for key, item in value.items()}
        case list() | tuple():
            return [visible(item) for item in value]
        case _:
            return value


def script(value: object) -> str:
    """Data as JSON for a `script` element: ASCII, without `<`, `>` and `&`.

    >>> script({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(visible(value), separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def deflated(value: object) -> str:
    """Data as base64 of deflated JSON, since names and numbers repeat."""
    text = json.dumps(visible(value), separators=(",", ":"))
    return b64encode(zlib.compress(text.encode(), 9)).decode()
