"""The report as people read it: the line, a caret, the Python line, the pass that introduced it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from hlo_lint.report.formats import Warn
from hlo_lint.report.groups import Group, grouped
from hlo_lint.report.links import rule_link, shows_links
from hlo_lint.report.report import Report
from hlo_lint.rules.findings import Severity
from hlo_lint.text.patterns import late
from hlo_lint.text.phrases import NOT_LOOKED_AT, counted, cut_in_middle, listed
from hlo_lint.text.source import shown

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from hlo_lint.engine.findings import Diagnostic, PassRef

Spans = tuple[tuple[str, str], ...]
"""Pieces of a line, each with its style as rich spells it."""

STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold cyan"}
WIDTH = 160
"""Maximum number of characters shown of a line of HLO, where no terminal is narrower; lines of
dumps run to 100 kB."""
MIN_WIDTH = 40
"""Columns of the narrowest terminal to which text is fitted."""
MAX_MESSAGE = 400
"""Characters that are shown of a message, and of a note."""
MAX_RULES = 4
"""Number of rules that are named of the findings that are not shown."""
COMMANDS = {"safe": "hlo-lint fix", "unsafe": "hlo-lint fix --unsafe-fixes"}
"""The command that applies a fix, by its safety."""
UNKNOWN = "a pass that left no dump"


_words = late(r"\S+\s*").finditer


class ReportLine(NamedTuple):
    """A line of the report. On a terminal its body is folded, below the end of its label."""

    label: Spans
    body: Spans = ()

    @property
    def plain(self) -> str:
        """The line without colours."""
        return "".join([text for text, _ in (*self.label, *self.body)])


EMPTY = ReportLine(())


def render(report: Report, _: Warn) -> str:
    """The report without colours."""
    return plain_text(report_parts(report))


def render_concise(finding: Diagnostic) -> str:
    """`path:line:column: severity[rule]: message`"""
    place = f"{finding.path}:{finding.line}:{finding.column}"
    message = f"{finding.severity.value}[{finding.rule}]: {finding.message}"
    since = f"since {finding.introduced_by.pass_name}" if finding.introduced_by else ""
    resolved = (
        f"resolved by {finding.resolved_by.pass_name or UNKNOWN}" if finding.resolved_by else ""
    )
    blame = ", ".join(part for part in (since, resolved) if part)
    return shown(f"{place}: {message}" + (f" ({blame})" if blame else ""))


def describe(ref: PassRef) -> str:
    """`pass autotuner of post-layout_assignment, step 0030`"""
    step = "the last dump" if ref.step is None else f"step {ref.step:04d}"
    if not ref.pass_name:
        return f"{UNKNOWN}, before {step}"
    if ref.pass_name == "pipeline-start":
        since = "the first dump" if ref.previous is None else f"step {ref.previous:04d}"
        return f"{UNKNOWN}, between {since} and {step}, the start of {ref.pipeline}"
    return f"pass {ref.pass_name} of {ref.pipeline}, {step}"


def report_parts(
    report: Report,
    seconds: float | None = None,
    *,
    quiet: bool = False,
    verbose: bool = False,
    width: int = 0,
) -> Iterator[list[ReportLine]]:
    """The skipped inputs, the entries, the worst last, and lines that count.

    `seconds` is how long the check took, if it is to be said; `width` is that of a terminal, or 0.
    """
    took = "" if seconds is None else f"; {seconds:.1f} s"
    closing = [summary(report) + took, fixable(report.findings)]
    shown_entries = entries(report.findings, verbose=verbose, width=width)
    return framed(report, shown_entries, closing, quiet=quiet, verbose=verbose)


def framed(
    report: Report,
    parts: Iterable[list[ReportLine]],
    closing: Iterable[str],
    *,
    quiet: bool,
    verbose: bool,
) -> Iterator[list[ReportLine]]:
    """Parts about findings between the skipped inputs and lines that count.

    With `quiet`, only these parts; with `verbose`, each input that was skipped.
    """
    if quiet:
        yield from parts
        return
    lines = (line.partition(": ") for line in skipped_lines(report, minor=verbose, each=verbose))
    skipped = [ReportLine(((f"{label}: ", "dim"),), ((rest, "dim"),)) for label, _, rest in lines]
    if skipped:
        yield [*skipped, EMPTY] if report.findings else skipped
    yield from parts
    hidden = hidden_line(report.hidden) if report.hidden else ""
    yield [ReportLine(((line, ""),)) for line in (*closing, hidden) if line]


def plain_text(parts: Iterable[Iterable[ReportLine]]) -> str:
    """The text of some parts without colours, where nothing is folded.

    To import rich takes longer than to check a small file.
    """
    return "".join(f"{line.plain}\n" for part in parts for line in part)


def print_parts(console: Console, parts: Iterable[Iterable[ReportLine]]) -> None:
    """Print parts of a report: on a terminal folded, and with colours if it has some."""
    from rich.text import Text

    for part in parts:
        # rich takes a millisecond for each thing that it prints.
        if console.color_system is None and not width_of(console):
            console.out(plain_text([part]), end="", highlight=False)
        else:
            texts = [text for line in part for text in _folded(line, console)]
            console.print(Text("\n").join(texts), soft_wrap=True)


def print_report(
    console: Console, report: Report, *, quiet: bool = False, verbose: bool = False
) -> None:
    """Print the parts of `report_parts`."""
    width = width_of(console)
    print_parts(console, report_parts(report, quiet=quiet, verbose=verbose, width=width))


def print_text(console: Console, findings: Sequence[Diagnostic], *, verbose: bool = False) -> None:
    """Print the entries of `entries`."""
    print_parts(console, entries(findings, verbose=verbose, width=width_of(console)))


def hidden_line(hidden: Sequence[Diagnostic]) -> str:
    """`3 infos not shown: incomplete-dump 2, costly-transposes 1 (--min-severity info)`"""
    numbers = [sum(at.severity is severity for at in hidden) for severity in Severity]
    rules = Counter(finding.rule for finding in hidden)
    by_rule = listed([f"{rule} {count}" for rule, count in rules.most_common()], MAX_RULES)
    least = max((finding.severity for finding in hidden), key=lambda severity: severity.rank).value
    return f"{severities(*numbers)} not shown: {by_rule} (--min-severity {least})"


def skipped_lines(report: Report, *, minor: bool = False, each: bool = False) -> Iterator[str]:
    """A line for each reason, with the first of the paths; with `each`, for each path.

    Minor reasons are among them with `minor`, and where no file was read.
    """
    minor = minor or not report.stats.get("files")
    for reason, paths in report.skipped_by_reason(minor=minor).items():
        label = NOT_LOOKED_AT if reason.startswith(NOT_LOOKED_AT) else "skipped: "
        text = shown(reason.removeprefix(NOT_LOOKED_AT))
        for where in map(shown, paths) if each else [listed(map(shown, paths), 1)]:
            yield f"{label}{where}: {text}"


def entries(
    findings: Sequence[Diagnostic], *, verbose: bool = False, width: int = 0
) -> Iterator[list[ReportLine]]:
    """Each group of findings with an excerpt, an empty line after each; the worst come last.

    With `verbose`, each finding. A terminal shows its last lines, where the worst stand.
    """
    groups = [Group(finding) for finding in findings] if verbose else grouped(findings)
    for group in sorted(groups, key=lambda group: -group.first.severity.rank):
        yield [*_lines(group, width), EMPTY]


def width_of(console: Console) -> int:
    """The columns of a terminal; 0 if the output is not one."""
    return max(MIN_WIDTH, console.width) if console.file.isatty() else 0


def as_text(finding: Diagnostic) -> str:
    """A finding as `print_text` prints it, without colours."""
    return group_text(Group(finding))


def group_text(group: Group) -> str:
    """An entry as `print_text` prints it, without colours."""
    return "\n".join(line.plain for line in _lines(group))


def summary(report: Report) -> str:
    """`1 error, 2 warnings in 31 files, 31 modules of HLO`, and what is not among them."""
    listed = severities(*(report.stats.get(f"{severity.value}s", 0) for severity in Severity))
    files, modules = (counted(report.stats[name], name[:-1]) for name in ("files", "modules"))
    place = f"{files}, {modules} of HLO" if report.stats["files"] else "no files of HLO"
    allowed = f", {len(report.allowed)} allowed" if report.allowed else ""
    resolved = f", {count}" if (count := resolved_count(report)) else ""
    return f"{listed or 'no findings'} in {place}{allowed}{resolved}"


def resolved_count(report: Report) -> str:
    """`2 resolved by a later pass (--resolved)`; empty if no such finding was left out."""
    resolved = report.stats.get("resolved")
    return f"{resolved} resolved by a later pass (--resolved)" if resolved else ""


def severities(errors: int, warnings: int, infos: int) -> str:
    """`1 error, 2 warnings`; what there is none of is left out."""
    numbers = ((errors, "error"), (warnings, "warning"), (infos, "info"))
    return ", ".join(counted(number, name) for number, name in numbers if number)


def fixable(findings: Sequence[Diagnostic]) -> str:
    """The number of findings with a fix, and the command that applies it; empty without fixes."""
    fixes = [finding.fix.safety.value for finding in findings if finding.fix is not None]
    safe, unsafe = (fixes.count(safety) for safety in COMMANDS)
    if safe and unsafe:
        return f"{safe} fixable with `{COMMANDS['safe']}`, {unsafe} more with --unsafe-fixes"
    if not fixes:
        return ""
    return f"{len(fixes)} fixable with `{COMMANDS['safe' if safe else 'unsafe']}`"


def _lines(group: Group, width: int = 0) -> Iterator[ReportLine]:
    """The lines of an entry; `width` is that of a terminal, which shows no more of its excerpt."""
    finding = group.first
    style = STYLES[finding.severity]
    # The shape of a tuple may have thousands of elements: rules say where two shapes differ.
    message = cut_in_middle(shown(finding.message), MAX_MESSAGE)
    name = f"{finding.severity.value}[{finding.rule}]"
    link = rule_link(finding.rule) if width and shows_links(os.environ) else ""
    yield ReportLine(
        (), ((name, f"{style} link {link}" if link else style), (f": {message}", "bold"))
    )
    place = shown(f"{finding.path}:{finding.line}:{finding.column}")
    yield ReportLine((("  --> ", "blue"), (place, "")))
    yield from _excerpt(finding, style, width)
    notes = list(notes_of(finding))
    if elsewhere := group.elsewhere():
        notes.append(("also at", elsewhere))
    for label, note in notes:
        head = ("   = ", "blue"), (f"{label}: ", "bold")
        yield ReportLine(head, ((cut_in_middle(shown(note), MAX_MESSAGE), ""),))
    if finding.fix is not None:
        how = f"{finding.fix.safety.value}; {COMMANDS[finding.fix.safety.value]}"
        yield ReportLine(
            (("help: ", "bold green"),), ((f"{shown(finding.fix.title)} ({how})", ""),)
        )


def _folded(line: ReportLine, console: Console) -> Iterator[Text]:
    """The text after a label; on a terminal, further lines begin below its first word."""
    label, body = _styled(line.label), _styled(line.body)
    if not line.body or not (width := width_of(console)):
        yield label + body
        return
    indent = label.cell_len
    for part in body.divide(_breaks(body.plain, width - indent)):
        part.rstrip()
        yield label + part
        label = _styled(((" " * indent, ""),))


def _breaks(text: str, width: int) -> list[int]:
    """The places before words that begin a line of so many columns; no word, no path is broken."""
    from rich.cells import cell_len

    places, used = [], 0
    for word in _words(text):
        if used and used + cell_len(word[0].rstrip()) > width:
            places.append(word.start())
            used = 0
        used += cell_len(word[0])
    return places


def _styled(spans: Spans) -> Text:
    from rich.text import Text

    return Text(*spans[0]) if len(spans) == 1 else Text.assemble(*spans)


def _excerpt(finding: Diagnostic, style: str, width: int) -> Iterator[ReportLine]:
    """The line and its carets: as much of a long line as fits, around what is marked."""
    number = f"{finding.line} | "
    text, start = finding.excerpt, finding.column - 1
    if sum(not character.isprintable() for character in text[:WIDTH]) * 4 > len(text[:WIDTH]):
        yield ReportLine(((number, "blue"), (f"binary data, {len(text)} characters", "dim")))
        return
    end = finding.end_column - 1 if finding.end_line == finding.line else len(text)
    room = width - len(number) if width else WIDTH + 2
    first, last = _window(text, start, end, room)
    lead, tail = ("…" if first else ""), ("…" if last < len(text) else "")
    before = len(lead) + _columns(shown(text[first:start]))
    marked = max(1, _columns(shown(text[start : min(end, last)])))
    yield ReportLine(((number, "blue"), (f"{lead}{shown(text[first:last])}{tail}", "")))
    bar = f"{'|':>{len(number) - 1}} "
    yield ReportLine(((bar, "blue"), (" " * before, ""), ("^" * marked, style)))


def _columns(text: str) -> int:
    """The columns in which a terminal shows a text."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _window(text: str, start: int, end: int, room: int) -> tuple[int, int]:
    """The stretch of a line that is shown in `room` columns, with two left for the ellipses.

    It begins with the line if what is marked fits there, too; else half of the columns at most
    stand before that, as long as the line goes on after it.
    """
    if len(text) <= room and _columns(shown(text)) <= room:
        return 0, len(text)
    room -= 2

    def grown(at: int, step: int, columns: int) -> int:
        """The last place that is reached from `at` within so many columns."""
        stretch = text[at : at + columns] if step > 0 else text[max(0, at - columns) : at]
        if columns > 0 and stretch.isascii() and stretch.isprintable():
            return at + step * len(stretch)  # each character is shown in one column
        while 0 <= at + min(step, 0) < len(text):
            columns -= _columns(shown(text[at + min(step, 0)]))
            if columns < 0:
                break
            at += step
        return at

    def columns(first: int, last: int) -> int:
        return _columns(shown(text[first:last]))

    marked = columns(start, min(end, start + room + 1))
    if start + marked <= room and columns(0, start) + marked <= room:
        first = 0
    else:
        before = room - marked if marked <= room else room // 8
        first = grown(start, -1, min(room // 2, before))
    last = grown(start, 1, room - columns(first, start))
    return grown(first, -1, room - columns(first, last)), last


def message_lines(finding: Diagnostic) -> list[str]:
    """The message and the notes of `notes_of`, for formats with one field for a finding."""
    notes = (f"{label}: {note}" for label, note in notes_of(finding))
    return [shown(line) for line in (finding.message, *notes)]


def notes_of(finding: Diagnostic) -> Iterator[tuple[str, str]]:
    """The facts on a finding besides its place, each with its label: `("since", "pass …")`."""
    if finding.origin is not None:
        yield "from", str(finding.origin)
    if finding.introduced_by is not None:
        yield "since", describe(finding.introduced_by)
    if finding.resolved_by is not None:
        yield "resolved by", describe(finding.resolved_by)
    if finding.instruction is not None:
        yield "in", f"%{finding.computation} of {finding.module}"
    for note in finding.notes:
        yield "note", note
