"""Docstrings are plain text: `code`, blocks of code by indentation, `Args:`, `Raises:`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

CODE = re.compile(r"`([^`]+)`")
SPECIAL = re.compile(r"[*|\\]|(?<=\w)_(?!\w)")
ITEM = re.compile(r"^    (\w+): ", re.M)
SECTIONS = {"Args:": "param", "Raises:": "raises"}


def restructured(text: str) -> str:
    r"""The same in reStructuredText.

    >>> print(restructured("`a_` of *b\n\nRaises:\n    ValueError: if `a`."))
    ``a_`` of \*b
    <BLANKLINE>
    :raises ValueError: if ``a``.
    >>> print(restructured("Like this:\n\n    a * b"))
    Like this:
    <BLANKLINE>
    ::
    <BLANKLINE>
        a * b
    """
    made: list[str] = []
    in_block = False
    for paragraph in text.split("\n\n"):
        is_block = paragraph.startswith("    ")
        if is_block and not in_block:
            made.append("::")
        plain = is_block or paragraph.startswith(">>>")
        made.append(paragraph if plain else _paragraph(paragraph))
        in_block = is_block
    return "\n\n".join(made)


def _paragraph(text: str) -> str:
    head, _, rest = text.partition("\n")
    if head in SECTIONS:
        text = ITEM.sub(rf":{SECTIONS[head]} \1: ", rest)
    parts = CODE.split(text)
    for number, part in enumerate(parts):
        if number % 2 == 0:
            parts[number] = SPECIAL.sub(lambda found: "\\" + found[0], part)
        else:
            joined = "\\ " if parts[number + 1][:1].isalnum() else ""
            parts[number] = f"``{' '.join(part.split())}``{joined}"
    return "".join(parts)


def _process(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    lines[:] = restructured("\n".join(lines)).split("\n")


def setup(app: Sphinx) -> dict[str, Any]:
    """Runs on each docstring that autodoc reads."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True}
