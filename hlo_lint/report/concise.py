"""The report as a line for each finding, as compilers print it and editors read it."""

from __future__ import annotations

from hlo_lint.report.formats import Warn
from hlo_lint.report.report import Report
from hlo_lint.report.text import render_concise


def render(report: Report, _: Warn) -> str:
    """Nothing where nothing was found."""
    return "".join(f"{render_concise(finding)}\n" for finding in report.findings)
