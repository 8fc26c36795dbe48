"""Fixes as code actions, for single findings or all at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from lsprotocol import types

from hlo_lint.apps.fixes import fix
from hlo_lint.apps.lsp.checking import Checked, PublishedFinding, settings_for
from hlo_lint.apps.lsp.documents import Document
from hlo_lint.apps.lsp.texts import Text
from hlo_lint.dumps.directory import held_dump
from hlo_lint.text.edits import Edit, Safety, edited, first_difference
from hlo_lint.text.source import Span

_indent = re.compile(r"[ \t]*")
FIX_ALL = f"{types.CodeActionKind.SourceFixAll.value}.hlo-lint"


def quick_fixes(checked: Checked, wanted: types.Range) -> Iterator[types.CodeAction]:
    """The fixes of the findings in a range."""
    text = checked.document.text
    for published in _touching(checked, wanted):
        offered = published.finding.fix
        if offered is None:
            continue
        is_safe = offered.safety is Safety.SAFE
        yield types.CodeAction(
            title=offered.title if is_safe else f"{offered.title} (may change values or cost)",
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[published.diagnostic],
            is_preferred=is_safe,
            edit=_workspace_edit(text, offered.edits),
        )


def allowances(checked: Checked, wanted: types.Range) -> Iterator[types.CodeAction]:
    """Actions that insert an allow comment for a finding in a range.

    The user has to write the reason: until then the comment suppresses nothing and is reported.
    """
    text = checked.document.text
    for published in _touching(checked, wanted):
        line = text.starts[published.diagnostic.range.start.line]
        ends = "\r\n" if "\r\n" in text.source else "\n"
        comment = f"// hlo-lint: allow {published.finding.rule} -- "
        blanks = _indent.match(text.source, line)
        indent = blanks[0] if blanks else ""
        edit = Edit(Span(line, line), f"{indent}{comment}{ends}")
        yield types.CodeAction(
            title=f"allow {published.finding.rule} here (write the reason)",
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[published.diagnostic],
            edit=_workspace_edit(text, [edit]),
        )


def _touching(checked: Checked, wanted: types.Range) -> Iterator[PublishedFinding]:
    """The findings that overlap or touch a range."""
    text = checked.document.text
    start, end = text.offset(wanted.start), text.offset(wanted.end)
    for published in checked.published:
        place = published.diagnostic.range
        if text.offset(place.start) <= end and text.offset(place.end) >= start:
            yield published


def fix_all(document: Document) -> types.WorkspaceEdit:
    """The edits that `hlo-lint fix` would make.

    Raises:
        HloLintError: invalid settings.
    """
    dump = held_dump(document.file, document.path)
    before = document.text.source
    result = fix(dump, settings=settings_for(document))
    edits: Sequence[Edit] = ()
    for applied in result.files:
        one_round = edited(before, sorted(applied.edits)) == applied.after
        edits = applied.edits if one_round else [_difference(before, applied.after)]
    return _workspace_edit(document.text, edits)


def _workspace_edit(text: Text, edits: Iterable[Edit]) -> types.WorkspaceEdit:
    changes = [types.TextEdit(text.range(edit.span), edit.text) for edit in edits]
    named = types.OptionalVersionedTextDocumentIdentifier(uri=text.uri, version=text.version)
    return types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(named, list(changes))])


def _difference(before: str, after: str) -> Edit:
    """The smallest single edit from `before` to `after`.

    >>> _difference("abcabc", "abcxbc")
    Edit(span=Span(start=3, end=4), text='x')
    """
    start = first_difference(before, after)
    end = first_difference(before[start:][::-1], after[start:][::-1])
    return Edit(Span(start, len(before) - end), after[start : len(after) - end])
