"""Phrases of messages."""

from __future__ import annotations


def counted(number: int, name: str) -> str:
    """A number of things: `1 file`, `2 files`."""
    return f"{number} {name}{'' if number == 1 else 's'}"
