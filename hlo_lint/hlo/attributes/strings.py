"""Strings in double quotes as XLA escapes them."""

from __future__ import annotations

import re

from hlo_lint.text.patterns import late

_find_escapes = late(r"(?:\\[\x00-\x7f]|(?<=\\[0-7])[0-7]{1,2}|(?<=\\[xX])[0-9a-fA-F]{1,2})+")
_find_escape = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.S)
_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b", b"f": b"\f"}
_ESCAPES |= {b"v": b"\v"}


def unescape(text: str) -> str:
    """The text that XLA escaped byte by byte (`absl::CEscape`), without its quotes.

    >>> unescape(r"caf\\303\\251")
    'café'
    """
    if "\\" not in text:
        return text
    return _find_escapes.sub(_unescaped_run, text)


def _unescaped_run(match: re.Match[str]) -> str:
    """One run of escapes at a time: a character beyond ASCII is several bytes in a row."""
    run = match[0].encode("ascii")
    return _find_escape.sub(_unescaped, run).decode("utf-8", "surrogateescape")


def _unescaped(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, other = match.groups()
    if octal is not None:
        return bytes([int(octal, 8) & 0xFF])
    if hexadecimal is not None:
        return bytes([int(hexadecimal, 16)])
    return _ESCAPES.get(other, other)
