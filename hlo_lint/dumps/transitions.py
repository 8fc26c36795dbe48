"""The losses that a pass is allowed, by its name: `transitions.toml`."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parent / "transitions.toml"


@lru_cache(maxsize=1 << 10)
def may(pass_name: str, thing: str) -> bool:
    """True if `transitions.toml` allows a pass to lose or do a thing.

    >>> may("layout-assignment", "reports"), may("algsimp", "reports")
    (True, False)
    """
    return any(
        thing in row["may"] and any(fnmatchcase(pass_name, pattern) for pattern in row["passes"])
        for row in _rows()
    )


@cache
def _rows() -> list[dict[str, Any]]:
    import tomllib

    rows: list[dict[str, Any]] = tomllib.loads(_FILE.read_text("utf-8"))["pass"]
    return rows
