"""The formats of a report by name; what renders one is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from hlo_lint.text.errors import UsageError

if TYPE_CHECKING:
    from hlo_lint.dumps.directory import Skipped
    from hlo_lint.engine.findings import Diagnostic, SuppressedFinding


class Report(Protocol):
    """What a format shows: `hlo_lint.apps.api.Report`."""

    @property
    def findings(self) -> Sequence[Diagnostic]:
        """What was found, in the order of the report."""

    @property
    def allowed(self) -> Sequence[SuppressedFinding]:
        """What was found and may stay; it counts for nothing."""

    @property
    def skipped(self) -> Sequence[Skipped]:
        """What was not looked at, and why."""

    @property
    def stats(self) -> Mapping[str, int]:
        """How many files and modules were read, and what was found in them."""


Warn = Callable[[str], None]
"""Is told in one line what a format has no room for."""

FORMATS = {
    "text": "each finding with its line, a caret and what is known of it",
    "concise": "a line for each finding: path:line:column: severity[rule]: message",
    "json": "one JSON object",
    "json-lines": "a JSON object on a line for each finding, and one that sums up",
    "sarif": "SARIF 2.1.0, for code scanning and editors",
    "github": "workflow commands that GitHub shows as annotations",
    "gitlab": "a Code Quality report of GitLab",
    "junit": "JUnit XML, for what shows results of tests",
    "rdjson": "the Diagnostic Format of reviewdog",
    "markdown": "a table of the rules and each finding, for a job summary",
}
"""Each format and what it is. `hlo_lint.report.NAME` renders it, with `_` for `-`."""


def render(report: Report, name: str, warn: Warn = lambda _: None) -> str:
    r"""The report in a format, with a newline at its end if there is anything in it.

    It is the same for the same report, and always valid UTF-8. What a terminal or a browser would
    obey (control characters, marks of direction, bytes that are no UTF-8) is spelled out, `\x1b`;
    in JSON it is an escape.

    Raises:
        UsageError: for a format that nothing knows.
    """
    if name not in FORMATS:
        raise UsageError(f"no format is named {name}; there are {', '.join(FORMATS)}")
    module = import_module(f"hlo_lint.report.{name.replace('-', '_')}")
    text: str = module.render(report, warn)
    return text
