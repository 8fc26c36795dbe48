"""Text of a dump for a page: nothing in it is hidden, turns the text around, or ends an element."""

from __future__ import annotations

import json
import zlib
from base64 import b64encode

from hlo_lint.text.source import shown

MAX_LENGTH = 2000
"""Characters of one string that the page holds."""


def visible(value: object) -> object:
    """The same data with each string made visible, and cut where it is longer than `MAX_LENGTH`.

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
    """Data as JSON that can stand in a `script` element: ASCII, without `<`, `>` and `&`.

    >>> script({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(visible(value), separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def deflated(value: object) -> str:
    """Data as base64 of deflated JSON: names and numbers repeat, and a page stays small."""
    text = json.dumps(visible(value), separators=(",", ":"))
    return b64encode(zlib.compress(text.encode(), 9)).decode()
