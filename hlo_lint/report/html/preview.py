"""The preview of a fix: the lines around its edits, as a difference."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import TypedDict

from hlo_lint.report.text import COMMANDS
from hlo_lint.text.edits import Edit, Fix
from hlo_lint.text.source import Lines

MAX_LINE_LENGTH = 800
"""Maximum characters of a line."""
MAX_LINES = 60
"""Maximum lines; the others are counted."""
AROUND = 2
"""Lines of context."""


class Preview(TypedDict):
    """A fix as lines to show."""

    title: str
    command: str
    """The command that applies it: `hlo-lint fix`."""
    safety: str
    lines: list[tuple[str, str]]
    """Signs and lines: `-`, `+`, a blank, or `@` for lines left out."""


def preview(fix: Fix, lines: Lines) -> Preview:
    """The changed lines of a fix, with `AROUND` lines of context.

    >>> from hlo_lint.text.edits import Safety
    >>> from hlo_lint.text.source import Span
    >>> fix = Fix("say c", (Edit(Span(2, 3), "c"),), Safety.SAFE)
    >>> preview(fix, Lines("a\\nb\\n"))["lines"]
    [(' ', 'a'), ('-', 'b'), ('+', 'c')]
    """
    shown: list[tuple[str, str]] = []
    for edits in _stretches(sorted(fix.edits), lines):
        if shown:
            shown.append(("@", ""))
        shown += _difference(edits, lines.text)
    if len(shown) > MAX_LINES:
        left = len(shown) - MAX_LINES
        shown = [*shown[:MAX_LINES], ("@", f"{left} more lines")]
    return Preview(
        title=fix.title, command=COMMANDS[fix.safety.value], safety=fix.safety.value, lines=shown
    )


def _stretches(edits: Iterable[Edit], lines: Lines) -> list[list[Edit]]:
    """The edits in groups whose contexts touch."""
    stretches: list[list[Edit]] = []
    reached = 0
    for edit in edits:
        first, last = (lines.position(offset).line for offset in edit.span)
        if stretches and first <= reached + 2 * AROUND + 1:
            stretches[-1].append(edit)
        else:
            stretches.append([edit])
        reached = max(last, reached)
    return stretches


def _difference(edits: list[Edit], text: str) -> Iterable[tuple[str, str]]:
    begin = _line_start(text, edits[0].span.start)
    end = _line_end(text, max(edit.span.end for edit in edits))
    for _ in range(AROUND):
        begin = _line_start(text, max(begin - 1, 0))
        end = _line_end(text, min(end + 1, len(text)))
    before = after = text[begin:end]
    for edit in reversed(edits):
        after = after[: edit.span.start - begin] + edit.text + after[edit.span.end - begin :]
    ours, theirs = (side.rstrip("\n").split("\n") for side in (before, after))
    for tag, a, b, c, d in SequenceMatcher(None, ours, theirs, False).get_opcodes():
        if tag == "equal":
            yield from ((" ", _cut(line)) for line in ours[a:b])
            continue
        yield from (("-", _cut(line)) for line in ours[a:b])
        yield from (("+", _cut(line)) for line in theirs[c:d])


def _line_start(text: str, offset: int) -> int:
    return text.rfind("\n", 0, offset) + 1


def _line_end(text: str, offset: int) -> int:
    end = text.find("\n", offset)
    return len(text) if end < 0 else end


def _cut(text: str) -> str:
    text = text.removesuffix("\r")
    left = len(text) - MAX_LINE_LENGTH
    return text if left <= 0 else f"{text[:MAX_LINE_LENGTH]}… ({left} more)"
