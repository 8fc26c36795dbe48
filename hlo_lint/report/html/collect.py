"""The data of the page: an index that is read first, details that are read on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os.path import commonpath, relpath
from pathlib import Path
from typing import TypedDict

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.directory import Dump
from hlo_lint.engine.findings import Diagnostic, PassRef, SuppressedFinding
from hlo_lint.report.groups import grouped
from hlo_lint.report.html.detail import Detail, details_of
from hlo_lint.report.html.module_graph import MAX_ON_PAGE, graph_of
from hlo_lint.report.html.pass_diff import Budget
from hlo_lint.report.html.timeline import PassTimeline, timeline
from hlo_lint.report.html.visible import deflated
from hlo_lint.report.report import Report
from hlo_lint.rules.findings import Severity
from hlo_lint.text import phrases

MAX_FINDINGS = 5000
"""Maximum findings that the page lists, the worst first; the others are counted."""
MAX_DETAILS = 300
"""Maximum findings with HLO and a drawing."""


class ResponsiblePass(TypedDict):
    """The pass that introduced or resolved a finding."""

    name: str
    """Empty if the pass left no dump."""
    pipeline: str
    step: int | None


class Found(TypedDict):
    """A finding as the list shows it."""

    group: int
    """Equal for findings of one rule with one cause."""
    id: str
    """The fingerprint, so that a link to the finding works in the next report, too."""
    rule: str
    severity: str
    message: str
    module: int | None
    """Number of the module on the page."""
    name: str
    """The module's name if `module` is None."""
    computation: str | None
    instruction: str | None
    file: str
    line: int
    column: int
    born: ResponsiblePass | None
    resolved: ResponsiblePass | None
    seen_in: int | None
    """The number of dumps that have it; None if the rule checks a single dump."""
    origin: str | None
    """`model.py:40 in attention`."""
    op_name: str | None
    notes: list[str]
    error_map: tuple[str, ...]


class Compiled(TypedDict):
    """A compilation, which the page calls a module."""

    title: str
    folder: str
    """Relative to the folder of all modules; empty for that folder."""
    release: str
    state: str
    """`compiled`, `compilation died`, `autotuner trial`, or empty if that is unknown."""
    dumps: int
    counts: dict[str, int]
    """Findings by severity; those that a later pass resolved under `resolved`."""
    timeline: PassTimeline


class PageIndex(TypedDict):
    """The data that the page reads first."""

    findings: list[Found]
    modules: list[Compiled]
    quiet: int
    """Number of autotuner modules without findings; they are not listed."""
    skipped: list[tuple[str, str]]
    allowed: list[str]
    """Allowed findings, a line each."""
    left_out: list[str]


class Collected(TypedDict):
    """The data of a page about a dump."""

    index: PageIndex
    details: dict[int, Detail]
    """By the number of the finding."""
    graphs: dict[int, str]
    """Modules with findings as graphs, packed, by the number of the module."""
    differences: dict[int, str]
    """For each pass of a timeline its changed lines, or null; packed, by the module's number."""


def collect(
    dump: Dump,
    report: Report,
    sources: Sequence[Path] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Collected:
    """Collect the data of a page from a dump and the report of `lint(dump, resolved=True)`.

    Python lines are read only from files below `sources`: a dump may name any file. `progress` is
    called with a line about each module before it is drawn.
    """
    ranked = sorted(report.findings, key=lambda finding: finding.severity.rank)
    listed = ranked[:MAX_FINDINGS]
    group_of, detailed = _groups(listed)
    findings = _by_compilation(dump, ranked)
    shown = sorted(
        (run for run in dump if not run.is_helper or run in findings),
        key=lambda run: _importance(run, findings.get(run, {})),
    )
    folders = [compilation.dumps[0].path.parent.absolute() for compilation in shown]
    root = commonpath(folders) if folders else ""
    budget = Budget()
    modules: list[Compiled] = []
    module_of: dict[int, int] = {}
    details: dict[int, Detail] = {}
    graphs: dict[int, str] = {}
    room = MAX_ON_PAGE
    differences: dict[int, str] = {}
    for number, (compilation, folder) in enumerate(zip(shown, folders, strict=True)):
        progress(f"drawing module {number + 1} of {len(shown)}: {compilation.title}")
        own = findings.get(compilation, {})
        own_listed = {at: finding for at, finding in own.items() if at < len(listed)}
        module_of |= dict.fromkeys(own_listed, number)
        if (graph := graph_of(compilation, own.values(), room)) is not None:
            graphs[number] = deflated(graph)
            room -= len(graph["names"])
        passes, changes = timeline(compilation, own_listed, budget)
        if any(changes):
            differences[number] = deflated(changes)
        modules.append(_compiled(compilation, own.values(), passes, relpath(folder, root)))
        own_detailed = {at: finding for at, finding in own.items() if at in detailed}
        details |= details_of(compilation, own_detailed, sources)
        compilation.release_text()  # the texts of all modules together may not fit in memory
    index = PageIndex(
        findings=[
            _found(finding, group_of[number], module_of.get(number))
            for number, finding in enumerate(listed)
        ],
        modules=modules,
        quiet=len(dump.compilations) - len(shown),
        skipped=[
            (phrases.listed(paths, 1), reason)
            for reason, paths in report.skipped_by_reason(minor=False).items()
        ],
        allowed=[_allowed_line(suppressed) for suppressed in report.allowed[:MAX_FINDINGS]],
        left_out=list(_left_out(len(ranked), budget)),
    )
    return Collected(index=index, details=details, graphs=graphs, differences=differences)


def _by_compilation(
    dump: Dump, findings: Sequence[Diagnostic]
) -> dict[Compilation, dict[int, Diagnostic]]:
    """The findings in the files of each compilation, by their number on the page."""
    owners = {str(path): compilation for compilation in dump for path in compilation.files}
    of_compilation: dict[Compilation, dict[int, Diagnostic]] = {}
    for number, finding in enumerate(findings):
        if (owner := owners.get(finding.path)) is not None:
            of_compilation.setdefault(owner, {})[number] = finding
    return of_compilation


def _left_out(findings: int, budget: Budget) -> Iterator[str]:
    if findings > MAX_FINDINGS:
        yield f"{findings - MAX_FINDINGS} findings: the page lists {MAX_FINDINGS}"
    if findings > MAX_DETAILS:
        yield (
            f"HLO, drawing and fix of {findings - MAX_DETAILS} findings: the page holds "
            f"{MAX_DETAILS}, the first of each card before the others"
        )
    if budget.left_out:
        steps = phrases.counted(budget.left_out, "step")
        yield f"changed lines of {steps}: hlo-lint diff --in DIR STEP STEP shows them"


def _compiled(
    compilation: Compilation, findings: Iterable[Diagnostic], passes: PassTimeline, folder: str
) -> Compiled:
    first = compilation.dumps[0]
    counts = Counter(
        "resolved" if finding.is_resolved else finding.severity.value for finding in findings
    )
    return Compiled(
        # The title of a file without a module's name is its path.
        title=compilation.title if first.name else first.path.name,
        folder="" if folder == "." else folder,
        release=compilation.release_title if compilation.releases else "",
        state=_state(compilation),
        dumps=len(compilation.dumps),
        counts=dict(counts),
        timeline=passes,
    )


def _groups(findings: Sequence[Diagnostic]) -> tuple[list[int], set[int]]:
    """The group of each finding, and the `MAX_DETAILS` findings with details.

    Those are the first of each group, then the others in order.
    """
    numbers = {id(finding): number for number, finding in enumerate(findings)}
    groups = grouped(findings)
    group_of = [0] * len(findings)
    for group_number, group in enumerate(groups):
        for finding in (group.first, *group.rest):
            group_of[numbers[id(finding)]] = group_number
    firsts = [numbers[id(group.first)] for group in groups]
    return group_of, set([*dict.fromkeys((*firsts, *range(len(findings))))][:MAX_DETAILS])


def _importance(compilation: Compilation, findings: Mapping[int, Diagnostic]) -> tuple[int, int]:
    """Sort key of a module: its worst finding, then its size.

    Resolved findings rank below those that the compilation ends with.
    """
    ranks = [
        finding.severity.rank if finding.resolved_by is None else len(Severity)
        for finding in findings.values()
    ]
    return min(ranks, default=len(Severity) + 1), -compilation.size


def _state(compilation: Compilation) -> str:
    if compilation.dumps[0].name is None:
        return ""  # a single file
    if compilation.is_helper:
        return "autotuner trial"
    if compilation.final is not None:
        return "compiled"
    return "compilation died" if compilation.crashed else ""


def _found(finding: Diagnostic, group: int, module: int | None) -> Found:
    return Found(
        group=group,
        id=finding.fingerprint,
        rule=finding.rule,
        severity=finding.severity.value,
        message=finding.message,
        module=module,
        name="" if module is not None else finding.module,
        computation=finding.computation,
        instruction=finding.instruction,
        file=Path(finding.path).name,
        line=finding.line,
        column=finding.column,
        born=_responsible(finding.introduced_by),
        resolved=_responsible(finding.resolved_by),
        seen_in=finding.seen_in,
        origin=None if finding.origin is None else str(finding.origin),
        op_name=finding.op_name,
        notes=list(finding.notes),
        error_map=finding.error_map,
    )


def _allowed_line(suppressed: SuppressedFinding) -> str:
    finding = suppressed.finding
    why = f": {suppressed.reason}" if suppressed.reason else ""
    place = f"{Path(finding.path).name}:{finding.line}:{finding.column}"
    return f"{finding.rule} at {place}, by {suppressed.by.value}{why}"


def _responsible(ref: PassRef | None) -> ResponsiblePass | None:
    if ref is None:
        return None
    return ResponsiblePass(name=ref.pass_name, pipeline=ref.pipeline, step=ref.step)
