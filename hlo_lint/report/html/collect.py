"""Everything that the page holds, as data: an index that is read at once, and for each finding what
is read when somebody opens it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from os.path import commonpath, relpath
from pathlib import Path
from typing import TypedDict

from hlo_lint.dumps.directory import Dump
from hlo_lint.dumps.pipeline import PassDump, Pipeline
from hlo_lint.errors import DumpError
from hlo_lint.findings import Diagnostic, Introduction, Origin, Severity
from hlo_lint.ir import HloFile, Instruction, Module
from hlo_lint.registry import find_rule
from hlo_lint.report.html.dimensions import Move, move, order
from hlo_lint.report.html.excerpt import Partners, Row, lines_around, one_sided, side_by_side
from hlo_lint.report.html.neighbourhood import Graph, draw, neighbourhood
from hlo_lint.report.html.preview import Preview, preview
from hlo_lint.report.html.timeline import Timeline, before_and_after, timeline
from hlo_lint.source import decode

MOST_FINDINGS = 5000
"""Findings that the page lists, the worst first; of the rest it says how many there are."""
MOST_DETAILS = 300
"""Findings of which it holds the HLO and the drawing."""
MOST_PASSES = 20_000
"""Passes that all its timelines hold together."""
SOURCE_LINES = 3
"""Lines of Python before and after the one that is meant."""

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
    """Number of what is held of it besides; None where that is left out."""


class Detail(TypedDict):
    """What opening a finding shows besides."""

    before: str | None
    """The dump before the pass, by its file's name."""
    after: str
    rows: list[Row]
    remark: str
    """Why there is no side before, or why it is no pass's input."""
    graph: Graph | None
    move: Move | None
    fix: Preview | None
    source: list[tuple[int, str]]
    """Lines of Python with their numbers, where they may be shown."""


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
    """What the page needs to be drawn first."""

    findings: list[Found]
    modules: list[Compiled]
    quiet: int
    """Modules without findings that the autotuner made; they are not listed."""
    skipped: list[tuple[str, str]]
    left_out: list[str]


class Collected(TypedDict):
    """All that a page holds of a dump."""

    index: Index
    details: list[Detail]


def collect(
    dump: Dump,
    findings: Sequence[Diagnostic],
    skipped: Sequence[tuple[str, str]],
    sources: Sequence[Path] = (),
) -> Collected:
    """What a page is to show of findings that `lint(dump, cured=True)` gave.

    Lines of Python are shown of files below `sources` only: a dump may name any file.
    """
    ranked = sorted(findings, key=lambda found: _RANK[found.severity])
    left_out = []
    if len(ranked) > MOST_FINDINGS:
        left_out.append(f"{len(ranked) - MOST_FINDINGS} findings: the page lists {MOST_FINDINGS}")
    if len(ranked) > MOST_DETAILS:
        left_out.append(
            f"HLO, drawing and fix of all findings but the first {MOST_DETAILS} of the list"
        )
    listed = dict(enumerate(ranked[:MOST_FINDINGS]))
    owners = _owners(dump)
    by_pipeline: dict[Pipeline, dict[int, Diagnostic]] = {}
    for number, found in listed.items():
        owner = owners.get(found.path)
        if owner is not None:
            by_pipeline.setdefault(owner, {})[number] = found
    shown = [each for each in dump if not each.is_helper or each in by_pipeline]
    modules: list[Compiled] = []
    details: dict[int, Detail] = {}
    place: dict[int, int] = {}
    folders = {pipeline: pipeline.dumps[0].path.parent.absolute() for pipeline in shown}
    root = commonpath(folders.values()) if folders else ""
    room = MOST_PASSES
    for pipeline in shown:
        mine = by_pipeline.get(pipeline, {})
        place |= dict.fromkeys(mine, len(modules))
        line = Timeline(passes=[], lives=[], trouble="")
        if pipeline.steps and room > 0:
            line = timeline(pipeline, mine)
            room -= len(line["passes"])
        elif pipeline.steps:
            line["trouble"] = f"left out: the page holds {MOST_PASSES} passes"
        folder = relpath(folders[pipeline], root)
        modules.append(_compiled(pipeline, "" if folder == "." else folder, line, mine))
        details |= dict(_details(pipeline, mine, sources))
        pipeline.release_text()
    at = {number: detail for detail, number in enumerate(sorted(details))}
    index = Index(
        findings=[
            _found(each, place.get(number), at.get(number)) for number, each in listed.items()
        ],
        modules=modules,
        quiet=len(dump.pipelines) - len(shown),
        skipped=list(skipped),
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


def _compiled(
    pipeline: Pipeline, folder: str, line: Timeline, findings: Mapping[int, Diagnostic]
) -> Compiled:
    releases = pipeline.releases
    return Compiled(
        title=pipeline.title,
        folder=folder,
        release=pipeline.likened_to(releases[0]) if len(releases) == 1 else "",
        state=_state(pipeline),
        dumps=len(pipeline.dumps),
        counts=dict(Counter(each.severity.value for each in findings.values())),
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
        born=_behind(found.introduced_by),
        cured=_behind(found.cured_by),
        seen_in=found.seen_in,
        origin=None if found.origin is None else _place(found.origin),
        op_name=found.op_name,
        notes=list(found.notes),
        detail=detail,
    )


def _behind(behind: Introduction | None) -> Behind | None:
    if behind is None:
        return None
    return Behind(name=behind.pass_name, pipeline=behind.pipeline, step=behind.step)


def _place(origin: Origin) -> str:
    function = f" in {origin.function}" if origin.function else ""
    return f"{origin.file}:{origin.line}{function}"


# What is shown of one finding


def _details(
    pipeline: Pipeline, findings: Mapping[int, Diagnostic], sources: Sequence[Path]
) -> Iterator[tuple[int, Detail]]:
    """What is shown of each finding of a module, those of one pass after the other."""
    texts = {str(each.path): each for each in pipeline.dumps}
    pair = _LastPair()
    for number, found in sorted(findings.items(), key=lambda entry: _birth(entry[1])):
        if number >= MOST_DETAILS:
            continue
        try:
            dump = texts.get(found.path) or _text(Path(found.path))
            yield number, _detail(pipeline, dump, found, pair, sources)
        except (DumpError, OSError):
            continue  # the file is gone since, or is no longer what it was


def _birth(found: Diagnostic) -> str:
    return "" if found.introduced_by is None else found.introduced_by.path


def _text(path: Path) -> PassDump:
    """A file that is no HLO: a kernel, a record of the run."""
    return PassDump.of(HloFile.of_text(decode(path.read_bytes()), path), path)


class _LastPair:
    """The two modules that were compared last; they may be large, so that no others are kept."""

    def __init__(self) -> None:
        self._dumps: tuple[PassDump, PassDump] | None = None
        self._partners: Partners | None = None

    def of(self, before: PassDump, after: PassDump) -> Partners:
        """Which instruction is which in two dumps."""
        if self._partners is None or self._dumps != (before, after):
            self._partners = None
            self._dumps = before, after
            self._partners = Partners(before.module, after.module)
        return self._partners


def _detail(
    pipeline: Pipeline,
    dump: PassDump,
    found: Diagnostic,
    pair: _LastPair,
    sources: Sequence[Path],
) -> Detail:
    held = _instruction(dump, found)
    detail = Detail(
        before=None,
        after=dump.path.name,
        rows=[],
        remark="",
        graph=None,
        move=None,
        fix=None if found.fix is None else preview(found.fix, dump.file.lines),
        source=[] if found.origin is None else _source(found.origin, sources),
    )
    if held is None:
        detail["rows"] = lines_around(dump.file.lines, found.line, found.end_line)
        return detail
    instruction, module = held
    detail["move"] = move(instruction, module)
    if detail["move"] is None and find_rule(found.rule).family() == "layout":
        detail["move"] = order(instruction)
    around, added = neighbourhood(instruction), frozenset[Instruction]()
    if found.introduced_by is None:
        detail["rows"] = one_sided(around, module)
        alone = found.seen_in is None
        detail["remark"] = (
            "the rule looks at this dump only" if alone else "no dump is known to be from before it"
        )
    else:
        before, after = before_and_after(pipeline, found.introduced_by.path)
        there = held if after is dump else None if after is None else _instruction(after, found)
        if before is None or after is None or there is None:
            detail["rows"] = one_sided(around, module)
            detail["remark"] = "the pass that brought it knew the instruction by another name"
        else:
            known = pair.of(before, after).of(there[0].computation.name)
            beside = around if there is held else neighbourhood(there[0])
            detail["rows"] = side_by_side(beside, known, before.module, there[1])
            detail["before"], detail["after"] = before.path.name, after.path.name
            around = beside
            added = frozenset(each for each in around.all if each not in known)
    detail["graph"] = draw(around, added)
    return detail


def _instruction(dump: PassDump, found: Diagnostic) -> tuple[Instruction, Module] | None:
    """The instruction that a finding is about, as a dump has it."""
    if found.instruction is None or found.computation is None:
        return None
    for module in dump.file.modules:
        computation = module.computation(found.computation)
        instruction = computation and computation.instruction(found.instruction)
        if instruction:
            return instruction, module
    return None


def _source(origin: Origin, sources: Sequence[Path]) -> list[tuple[int, str]]:
    """The line of Python and those around it, if the file is below one of the folders."""
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
