"""The details of a finding: HLO before and after, drawings, the fix, the lines of Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import unified_diff
from functools import lru_cache
from pathlib import Path
from typing import TypedDict

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.engine.findings import Diagnostic, SourceLine
from hlo_lint.hlo.ir import HloFile, Instruction, Module
from hlo_lint.report.html.dimensions import Rearrangement, move
from hlo_lint.report.html.excerpt import Partners, Row, lines_around, one_sided, side_by_side
from hlo_lint.report.html.neighbourhood import Drawing, draw, neighbourhood
from hlo_lint.report.html.timeline import before_and_after
from hlo_lint.report.text import COMMANDS
from hlo_lint.text.edits import Edit, Fix, edited
from hlo_lint.text.errors import DumpError
from hlo_lint.text.source import Lines, Position, Span, decode
from hlo_lint.text.stored import read_stored

MAX_LINES = 60
"""Maximum lines; the others are counted."""
AROUND = 2
"""Lines of context."""


class Preview(TypedDict):
    """A fix as lines to show."""

    title: str
    command: str
    """The command that applies it: `hlo-lint fix`."""
    safety: str
    lines: list[tuple[str, str]]
    """Signs and lines: `-`, `+`, a blank, or `@` for lines left out."""


def preview(fix: Fix, lines: Lines) -> Preview:
    """The changed lines of a fix, with `AROUND` lines of context.

    >>> from hlo_lint.text.edits import Safety
    >>> from hlo_lint.text.source import Span
    >>> fix = Fix("say c", (Edit(Span(2, 3), "c"),), Safety.SAFE)
    >>> preview(fix, Lines("a\\nb\\n"))["lines"]
    [(' ', 'a'), ('-', 'b'), ('+', 'c')]
    """
    text, edits = lines.text, sorted(fix.edits)
    first = lines.position(edits[0].span.start).line
    begin, end = lines.offset(Position(max(1, first - AROUND), 1)), edits[-1].span.end
    for _ in range(AROUND + 1):
        end = text.find("\n", end) + 1 or len(text)
    before = text[begin:end]
    after = edited(
        before, [Edit(Span(start - begin, stop - begin), text) for (start, stop), text in edits]
    )
    old, new = (side.removesuffix("\n").split("\n") for side in (before, after))
    difference = [*unified_diff(old, new, n=AROUND, lineterm="")][3:]
    shown = [
        ("@", "") if line[0] == "@" else (line[0], line[1:].removesuffix("\r"))
        for line in difference
    ]
    if len(shown) > MAX_LINES:
        left = len(shown) - MAX_LINES
        shown = [*shown[:MAX_LINES], ("@", f"{left} more lines")]
    return Preview(
        title=fix.title, command=COMMANDS[fix.safety.value], safety=fix.safety.value, lines=shown
    )


SOURCE_LINES = 3
"""Python lines before and after a finding's line."""


class Detail(TypedDict):
    """The details of a finding."""

    before: str | None
    """The file name of the dump before the pass."""
    after: str
    rows: list[Row]
    remark: str
    """The reason for which `before` is None."""
    graph: Drawing | None
    move: Rearrangement | None
    fix: Preview | None
    source: list[tuple[int, str]]
    """Python lines with their numbers; empty if they must not be shown."""


def details_of(
    compilation: Compilation, findings: Mapping[int, Diagnostic], sources: Sequence[Path]
) -> Iterator[tuple[int, Detail]]:
    """The details of a module's findings, grouped by the pass that introduced them.

    Python lines are read only from files below `sources`.
    """
    texts = {str(file.path): file for file in compilation.dumps}

    @lru_cache(maxsize=1)  # findings come by pass, and large modules allow no larger cache
    def aligned(before: PassDump, after: PassDump) -> Partners:
        return Partners(before.module, after.module)

    births = {
        number: finding.introduced_by.path if finding.introduced_by else ""
        for number, finding in findings.items()
    }
    for number in sorted(findings, key=births.__getitem__):
        finding = findings[number]
        try:
            dump = texts.get(finding.path)
            if dump is None:  # a file without HLO: a kernel, a record of the run
                path = Path(finding.path)
                dump = PassDump.of(HloFile.of_text(decode(read_stored(path)), path), path)
            yield number, _detail(compilation, dump, finding, aligned, sources)
        except (DumpError, OSError):
            continue  # the file was removed or changed since


def _detail(
    compilation: Compilation,
    dump: PassDump,
    finding: Diagnostic,
    aligned: Callable[[PassDump, PassDump], Partners],
    sources: Sequence[Path],
) -> Detail:
    held = _instruction(dump, finding)
    detail = Detail(
        before=None,
        after=dump.path.name,
        rows=[],
        remark="",
        graph=None,
        move=None,
        fix=None,
        source=[] if finding.origin is None else _source(finding.origin, sources),
    )
    if finding.fix is not None and not finding.is_resolved:
        detail["fix"] = preview(finding.fix, dump.file.lines)
    if held is None:
        detail["rows"] = lines_around(dump.file.lines, finding.line, finding.end_line)
        return detail
    instruction, module = held
    detail["move"] = move(instruction, module)
    around, added = neighbourhood(instruction), frozenset[Instruction]()
    if finding.introduced_by is None:
        detail["rows"] = one_sided(around, module)
        if finding.seen_in is None:
            detail["remark"] = "the rule checks only this dump"
        elif len(compilation.dumps) > 1:
            detail["remark"] = "no dump before it is known"
    else:
        before, after = before_and_after(compilation, finding.introduced_by.path)
        there = held if after is dump else None if after is None else _instruction(after, finding)
        if before is None or after is None or there is None:
            detail["rows"] = one_sided(around, module)
            detail["remark"] = (
                "the instruction has another name in the dump of the pass that introduced it"
            )
        else:
            partners = aligned(before, after).of(there[0].computation.name)
            beside = around if there is held else neighbourhood(there[0])
            detail["rows"] = side_by_side(beside, partners, before.module, there[1])
            detail["after"] = after.path.name
            if any(row["before"] for row in detail["rows"]):
                detail["before"] = before.path.name
            else:
                detail["remark"] = f"{finding.introduced_by.pass_name} added these lines"
            around = beside
            added = frozenset(item for item in around.all if item not in partners)
    detail["graph"] = draw(around, added)
    return detail


def _instruction(dump: PassDump, finding: Diagnostic) -> tuple[Instruction, Module] | None:
    if finding.instruction is None or finding.computation is None:
        return None
    for module in dump.file.modules:
        computation = module.computation(finding.computation)
        instruction = computation and computation.instruction(finding.instruction)
        if instruction:
            return instruction, module
    return None


def _source(origin: SourceLine, sources: Sequence[Path]) -> list[tuple[int, str]]:
    """The Python line with its context, if the file is below `sources`."""
    for folder in sources:
        root = folder.resolve()
        try:
            path = (root / origin.file).resolve()
            if not path.is_relative_to(root) or not path.is_file():
                continue
            lines = path.read_text("utf-8", "replace").split("\n")
        except (OSError, ValueError):
            continue
        first = max(1, origin.line - SOURCE_LINES)
        last = min(len(lines), origin.line + SOURCE_LINES)
        return [(number, lines[number - 1]) for number in range(first, last + 1)]
    return []
