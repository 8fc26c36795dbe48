"""The diagnostics of an open text, until it is outdated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lsprotocol import types
from pygls.uris import from_fs_path

from hlo_lint.apps.api import lint
from hlo_lint.apps.lsp.documents import Document
from hlo_lint.apps.settings.load import load_settings
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.dumps.directory import held_dump
from hlo_lint.engine.findings import Diagnostic
from hlo_lint.engine.memo import RunMemo
from hlo_lint.hlo.records import references_of
from hlo_lint.report.links import rule_link
from hlo_lint.rules.findings import Severity
from hlo_lint.text.edits import Safety
from hlo_lint.text.source import Span, shown

SEVERITIES = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.INFO: types.DiagnosticSeverity.Information,
}


class OutdatedError(Exception):
    """The text changed during a request, so the answer is useless."""


@dataclass(frozen=True)
class PublishedFinding:
    """A finding, and the diagnostic sent to the client."""

    finding: Diagnostic
    diagnostic: types.Diagnostic

    @property
    def is_fixable(self) -> bool:
        """True if it has a safe fix: no change of values or cost."""
        return self.finding.fix is not None and self.finding.fix.safety is Safety.SAFE


@dataclass(frozen=True)
class Checked:
    """The findings in a version of a text."""

    document: Document
    published: tuple[PublishedFinding, ...]


def settings_for(document: Document) -> Settings:
    """The settings for a text; without a file, those of the working directory.

    Raises:
        HloLintError: invalid settings.
    """
    paths = [] if document.file_path is None else [document.file_path]
    return load_settings(paths).overridden("editor", jobs=1)


def check(document: Document, is_outdated: Callable[[], bool], memo: RunMemo) -> Checked:
    """Check a text; `memo` holds results of previous versions.

    Raises:
        OutdatedError: as soon as `is_outdated` returns True.
        HloLintError: invalid settings.
    """
    settings = settings_for(document)
    if settings.force_exclude and settings.excludes(document.path):
        return Checked(document, ())

    def go_on(_: int) -> None:
        if is_outdated():
            raise OutdatedError

    dump = held_dump(document.file, document.path)
    report = lint(dump, settings=settings, progress=go_on, memo=memo)
    memo.keep(document.file)
    published = (
        PublishedFinding(finding, _diagnostic(document, finding))
        for finding in report.findings
        if finding.path == str(document.path)  # not of settings
    )
    return Checked(document, tuple(published))


def _diagnostic(document: Document, finding: Diagnostic) -> types.Diagnostic:
    offset = document.file.lines.offset
    span = Span(offset(finding.start), offset(finding.end))
    fix, link = finding.fix, rule_link(finding.rule)
    origin = [f"from: {finding.origin}"] if finding.origin is not None else []
    lines = [finding.message, *origin, *(f"note: {note}" for note in finding.notes)]
    return types.Diagnostic(
        range=document.text.range(span),
        message="\n".join(map(shown, lines)),
        severity=SEVERITIES[finding.severity],
        code=finding.rule,
        code_description=types.CodeDescription(link) if link else None,
        source="hlo-lint",
        related_information=list(_related(document, finding, span)) or None,
        data={
            "fingerprint": finding.fingerprint,
            "fix": None if fix is None else {"title": fix.title, "safety": fix.safety.value},
        },
    )


def _related(
    document: Document, finding: Diagnostic, span: Span
) -> Iterator[types.DiagnosticRelatedInformation]:
    """The definition of the underlined operand, and the line of Python if its file exists."""
    statement = document.statement_at(span.start)
    if statement is not None and statement.number is not None:
        names = references_of(statement.place.computation.rows[statement.number])
        named = document.text.source[span.start : span.end].removeprefix("%")
        symbol = document.symbol_at(span.start) if named in names else None
        defined = document.definition(symbol) if symbol else None
        if defined is not None:
            place = types.Location(document.text.uri, document.text.range(defined.span))
            yield types.DiagnosticRelatedInformation(place, f"%{defined.name} is defined here")
    origin = finding.origin
    if origin is None or not origin.line:
        return
    path = Path(origin.file)
    uri = from_fs_path(str(path)) if path.is_absolute() and path.is_file() else None
    if uri is not None:
        start = types.Position(origin.line - 1, 0)
        where = f" in {shown(origin.function)}" if origin.function else ""
        yield types.DiagnosticRelatedInformation(
            types.Location(uri, types.Range(start, start)), f"this line of Python{where}"
        )
