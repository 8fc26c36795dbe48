"""Runs rules: what is shared is checked once, and one defect through many dumps is one finding.

A rule with a precondition binds where a pass that demands it comes next. In a run that is only ever
the last dump of a module: had the pass met the defect earlier, there would be no later dump. From
there the defect is followed back, to the first dump that has it while it binds, and to the pass
after which it is there for the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from hlo_lint.dumps.directory import Dump, Skipped
from hlo_lint.dumps.kinds import Kind
from hlo_lint.dumps.phases import AUTOTUNERS, Precondition
from hlo_lint.dumps.pipeline import Meeting, Outcome, PassDump, Pipeline
from hlo_lint.engine.diagnose import Placed, diagnose, fix_of, text_of
from hlo_lint.engine.plan import ARTEFACTS, TEXTS, Checked, autotuning_runs, checks_of, run_check
from hlo_lint.engine.stages import Stages
from hlo_lint.errors import DumpError
from hlo_lint.findings import (
    Diagnostic,
    Finding,
    Fix,
    Introduction,
    Severity,
)
from hlo_lint.ir import REFERENCES, TYPE, HloFile, Instruction, Module
from hlo_lint.registry import all_rules
from hlo_lint.rule import (
    BeforeAutotuner,
    Broken,
    Compilation,
    DumpFolder,
    FinalModule,
    Form,
    Rule,
    Stage,
)
from hlo_lint.source import Span

Progress = Callable[[int], None]
"""Called with how many files have been read since the last call."""

LifeKey = tuple[int, str, str, str, str]
"""A defect through the dumps of a run: which module of its file, computation, instruction, its type
and its operand's type."""


@dataclass
class Result:
    """What a run over a dump gives."""

    diagnostics: list[Diagnostic] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    files: int = 0
    modules: int = 0
    fixes: list[PlannedFix] = field(default_factory=list)


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
        form: Form | None = None,
    ) -> None:
        self.rules = rules
        self.before = before
        """The pass that the caller says comes next."""
        self.form = form
        self.result = Result()
        self._checked: dict[tuple[Rule, str, object], Checked] = {}
        self._logs: list[PassDump] = []
        self._told: set[Path] = set()
        self._texts: dict[tuple[PassDump, str], object] = {}

    def check_dump(self, dump: Dump, progress: Progress = lambda _: None) -> Result:
        """Checks every pipeline, forgetting the text of each when it is done."""
        self.result.skipped += dump.skipped
        folders: dict[Path, list[Pipeline]] = {}
        for pipeline in dump:
            self.check_pipeline(pipeline, progress)
            pipeline.release_text()
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
                self._logs.append(dump)
            dumps.append(dump)
        kernels = pipeline.kernels
        self._stages = Stages(pipeline)
        for rule in self.rules:
            for method, asked in checks_of(rule).items():
                kinds = set(asked.values())
                if "FinalModule" in kinds:
                    self._check_final(rule, method, pipeline, dumps)
                elif not kinds.isdisjoint(("AutotuningRuns", "DumpFolder")):
                    continue  # when all files have been read
                elif "Compilation" in kinds:
                    self._check_compilation(rule, method, pipeline, dumps)
                elif "BeforeAutotuner" in kinds:
                    self._check_before_autotuner(rule, method, pipeline, dumps)
                elif "Computation" in kinds and rule.precondition is not None:
                    self._check_precondition(rule, method, rule.precondition, pipeline, dumps)
                else:
                    self._check_texts(rule, method, [*dumps, *kernels])

    def _check_runs(self) -> None:
        """Rules about all logs of the autotuner together."""
        runs = autotuning_runs(self._logs)
        if runs is None:
            return
        for rule in self.rules:
            for method, asked in checks_of(rule).items():
                if set(asked.values()) == {"AutotuningRuns"}:
                    (name,) = asked
                    for finding in run_check(rule, method, {name: runs}):
                        self._add(Placed(rule, finding, self._logs[finding.file], None))

    # Rules about a compilation as a whole, and about all in a folder

    def _check_compilation(
        self, rule: Rule, method: str, pipeline: Pipeline, dumps: list[PassDump]
    ) -> None:
        if dumps != pipeline.dumps or any(dump.name is None or dump.edited for dump in dumps):
            return  # not what a compiler wrote, or not all of it
        (name,) = checks_of(rule)[method]
        view = Compilation(pipeline, tuple(self._broken(pipeline)))
        for finding in run_check(rule, method, {name: view}):
            self._add_from(rule, finding, dumps)

    def _broken(self, pipeline: Pipeline) -> Iterator[Broken]:
        """What the last dump lacks for the passes to come, rules that were not chosen included."""
        last = pipeline.dumps[-1]
        if last.kind is not Kind.HLO or not pipeline.has_layouts(last):
            return
        for rule in all_rules():
            demand = rule.precondition
            if demand is None or pipeline.meeting(last, demand).outcome is not Outcome.BREAKS:
                continue
            for method, asked in checks_of(rule).items():
                if "Computation" in asked.values():
                    for place in self._lives(rule, method, last).values():
                        assert place.module is not None
                        reported = rule in self.rules
                        yield Broken(rule.name(), demand, place.finding, place.module, reported)

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
        self._add(Placed(rule, finding, dump, module))

    # Rules that need nothing but the text

    def _check_texts(self, rule: Rule, method: str, dumps: list[PassDump]) -> None:
        seen: dict[tuple[str, str], PassDump] = {}  # what an earlier dump has said already
        for dump in dumps:
            for place in self._in_text(rule, method, dump):
                key = (place.finding.message, text_of(place))
                if seen.setdefault(key, dump) is dump:
                    self._add(place)

    def _in_text(self, rule: Rule, method: str, dump: PassDump) -> Iterator[Placed]:
        asked = checks_of(rule)[method]
        kinds = set(asked.values())
        if len(asked) == 1:
            ((name, kind),) = asked.items()
            if kind in TEXTS:
                if dump.kind is TEXTS[kind][0]:
                    key = (dump, kind)
                    if key not in self._texts:
                        self._texts[key] = TEXTS[kind][1](dump.file.text)
                    for finding in run_check(rule, method, {name: self._texts[key]}):
                        yield Placed(rule, finding, dump, None)
                return
        if dump.kind is not Kind.HLO:
            return
        if "HloFile" in kinds:
            for finding in run_check(rule, method, {name: dump.file}):
                yield Placed(rule, finding, dump, None)
        else:
            for module in dump.file.modules:
                for finding in self._in_module(rule, method, dump, module):
                    yield Placed(rule, finding, dump, module)

    # Rules about what was going to run

    def _check_final(
        self, rule: Rule, method: str, pipeline: Pipeline, dumps: list[PassDump]
    ) -> None:
        dumps = [dump for dump in dumps if dump.kind is Kind.HLO]
        if not dumps:
            return
        last = pipeline.final if pipeline.final in dumps else dumps[-1]
        assert last is not None
        for module in last.file.modules:
            if not rule.applies(module):
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
                self.result.skipped.append(Skipped(str(last.path), reason))
                continue
            for finding in run_check(rule, method, views):
                self._add(Placed(rule, finding, last, module))

    def _check_before_autotuner(
        self, rule: Rule, method: str, pipeline: Pipeline, dumps: list[PassDump]
    ) -> None:
        dump = pipeline.before_autotuner()
        if dump not in dumps or dump is None or dump.kind is not Kind.HLO:
            return
        release = pipeline.releases[0].name if len(pipeline.releases) == 1 else None
        (name,) = checks_of(rule)[method]
        for module in dump.file.modules:
            if rule.applies(module):
                told = self.before in AUTOTUNERS
                after = pipeline.after_autotuner()
                left = after.module if after in dumps and after is not None else None
                view = BeforeAutotuner(module, release, told, left)
                for finding in run_check(rule, method, {name: view}):
                    self._add(Placed(rule, finding, dump, module))

    # Rules that bind where a pass comes next

    def _check_precondition(
        self,
        rule: Rule,
        method: str,
        demand: Precondition,
        pipeline: Pipeline,
        dumps: list[PassDump],
    ) -> None:
        hlo = [dump for dump in dumps if dump.kind is Kind.HLO]
        bound = [dump for dump in hlo if pipeline.has_layouts(dump)]
        if not bound or self.before not in (None, demand.demanded_by):
            return
        if self.before is None and not self._lives(rule, method, bound[-1]):
            return  # whatever was there before, no pass died of it
        lives = [self._lives(rule, method, dump) for dump in bound]
        if self.before is not None:
            told = Meeting(Outcome.BREAKS, f"{self.before} comes next, as the caller says")
            for at, found in enumerate(lives):
                for key in found:
                    if at == 0 or key not in lives[at - 1]:
                        end = _last_with(lives, at, key)
                        self._add_life(pipeline, demand, told, bound, lives, at, end, key)
            return
        last = len(bound) - 1
        meeting = pipeline.meeting(bound[last], demand)
        if meeting.outcome in (Outcome.BREAKS, Outcome.UNSURE):
            for key in lives[last]:
                first = self._first_binding(pipeline, demand, bound, lives, key)
                self._add_life(pipeline, demand, meeting, bound, lives, first, last, key)
        elif meeting.outcome is Outcome.NEVER and bound[last].name is None:
            reason = f"{rule.name()} does not apply: {meeting.why}"
            self.result.skipped.append(Skipped(str(bound[last].path), reason))

    def _lives(self, rule: Rule, method: str, dump: PassDump) -> dict[LifeKey, Placed]:
        return {
            _life_key(number, finding): Placed(rule, finding, dump, module)
            for number, module in enumerate(dump.file.modules)
            for finding in self._in_module(rule, method, dump, module)
        }

    def _first_binding(
        self,
        pipeline: Pipeline,
        demand: Precondition,
        dumps: list[PassDump],
        lives: list[dict[LifeKey, Placed]],
        key: LifeKey,
    ) -> int:
        """The first dump of the defect's last unbroken stretch from which on nothing mends it."""
        first = len(lives) - 1
        while first and key in lives[first - 1]:
            meeting = pipeline.meeting(dumps[first - 1], demand)
            if meeting.outcome not in (Outcome.BREAKS, Outcome.UNSURE):
                break
            first -= 1
        return first

    def _add_life(
        self,
        pipeline: Pipeline,
        demand: Precondition,
        meeting: Meeting,
        dumps: list[PassDump],
        lives: list[dict[LifeKey, Placed]],
        first: int,
        last: int,
        key: LifeKey,
    ) -> None:
        born = first
        while born and key in lives[born - 1]:
            born -= 1
        place = lives[first][key]
        before = dumps[born - 1] if born else None
        introduced = _introduction(dumps[born], before)
        notes = list(place.finding.notes)
        if introduced is not None and before is not None and born == first:
            instruction = place.finding.at
            if isinstance(instruction, Instruction) and place.module is not None:
                notes += place.rule.context(instruction, before.module, place.module)
        certain = meeting.outcome is Outcome.BREAKS
        notes += _verdict(demand, meeting, introduced, pipeline, certain=certain)
        finding = replace(
            place.finding,
            notes=tuple(notes),
            severity=Severity.ERROR if certain else Severity.WARNING,
        )
        form = self.form or (Form.COPY if certain else Form.TRANSPOSE)
        diagnostic = diagnose(replace(place, finding=finding), introduced, form)
        self.result.diagnostics.append(diagnostic)
        for number in range(first, last + 1):
            again = lives[number][key]
            fix = fix_of(again, form)
            if fix is not None:
                self.result.fixes.append(PlannedFix(again.dump, fix, diagnostic))

    # Findings with their places

    def _add_unread(self, pipeline: Pipeline, artefact: object) -> None:
        """Says what could not be read of an artefact that a rule asked for, once."""
        path, text = getattr(artefact, "path", None), getattr(artefact, "text", "")
        rule = next((rule for rule in self.rules if rule.name() == "unreadable-text"), None)
        if rule is None or path is None or path in self._told:
            return
        self._told.add(path)
        module = pipeline.dumps[0].name.module if pipeline.dumps[0].name else ""
        dump = PassDump.of(HloFile.of_text(text, path, module), path)
        for trouble in getattr(artefact, "troubles", ()):
            span = Span(trouble.start, trouble.end)
            self._add(Placed(rule, Finding(span, trouble.message), dump, None))

    def _add(self, place: Placed) -> None:
        diagnostic = diagnose(place)
        self.result.diagnostics.append(diagnostic)
        if diagnostic.fix is not None:
            self.result.fixes.append(PlannedFix(place.dump, diagnostic.fix, diagnostic))

    def _in_module(
        self, rule: Rule, method: str, dump: PassDump, module: Module
    ) -> Iterator[Finding]:
        kinds = checks_of(rule)[method].values()
        stage = self._stages.of(dump, module) if "Stage" in kinds else None
        if "Module" in kinds:
            # The text of a file whose copies are told apart by nothing else.
            return iter(self._in_view(rule, method, (module.start, module.pieces), module, stage))
        computations = module.unfused if rule.unfused else module.computations
        return chain.from_iterable(self._in_view(rule, method, c, c, stage) for c in computations)

    def _in_view(
        self, rule: Rule, method: str, key: object, view: object, stage: Stage | None
    ) -> tuple[Finding, ...]:
        """What is found in a computation or a module: once for all dumps that repeat it."""
        checked = self._checked.setdefault((rule, method, key), Checked())

        def check(watched: object) -> tuple[Finding, ...]:
            asked = checks_of(rule)[method].items()
            views = {name: watched if kind == "Stage" else view for name, kind in asked}
            return run_check(rule, method, views)

        return checked.at(stage, check)


def _life_key(module: int, finding: Finding) -> LifeKey:
    at = finding.at
    assert isinstance(at, Instruction)
    operand = at.operands[0].shape if at.row[REFERENCES] else None
    return module, at.computation.name, at.name, at.row[TYPE], str(operand)


def _last_with(lives: list[dict[LifeKey, Placed]], at: int, key: LifeKey) -> int:
    while at + 1 < len(lives) and key in lives[at + 1]:
        at += 1
    return at


def _introduction(dump: PassDump, before: PassDump | None) -> Introduction | None:
    """The pass that made a dump what it is; None where its name does not tell."""
    name = dump.name
    if name is None or name.step is None:
        return None
    if name.after == "pipeline-start":
        return None  # a pass outside the dumps at hand
    return Introduction(name.after, name.pipeline, name.step, str(dump.path))


def _verdict(
    demand: Precondition,
    meeting: Meeting,
    introduced: Introduction | None,
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
