"""Everything that the page holds, as data: an index that is read at once, and the details of each
finding, which are read when it is opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from os.path import commonpath, relpath
from pathlib import Path
from typing import TypedDict

from hlo_lint.dumps.directory import Dump
from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.engine.findings import Diagnostic, Origin, PassRef, SuppressedFinding
from hlo_lint.report.html.detail import Detail, details_of
from hlo_lint.report.html.timeline import Timeline, timeline
from hlo_lint.report.report import Report
from hlo_lint.rules.findings import Severity

MAX_FINDINGS = 5000
"""Findings that the page lists, the worst first; of the rest it says how many there are."""
MAX_DETAILS = 300
"""Findings of which it holds the HLO and the drawing."""
MAX_PASSES = 20_000
"""Passes that all its timelines hold together."""

_RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


class Behind(TypedDict):
    """A pass with which a finding came or went."""

    name: str
    """Empty where it left no dump of its own."""
    pipeline: str
    step: int | None


class Found(TypedDict):
    """A finding as the list shows it."""

    id: str
    """Its fingerprint, so that a link to it leads there in the next report, too."""
    rule: str
    severity: str
    message: str
    module: int | None
    """Number of the module on the page."""
    name: str
    """The module's name, where it is not one of those."""
    computation: str | None
    instruction: str | None
    file: str
    line: int
    column: int
    born: Behind | None
    cured: Behind | None
    seen_in: int | None
    origin: str | None
    """`model.py:40 in attention`."""
    op_name: str | None
    notes: list[str]
    detail: int | None
    """Index into `details`; None if omitted."""


class Compiled(TypedDict):
    """One module."""

    title: str
    folder: str
    """Below the folder of all; empty where there is only one."""
    release: str
    state: str
    dumps: int
    counts: dict[str, int]
    timeline: Timeline


class Index(TypedDict):
    """The data that the page needs first."""

    findings: list[Found]
    modules: list[Compiled]
    quiet: int
    """Modules without findings that the autotuner made; they are not listed."""
    skipped: list[tuple[str, str]]
    allowed: list[str]
    """Findings that count for nothing, each as a line."""
    left_out: list[str]


class Collected(TypedDict):
    """All that a page holds of a dump."""

    index: Index
    details: list[Detail]


def collect(dump: Dump, report: Report, sources: Sequence[Path] = ()) -> Collected:
    """Collect the data of a page from a dump and the report of `lint(dump, cured=True)`.

    Lines of Python are shown of files below `sources` only: a dump may name any file.
    """
    ranked = sorted(report.findings, key=lambda found: _RANK[found.severity])
    left_out = []
    if len(ranked) > MAX_FINDINGS:
        left_out.append(f"{len(ranked) - MAX_FINDINGS} findings: the page lists {MAX_FINDINGS}")
    if len(ranked) > MAX_DETAILS:
        left_out.append(
            f"HLO, drawing and fix of all findings but the first {MAX_DETAILS} of the list"
        )
    listed = dict(enumerate(ranked[:MAX_FINDINGS]))
    owners = _owners(dump)
    of_pipeline: dict[Pipeline, dict[int, Diagnostic]] = {}
    for number, found in enumerate(ranked):
        owner = owners.get(found.path)
        if owner is not None:
            of_pipeline.setdefault(owner, {})[number] = found
    shown = [each for each in dump if not each.is_helper or each in of_pipeline]
    modules: list[Compiled] = []
    details: dict[int, Detail] = {}
    place: dict[int, int] = {}
    folders = {pipeline: pipeline.dumps[0].path.parent.absolute() for pipeline in shown}
    root = commonpath(folders.values()) if folders else ""
    room = MAX_PASSES
    for pipeline in shown:
        every = of_pipeline.get(pipeline, {})
        mine = {number: found for number, found in every.items() if number in listed}
        place |= dict.fromkeys(mine, len(modules))
        line = Timeline(passes=[], lives=[], trouble="")
        if pipeline.steps and room > 0:
            line = timeline(pipeline, mine)
            room -= len(line["passes"])
        elif pipeline.steps:
            line["trouble"] = f"left out: the page holds {MAX_PASSES} passes"
        folder = relpath(folders[pipeline], root)
        counts = Counter(found.severity.value for found in every.values())
        modules.append(_compiled(pipeline, "" if folder == "." else folder, line, counts))
        worst = {number: found for number, found in mine.items() if number < MAX_DETAILS}
        details |= dict(details_of(pipeline, worst, sources))
        pipeline.release_text()
    at = {number: detail for detail, number in enumerate(sorted(details))}
    index = Index(
        findings=[
            _found(each, place.get(number), at.get(number)) for number, each in listed.items()
        ],
        modules=modules,
        quiet=len(dump.pipelines) - len(shown),
        skipped=[(each.path, each.reason) for each in report.skipped],
        allowed=[_spared(each) for each in report.allowed[:MAX_FINDINGS]],
        left_out=left_out,
    )
    return Collected(index=index, details=[details[number] for number in at])


def _owners(dump: Dump) -> dict[str, Pipeline]:
    """The module that each file belongs to."""
    owners: dict[str, Pipeline] = {}
    for pipeline in dump:
        for path in (*pipeline.artefacts, *(each.path for each in pipeline.dumps)):
            owners[str(path)] = pipeline
    return owners


def _compiled(pipeline: Pipeline, folder: str, line: Timeline, counts: Counter[str]) -> Compiled:
    releases = pipeline.releases
    return Compiled(
        title=pipeline.title,
        folder=folder,
        release=pipeline.likened_to(releases[0]) if len(releases) == 1 else "",
        state=_state(pipeline),
        dumps=len(pipeline.dumps),
        counts=dict(counts),
        timeline=line,
    )


def _state(pipeline: Pipeline) -> str:
    if pipeline.dumps[0].name is None:
        return ""
    if pipeline.is_helper:
        return "made by the autotuner to try a backend"
    if pipeline.final is not None:
        return "compiled to the end"
    return "compilation died" if pipeline.crashed else ""


def _found(found: Diagnostic, module: int | None, detail: int | None) -> Found:
    return Found(
        id=found.fingerprint,
        rule=found.rule,
        severity=found.severity.value,
        message=found.message,
        module=module,
        name="" if module is not None else found.module,
        computation=found.computation,
        instruction=found.instruction,
        file=Path(found.path).name,
        line=found.line,
        column=found.column,
        born=_after(found.introduced_by),
        cured=_after(found.cured_by),
        seen_in=found.seen_in,
        origin=None if found.origin is None else _place(found.origin),
        op_name=found.op_name,
        notes=list(found.notes),
        detail=detail,
    )


def _spared(each: SuppressedFinding) -> str:
    found = each.finding
    why = f": {each.reason}" if each.reason else ""
    place = f"{Path(found.path).name}:{found.line}:{found.column}"
    return f"{found.rule} at {place}, by {each.by.value}{why}"


def _after(ref: PassRef | None) -> Behind | None:
    if ref is None:
        return None
    return Behind(name=ref.pass_name, pipeline=ref.pipeline, step=ref.step)


def _place(origin: Origin) -> str:
    function = f" in {origin.function}" if origin.function else ""
    return f"{origin.file}:{origin.line}{function}"
