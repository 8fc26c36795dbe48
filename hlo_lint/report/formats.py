"""The formats of a report by name; what renders one is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from hlo_lint.text.errors import UsageError

if TYPE_CHECKING:
    from hlo_lint.report.report import Report

Warn = Callable[[str], None]
"""Callback for a warning about data the format cannot represent."""

FORMATS = {
    "text": "each finding with its line, a caret, its origin and its notes",
    "concise": "a line for each finding: path:line:column: severity[rule]: message",
    "json": "one JSON object",
    "json-lines": "a JSON object on a line for each finding, and one that sums up",
    "sarif": "SARIF 2.1.0, for code scanning and editors",
    "github": "workflow commands that GitHub shows as annotations",
    "gitlab": "a Code Quality report of GitLab",
    "junit": "JUnit XML, for tools that show test results",
    "rdjson": "the Diagnostic Format of reviewdog",
    "markdown": "a table of the rules and each finding, for a job summary",
}
"""Each format and what it is. `hlo_lint.report.NAME` renders it, with `_` for `-`."""


NO_ROOM = ("concise", "github", "gitlab", "rdjson")
"""The formats that have findings alone: what was not looked at is said beside them."""


def render(report: Report, name: str, warn: Warn = lambda _: None) -> str:
    r"""The report in a format, with a newline at its end if there is anything in it.

    It is the same for the same report, and always valid UTF-8. What a terminal or a browser would
    obey (control characters, marks of direction, bytes that are not UTF-8) is escaped, `\x1b`;
    in JSON it is an escape.

    Raises:
        UsageError: for an unknown format.
    """
    if name not in FORMATS:
        raise UsageError(f"unknown format {name}; the formats are {', '.join(FORMATS)}")
    module = import_module(f"hlo_lint.report.{name.replace('-', '_')}")
    text: str = module.render(report, warn)
    return text
