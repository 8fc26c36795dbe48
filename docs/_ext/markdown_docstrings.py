"""Docstrings are plain text with `code`: what reStructuredText needs to show them so."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

CODE = re.compile(r"`([^`]+)`")
SPECIAL = re.compile(r"([*|\\])|(?<=\w)_(?!\w)")


def restructured(text: str) -> str:
    """The same text for reStructuredText: doctests as they are, the rest with its `code` marked.

    >>> print(restructured("`a_` of *b\\n\\n>>> `c` * 2"))
    ``a_`` of \\*b
    <BLANKLINE>
    >>> `c` * 2
    """
    return "\n\n".join(
        paragraph if paragraph.lstrip().startswith(">>>") else _marked(paragraph)
        for paragraph in text.split("\n\n")
    )


def _marked(paragraph: str) -> str:
    parts = CODE.split(paragraph)
    for number, part in enumerate(parts):
        if number % 2 == 0:
            parts[number] = SPECIAL.sub(lambda found: "\\" + found[0], part)
            continue
        after = parts[number + 1]
        joined = "\\ " if after and (after[0].isalnum()) else ""
        parts[number] = f"``{' '.join(part.split())}``{joined}"
    return "".join(parts)


def _process(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    lines[:] = restructured("\n".join(lines)).split("\n")


def setup(app: Sphinx) -> dict[str, Any]:
    """Runs before napoleon, which reads `Raises:`."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", _process, priority=400)
    return {"parallel_read_safe": True}
