"""Render the report as JSON lines, for programs that read line by line."""

from __future__ import annotations

import json

from hlo_lint.report.formats import Warn
from hlo_lint.report.json import VERSION, allowed_as_dict, as_dict
from hlo_lint.report.report import Report


def render(report: Report, _: Warn) -> str:
    r"""A line for each finding with the fields of the JSON report, then a summary line.

    `type` is `finding`, `allowed` or `summary`. Surrogates are `\udcXX` escapes.
    """
    findings = ({"type": "finding", **as_dict(finding)} for finding in report.findings)
    allowed = ({"type": "allowed", **allowed_as_dict(suppressed)} for suppressed in report.allowed)
    summary = {
        "type": "summary",
        "version": VERSION,
        "skipped": [{"path": entry.path, "reason": entry.reason} for entry in report.skipped],
        "stats": dict(report.stats),
    }
    lines = (json.dumps(entry, separators=(",", ":")) for entry in (*findings, *allowed, summary))
    return "".join(f"{line}\n" for line in lines)
