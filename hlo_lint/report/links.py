"""Links to the web pages of rules."""

from __future__ import annotations

from functools import cache
from pathlib import Path

SITE = "https://hlo-lint.readthedocs.io/en/stable/"
"""The address of the pages that `make docs` builds, also in pyproject.toml."""
_PACKAGE = Path(__file__).parent.parent


@cache
def rule_link(name: str) -> str:
    """The web page of a rule; empty for a rule of another package."""
    # A rule is a file of its name; loading the registry would cost more than the report.
    file = f"*/{name.replace('-', '_')}.py"
    homes = (_PACKAGE / "rules", _PACKAGE / "kernels" / "rules")
    is_ours = any(True for home in homes for _ in home.glob(file))
    return f"{SITE}rules/{name}.html" if is_ours else ""
