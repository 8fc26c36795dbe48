"""Patterns of paths, as `.gitignore` has them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


class Globs:
    """Patterns as git reads them: one without a slash matches at any depth, a folder all in it.

    Paths are taken relative to a folder; those outside it from the root of the file system.
    """

    def __init__(self, patterns: Sequence[str], root: Path) -> None:
        self.patterns = tuple(patterns)
        self._root = root

    @cached_property
    def _spec(self) -> GitIgnoreSpec:
        from pathspec import GitIgnoreSpec  # nothing is matched in most runs

        return GitIgnoreSpec.from_lines(self.patterns)

    def match(self, path: Path) -> bool:
        """True if a file or a folder is meant."""
        absolute = os.path.abspath(path)
        inside = os.path.relpath(absolute, self._root)
        outside = inside == os.pardir or inside.startswith(os.pardir + os.sep)
        return self._spec.match_file((absolute if outside else inside).lstrip(os.sep))
