"""Links that lead out of `docs/` into the repository: the site names the path instead."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)#\s]+)(?:#[^)\s]*)?\)")


def _process(app: Sphinx, name: str, content: list[str]) -> None:
    docs = Path(app.srcdir).resolve()
    folder = (docs / name).parent

    def named(found: re.Match[str]) -> str:
        target = (folder / found[2]).resolve()
        if target.is_relative_to(docs) or not target.exists():
            return found[0]  # a page, or a broken link, which is for Sphinx to report
        return f"{found[1]} (`{target.relative_to(docs.parent)}`)"

    content[0] = LINK.sub(named, content[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Runs as each page is read."""
    app.connect("source-read", _process)
    return {"parallel_read_safe": True}
