"""The formats of a report by name; their modules are imported on demand."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from hlo_lint.text.errors import UsageError

if TYPE_CHECKING:
    from hlo_lint.report.report import Report

Warn = Callable[[str], None]
"""A callback for warnings about data that a format cannot represent."""

FORMATS = {
    "text": "each finding with its line, a caret, its origin and its notes",
    "concise": "a line for each finding: path:line:column: severity[rule]: message",
    "json": "a JSON object",
    "json-lines": "a JSON object on a line for each finding, and a summary",
    "sarif": "SARIF 2.1.0, for code scanning and editors",
    "github": "workflow commands that GitHub shows as annotations",
    "gitlab": "a Code Quality report of GitLab",
    "junit": "JUnit XML, for tools that show test results",
    "rdjson": "the Diagnostic Format of reviewdog",
    "markdown": "a table of the rules and each finding, for a job summary",
}
"""A description of each format. `hlo_lint.report.NAME` renders it, with `_` for `-`."""


NO_ROOM = ("concise", "github", "gitlab", "rdjson")
"""The formats that only have findings: skipped inputs are printed beside the report."""


def render(report: Report, name: str, warn: Warn = lambda _: None) -> str:
    r"""The report in a format, which ends with a newline unless it is empty.

    The output is deterministic and valid UTF-8. Characters that a terminal or a browser would obey
    (control characters, direction marks) and bytes that are not UTF-8 are escaped as `\x1b`, in
    JSON by its own escapes.

    Raises:
        UsageError: the format is unknown.
    """
    if name not in FORMATS:
        raise UsageError(f"unknown format {name}; the formats are {', '.join(FORMATS)}")
    module = import_module(f"hlo_lint.report.{name.replace('-', '_')}")
    text: str = module.render(report, warn)
    return text
