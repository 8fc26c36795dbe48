"""The structure of a file: its outline, its folding ranges."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lsprotocol import types

from hlo_lint.apps.lsp.documents import Document
from hlo_lint.engine.suppressions.comments import read_comments
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.records import name_of, opcode_of, type_of
from hlo_lint.hlo.symbols import ComputationPlace
from hlo_lint.text.phrases import counted, shortened
from hlo_lint.text.source import Span, shown

INSTRUCTIONS = 20_000
"""The most instructions in an outline. For larger files it lists computations only, because editors
are slow to show more."""
DETAIL = 120
"""The maximum length of a shape in characters."""

_table = re.compile(
    r"^(?:FileNames|FunctionNames|FileLocations|StackFrames)[ \t]*\r?\n(?:\d+ [^\n]*(?:\n|$))*",
    re.M,
)
_comments = re.compile(r"^[ \t]*//[^\n]*(?:\n[ \t]*//[^\n]*)+", re.M)
_KINDS = {"constant": types.SymbolKind.Constant, "parameter": types.SymbolKind.TypeParameter}


def symbols(document: Document) -> list[types.DocumentSymbol]:
    """The outline: modules, their computations, their instructions with shapes."""
    listed = sum(len(place.computation.rows) for place in document.places) <= INSTRUCTIONS
    modules = []
    for module, extent in _extents(document):
        places = [place for place in document.places if place.module is module]
        if not module.header and not places:
            continue
        start = document.text.source.find(module.header, extent.start) if module.header else -1
        start = max(start, extent.start)
        name = Span(start, start + len(module.header.partition(",")[0]))
        children = [_computation(document, place, listed=listed) for place in places]
        modules.append(
            types.DocumentSymbol(
                name=shown(module.name) or "module",
                detail=counted(len(places), "computation"),
                kind=types.SymbolKind.Module,
                range=document.text.range(Span(start, extent.end)),
                selection_range=document.text.range(name),
                children=children,
            )
        )
    return modules


def _extents(document: Document) -> Sequence[tuple[Module, Span]]:
    """Each module with the span of its text."""
    modules = document.file.modules
    ends = [*(module.start for module in modules[1:]), len(document.source)]
    return [(module, Span(module.start, end)) for module, end in zip(modules, ends, strict=True)]


def _computation(
    document: Document, place: ComputationPlace, *, listed: bool
) -> types.DocumentSymbol:
    computation = place.computation
    whole = Span(place.begin, place.end)
    return types.DocumentSymbol(
        name=shown(computation.name),
        detail="ENTRY" if computation.is_entry else counted(len(computation.rows), "instruction"),
        kind=types.SymbolKind.Function,
        range=document.text.range(whole),
        selection_range=document.text.range(_name(document, place)),
        children=list(_instructions(document, place)) if listed else None,
    )


def _name(document: Document, place: ComputationPlace) -> Span:
    """The span of a computation's name; for a nameless computation, its start."""
    for token in document.head(place).tokens:
        if token.name == place.computation.name:
            return Span(place.begin + token.name_start, place.begin + token.name_end)
    return Span(place.begin, place.begin)


def _instructions(document: Document, place: ComputationPlace) -> Iterator[types.DocumentSymbol]:
    computation = place.computation
    for number, row in enumerate(computation.rows):
        if number in computation.nested:
            continue
        span = document.span(place, number)
        start = document.text.source.find(name_of(row), span.start, span.end)
        name = Span(start, start + len(name_of(row))) if start >= 0 else Span(span[0], span[0])
        yield types.DocumentSymbol(
            name=shown(name_of(row)),
            detail=shown(f"{shortened(type_of(row), DETAIL)} {opcode_of(row)}".strip()),
            kind=_KINDS.get(opcode_of(row), types.SymbolKind.Variable),
            range=document.text.range(span),
            selection_range=document.text.range(name),
        )


def folds(document: Document) -> list[types.FoldingRange]:
    """The folding ranges, sorted: computations, tables after the header, modules if the file has
    several, runs of comments, and regions of suppression comments.
    """
    ranges = [_fold(document, Span(place.begin, place.end)) for place in document.places]
    if len(_extents(document)) > 1:
        ranges += [_fold(document, span) for _, span in _extents(document)]
    source = document.text.source
    for module, span in _extents(document):
        end = next((p.begin for p in document.places if p.module is module), span.end)
        for table in _table.finditer(source, span.start, end):
            ranges.append(_fold(document, Span(*table.span())))
    for comment in read_comments(document.file, str(document.path)):
        ranges += [
            types.FoldingRange(lines.first - 1, lines.last - 1, kind=types.FoldingRangeKind.Region)
            for lines, _ in comment.regions.values()
        ]
    for run in _comments.finditer(source):
        ranges.append(_fold(document, Span(*run.span()), types.FoldingRangeKind.Comment))
    ranges = [fold for fold in ranges if fold.start_line < fold.end_line]
    return sorted(ranges, key=lambda fold: (fold.start_line, -fold.end_line))


def _fold(
    document: Document, span: Span, kind: types.FoldingRangeKind = types.FoldingRangeKind.Region
) -> types.FoldingRange:
    length = len(document.text.source[span.start : span.end].rstrip())
    last = document.text.line_of(span.start + max(0, length - 1))
    return types.FoldingRange(document.text.line_of(span.start), last, kind=kind)
