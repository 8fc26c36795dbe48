"""Runs rules: what is shared is checked once, and one defect through many dumps is one finding.

A defect is reported where it is there at the end of its run, or where XLA promises between any two
passes that it is not there. It is followed back to the pass after which it is there for the first
time, and on to the pass that cured it.

A rule with a precondition binds where a pass that demands it comes next. In a run that is only ever
the last dump of a module: had the pass met the defect earlier, there would be no later dump. From
there the defect is followed back to the first dump that has it while it binds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hlo_lint.dumps.directory import Dump, Skipped
from hlo_lint.dumps.file_types import Kind
from hlo_lint.dumps.phases import AUTOTUNERS, Precondition
from hlo_lint.dumps.pipeline import Outcome, PassDump, Pipeline, PreconditionStatus
from hlo_lint.engine.diagnose import LocatedFinding, can_stand, diagnose, fix_of, text_of
from hlo_lint.engine.findings import Diagnostic, PassRef
from hlo_lint.engine.history import (
    FindingHistory,
    cure,
    followed_back,
    introduction,
    lives_of,
    nameless,
)
from hlo_lint.engine.suppressions.comments import CheckedFile, checked_file
from hlo_lint.engine.timeline import ModuleRef, Occurrence, Timeline
from hlo_lint.engine.views import ARTEFACTS, TEXTS, autotuning_runs, checks_of, run_check
from hlo_lint.hlo.ir import HloFile, Instruction, Module
from hlo_lint.rules.base import (
    BeforeAutotuner,
    Compilation,
    DumpFolder,
    FinalModule,
    PassPair,
    Rule,
    UnmetPrecondition,
)
from hlo_lint.rules.findings import Finding, Severity
from hlo_lint.rules.registry import all_rules
from hlo_lint.text.edits import Fix
from hlo_lint.text.errors import DumpError
from hlo_lint.text.source import Span

WHEN_ALL_IS_READ = frozenset({"AutotuningRuns", "DumpFolder"})
"""What there is to look at when every file has been read."""

Progress = Callable[[int], None]
"""Called with how many files have been read since the last call, also before each rule; what it
raises ends the run."""


@dataclass
class Result:
    """What a run over a dump gives."""

    diagnostics: list[Diagnostic] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    files: int = 0
    modules: int = 0
    fixes: list[PlannedFix] = field(default_factory=list)
    checked: list[CheckedFile] = field(default_factory=list)


@dataclass(frozen=True)
class PlannedFix:
    """A fix for one file; a defect that several dumps repeat has one for each."""

    dump: PassDump
    fix: Fix
    diagnostic: Diagnostic


class Checker:
    """Rules and what they said so far, for the files of one call."""

    def __init__(
        self,
        rules: Sequence[Rule],
        *,
        before: str | None = None,
        cured: bool = False,
        notes_files: bool = True,
    ) -> None:
        self.rules = rules
        self.before = before
        """The pass that the caller says comes next."""
        self.cured = cured
        """Whether what a later pass cured is told in any case, for information."""
        self.notes_files = notes_files
        """Whether `Result.checked` has files without comments, too: allowances are held against
        them."""
        self.result = Result()
        self._checks = [
            (rule, method, frozenset(asked.values()))
            for rule in rules
            for method, asked in checks_of(rule).items()
            if WHEN_ALL_IS_READ.isdisjoint(asked.values())
        ]
        self.logs: list[PassDump] = []
        """The autotuner's, in the order they were read."""
        self.told: set[Path] = set()
        """Artefacts of which it has been said what could not be read."""
        self.said: set[tuple[str, tuple[str, str, str]]] = set()
        """Rules with what they found in modules that the autotuner did not make."""
        self._texts: dict[tuple[PassDump, str], object] = {}
        self._compilation: Compilation | None = None

    def check_dump(self, dump: Dump, progress: Progress = lambda _: None) -> Result:
        """Checks every pipeline, forgetting the text of each when it is done."""
        for pipeline in dump:
            self.check_pipeline(pipeline, progress)
            pipeline.release_text()
        return self.finish(dump)

    def finish(self, dump: Dump) -> Result:
        """Checks what only all pipelines together tell, when each has been checked."""
        self.result.skipped[:0] = dump.skipped
        folders: dict[Path, list[Pipeline]] = {}
        for pipeline in dump:
            folders.setdefault(pipeline.dumps[0].path.parent, []).append(pipeline)
        self._check_runs()
        self._check_folders(folders)
        self.result.diagnostics.sort(key=lambda found: (found.path, found.start, found.rule))
        return self.result

    def check_pipeline(self, pipeline: Pipeline, progress: Progress = lambda _: None) -> None:
        """Checks the dumps of one module."""
        dumps = []
        for dump in pipeline.dumps:
            progress(1)
            try:
                self.result.modules += len(dump.file.modules)
            except (OSError, DumpError) as error:
                reason = str(error).removeprefix(f"{dump.path}: ")
                self.result.skipped.append(Skipped(str(dump.path), reason))
                continue
            self.result.files += 1
            if dump.kind is Kind.AUTOTUNE_LOG:
                self.logs.append(dump)
            dumps.append(dump)
        kernels = pipeline.kernels
        self.result.checked += [
            checked_file(each, lone=pipeline.lone)
            for each in (*dumps, *kernels)
            if self.notes_files or each.may_have_directives
        ]
        timeline = Timeline(pipeline, [dump for dump in dumps if dump.kind is Kind.HLO])
        for rule, method, kinds in self._checks:
            progress(0)
            if "FinalModule" in kinds:
                self._check_final(rule, method, timeline)
            elif "Compilation" in kinds:
                self._check_compilation(rule, method, timeline)
            elif "BeforeAutotuner" in kinds:
                self._check_before_autotuner(rule, method, timeline)
            elif "PassPair" in kinds:
                self._check_passes(rule, method, timeline)
            elif kinds & TEXTS.keys():
                self._check_texts(rule, method, [*dumps, *kernels])
            elif rule.precondition is not None:
                self._check_precondition(rule, method, rule.precondition, timeline)
            elif self.cured or rule.always_reported or _is_alive(rule, method, timeline):
                for life in lives_of(timeline.find(rule, method), timeline):
                    self._add_followed(rule, method, life, timeline)

    def _check_runs(self) -> None:
        """Rules about all logs of the autotuner together."""
        runs = autotuning_runs(self.logs)
        if runs is None:
            return
        for rule in self.rules:
            for method, asked in checks_of(rule).items():
                if set(asked.values()) == {"AutotuningRuns"}:
                    (name,) = asked
                    for finding in run_check(rule, method, {name: runs}):
                        self._add(LocatedFinding(rule, finding, self.logs[finding.file], None))

    # Rules about a compilation as a whole, and about all in a folder

    def _check_compilation(self, rule: Rule, method: str, timeline: Timeline) -> None:
        pipeline = timeline.pipeline
        whole = len(timeline.dumps) == len(pipeline.dumps)
        if not whole or any(dump.name is None or dump.edited for dump in pipeline.dumps):
            return  # not what a compiler wrote, or not all of it
        (name,) = checks_of(rule)[method]
        if self._compilation is None or self._compilation.pipeline is not pipeline:
            self._compilation = Compilation(pipeline, tuple(self._broken(timeline)))
        for finding in run_check(rule, method, {name: self._compilation}):
            self._add_from(rule, finding, pipeline.dumps)

    def _broken(self, timeline: Timeline) -> Iterator[UnmetPrecondition]:
        """What the last dump lacks for the passes to come, rules that were not chosen included."""
        pipeline = timeline.pipeline
        last = (pipeline.steps or pipeline.dumps)[-1]
        position = timeline.dumps.index(last)
        chosen = {rule.name() for rule in self.rules}
        for rule in all_rules():
            demand = rule.precondition
            if demand is None or not self._is_bound(demand, pipeline, last):
                continue
            meeting = pipeline.meeting(last, demand)
            if not _binds(demand, meeting):
                continue
            certain, reported = meeting.outcome is Outcome.BREAKS, rule.name() in chosen
            for method in checks_of(rule):
                for finding, _ in timeline.find_at(rule, method, position):
                    yield UnmetPrecondition(rule.name(), demand, finding, certain, reported)

    def _check_passes(self, rule: Rule, method: str, timeline: Timeline) -> None:
        """Checks each pass whose input and output are both at hand; the same is said once."""
        names = {kind: name for name, kind in checks_of(rule)[method].items()}
        pipeline = timeline.pipeline
        release = pipeline.releases[0].name if len(pipeline.releases) == 1 else None
        positions = {dump: at for at, dump in enumerate(timeline.dumps)}
        seen: set[tuple[str, str, str]] = set()
        for change in pipeline.transitions():
            if change.before not in positions or change.after not in positions:
                continue  # one of them cannot be read
            modules = zip(change.before.file.modules, change.after.file.modules, strict=False)
            for number, (before, after) in enumerate(modules):
                if before.pieces is after.pieces or not rule.is_applicable(after):
                    continue
                at, name = ModuleRef(positions[change.after], number), change.after.name
                assert name is not None
                pair = PassPair(before, after, name.after, name.pipeline, release)
                views: dict[str, object] = {names["PassPair"]: pair}
                if "Stage" in names:
                    views[names["Stage"]] = timeline.stage(at)
                for finding in run_check(rule, method, views):
                    place = self._placed(rule, Occurrence(finding, at), timeline)
                    key = name.after, finding.message, text_of(place)
                    if key not in seen:  # else the same pass, run again, does the same
                        seen.add(key)
                        by = PassRef(name.after, name.pipeline, name.step, str(change.after.path))
                        self._add(place, by)

    def _check_folders(self, folders: dict[Path, list[Pipeline]]) -> None:
        for rule in self.rules:
            for method, asked in checks_of(rule).items():
                if set(asked.values()) == {"DumpFolder"}:
                    (name,) = asked
                    for folder, pipelines in folders.items():
                        view = DumpFolder(folder, tuple(pipelines))
                        for finding in run_check(rule, method, {name: view}):
                            self._add_from(rule, finding, view.dumps)

    def _add_from(self, rule: Rule, finding: Finding, dumps: Sequence[PassDump]) -> None:
        """Adds a finding in one of several files."""
        dump = dumps[finding.file]
        at = finding.at
        modules = dump.file.modules
        module = modules[0] if isinstance(at, Instruction) and len(modules) == 1 else None
        self._add(LocatedFinding(rule, finding, dump, module))

    # Rules about texts that are no HLO

    def _check_texts(self, rule: Rule, method: str, dumps: list[PassDump]) -> None:
        ((name, kind),) = checks_of(rule)[method].items()
        held, read = TEXTS[kind]
        seen: dict[tuple[str, str], PassDump] = {}  # what an earlier text has said already
        for dump in dumps:
            if dump.kind is not held:
                continue
            key = (dump, kind)
            if key not in self._texts:
                self._texts[key] = read(dump.file.text)
            for finding in run_check(rule, method, {name: self._texts[key]}):
                place = LocatedFinding(rule, finding, dump, None)
                if seen.setdefault((finding.message, text_of(place)), dump) is dump:
                    self._add(place)

    # Rules about what was going to run

    def _check_final(self, rule: Rule, method: str, timeline: Timeline) -> None:
        pipeline = timeline.pipeline
        held = set(timeline.dumps)
        last = next((dump for dump in reversed(pipeline.dumps) if dump in held), None)
        if last is None:
            return
        at = timeline.dumps.index(last)
        for number, module in enumerate(last.file.modules):
            if not rule.is_applicable(module):
                continue
            views: dict[str, object] = {}
            missing = []
            for name, kind in checks_of(rule)[method].items():
                if kind == "FinalModule":
                    views[name] = FinalModule(module, last is pipeline.final)
                    continue
                title, read = ARTEFACTS[kind]
                views[name] = None if last.edited else read(pipeline)
                if views[name] is None:
                    missing.append(title)
                else:
                    self._add_unread(pipeline, views[name])
            if missing and last is not pipeline.final:
                continue  # nothing was assigned to a module that was not compiled to the end
            if missing:
                state = "only a new compilation makes" if last.edited else "is not there"
                reason = f"{rule.name()} needs the {' and '.join(missing)}, which {state}"
                self.result.skipped.append(Skipped(str(last.path), reason, rule.name()))
                continue
            findings = run_check(rule, method, views)
            if len(views) > 1:
                for finding in findings:  # an artefact tells of the final module only
                    self._add(LocatedFinding(rule, finding, last, module))
                continue

            def look(
                earlier: Module, name: str = name, is_final: bool = last is pipeline.final
            ) -> tuple[Finding, ...]:
                return run_check(rule, method, {name: FinalModule(earlier, is_final)})

            self._add_followed_back(rule, findings, ModuleRef(at, number), timeline, look)

    def _check_before_autotuner(self, rule: Rule, method: str, timeline: Timeline) -> None:
        pipeline, held = timeline.pipeline, set(timeline.dumps)
        dump, after = pipeline.before_autotuner(), pipeline.after_autotuner()
        if dump is None or dump not in held:
            return
        release = pipeline.releases[0].name if len(pipeline.releases) == 1 else None
        left = after.module if after is not None and after in held else None
        told = self.before in AUTOTUNERS
        (name,) = checks_of(rule)[method]

        def look(module: Module) -> tuple[Finding, ...]:
            view = BeforeAutotuner(module, release, told, left)
            return run_check(rule, method, {name: view}) if rule.is_applicable(module) else ()

        at = timeline.dumps.index(dump)
        for number, module in enumerate(dump.file.modules):
            self._add_followed_back(rule, look(module), ModuleRef(at, number), timeline, look)

    def _add_followed_back(
        self,
        rule: Rule,
        findings: Iterable[Finding],
        spot: ModuleRef,
        timeline: Timeline,
        look: Callable[[Module], Iterable[Finding]],
    ) -> None:
        """Reports what one dump has, with the pass after which it is there."""
        for life in followed_back(findings, spot, timeline, look):
            self._add_life(rule, life, timeline, binding=len(life.seen) - 1)

    # Rules about every dump

    def _add_followed(
        self, rule: Rule, method: str, life: FindingHistory, timeline: Timeline
    ) -> None:
        """Reports a defect that is there at the end of the run, and any that is told anyway.

        What the autotuner took out of a module to try backends has the module's defects, too: those
        are told of the module.
        """
        said = rule.name(), nameless(life.seen[-1])
        if timeline.pipeline.is_helper:
            if said in self.said:
                return
        else:
            self.said.add(said)
        over = life.last + 1 < timeline.length
        cured = cure(timeline, life.last)
        notes: tuple[str, ...] = ()
        if over and _lapses(rule, method, life, timeline):
            after = timeline.dumps[life.last + 1]
            label = after.name.label if after.name else after.path.name
            cured, notes = None, (f"the dump {label} still has it, where it does not bind",)
        told = not over or timeline.pipeline.lone or rule.always_reported
        if rule.checked_between_passes and not told:
            told = self.cured or timeline.pipeline.crashed
        if told or self.cured:
            severity = None if told else Severity.INFO
            self._add_life(rule, life, timeline, cured=cured, severity=severity, notes=notes)

    def _add_life(
        self,
        rule: Rule,
        life: FindingHistory,
        timeline: Timeline,
        *,
        binding: int = 0,
        cured: PassRef | None = None,
        severity: Severity | None = None,
        notes: tuple[str, ...] = (),
        next_pass: str = "",
    ) -> None:
        """Reports a defect where it binds first; `severity` is the finding's own by default."""
        place = self._placed(rule, life.seen[binding], timeline, next_pass)
        introduced = _introduction(rule, life, timeline)
        context: tuple[str, ...] = ()
        if introduced is not None and life.first and not binding:
            at, before = place.finding.at, timeline.dumps[life.first - 1]
            if isinstance(at, Instruction) and place.module is not None:
                context = rule.introduction_notes(at, before.module, place.module)
        finding = place.finding
        finding = replace(
            finding,
            notes=(*finding.notes, *context, *notes),
            severity=severity or finding.severity,
        )
        place = replace(place, finding=finding)
        seen = len(life.everywhere)
        diagnostic = diagnose(place, introduced, cured=cured, seen_in=seen)
        self.result.diagnostics.append(diagnostic)
        if diagnostic.severity is Severity.INFO and cured is not None:
            return  # nothing is left to mend
        if finding.fix is None and type(rule).fix is Rule.fix:
            return  # there is no fix to look for in every dump
        for sighting in (*life.seen[binding:], *life.beside):
            again = self._placed(rule, sighting, timeline, next_pass)
            fix = fix_of(again)
            if fix is not None and can_stand(fix, again):
                self.result.fixes.append(PlannedFix(again.dump, fix, diagnostic))

    # Rules that bind where a pass comes next

    def _check_precondition(
        self, rule: Rule, method: str, demand: Precondition, timeline: Timeline
    ) -> None:
        pipeline, dumps = timeline.pipeline, timeline.dumps
        if self.before not in (None, demand.demanded_by):
            return
        bound = {at for at, dump in enumerate(dumps) if self._is_bound(demand, pipeline, dump)}
        end = max((at for at in bound if at < timeline.length), default=None)
        if end is None:
            self._skip_unassigned(rule, method, demand, timeline)
            return
        every = self.before is not None or self.cured
        if not every and not any(timeline.find_at(rule, method, end)):
            return  # whatever was there before, no pass died of it
        held = {dumps[at] for at in bound}
        last = next(dump for dump in reversed(pipeline.dumps) if dump in held)
        found = [each for each in timeline.find(rule, method) if each.spot.position in bound]
        told = PreconditionStatus(Outcome.BREAKS, f"{self.before} comes next, as the caller says")
        meeting = told if self.before else pipeline.meeting(last, demand)
        binds = _binds(demand, meeting)
        for life in lives_of(found, timeline):
            if self.before or (binds and life.last == end):
                self._add_binding(rule, demand, meeting, life, timeline)
            elif self.cured and (cured := cure(timeline, life.last)) is not None:
                self._add_life(rule, life, timeline, cured=cured, severity=Severity.INFO)
        if meeting.outcome is Outcome.NEVER and last.name is None and not demand.only_if_certain:
            reason = f"{rule.name()} does not apply: {meeting.why}"
            self.result.skipped.append(Skipped(str(last.path), reason, rule.name()))

    def _skip_unassigned(
        self, rule: Rule, method: str, demand: Precondition, timeline: Timeline
    ) -> None:
        """Says what would be found in a loose file if its layouts bound."""
        for at, dump in enumerate(timeline.dumps):
            if dump.name is not None or dump.is_named_before_layouts:
                continue
            if any(timeline.find_at(rule, method, at)):
                reason = (
                    f"{rule.name()} does not apply: the layouts are those before "
                    f"layout-assignment; --before {demand.demanded_by} if that pass comes next"
                )
                self.result.skipped.append(Skipped(str(dump.path), reason, rule.name()))

    def _is_bound(self, demand: Precondition, pipeline: Pipeline, dump: PassDump) -> bool:
        """True if the demand means something for a dump; of a loose text the caller may say so."""
        if not demand.about_layouts or pipeline.has_layouts(dump):
            return True
        said = dump.name is None and self.before == demand.demanded_by
        return said and not dump.is_named_before_layouts

    def _add_binding(
        self,
        rule: Rule,
        demand: Precondition,
        meeting: PreconditionStatus,
        life: FindingHistory,
        timeline: Timeline,
    ) -> None:
        """Reports a defect that a pass dies of at the end of its life, or may die of."""
        certain = meeting.outcome is Outcome.BREAKS
        introduced = _introduction(rule, life, timeline)
        self._add_life(
            rule,
            life,
            timeline,
            binding=0 if self.before else _first_binding(demand, life, timeline),
            cured=cure(timeline, life.last),
            severity=Severity.ERROR if certain else Severity.WARNING,
            notes=tuple(_verdict(demand, meeting, introduced, timeline.pipeline, certain=certain)),
            next_pass=demand.demanded_by if certain else "",
        )

    # Findings with their places

    def _add_unread(self, pipeline: Pipeline, artefact: object) -> None:
        """Says what could not be read of an artefact that a rule asked for, once."""
        path, text = getattr(artefact, "path", None), getattr(artefact, "text", "")
        rule = next((rule for rule in self.rules if rule.name() == "unreadable-text"), None)
        if rule is None or path is None or path in self.told:
            return
        self.told.add(path)
        module = pipeline.dumps[0].name.module if pipeline.dumps[0].name else ""
        dump = PassDump.of(HloFile.of_text(text, path, module), path)
        for trouble in getattr(artefact, "troubles", ()):
            span = Span(trouble.start, trouble.end)
            self._add(LocatedFinding(rule, Finding(span, trouble.message), dump, None))

    def _placed(
        self, rule: Rule, sighting: Occurrence, timeline: Timeline, next_pass: str = ""
    ) -> LocatedFinding:
        dump = timeline.dumps[sighting.spot.position]
        is_text = not isinstance(sighting.finding.at, Instruction)
        module = None if is_text else timeline.module(sighting.spot)
        bind = self.before is not None or timeline.pipeline.layouts_bind(dump) is True
        stage = replace(timeline.stage(sighting.spot), next_pass=next_pass)
        return LocatedFinding(rule, sighting.finding, dump, module, stage, bind)

    def _add(self, place: LocatedFinding, introduced: PassRef | None = None) -> None:
        diagnostic = diagnose(place, introduced)
        self.result.diagnostics.append(diagnostic)
        if diagnostic.fix is not None:
            self.result.fixes.append(PlannedFix(place.dump, diagnostic.fix, diagnostic))


def _is_alive(rule: Rule, method: str, timeline: Timeline) -> bool:
    """Whether a check finds anything in what a run ended with: most find nothing, and are done.

    Named dumps of which nothing tells when they were written count as the end, too. Files that were
    picked out by name are all looked at, and so are all dumps of a run that died.
    """
    if timeline.pipeline.lone or timeline.pipeline.crashed:
        return True
    if all(rule.can_skip(module, stage) for module, stage in timeline.ends):
        return False
    return any(True for at in timeline.last for _ in timeline.find_at(rule, method, at))


def _introduction(rule: Rule, life: FindingHistory, timeline: Timeline) -> PassRef | None:
    return introduction(timeline, life.first, unless_established=rule.precondition is not None)


def _lapses(rule: Rule, method: str, life: FindingHistory, timeline: Timeline) -> bool:
    """Whether a defect ends only because it does not bind at the stage of the next dump."""
    if "Stage" not in checks_of(rule)[method].values():
        return False
    last = life.seen[-1]
    stage, after = timeline.stage(last.spot), ModuleRef(last.spot.position + 1, last.spot.number)
    modules = timeline.dumps[after.position].file.modules
    if after.number >= len(modules) or stage == timeline.stage(after):
        return False
    there = timeline.find_at(rule, method, after.position, stage)
    return any(nameless(each) == nameless(last) for each in there)


def _binds(demand: Precondition, meeting: PreconditionStatus) -> bool:
    """Whether a pass dies of what breaks the demand, or may."""
    unsure = meeting.outcome is Outcome.UNSURE and not demand.only_if_certain
    return unsure or meeting.outcome is Outcome.BREAKS


def _first_binding(demand: Precondition, life: FindingHistory, timeline: Timeline) -> int:
    """Which of a life's dumps is the first from which on nothing mends the defect."""
    first = len(life.seen) - 1
    while first:
        dump = timeline.dumps[life.seen[first - 1].spot.position]
        meeting = timeline.pipeline.meeting(dump, demand)
        if not _binds(demand, meeting):
            break
        first -= 1
    return first


def _verdict(
    demand: Precondition,
    meeting: PreconditionStatus,
    introduced: PassRef | None,
    pipeline: Pipeline,
    *,
    certain: bool,
) -> Iterator[str]:
    """Notes on what XLA does about it, and which pass is missing."""
    guards = " or ".join(demand.established_by)
    disabled = [
        name
        for name in demand.established_by
        if pipeline.options and pipeline.options.disabled(name)
    ]
    if certain:
        yield f"XLA stops at {demand.demanded_by} with {demand.failure}"
        if disabled:
            yield f"{', '.join(disabled)} would repair it and is disabled (xla_disable_hlo_passes)"
        else:
            behind = f" behind {introduced.pass_name}" if introduced else ""
            yield f"missing: {guards}{behind}; {meeting.why}"
    else:
        yield (
            f"fatal if {demand.demanded_by} comes before the next {guards}: XLA would stop with "
            f"{demand.failure}"
        )
        yield f"{meeting.why}; say --before {demand.demanded_by} if that pass comes next"


def planned_by_file(planned: Iterable[PlannedFix]) -> dict[PassDump, list[Fix]]:
    """The fixes of each file, in no order."""
    by_file: dict[PassDump, list[Fix]] = {}
    for plan in planned:
        by_file.setdefault(plan.dump, []).append(plan.fix)
    return by_file
