"""Render the report as a line for each finding, in the form that editors read."""

from __future__ import annotations

from hlo_lint.report.formats import Warn
from hlo_lint.report.report import Report
from hlo_lint.report.text import render_concise


def render(report: Report, _: Warn) -> str:
    """A line for each finding; empty without findings."""
    return "".join(f"{render_concise(finding)}\n" for finding in report.findings)
