"""Count the findings of each rule."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

from hlo_lint.analysis.grouping import by_key
from hlo_lint.engine.findings import Diagnostic
from hlo_lint.report.report import Report
from hlo_lint.report.text import hidden_line, severities, summary
from hlo_lint.rules.findings import Severity


@dataclass(frozen=True, slots=True)
class RuleCount:
    """The numbers of findings of a rule."""

    rule: str
    count: int
    errors: int
    warnings: int
    infos: int
    fixable: int
    """Number of findings with a fix."""


def counts(findings: Iterable[Diagnostic]) -> list[RuleCount]:
    """The rules with findings, most findings first, then by name."""
    rule_counts = []
    for rule, group in by_key((finding.rule, finding) for finding in findings).items():
        errors, warnings, infos = map([finding.severity for finding in group].count, Severity)
        fixable = sum(finding.fix is not None for finding in group)
        rule_counts.append(RuleCount(rule, len(group), errors, warnings, infos, fixable))
    return sorted(rule_counts, key=lambda count: (-count.count, count.rule))


def render_statistics(report: Report, output_format: Literal["text", "json"] = "text") -> str:
    """A line for each rule and a total, or a JSON array of objects with the fields of RuleCount."""
    rule_counts = counts(report.findings)
    if output_format == "json":
        return json.dumps([asdict(count) for count in rule_counts], indent=2) + "\n"
    cells = [
        (
            str(count.count),
            count.rule,
            severities(count.errors, count.warnings, count.infos),
            f"{count.fixable} fixable",
        )
        for count in rule_counts
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        f"{number.rjust(widths[0])}  {rule.ljust(widths[1])}  {message.ljust(widths[2])}  {fixable}"
        for number, rule, message, fixable in cells
    ]
    hidden = [hidden_line(report.hidden)] if report.hidden else []
    return "\n".join([*lines, summary(report), *hidden]) + "\n"
