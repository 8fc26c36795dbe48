"""Render the report as JSON lines, for programs that read line by line."""

from __future__ import annotations

import json

from hlo_lint.report.formats import Warn
from hlo_lint.report.json import report_as_dict
from hlo_lint.report.report import Report


def render(report: Report, _: Warn) -> str:
    r"""A line for each finding with the fields of the JSON report, then a summary line.

    `type` is `finding`, `allowed` or `summary`. Surrogates are `\udcXX` escapes.
    """
    summary = report_as_dict(report)
    lines = [{"type": "finding", **finding} for finding in summary.pop("findings")]
    lines += [{"type": "allowed", **finding} for finding in summary.pop("allowed")]
    lines.append({"type": "summary", **summary})
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
