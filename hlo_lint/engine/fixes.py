"""Applies fixes: edits that do not overlap, then parse and check again, until nothing is left."""

from __future__ import annotations

from collections.abc import Iterable

from hlo_lint.engine.suppressions.comments import length_without_comments, lost_comments
from hlo_lint.text.edits import Edit, Fix
from hlo_lint.text.source import Span, indent_before

ROUNDS = 10
"""How often a text is fixed and checked again before the rest is given up."""


def apply(text: str, fixes: Iterable[Fix]) -> tuple[str, tuple[Edit, ...]]:
    """The text with the edits of as many fixes as do not overlap, and those edits.

    >>> from hlo_lint.text.edits import Safety
    >>> from hlo_lint.text.source import Span
    >>> fix = Fix("name it", (Edit(Span(0, 1), "x"),), Safety.SAFE)
    >>> apply("a = b", [fix])[0]
    'x = b'
    """
    chosen: list[Edit] = []
    end = -1
    for fix in sorted(set(fixes), key=lambda fix: fix.edits):
        edits = sorted(fix.edits)
        if edits and edits[0].span.start >= end:
            chosen += [_with_comments(edit, text) for edit in edits]
            end = edits[-1].span.end
    pieces, at = [], 0
    for edit in chosen:
        pieces += [text[at : edit.span.start], edit.text]
        at = edit.span.end
    pieces.append(text[at:])
    return "".join(pieces), tuple(chosen)


def _with_comments(edit: Edit, text: str) -> Edit:
    """The edit with the comments that allow findings, where it would put nothing in their place.

    Those at the end of what it replaces stay where they are, others go to lines of their own.
    """
    start, end = edit.span
    if not lost_comments(text[start:end], edit.text):
        return edit
    end = start + length_without_comments(text[start:end])
    newline = "\r\n" if "\r\n" in text else "\n"
    indent = indent_before(text, start)
    lost = lost_comments(text[start:end], edit.text)
    return Edit(Span(start, end), "".join(f"{each}{newline}{indent}" for each in lost) + edit.text)
