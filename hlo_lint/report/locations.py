"""Paths and URIs of findings, as other programs spell them."""

from __future__ import annotations

import os
from urllib.parse import quote

from hlo_lint.text.files import is_proto
from hlo_lint.text.source import encode


def relative_path(path: str) -> str:
    """The path from the working directory, where it is below that; else as it is.

    >>> relative_path("./dumps//a.txt"), relative_path("/elsewhere/a.txt")
    ('dumps/a.txt', '/elsewhere/a.txt')
    """
    relative = _below(path)
    return path if relative is None else relative


def uri_of(path: str) -> tuple[str, bool]:
    """The URI of a path, and whether it is relative to the working directory.

    Bytes of the path that are not UTF-8 are in it, percent-encoded.

    >>> uri_of("a file.txt"), uri_of("/elsewhere/100%.txt")
    (('a%20file.txt', True), ('file:///elsewhere/100%25.txt', False))
    """
    relative = _below(path)
    if relative is None:
        return f"file://{quote(encode(os.path.abspath(path)))}", False
    return quote(encode(relative)), True


def _below(path: str) -> str | None:
    """The path from the working directory; None where it leads out of it."""
    if path.startswith("<"):
        return path  # a text that has no file: `<stdin>`
    relative = os.path.relpath(path)
    return None if relative.split(os.sep, 1)[0] == os.pardir else relative


def has_lines(path: str) -> bool:
    """True if lines and columns of a finding are those of its file: a protocol buffer has none."""
    return not is_proto(path)
