"""The history of findings, from the pass that introduced each to the pass that resolved it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from hlo_lint.dumps.names import parse_name
from hlo_lint.engine.findings import Diagnostic
from hlo_lint.report.report import Report
from hlo_lint.report.text import EMPTY, STYLES, ReportLine, describe, framed
from hlo_lint.text.phrases import counted
from hlo_lint.text.source import shown


def history_parts(report: Report, *, quiet: bool, verbose: bool) -> Iterator[list[ReportLine]]:
    """The history of each finding, framed as in any report."""
    parts = map(_entry, report.findings)
    return framed(report, parts, [_summary(report.findings)], quiet=quiet, verbose=verbose)


def _entry(finding: Diagnostic) -> list[ReportLine]:
    name = f"{finding.severity.value}[{finding.rule}]"
    title = (name, STYLES[finding.severity]), (f": {shown(finding.message)}", "bold")
    history = [
        ReportLine(((f"{label:>11}: ", "bold"), (shown(text), "")))
        for label, text in _history(finding)
    ]
    return [ReportLine(title), *history, EMPTY]


def _history(finding: Diagnostic) -> Iterator[tuple[str, str]]:
    line, column = finding.first_start or finding.start
    where = f"{finding.first_path or finding.path}:{line}:{column}"
    if finding.instruction is not None:
        yield "in", f"%{finding.instruction} of %{finding.computation} of {finding.module}"
    if finding.origin is not None:
        yield "from", str(finding.origin)
    yield "first at", where
    if finding.seen_in is None:
        yield "history", "unknown: the rule does not check every dump"
        return
    yield "since", _birth(finding)
    yield "seen in", counted(finding.seen_in, "dump")
    yield "resolved by", describe(finding.resolved_by) if finding.resolved_by else "none"
    for note in finding.notes:
        yield "note", note


def _birth(finding: Diagnostic) -> str:
    if finding.introduced_by is not None:
        return describe(finding.introduced_by)
    name = parse_name(Path(finding.path).name)
    if name is None:
        return "unknown: the file is not part of a dump"
    if name.rest.startswith("before_optimizations"):
        return "the input of XLA"
    if name.step is not None and name.after == "pipeline-start":
        return (
            f"unknown: step {name.step:04d}, the start of {name.pipeline}, is the first to have it"
        )
    return f"unknown: the dump {name.label} is the first to have it"


def _summary(findings: Sequence[Diagnostic]) -> str:
    if not findings:
        return "no findings"
    followed = [finding for finding in findings if finding.seen_in is not None]
    resolved = sum(finding.resolved_by is not None for finding in followed)
    counts = [
        (len(followed) - resolved, "not resolved"),
        (resolved, "resolved by a later pass"),
        (len(findings) - len(followed), "not followed"),
    ]
    numbers = ", ".join(f"{count} {what}" for count, what in counts if count)
    return f"{counted(len(findings), 'finding')}: {numbers}"
