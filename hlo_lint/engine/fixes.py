"""Applies fixes: edits that do not overlap, then parse and check again, until nothing is left."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from hlo_lint.errors import DumpError
from hlo_lint.findings import Edit, Fix
from hlo_lint.source import encode

ROUNDS = 10
"""How often a text is fixed and checked again before the rest is given up."""


def apply(text: str, fixes: Iterable[Fix]) -> tuple[str, tuple[Edit, ...]]:
    """The text with the edits of as many fixes as do not overlap, and those edits.

    >>> from hlo_lint.findings import Safety
    >>> from hlo_lint.source import Span
    >>> fix = Fix("name it", (Edit(Span(0, 1), "x"),), Safety.SAFE)
    >>> apply("a = b", [fix])[0]
    'x = b'
    """
    chosen: list[Edit] = []
    end = -1
    for fix in sorted(set(fixes), key=lambda fix: fix.edits):
        edits = sorted(fix.edits)
        if edits and edits[0].span.start >= end:
            chosen += edits
            end = edits[-1].span.end
    pieces, at = [], 0
    for edit in chosen:
        pieces += [text[at : edit.span.start], edit.text]
        at = edit.span.end
    pieces.append(text[at:])
    return "".join(pieces), tuple(chosen)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Puts a text or bytes in place of a file, so that a reader sees the old one or the new one.

    Raises:
        DumpError: where it cannot be written; the old file then stands as it was.
    """
    import tempfile  # with its random numbers it is a tenth of all that is imported

    target = path.resolve()  # a link stays one
    temporary = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o7777 if target.exists() else None
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(encode(content) if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        if mode is None:
            mask = os.umask(0)
            os.umask(mask)
            mode = 0o666 & ~mask
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise DumpError(f"{path}: cannot be written: {error.strerror or error}") from error
