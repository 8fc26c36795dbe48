"""The reporter, which adds findings to a result as diagnostics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.directory import Skipped
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.engine.history import FindingHistory, followed_back, renaming_key
from hlo_lint.engine.states import DefectEnd, ReportLevel, level_of
from hlo_lint.engine.timeline import LocatedFinding, ModuleRef, Occurrence, Timeline
from hlo_lint.hlo.ir import HloFile, Instruction, Module
from hlo_lint.rules.base import Rule
from hlo_lint.rules.checks import Check
from hlo_lint.rules.entry import ChosenRules
from hlo_lint.rules.findings import Finding, Severity
from hlo_lint.text.source import Span

if TYPE_CHECKING:
    from hlo_lint.dumps.artefacts import Artefact
    from hlo_lint.engine.findings import Diagnostic, PassRef
    from hlo_lint.engine.suppressions.comments import CheckedFile
    from hlo_lint.text.edits import Fix

Identity = tuple[str, tuple[str, str, str]]
"""A rule and its renaming key: message without names, opcode and shape."""


class PlannedFix(NamedTuple):
    """A fix for a file; a defect in several dumps has a fix for each."""

    dump: PassDump
    fix: Fix
    diagnostic: Diagnostic


@dataclass
class Result:
    """The result of a run over a dump or a part of it; it can be sent to another process."""

    diagnostics: list[Diagnostic] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    files: int = 0
    modules: int = 0
    checked: list[CheckedFile] = field(default_factory=list)
    internal_errors: list[Diagnostic] = field(default_factory=list)
    """Crashes of rules and readers, which suppressions do not cover."""
    resolved: int = 0
    """The number of unreported defects that a later pass resolved."""

    def add(self, part: Result) -> None:
        """Add the result of another part of the same run."""
        self.diagnostics += part.diagnostics
        self.skipped += part.skipped
        self.files += part.files
        self.modules += part.modules
        self.checked += part.checked
        self.internal_errors += part.internal_errors
        self.resolved += part.resolved


class Part(NamedTuple):
    """The result of a compilation, which does not depend on other compilations."""

    result: Result
    unread: frozenset[str]
    """Artefacts whose parse errors are among the diagnostics."""
    of_modules: frozenset[Identity]
    """Findings in modules other than the autotuner's."""
    of_helpers: tuple[tuple[int, Identity], ...]
    """Diagnostics in a module of the autotuner, by position: they are dropped if an earlier
    compilation reports the same."""
    logs: tuple[int, ...]
    """The positions of its dumps that are logs of the autotuner."""


class Reporter:
    """Adds findings to a result."""

    def __init__(self, rules: ChosenRules, before: str | None, *, resolved: bool) -> None:
        self.rules = rules
        self.before = before
        """The next pass, if the caller gives it."""
        self.resolved = resolved
        """True if resolved defects are reported, as information."""
        self.result = Result()
        self.fixes: list[PlannedFix] = []
        self.unread: set[str] = set()
        """Artefacts whose parse errors have been reported."""
        self._crashes: set[tuple[str, str]] = set()
        self._skips: set[tuple[Path, str]] = set()
        self.of_modules: set[Identity] = set()
        """Findings in modules other than the autotuner's."""
        self.of_helpers: dict[int, Identity] = {}
        """Findings in modules of the autotuner, by their positions in the result."""

    def part(self, logs: Iterable[int]) -> Part:
        """The result so far, as a value that can be sent to another process."""
        read, of_modules = frozenset(self.unread), frozenset(self.of_modules)
        return Part(self.result, read, of_modules, tuple(self.of_helpers.items()), tuple(logs))

    def add_part(self, part: Part) -> None:
        """Add the result of the next compilation of a dump.

        Parse errors of a shared artefact are added once, and so is a defect of both a module and
        the autotuner's extract of it.
        """
        result = self.result
        shared = self.unread & part.unread
        of_helpers = dict(part.of_helpers)
        for number, diagnostic in enumerate(part.result.diagnostics):
            identity = of_helpers.get(number)
            if diagnostic.path in shared or identity in self.of_modules:
                continue
            if identity is not None:
                self.of_helpers[len(result.diagnostics)] = identity
            result.diagnostics.append(diagnostic)
        for error in part.result.internal_errors:
            self._add_crash(error)
        result.add(replace(part.result, diagnostics=[], internal_errors=[]))
        self.unread |= part.unread
        self.of_modules |= part.of_modules

    def add_crash(self, name: str, path: Path, subject: object, error: Exception) -> None:
        """Add a crash of a rule or of a reader, once for each place in the code and each file.

        Raises:
            KeyboardInterrupt: an interrupt caused the crash.
        """
        from hlo_lint.engine.internal_errors import internal_error
        from hlo_lint.text.errors import interrupt_behind

        interrupt = interrupt_behind(error)
        if interrupt is not None:
            raise interrupt
        self._add_crash(internal_error(name, path, subject, error))

    def _add_crash(self, diagnostic: Diagnostic) -> None:
        key = diagnostic.path, diagnostic.fingerprint
        if key not in self._crashes:
            self._crashes.add(key)
            self.result.internal_errors.append(diagnostic)

    def add(self, place: LocatedFinding, introduced: PassRef | None = None) -> None:
        """Add a finding without a history, except for the pass that introduced it."""
        from hlo_lint.engine.diagnose import diagnose  # with the first finding

        diagnostic = diagnose(place, introduced)
        self.result.diagnostics.append(diagnostic)
        if diagnostic.fix is not None:
            self.fixes.append(PlannedFix(place.dump, diagnostic.fix, diagnostic))

    def add_in(self, rule: Rule, finding: Finding, dumps: Sequence[PassDump]) -> None:
        """Add a finding in file number `finding.file` of several."""
        dump = dumps[finding.file]
        module = None
        if isinstance(finding.at, Instruction):
            body = finding.at.computation
            # A file may hold several modules; most hold a single one.
            module, *others = dump.file.modules
            module = next((m for m in others if body in m.computations), module)
        self.add(LocatedFinding(rule, finding, dump, module))

    def skip(self, dump: PassDump, reason: str, rule: Rule, *, minor: bool) -> None:
        """Add a rule that could not be checked in a dump, with the reason."""
        if (dump.path, reason) not in self._skips:  # several rules may share a reason
            self._skips.add((dump.path, reason))
            self.result.skipped.append(Skipped(str(dump.path), reason, rule.name(), minor=minor))

    def add_unread(self, compilation: Compilation, artefact: Artefact) -> None:
        """Add the parse errors of a requested artefact, once."""
        path, chosen = artefact.path, self.rules.named("unreadable-text")
        if chosen is None or path is None or str(path) in self.unread:
            return
        self.unread.add(str(path))
        module = compilation.dumps[0].name.module if compilation.dumps[0].name else ""
        dump = PassDump.of(HloFile.of_text(artefact.text, path, module), path)
        for problem in artefact.problems:
            span = Span(problem.start, problem.end)
            self.add(LocatedFinding(chosen.rule, Finding(span, problem.message), dump, None))

    def add_traced_back(
        self,
        rule: Rule,
        findings: Iterable[Finding],
        ref: ModuleRef,
        timeline: Timeline,
        look: Callable[[Module], Iterable[Finding]],
    ) -> None:
        """Add findings in a dump, each with the pass that introduced it; `look` runs the check."""
        for history in followed_back(findings, ref, timeline, look):
            self.add_history(rule, history, binding=len(history.seen) - 1)

    def add_unless_resolved(self, check: Check, history: FindingHistory) -> None:
        """Add a defect at the level that follows from its end (`states.py`).

        Modules that the autotuner extracts to try backends repeat defects of the whole module:
        these are reported for the whole module only.
        """
        rule, compilation = check.rule, history.timeline.compilation
        identity = rule.name(), renaming_key(history.seen[-1])
        if not compilation.is_helper:
            self.of_modules.add(identity)
        elif identity in self.of_modules:
            return
        end = _end_of(check, history)
        level = level_of(end, rule, compilation, asked=self.resolved)
        if level is ReportLevel.FULL or self.resolved:
            if compilation.is_helper:
                self.of_helpers[len(self.result.diagnostics)] = identity
            severity = Severity.INFO if level is ReportLevel.INFO else None
            self.add_history(rule, history, end=end, severity=severity)
        elif end is not None and end.resolved_by is not None:
            self.result.resolved += 1

    def add_resolved(self, rule: Rule, history: FindingHistory, end: DefectEnd) -> None:
        """Add a resolved defect, as information if resolved defects are wanted, else as a count."""
        if self.resolved:
            self.add_history(rule, history, end=end, severity=Severity.INFO)
        else:
            self.result.resolved += 1

    def add_history(
        self,
        rule: Rule,
        history: FindingHistory,
        *,
        binding: int = 0,
        end: DefectEnd | None = None,
        severity: Severity | None = None,
        notes: tuple[str, ...] = (),
        next_pass: str = "",
    ) -> None:
        """Add a defect at dump number `binding` of its history; `severity` overrides its own."""
        from hlo_lint.engine.diagnose import can_stand, diagnose, fix_of

        timeline = history.timeline
        place = self.place(rule, history.seen[binding], timeline, next_pass)
        introduced = history.introduction(unless_established=rule.precondition is not None)
        context: tuple[str, ...] = ()
        if introduced is not None and history.first and not binding:
            instruction, before = place.finding.at, timeline.dumps[history.first - 1]
            if isinstance(instruction, Instruction) and place.module is not None:
                context = rule.introduction_notes(instruction, before.module, place.module)
        finding, resolved_by = place.finding, None
        if end is not None:
            resolved_by, notes = end.resolved_by, (*end.notes, *notes)
        if context or notes or severity is not None:
            finding = finding._replace(
                notes=(*finding.notes, *context, *notes), severity=severity or finding.severity
            )
            place = place._replace(finding=finding)
        seen = len(history.seen) + len(history.beside)
        diagnostic = diagnose(place, introduced, resolved=resolved_by, seen_in=seen)
        if binding:
            first = diagnose(self.place(rule, history.seen[0], timeline, next_pass), None)
            diagnostic = replace(diagnostic, first_path=first.path, first_start=first.start)
        self.result.diagnostics.append(diagnostic)
        if diagnostic.is_resolved:
            return  # a resolved defect needs no fix
        if finding.fix is None and type(rule).fix is Rule.fix:
            return  # the rule has no fix
        for occurrence in (*history.seen[binding:], *history.beside):
            again = self.place(rule, occurrence, timeline, next_pass)
            # The diagnostic has its fix already: searching again may take most of a rule's time.
            is_diagnosed = occurrence is history.seen[binding]
            fix = diagnostic.fix if is_diagnosed else fix_of(again)
            if fix is not None and can_stand(fix, again):
                self.fixes.append(PlannedFix(again.dump, fix, diagnostic))

    def place(
        self, rule: Rule, occurrence: Occurrence, timeline: Timeline, next_pass: str = ""
    ) -> LocatedFinding:
        """An occurrence with its file, and with its module if it is at an instruction."""
        dump = timeline.dumps[occurrence.ref.position]
        is_text = not isinstance(occurrence.finding.at, Instruction)
        module = None if is_text else timeline.module(occurrence.ref)
        bind = self.before is not None or timeline.stages.layouts_bind(dump) is True
        stage = timeline.stage(occurrence.ref)
        if stage.next_pass != next_pass:
            stage = stage._replace(next_pass=next_pass)
        return LocatedFinding(rule, occurrence.finding, dump, module, stage, bind)


def _end_of(check: Check, history: FindingHistory) -> DefectEnd | None:
    """The end of a defect; None if it is in the last dump."""
    resolved_by = history.resolving_pass()
    if resolved_by is None:
        return None
    if not _ends_with_the_stage(check, history):
        return DefectEnd(resolved_by)
    after = history.timeline.dumps[history.last + 1]
    label = after.name.label if after.name else after.path.name
    return DefectEnd(None, (f"the dump {label} still has it, at a stage that allows it",))


def _ends_with_the_stage(check: Check, history: FindingHistory) -> bool:
    """True if a defect ends only because the stage of the next dump allows it."""
    if not check.takes_stage:
        return False
    timeline, last = history.timeline, history.seen[-1]
    stage, after = timeline.stage(last.ref), ModuleRef(last.ref.position + 1, last.ref.number)
    modules = timeline.dumps[after.position].file.modules
    if after.number >= len(modules) or stage == timeline.stage(after):
        return False
    there = timeline.find_at(check, after.position, stage)
    return any(renaming_key(occurrence) == renaming_key(last) for occurrence in there)
