"""Render the report as workflow commands, which GitHub shows as annotations of files."""

from __future__ import annotations

from hlo_lint.engine.findings import Diagnostic
from hlo_lint.report.formats import Warn
from hlo_lint.report.locations import has_lines, relative_path
from hlo_lint.report.report import Report
from hlo_lint.report.text import message_lines
from hlo_lint.rules.findings import Severity
from hlo_lint.text.source import shown

COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def render(report: Report, _: Warn) -> str:
    """A line for each finding; empty without findings."""
    return "".join(f"{_annotation(finding)}\n" for finding in report.findings)


def _annotation(finding: Diagnostic) -> str:
    place: dict[str, object] = {"file": relative_path(finding.path)}
    if has_lines(finding.path):
        place["line"] = finding.line
        if finding.end_line != finding.line:
            place["endLine"] = finding.end_line
        else:  # GitHub accepts columns within a single line only
            place |= {"col": finding.column, "endColumn": finding.end_column}
    place["title"] = f"hlo-lint: {finding.rule}"
    properties = ",".join(
        f"{name}={_escaped(shown(str(value))).replace(':', '%3A').replace(',', '%2C')}"
        for name, value in place.items()
    )
    message = "\n".join(message_lines(finding))
    return f"::{COMMANDS[finding.severity]} {properties}::{_escaped(message)}"


def _escaped(text: str) -> str:
    """Text with escaped line ends, so that it cannot end a command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
