"""Render the report in reviewdog's Diagnostic Format, for comments on a change."""

from __future__ import annotations

import json
from typing import Any

from hlo_lint.engine.findings import Diagnostic
from hlo_lint.report.formats import Warn
from hlo_lint.report.locations import has_lines, relative_path
from hlo_lint.report.report import Report
from hlo_lint.report.text import describe, message_lines
from hlo_lint.rules.findings import Severity
from hlo_lint.text.edits import Region, Safety
from hlo_lint.text.source import is_utf8, shown


def render(report: Report, _: Warn) -> str:
    """A `DiagnosticResult`; columns count bytes of UTF-8, as in reviewdog."""
    severities = {finding.severity for finding in report.findings}
    worst = next((severity for severity in Severity if severity in severities), Severity.INFO)
    result = {
        "source": {"name": "hlo-lint"},
        "severity": worst.name,
        "diagnostics": [_diagnostic(finding) for finding in report.findings],
    }
    return json.dumps(result, indent=1) + "\n"


def _diagnostic(finding: Diagnostic) -> dict[str, Any]:
    location: dict[str, Any] = {"path": shown(relative_path(finding.path))}
    if has_lines(finding.path):
        location["range"] = _range(finding.regions[0])
    diagnostic: dict[str, Any] = {
        "message": "\n".join(message_lines(finding)),
        "location": location,
        "severity": finding.severity.name,
        "code": {"value": finding.rule},
    }
    fix = finding.fix
    # Users accept each suggestion separately, so it has to be a whole fix.
    if has_lines(finding.path) and fix and fix.safety is Safety.SAFE and len(fix.edits) == 1:
        (edit,), (_, region) = fix.edits, finding.regions
        if is_utf8(edit.text):
            diagnostic["suggestions"] = [{"range": _range(region), "text": edit.text}]
    if finding.introduced_by is not None:
        dump = finding.introduced_by
        place = {"path": shown(relative_path(dump.path))}
        related = {"message": f"since {shown(describe(dump))}", "location": place}
        diagnostic["related_locations"] = [related]
    return diagnostic


def _range(region: Region) -> dict[str, Any]:
    return {
        "start": {"line": region.start.line, "column": region.start_byte},
        "end": {"line": region.end.line, "column": region.end_byte},
    }
