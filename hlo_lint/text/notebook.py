"""HTML fragments that notebooks show for findings or reports.

A notebook shows its input as is, so every text is escaped, and fragments have no scripts.
"""

from __future__ import annotations

from html import escape

_PRE = '<pre style="overflow-x:auto;max-width:100%;line-height:1.4">'


def excerpt(line: str, start: int, end: int) -> str:
    """A line of code, with the characters from `start` to `end` marked.

    >>> print(excerpt("x = <y>", 4, 7)[len(_PRE):])
    x = <mark>&lt;y&gt;</mark></pre>
    """
    before, inside, after = line[:start], line[start:end], line[end:]
    return f"{_PRE}{escape(before)}<mark>{escape(inside)}</mark>{escape(after)}</pre>"


def folded(summary: str, content: str, *, is_open: bool = False) -> str:
    """A summary that opens on a click; `content` is HTML."""
    state = " open" if is_open else ""
    return f"<details{state}><summary>{escape(summary)}</summary>{content}</details>"
