"""HTML fragments for notebooks: the `_repr_html_` methods of the public classes are made of them.

A notebook shows what it gets, so every text is escaped, and no fragment holds a script.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

MAX_LINES = 60
"""Lines of a listing; the rest is counted."""
_PRE = '<pre style="overflow-x:auto;max-width:100%;line-height:1.4">'


def listing(lines: Iterable[str], marked: int | None = None) -> str:
    """Lines of code, at most `MAX_LINES` of them; the one numbered `marked` is bold.

    >>> print(listing(["a < b", "c"], marked=1)[len(_PRE):])
    a &lt; b
    <b>c</b></pre>
    """
    every = list(lines)
    shown = [escape(line.rstrip("\n")) for line in every[:MAX_LINES]]
    if marked is not None and marked < len(shown):
        shown[marked] = f"<b>{shown[marked]}</b>"
    if len(every) > MAX_LINES:
        shown.append(f"<i>… {len(every) - MAX_LINES:,} more lines</i>")
    return _PRE + "\n".join(shown) + "</pre>"


def excerpt(line: str, start: int, end: int) -> str:
    """One line of code, with the characters from `start` to `end` marked.

    >>> print(excerpt("x = <y>", 4, 7)[len(_PRE):])
    x = <mark>&lt;y&gt;</mark></pre>
    """
    before, inside, after = line[:start], line[start:end], line[end:]
    return f"{_PRE}{escape(before)}<mark>{escape(inside)}</mark>{escape(after)}</pre>"


def folded(summary: str, content: str, *, is_open: bool = False) -> str:
    """A summary that opens on a click; `content` is HTML already."""
    state = " open" if is_open else ""
    return f"<details{state}><summary>{escape(summary)}</summary>{content}</details>"
