"""The report as Markdown: what a job's summary shows, or a comment."""

from __future__ import annotations

import re

from hlo_lint.engine.findings import Diagnostic
from hlo_lint.report.formats import Warn
from hlo_lint.report.report import Report
from hlo_lint.report.statistics import RuleCount, counts
from hlo_lint.report.text import as_text, skipped_lines, summary

MAX_BYTES = 900_000
"""GitHub shows no summary of more than 1 MiB."""
MAX_SKIPPED = 100
"""Maximum number of skipped inputs that are listed."""


def render(report: Report, warn: Warn) -> str:
    """A line that counts, a table of the rules, each finding as the text format prints it.

    Whatever a dump says stands in code blocks, which it cannot end.
    """
    parts = ["## hlo-lint", f"{summary(report)}."]
    if report.findings:
        rows = [_row(count) for count in counts(report.findings)]
        head = ["| rule | errors | warnings | infos | fixable |", "|---|---:|---:|---:|---:|"]
        parts.append("\n".join([*head, *rows]))
    if report.skipped:
        parts.append(_skipped(report))
    size = sum(len(part.encode()) + 2 for part in parts)
    for number, finding in enumerate(report.findings):
        part = _finding(finding)
        size += len(part.encode()) + 2
        if size > MAX_BYTES:
            left = f"{len(report.findings) - number} findings have no room here"
            warn(f"Markdown: {left} ({MAX_BYTES} bytes)")
            parts.append(f"… {left}.")
            break
        parts.append(part)
    return "\n\n".join(parts) + "\n"


def fenced(text: str) -> str:
    """A code block; its fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def _row(count: RuleCount) -> str:
    return (
        f"| `{count.rule}` | {count.errors} | {count.warnings} | {count.infos} | {count.fixable} |"
    )


def _skipped(report: Report) -> str:
    lines = list(skipped_lines(report))
    if len(lines) > MAX_SKIPPED:
        lines[MAX_SKIPPED:] = [f"… {len(lines) - MAX_SKIPPED} more"]
    block = fenced("\n".join(lines))
    return f"<details><summary>Not looked at</summary>\n\n{block}\n\n</details>"


def _finding(finding: Diagnostic) -> str:
    return f"### {finding.severity.value}: {finding.rule}\n\n{fenced(as_text(finding))}"
