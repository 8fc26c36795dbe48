"""Render the report as a JSON object; `VERSION` changes when a field does."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from hlo_lint.engine.findings import Diagnostic, PassRef
from hlo_lint.report.formats import Warn
from hlo_lint.report.report import Report

VERSION = 3


def render(report: Report, _: Warn) -> str:
    """The object, indented by two blanks, with surrogates as `\\udcXX` escapes."""
    return json.dumps(report_as_dict(report), indent=2) + "\n"


def report_as_dict(report: Report) -> dict[str, Any]:
    """A report as JSON values."""
    return {
        "version": VERSION,
        "findings": [as_dict(finding) for finding in report.findings],
        "allowed": [
            {**as_dict(item.finding), "allowed_by": item.by.value, "reason": item.reason}
            for item in report.allowed
        ],
        "skipped": [{"path": entry.path, "reason": entry.reason} for entry in report.skipped],
        "stats": dict(report.stats),
    }


def as_dict(finding: Diagnostic) -> dict[str, Any]:
    """A finding as JSON values; lines and columns count from 1, in characters, ends exclusive."""
    origin, fix = finding.origin, finding.fix
    return {
        "rule": finding.rule,
        "fingerprint": finding.fingerprint,
        "severity": finding.severity.value,
        "message": finding.message,
        "path": finding.path,
        "line": finding.line,
        "column": finding.column,
        "end_line": finding.end_line,
        "end_column": finding.end_column,
        "module": finding.module,
        "computation": finding.computation,
        "instruction": finding.instruction,
        "pipeline": finding.pipeline,
        "step": finding.step,
        "introduced_by": _pass(finding.introduced_by),
        "resolved_by": _pass(finding.resolved_by),
        "seen_in": finding.seen_in,
        "origin": origin and asdict(origin),
        "notes": list(finding.notes),
        "fix": fix
        and {
            "title": fix.title,
            "safety": fix.safety.value,
            "edits": [
                {"start": edit.span.start, "end": edit.span.end, "text": edit.text}
                for edit in fix.edits
            ],
        },
    }


def _pass(ref: PassRef | None) -> dict[str, Any] | None:
    """A pass as JSON values; its name is null if it left no dump of its own."""
    if ref is None:
        return None
    return {
        "pass": ref.pass_name or None,
        "pipeline": ref.pipeline or None,
        "step": ref.step,
        "path": ref.path,
    }
