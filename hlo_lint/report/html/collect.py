"""The data of the page: an index that is read first, and details that are read on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from os.path import commonpath, relpath
from pathlib import Path
from typing import TypedDict

from hlo_lint.dumps.artefacts.measured import Measured, find_measured
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.directory import Dump
from hlo_lint.engine.cost_figures import measured_kernels
from hlo_lint.engine.findings import Diagnostic, PassRef, SuppressedFinding
from hlo_lint.report.costs import measured_table
from hlo_lint.report.groups import grouped
from hlo_lint.report.html.detail import Detail, details_of
from hlo_lint.report.html.pass_diff import DifferenceBudget
from hlo_lint.report.html.timeline import Differences, PassTimeline, no_timeline, timeline
from hlo_lint.report.html.visible import deflated
from hlo_lint.report.report import Report
from hlo_lint.rules.findings import Severity
from hlo_lint.text import phrases
from hlo_lint.text.errors import HloLintError

MAX_FINDINGS = 5000
"""Maximum findings that the page lists, the worst first; the others are counted."""
MAX_DETAILS = 300
"""Maximum findings with HLO and a drawing."""
MAX_PASSES = 20_000
"""Maximum passes of all timelines together."""


class Profiles:
    """The profiles of folders; `troubles` has the errors of unreadable ones."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self.troubles: list[str] = []
        self._measured = {folder: self._read(folder) for folder in dict.fromkeys(folders)}

    def _read(self, folder: Path) -> Measured | None:
        try:
            return find_measured(folder)
        except HloLintError as error:
            self.troubles.append(f"measured time: {error}")
            return None

    def table(self, compilation: Compilation, folder: Path) -> list[tuple[str, ...]]:
        """A head, and a row for each instruction of a final module; empty without measured time."""
        measured = self._measured[folder]
        if measured is None or compilation.final is None:
            return []
        try:
            kernels = measured_kernels(compilation, measured)
        except HloLintError as error:
            self.troubles.append(f"measured time of {compilation.title}: {error}")
            return []
        return measured_table(kernels) if kernels else []


class Behind(TypedDict):
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
    born: Behind | None
    resolved: Behind | None
    seen_in: int | None
    origin: str | None
    """`model.py:40 in attention`."""
    op_name: str | None
    notes: list[str]
    error_map: tuple[str, ...]
    detail: int | None
    """Index into `details`; None if omitted."""


class Compiled(TypedDict):
    """A module on the page."""

    title: str
    folder: str
    """Relative to the folder of all modules; empty for that folder."""
    release: str
    state: str
    dumps: int
    counts: dict[str, int]
    """Findings by severity; those that a later pass resolved under `resolved`."""
    timeline: PassTimeline
    measured: list[tuple[str, ...]]
    """A head, then the instructions that took the most time; empty without a profile."""
    differences: int | None
    """Index into `differences`; None if no pass changed the module."""


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
    details: list[Detail]
    differences: list[str]
    """The changes of each pass of a timeline, or null; packed, one entry per module."""


def collect(
    dump: Dump,
    report: Report,
    sources: Sequence[Path] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Collected:
    """Collect the data of a page from a dump and the report of `lint(dump, resolved=True)`.

    Python lines are read only from files below `sources`: a dump may name any file. `progress` is
    called with the next module.
    """
    ranked = sorted(report.findings, key=lambda finding: finding.severity.rank)
    left_out: list[str] = []
    if len(ranked) > MAX_FINDINGS:
        left_out.append(f"{len(ranked) - MAX_FINDINGS} findings: the page lists {MAX_FINDINGS}")
    listed = dict(enumerate(ranked[:MAX_FINDINGS]))
    group_of, detailed = _groups(list(listed.values()))
    if len(ranked) > MAX_DETAILS:
        left_out.append(
            f"HLO, drawing and fix of {len(ranked) - MAX_DETAILS} findings: the page holds "
            f"{MAX_DETAILS}, the first of each card before the others"
        )
    owners = {
        str(path): compilation
        for compilation in dump
        for path in (*compilation.artefacts, *(file.path for file in compilation.dumps))
    }
    by_compilation: dict[Compilation, dict[int, Diagnostic]] = {}
    for number, finding in enumerate(ranked):
        owner = owners.get(finding.path)
        if owner is not None:
            by_compilation.setdefault(owner, {})[number] = finding
    shown = [
        compilation
        for compilation in dump
        if not compilation.is_helper or compilation in by_compilation
    ]
    shown.sort(
        key=lambda compilation: _importance(compilation, by_compilation.get(compilation, {}))
    )
    modules: list[Compiled] = []
    details: dict[int, Detail] = {}
    place: dict[int, int] = {}
    folders = {compilation: compilation.dumps[0].path.parent.absolute() for compilation in shown}
    root = commonpath(folders.values()) if folders else ""
    profiles = Profiles(folders.values())
    room, budget = MAX_PASSES, DifferenceBudget()
    differences: list[str] = []
    for number, compilation in enumerate(shown, 1):
        progress(f"drawing module {number} of {len(shown)}: {compilation.title}")
        own = by_compilation.get(compilation, {})
        own_listed = {number: finding for number, finding in own.items() if number in listed}
        place |= dict.fromkeys(own_listed, len(modules))
        line, lines = no_timeline(""), Differences()
        if compilation.steps and room > 0:
            line, lines = timeline(compilation, own_listed, budget)
            room -= len(line["passes"])
        elif compilation.steps:
            line["trouble"] = f"left out: the page holds {MAX_PASSES} passes"
        folder = relpath(folders[compilation], root)
        counts = Counter(
            "resolved" if finding.is_resolved else finding.severity.value
            for finding in own.values()
        )
        modules.append(
            Compiled(
                # The title of a file without a module's name is its path.
                title=compilation.title
                if compilation.dumps[0].name
                else compilation.dumps[0].path.name,
                folder="" if folder == "." else folder,
                release=compilation.release_title if compilation.releases else "",
                state=_state(compilation),
                dumps=len(compilation.dumps),
                counts=dict(counts),
                timeline=line,
                measured=profiles.table(compilation, folders[compilation]),
                differences=len(differences) if any(lines) else None,
            )
        )
        if any(lines):
            differences.append(deflated(lines))
        worst = {number: finding for number, finding in own_listed.items() if number in detailed}
        details |= dict(details_of(compilation, worst, sources))
        compilation.release_text()
    left_out += profiles.troubles
    if budget.left_out:
        left_out.append(
            f"changed lines of {budget.left_out} pass{'' if budget.left_out == 1 else 'es'}: "
            "hlo-lint diff --in DIR STEP STEP shows them"
        )
    detail_of = {number: detail for detail, number in enumerate(sorted(details))}
    index = PageIndex(
        findings=[
            _found(finding, group_of[number], place.get(number), detail_of.get(number))
            for number, finding in listed.items()
        ],
        modules=modules,
        quiet=len(dump.compilations) - len(shown),
        skipped=[
            (phrases.listed(paths, 1), reason)
            for reason, paths in report.skipped_by_reason(minor=False).items()
        ],
        allowed=[_spared(suppressed) for suppressed in report.allowed[:MAX_FINDINGS]],
        left_out=left_out,
    )
    return Collected(
        index=index, details=[details[number] for number in detail_of], differences=differences
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

    Resolved findings rank below those at the end of the run.
    """
    ranks = [
        finding.severity.rank if finding.resolved_by is None else len(Severity)
        for finding in findings.values()
    ]
    return min(ranks, default=len(Severity) + 1), -compilation.size


def _state(compilation: Compilation) -> str:
    if compilation.dumps[0].name is None:
        return ""
    if compilation.is_helper:
        return "autotuner trial"
    if compilation.final is not None:
        return "compiled"
    return "compilation died" if compilation.crashed else ""


def _found(finding: Diagnostic, group: int, module: int | None, detail: int | None) -> Found:
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
        born=_after(finding.introduced_by),
        resolved=_after(finding.resolved_by),
        seen_in=finding.seen_in,
        origin=None if finding.origin is None else str(finding.origin),
        op_name=finding.op_name,
        notes=list(finding.notes),
        error_map=finding.error_map,
        detail=detail,
    )


def _spared(suppressed: SuppressedFinding) -> str:
    finding = suppressed.finding
    why = f": {suppressed.reason}" if suppressed.reason else ""
    place = f"{Path(finding.path).name}:{finding.line}:{finding.column}"
    return f"{finding.rule} at {place}, by {suppressed.by.value}{why}"


def _after(ref: PassRef | None) -> Behind | None:
    if ref is None:
        return None
    return Behind(name=ref.pass_name, pipeline=ref.pipeline, step=ref.step)
