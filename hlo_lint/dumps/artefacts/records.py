"""The base of all artefacts: a text with its unreadable lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from hlo_lint.hlo.shape import Index as Index
from hlo_lint.hlo.shape import read_index
from hlo_lint.text.source import Lines, ParseError, shown

# Patterns that the readers share. Digits are bounded: Python refuses to convert very long numbers.
DIGITS = r"[0-9]{1,18}"
COUNT = rf"({DIGITS})"
INDEX = r"\{((?:[0-9]{1,9}(?:,[0-9]{1,9})*)?)\}"
NAME = r"([^\s{}<>,:]+)"

_SHOWN = 40


@dataclass(frozen=True, kw_only=True)
class Artefact:
    """A parsed file beside the HLO."""

    path: Path | None
    """Its path; None for a text that is not from a file."""
    text: str = field(repr=False)
    problems: tuple[ParseError, ...]
    """The unreadable parts, in the order of the text."""

    @cached_property
    def lines(self) -> Lines:
        """The lines of the text, to turn offsets into lines and columns."""
        return Lines(self.text)


def lines_of(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[int, str]]:
    r"""The lines with their offsets, without line ends.

    >>> list(lines_of("ab\r\ncd\n"))
    [(0, 'ab'), (4, 'cd'), (7, '')]
    """
    for line in (text if end is None and not start else text[start:end]).split("\n"):
        yield start, line[:-1] if line.endswith("\r") else line
        start += len(line) + 1


def parse_error(wanted: str, line: str, start: int) -> ParseError:
    """The error of an unexpected line."""
    stands = line.strip()
    stands = shown(stands[:_SHOWN]) + "…" * (len(stands) > _SHOWN)
    quoted = f"`{stands}`" if stands else "an empty line"
    return ParseError(f"expected {wanted}, found {quoted}", start, start + len(line))


index_from = lru_cache(maxsize=1 << 12)(read_index)
"""The index between braces, cached: a file repeats a few of them a hundred thousand times."""
