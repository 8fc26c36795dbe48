"""Strings in double quotes as XLA escapes them."""

from __future__ import annotations


def unescape(text: str) -> str:
    """The text that XLA escaped byte by byte (`absl::CEscape`), without its quotes.

    >>> unescape(r"caf\\303\\251")
    'café'
    """
    if "\\" not in text:
        return text
    from hlo_lint.hlo.parser.strings import c_unescape_all

    return c_unescape_all(text).decode("utf-8", "surrogateescape")
