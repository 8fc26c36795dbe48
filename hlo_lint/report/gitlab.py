"""Render the report as a Code Quality report, which GitLab shows in a merge request."""

from __future__ import annotations

import json
from typing import Any

from hlo_lint.engine.findings import Diagnostic
from hlo_lint.report.formats import Warn
from hlo_lint.report.locations import relative_path
from hlo_lint.report.report import Report
from hlo_lint.rules.findings import Severity
from hlo_lint.text.source import shown

SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "major", Severity.INFO: "info"}


def render(report: Report, _: Warn) -> str:
    """A JSON array with an issue for each finding."""
    return json.dumps([_issue(finding) for finding in report.findings], indent=1) + "\n"


def _issue(finding: Diagnostic) -> dict[str, Any]:
    return {
        "description": shown(finding.message),
        "check_name": finding.rule,
        "fingerprint": finding.fingerprint,
        "severity": SEVERITIES[finding.severity],
        "location": {
            "path": shown(relative_path(finding.path)),
            "lines": {"begin": finding.line, "end": finding.end_line},
        },
    }
