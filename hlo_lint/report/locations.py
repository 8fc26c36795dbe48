"""Places of findings, in the form that other programs expect."""

from __future__ import annotations

import os
from urllib.parse import quote

from hlo_lint.text.files import is_proto
from hlo_lint.text.source import encode


def relative_path(path: str) -> str:
    """The path relative to the working directory if it is below it, else unchanged.

    >>> relative_path("./dumps//a.txt"), relative_path("/elsewhere/a.txt")
    ('dumps/a.txt', '/elsewhere/a.txt')
    """
    return _below(path) or path


def uri_of(path: str) -> tuple[str, bool]:
    """The URI of a path, and a flag: True if it is relative to the working directory.

    Bytes of the path that are not UTF-8 are percent-encoded.

    >>> uri_of("a file.txt"), uri_of("/elsewhere/100%.txt")
    (('a%20file.txt', True), ('file:///elsewhere/100%25.txt', False))
    """
    relative = _below(path)
    if relative is None:
        return f"file://{quote(encode(os.path.abspath(path)))}", False
    return quote(encode(relative)), True


def _below(path: str) -> str | None:
    """The path relative to the working directory; None if it leads out of it."""
    if path.startswith("<"):
        return path  # a text without a file, such as `<stdin>`
    relative = os.path.relpath(path)
    return None if relative.split(os.sep, 1)[0] == os.pardir else relative


def has_lines(path: str) -> bool:
    """True if a finding's lines and columns refer to its file, which is not a protocol buffer."""
    return not is_proto(path)
