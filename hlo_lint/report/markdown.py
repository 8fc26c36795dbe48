"""Render the report as Markdown, for a job summary or a comment."""

from __future__ import annotations

import re

from hlo_lint.report.formats import Warn
from hlo_lint.report.groups import grouped
from hlo_lint.report.report import Report
from hlo_lint.report.statistics import counts
from hlo_lint.report.text import group_text, hidden_line, skipped_lines, summary

MAX_BYTES = 900_000
"""The maximum size; GitHub shows summaries up to 1 MiB."""
MAX_SKIPPED = 100
"""The maximum number of skipped inputs that are listed."""


def render(report: Report, warn: Warn) -> str:
    """A summary line, a table of the rules, and each group of findings as text.

    Text from a dump is in code blocks, which it cannot end.
    """
    parts = ["## hlo-lint", f"{summary(report)}."]
    if report.hidden:
        parts.append(f"{hidden_line(report.hidden)}.")
    if report.findings:
        rows = [
            f"| `{row.rule}` | {row.errors} | {row.warnings} | {row.infos} | {row.fixable} |"
            for row in counts(report.findings)
        ]
        head = ["| rule | errors | warnings | infos | fixable |", "|---|---:|---:|---:|---:|"]
        parts.append("\n".join([*head, *rows]))
    if lines := list(skipped_lines(report)):
        if len(lines) > MAX_SKIPPED:
            lines[MAX_SKIPPED:] = [f"… {len(lines) - MAX_SKIPPED} more"]
        block = fenced("\n".join(lines))
        parts.append(f"<details><summary>Not looked at</summary>\n\n{block}\n\n</details>")
    size = sum(len(part.encode()) + 2 for part in parts)
    left = len(report.findings)
    for group in grouped(report.findings):
        title = f"### {group.first.severity.value}: {group.first.rule}"
        part = f"{title}\n\n{fenced(group_text(group))}"
        size += len(part.encode()) + 2
        if size > MAX_BYTES:
            cut = f"{left} findings do not fit"
            warn(f"Markdown: {cut} ({MAX_BYTES} bytes)")
            parts.append(f"… {cut}.")
            break
        parts.append(part)
        left -= 1 + len(group.rest)
    return "\n\n".join(parts) + "\n"


def fenced(text: str) -> str:
    """A code block whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
