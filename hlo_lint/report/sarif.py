"""Render the report as SARIF 2.1.0, within the limits of GitHub's code scanning."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from typing import Any

from hlo_lint import __version__
from hlo_lint.engine.findings import Diagnostic
from hlo_lint.engine.fingerprints import IDENTITY_DIGITS
from hlo_lint.report.formats import Warn
from hlo_lint.report.links import rule_link
from hlo_lint.report.locations import has_lines, uri_of
from hlo_lint.report.report import Report
from hlo_lint.report.rule_page import render_page
from hlo_lint.report.text import describe, message_lines, skipped_lines
from hlo_lint.rules.findings import Severity
from hlo_lint.rules.registry import find_rule
from hlo_lint.text.edits import Fix, Region
from hlo_lint.text.errors import UsageError
from hlo_lint.text.source import Position, is_utf8, shown

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
MAX_RESULTS = 25_000
"""The maximum number of results per run; GitHub refuses more, and shows 5,000."""
MAX_BYTES = 10_000_000
"""The maximum size of the compressed file."""
MAX_LINE_LENGTH = 1_000
"""The maximum characters of a line in a snippet; some lines have 100 kB."""
MAX_SKIPPED = 1_000
"""The maximum number of skipped inputs that are listed."""
ROOT = "SRCROOT"
"""The base of relative URIs: the working directory, which GitHub takes for the repository's."""

JsonObject = dict[str, Any]


def render(report: Report, warn: Warn) -> str:
    """A SARIF log with a single run; omitted results are reported in it and to `warn`.

    Allowed findings are left out, as GitHub shows suppressed results like others.
    """
    kept = most_urgent(report.findings, MAX_RESULTS)
    while True:
        dropped = len(report.findings) - len(kept)
        text = json.dumps(_log(report, kept, _lost(dropped)), indent=1) + "\n"
        # The limit is on the compressed size; small texts need no compression.
        size = len(text) if len(text) <= MAX_BYTES else len(gzip.compress(text.encode(), 6))
        if size <= MAX_BYTES or not kept:
            break
        kept = most_urgent(kept, min(len(kept) - 1, int(len(kept) * 0.95 * MAX_BYTES / size)))
    for line in _lost(dropped):
        warn(line)
    return text


def most_urgent(findings: Sequence[Diagnostic], most: int) -> Sequence[Diagnostic]:
    """At most `most` findings, in their order.

    If there are more, findings whose fingerprints differ only in the final number are merged, and
    errors go before warnings before information.
    """
    if len(findings) <= most:
        return findings
    first: dict[str, int] = {}
    for number, finding in enumerate(findings):
        first.setdefault(finding.fingerprint[:IDENTITY_DIGITS], number)
    urgent = sorted(first.values(), key=lambda number: findings[number].severity.rank)
    return [findings[number] for number in sorted(urgent[:most])]


def _lost(dropped: int) -> list[str]:
    if not dropped:
        return []
    limits = f"{MAX_RESULTS} results, {MAX_BYTES} bytes compressed"
    return [f"SARIF: {dropped} findings were left out, the least urgent first ({limits})"]


def _log(report: Report, findings: Sequence[Diagnostic], lost: Sequence[str]) -> JsonObject:
    rules = list(dict.fromkeys(finding.rule for finding in findings))
    notifications = [_notification(line, level="warning") for line in lost]
    lines, reasons = list(skipped_lines(report, minor=True)), report.skipped_by_reason()
    notifications += [
        _notification(line, paths[0])
        for line, paths in zip(lines[:MAX_SKIPPED], reasons.values(), strict=False)
    ]
    if len(lines) > MAX_SKIPPED:
        notifications.append(_notification(f"skipped: {len(lines) - MAX_SKIPPED} more"))
    run = {
        "tool": {
            "driver": {
                "name": "hlo-lint",
                "version": __version__,
                "rules": [_descriptor(rule) for rule in rules],
            }
        },
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notifications}],
        "originalUriBaseIds": {ROOT: {"description": {"text": "the working directory"}}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, rules.index(finding.rule)) for finding in findings],
        "properties": {**report.stats, "allowed": len(report.allowed)},
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _notification(text: str, path: str | None = None, level: str = "note") -> JsonObject:
    place: JsonObject = {} if path is None else {"locations": [_location(path)]}
    return {"level": level, "message": _message(shown(text)), **place}


def _descriptor(name: str) -> JsonObject:
    try:
        rule = find_rule(name)
    except UsageError:
        return {"id": name}  # a rule of the caller's, which is not registered
    page = render_page(rule)
    return {
        "id": name,
        "name": type(rule).__name__,
        "shortDescription": {"text": rule.summary()},
        "fullDescription": {"text": rule.page().partition("\n## ")[0].strip()},
        "help": {"text": page, "markdown": page},
        **({"helpUri": link} if (link := rule_link(name)) else {}),
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
        "properties": {"tags": [rule.family()]},
    }


def _result(finding: Diagnostic, rule: int) -> JsonObject:
    result: JsonObject = {
        "ruleId": finding.rule,
        "ruleIndex": rule,
        "level": LEVELS[finding.severity],
        "message": _message("\n".join(message_lines(finding))),
        "locations": [_place(finding)],
        "partialFingerprints": {
            "hloLintFinding/v1": finding.fingerprint,
            "primaryLocationLineHash": finding.fingerprint,  # GitHub only uses this field
        },
    }
    if related := list(_related(finding)):
        result["relatedLocations"] = [{"id": n, **place} for n, place in enumerate(related, 1)]
    fix = finding.fix
    if fix and has_lines(finding.path) and all(is_utf8(edit.text) for edit in fix.edits):
        result["fixes"] = [_fix(finding.path, fix, finding.regions[1:])]
    passes = (("introducedBy", finding.introduced_by), ("resolvedBy", finding.resolved_by))
    named = [
        ("opName", finding.op_name),
        ("pipeline", finding.pipeline),
        *((name, dump.pass_name) for name, dump in passes if dump is not None),
    ]
    numbers = {"step": finding.step, "seenIn": finding.seen_in}
    result["properties"] = {
        **{name: shown(value) for name, value in named if value},
        **{name: value for name, value in numbers.items() if value is not None},
    }
    return result


def _place(finding: Diagnostic) -> JsonObject:
    place = _location(finding.path)
    if has_lines(finding.path):
        place["physicalLocation"] |= _regions(finding)
    around = finding.module, finding.computation, finding.instruction
    kinds = ("module", "function", "variable")
    names = [(kind, shown(name)) for kind, name in zip(kinds, around, strict=True) if name]
    if names:
        kind, name = names[-1]
        qualified = "/".join(name for _, name in names)
        place["logicalLocations"] = [{"name": name, "fullyQualifiedName": qualified, "kind": kind}]
    return place


def _regions(finding: Diagnostic) -> JsonObject:
    region = _region(finding.start, finding.end)
    if finding.line != finding.end_line or len(finding.excerpt) > MAX_LINE_LENGTH:
        return {"region": region}
    line = {"startLine": finding.line, "endLine": finding.line}
    snippet = {"text": shown(finding.excerpt)}
    return {"region": region, "contextRegion": {**line, "snippet": snippet}}


def _region(start: Position, end: Position) -> JsonObject:
    names = ("startLine", "startColumn", "endLine", "endColumn")
    return dict(zip(names, (*start, *end), strict=True))


def _location(path: str, region: JsonObject | None = None) -> JsonObject:
    uri, is_relative = uri_of(path)
    artefact = {"uri": uri, "uriBaseId": ROOT} if is_relative else {"uri": uri}
    physical: JsonObject = {"artifactLocation": artefact}
    return {"physicalLocation": {**physical, "region": region} if region else physical}


def _related(finding: Diagnostic) -> Iterator[JsonObject]:
    for label, dump in (("since", finding.introduced_by), ("resolved by", finding.resolved_by)):
        if dump is not None and dump.path:
            yield {**_location(dump.path), "message": _message(shown(f"{label} {describe(dump)}"))}
    if finding.origin is not None and finding.origin.file:
        origin = finding.origin
        region = {"startLine": origin.line} if origin.line > 0 else None
        where = f" in {origin.function}" if origin.function else ""
        yield {**_location(origin.file, region), "message": _message(shown(f"from Python{where}"))}


def _fix(path: str, fix: Fix, regions: Sequence[Region]) -> JsonObject:
    replacements = [
        {
            "deletedRegion": {
                **_region(region.start, region.end),
                "charOffset": edit.span.start,
                "charLength": edit.span.end - edit.span.start,
            },
            "insertedContent": {"text": edit.text},
        }
        for edit, region in zip(fix.edits, regions, strict=True)
    ]
    artefact = _location(path)["physicalLocation"]["artifactLocation"]
    return {
        "description": _message(shown(f"{fix.title} ({fix.safety.value})")),
        "artifactChanges": [{"artifactLocation": artefact, "replacements": replacements}],
    }


def _message(text: str) -> JsonObject:
    """A message of plain text, without `](`, so that a dump cannot make links."""
    return {"text": text.replace("](", "] (")}
