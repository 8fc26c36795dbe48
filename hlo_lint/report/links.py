"""Links to the web pages of rules: their addresses, the terminals that show them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

SITE = "https://hlo-lint.readthedocs.io/en/stable/"
"""The address of the pages that `make docs` builds, also in pyproject.toml."""
_PACKAGE = Path(__file__).parent.parent
_TERMINALS = ("iTerm.app", "WezTerm", "vscode", "ghostty", "Hyper", "rio", "Tabby", "zed")
_TERMS = ("alacritty", "contour", "foot", "xterm-ghostty", "xterm-kitty", "wezterm")
_MARKS = ("KONSOLE_VERSION", "WT_SESSION", "DOMTERM")
_OLDEST_VTE = 5000  # 0.50; older releases print the address as text


@cache
def rule_link(name: str) -> str:
    """The web page of a rule; empty for a rule of another package."""
    # A rule is a file of its name; loading the registry would cost more than the report.
    file = f"*/{name.replace('-', '_')}.py"
    homes = (_PACKAGE / "rules", _PACKAGE / "kernels" / "rules")
    is_ours = any(True for home in homes for _ in home.glob(file))
    return f"{SITE}rules/{name}.html" if is_ours else ""


def shows_links(environment: Mapping[str, str]) -> bool:
    """True if the terminal is known to show hyperlinks (OSC 8); others may print the address.

    Terminals cannot be asked, so known terminals are recognized by the variables that they set.
    `FORCE_HYPERLINK`, which other programs obey, takes precedence.
    """
    if forced := environment.get("FORCE_HYPERLINK"):
        return forced != "0"
    if "CI" in environment or environment.get("TERM", "").startswith(("screen", "tmux")):
        return False
    vte = environment.get("VTE_VERSION", "")
    return (
        environment.get("TERM_PROGRAM") in _TERMINALS
        or environment.get("TERM") in _TERMS
        or any(mark in environment for mark in _MARKS)
        or (vte.isdecimal() and int(vte) >= _OLDEST_VTE)
    )
