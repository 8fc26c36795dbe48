"""The report as people read it: the line, a caret, the Python line, the pass that introduced it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import StringIO
from typing import TYPE_CHECKING

from hlo_lint.engine.findings import Diagnostic, PassRef
from hlo_lint.report.formats import Warn
from hlo_lint.report.report import Report
from hlo_lint.rules.findings import Severity
from hlo_lint.text.edits import Safety
from hlo_lint.text.phrases import counted
from hlo_lint.text.source import shown

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold cyan"}
WIDTH = 160
"""Maximum number of characters shown of a line of HLO; lines of dumps run to 100 kB."""
COMMANDS = {Safety.SAFE: "hlo-lint fix", Safety.UNSAFE: "hlo-lint fix --unsafe-fixes"}
UNKNOWN = "a pass that left no dump"


def render(report: Report, _: Warn) -> str:
    """The report without colours."""
    from rich.console import Console

    out = StringIO()
    console = Console(file=out, force_terminal=False, color_system=None, width=WIDTH)
    print_report(console, report)
    return out.getvalue()


def render_concise(finding: Diagnostic) -> str:
    """`path:line:column: severity[rule]: message`"""
    place = f"{finding.path}:{finding.line}:{finding.column}"
    message = f"{finding.severity.value}[{finding.rule}]: {finding.message}"
    since = f"since {finding.introduced_by.pass_name}" if finding.introduced_by else ""
    resolved = f"resolved by {finding.cured_by.pass_name or UNKNOWN}" if finding.cured_by else ""
    blame = ", ".join(part for part in (since, resolved) if part)
    return shown(f"{place}: {message}" + (f" ({blame})" if blame else ""))


def describe(ref: PassRef) -> str:
    """`pass autotuner of post-layout_assignment, step 0030`"""
    step = "the last dump" if ref.step is None else f"step {ref.step:04d}"
    if not ref.pass_name:
        return f"{UNKNOWN}, before {step}"
    return f"pass {ref.pass_name} of {ref.pipeline}, {step}"


def print_report(console: Console, report: Report) -> None:
    """Print each finding, the skipped inputs, and one line that counts."""
    print_text(console, report.findings)
    for entry in report.skipped:
        console.print(
            f"skipped: {shown(entry.path)}: {shown(entry.reason)}",
            style="dim",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )
    console.print(summary(report), highlight=False, markup=False, soft_wrap=True)


def print_text(console: Console, findings: Sequence[Diagnostic]) -> None:
    """Print each finding with its excerpt, an empty line after each."""
    for finding in findings:
        for line in _lines(finding):
            console.print(line, soft_wrap=True)
        console.print()


def as_text(finding: Diagnostic) -> str:
    """A finding as `print_text` prints it, without colours."""
    return "\n".join(line.plain for line in _lines(finding))


def summary(report: Report) -> str:
    """`1 error, 2 warnings in 31 files`, or `no findings in 31 files`; `, 3 allowed` after it."""
    counts = [
        _some(sum(finding.severity is severity for finding in report.findings), name)
        for severity, name in (
            (Severity.ERROR, "error"),
            (Severity.WARNING, "warning"),
            (Severity.INFO, "note"),
        )
    ]
    listed = ", ".join(count for count in counts if count) or "no findings"
    allowed = f", {len(report.allowed)} allowed" if report.allowed else ""
    return f"{listed} in {_some(report.stats['files'], 'file') or 'no files'} of HLO{allowed}"


def _some(number: int, name: str) -> str:
    return counted(number, name) if number else ""


def _lines(finding: Diagnostic) -> Iterator[Text]:
    from rich.text import Text

    style = STYLES[finding.severity]
    yield Text.assemble(
        (f"{finding.severity.value}[{finding.rule}]", style),
        (f": {shown(finding.message)}", "bold"),
    )
    yield Text.assemble(
        ("  --> ", "blue"), shown(f"{finding.path}:{finding.line}:{finding.column}")
    )
    yield from _excerpt(finding, style)
    for label, note in notes_of(finding):
        yield Text.assemble(("   = ", "blue"), (f"{label}: ", "bold"), shown(note))
    if finding.fix is not None:
        how = f"{finding.fix.safety.value}; {COMMANDS[finding.fix.safety]}"
        yield Text.assemble(
            ("help: ", "bold green"),
            f"{shown(finding.fix.title)} ({how})",
        )


def _excerpt(finding: Diagnostic, style: str) -> Iterator[Text]:
    from rich.text import Text

    number = str(finding.line)
    bar = " " * len(number) + " | "
    start = finding.column - 1
    end = finding.end_column - 1 if finding.end_line == finding.line else len(finding.excerpt)
    first = max(0, min(start - WIDTH // 2, len(finding.excerpt) - WIDTH))
    first = first if len(finding.excerpt) > WIDTH else 0
    lead, tail = ("…" if first else ""), ("…" if len(finding.excerpt) > first + WIDTH else "")
    line = shown(finding.excerpt[first : first + WIDTH])
    before = len(shown(finding.excerpt[first:start])) + len(lead)
    marked = max(1, len(shown(finding.excerpt[start : min(end, first + WIDTH)])))
    yield Text.assemble((f"{number} | ", "blue"), f"{lead}{line}{tail}")
    yield Text.assemble((bar, "blue"), " " * before, ("^" * marked, style))


def message_lines(finding: Diagnostic) -> list[str]:
    """The message and the notes of `notes_of`, for formats with one field for a finding."""
    notes = (f"{label}: {note}" for label, note in notes_of(finding))
    return [shown(line) for line in (finding.message, *notes)]


def notes_of(finding: Diagnostic) -> Iterator[tuple[str, str]]:
    """The facts on a finding besides its place, each with its label: `("since", "pass …")`."""
    if finding.origin is not None:
        origin = finding.origin
        where = f" in {origin.function}" if origin.function else ""
        yield "from", f"{origin.file}:{origin.line}{where}"
    if finding.introduced_by is not None:
        yield "since", describe(finding.introduced_by)
    if finding.cured_by is not None:
        yield "resolved by", describe(finding.cured_by)
    if finding.instruction is not None:
        yield "in", f"%{finding.computation} of {finding.module}"
    for note in finding.notes:
        yield "note", note
