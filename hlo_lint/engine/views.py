"""The views that rules check: each lists its subjects, then traces findings to a pass.

A rule asks for a view by the type of a parameter of `check` or `check_…`. Types are compared by
name, so that a reader is imported only for a rule that runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hlo_lint.analysis.calls import opcodes_of
from hlo_lint.dumps.file_types import FileType
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.phases import AUTOTUNERS
from hlo_lint.engine.history import histories_of
from hlo_lint.engine.reporter import Reporter
from hlo_lint.engine.states import may_report_ended
from hlo_lint.engine.timeline import LocatedFinding, ModuleRef, Occurrence, Timeline, has_cycle
from hlo_lint.hlo.ir import Module
from hlo_lint.rules.base import (
    AutotuningRuns,
    BeforeAutotuner,
    Compilation,
    DumpFolder,
    FinalModule,
    Rule,
    UnmetPreconditions,
    asked_by,
    check_methods,
)
from hlo_lint.rules.checks import CYCLES, STAGE, UNMET, VIOLATIONS, Check
from hlo_lint.rules.entry import Contents
from hlo_lint.rules.findings import Finding
from hlo_lint.rules.registry import rule_entries
from hlo_lint.text.errors import HloLintError, RuleError
from hlo_lint.text.files import is_proto
from hlo_lint.text.phrases import NOT_LOOKED_AT
from hlo_lint.text.stored import on_disk

if TYPE_CHECKING:
    from hlo_lint.analysis.pass_pairs import PassPair
    from hlo_lint.dumps.artefacts import Artefact
    from hlo_lint.dumps.artefacts.buffer_assignment import BufferAssignment
    from hlo_lint.engine.findings import PassRef


@dataclass(eq=False, repr=False)
class Run:
    """The state of checking a compilation."""

    timeline: Timeline
    files: Sequence[PassDump]
    """Every readable file, kernels included."""
    reporter: Reporter
    texts: dict[tuple[PassDump, str], object] = field(default_factory=dict)
    """Parsed files that are not HLO."""
    artefacts: dict[str, Artefact | None] = field(default_factory=dict)
    """Each requested artefact by its type; None if it is missing."""

    def may_need(self, artefact: str) -> bool:
        """False if an artefact is missing and expected to be, as no compile ended."""
        compilation = self.timeline.compilation
        return compilation.final is not None or ARTEFACT_TYPES[artefact].is_there(compilation)

    @cached_property
    def pass_pairs(self) -> Sequence[tuple[PassPair, PassRef, ModuleRef]]:
        """Each pass that changed a module, with its place; all rules share the pairs."""
        timeline, compilation = self.timeline, self.timeline.compilation
        release = compilation.release.name if compilation.release else None
        positions = {dump: position for position, dump in enumerate(timeline.dumps)}
        pairs = []
        for change in compilation.transitions():
            name = change.after.name
            if name is None or change.before not in positions or change.after not in positions:
                continue  # a dump cannot be read
            from hlo_lint.analysis.pass_pairs import PassPair
            from hlo_lint.engine.findings import PassRef

            introduced = PassRef(name.after, name.pipeline, name.step, str(change.after.path))
            modules = zip(change.before.file.modules, change.after.file.modules, strict=False)
            for number, (before, after) in enumerate(modules):
                if before.pieces is not after.pieces:
                    pair = PassPair(before, after, name.after, name.pipeline, release)
                    pairs.append((pair, introduced, ModuleRef(positions[change.after], number)))
        return pairs


class View(ABC):
    """A type of subject that rules check."""

    def __init__(self, about: str, may_go_with: frozenset[str] = frozenset()) -> None:
        self.about = about
        """A line of documentation for authors of rules."""
        self.may_go_with = may_go_with
        """Further types that a check may ask for: `Stage`, an artefact."""

    def has_subject(self, run: Run) -> bool:
        """True if a pipeline may have a subject of this view; else its rules are not imported."""
        return bool(run.timeline.dumps)

    @abstractmethod
    def check(self, check: Check, run: Run) -> None:
        """Run a check over the subjects of a compilation, and report its findings."""


class EachDump(View):
    """A part of every dump of a compilation, checked once however many dumps repeat it."""

    def check(self, check: Check, run: Run) -> None:
        """Report defects with their history, from introduction to end.

        Most rules find nothing at the end of a run: then no other dump is searched, unless a
        resolved defect may be reported.
        """
        rule, timeline, reporter = check.rule, run.timeline, run.reporter
        if rule.precondition is not None:
            from hlo_lint.engine.preconditions import check_precondition  # few texts need it

            check_precondition(check, rule.precondition, timeline, reporter)
            return
        ended = may_report_ended(rule, timeline.compilation, asked=reporter.resolved)
        if ended or timeline.finds_at_end(check):
            for history in histories_of(timeline.find(check), timeline):
                reporter.add_unless_resolved(check, history)


class OfCycles(EachDump):
    """The cycles of modules."""

    def has_subject(self, run: Run) -> bool:
        """True if a module has a cycle."""
        return any(map(has_cycle, run.timeline.dumps))


class Parsed(EachDump):
    """Every file, with the verdict of XLA's parser."""

    def check(self, check: Check, run: Run) -> None:
        """Run a check with the parser of the release in the rule's option `jax`."""
        from hlo_lint.engine.parser_judge import judge_of

        judge = judge_of(getattr(check.rule, "jax", ""))
        super().check(replace(check, seen_as=judge.verdict), run)


class Final(View):
    """The last module of a run, alone or with artefacts of its dump."""

    def check(self, check: Check, run: Run) -> None:
        """Trace findings back through the dumps; findings about artefacts have no history."""
        timeline, compilation = run.timeline, run.timeline.compilation
        held = set(timeline.dumps)
        last = next((dump for dump in reversed(compilation.dumps) if dump in held), None)
        if last is None or compilation.is_helper:
            return  # there is no module, or it does not run
        is_final = last is compilation.final
        next_pass = run.reporter.before or timeline.next_pass
        for number, module in enumerate(last.file.modules):
            if not check.rule.is_applicable(module):
                continue
            artefacts = self._artefacts(check, last, run)
            if artefacts is None:
                continue
            findings = check.run(FinalModule(module, is_final, next_pass), artefacts=artefacts)
            if artefacts:
                for finding in findings:  # an artefact describes the final module only
                    run.reporter.add(LocatedFinding(check.rule, finding, last, module))
                continue

            def look(earlier: Module) -> tuple[Finding, ...]:
                return check.run(FinalModule(earlier, is_final, next_pass))

            ref = ModuleRef(timeline.dumps.index(last), number)
            run.reporter.add_traced_back(check.rule, findings, ref, timeline, look)

    def _artefacts(self, check: Check, last: PassDump, run: Run) -> Mapping[str, object] | None:
        """The artefacts that a check asks for; None if any is missing, which is reported."""
        compilation, artefacts, missing = run.timeline.compilation, {}, []
        for name in check.artefacts:
            kind = ARTEFACT_TYPES[name]
            if name not in run.artefacts:
                run.artefacts[name] = None if last.edited else kind.read(compilation)
            artefact = run.artefacts[name]
            if artefact is None:
                missing.append(kind.title)
            else:
                artefacts[name] = artefact
                run.reporter.add_unread(compilation, artefact)
        if not missing:
            return artefacts
        if last is compilation.final:  # an unfinished compile assigns no buffers
            state = "an edited module has none" if last.edited else "a new compile dumps it"
            reason = f"{NOT_LOOKED_AT}what needs the {' and '.join(missing)}; {state}"
            # A text that the user named is expected to have no files beside it.
            run.reporter.skip(last, reason, check.rule, minor=compilation.lone)
        return None


class AutotunerInput(View):
    """The module before the autotuner."""

    def check(self, check: Check, run: Run) -> None:
        """Trace findings back from the module before the autotuner."""
        timeline, compilation = run.timeline, run.timeline.compilation
        held = set(timeline.dumps)
        dump, after = compilation.before_autotuner(), compilation.after_autotuner()
        if dump is None or dump not in held or compilation.is_helper:
            return
        is_known = compilation.is_of_known_release
        releases = tuple(release.name for release in compilation.releases) if is_known else ()
        left = after.module if after is not None and after in held else None
        has_autotuned = run.reporter.before in AUTOTUNERS

        def look(module: Module) -> tuple[Finding, ...]:
            if not check.rule.is_applicable(module):
                return ()
            return check.run(BeforeAutotuner(module, releases, has_autotuned, left))

        position = timeline.dumps.index(dump)
        for number, module in enumerate(dump.file.modules):
            ref = ModuleRef(position, number)
            run.reporter.add_traced_back(check.rule, look(module), ref, timeline, look)


class EachPass(View):
    """The input and the output of each pass, where both are dumped."""

    def has_subject(self, run: Run) -> bool:
        """True if a pass changed a module."""
        return bool(run.pass_pairs)

    def check(self, check: Check, run: Run) -> None:
        """Report findings as introduced by the pass, once if it runs several times."""
        timeline = run.timeline
        seen: set[tuple[str, str, str]] = set()
        for pair, introduced, ref in run.pass_pairs:
            if not check.rule.is_applicable(pair.after):
                continue
            stage = timeline.stage(ref) if check.takes_stage else None
            for finding in check.run(pair, stage):
                place = run.reporter.place(check.rule, Occurrence(finding, ref), timeline)
                where = "" if finding.key else place.text
                key = pair.pass_name, finding.key or finding.message, where
                if key not in seen:
                    seen.add(key)
                    run.reporter.add(place, introduced)


class WholeCompilation(View):
    """All dumps of a compilation at once."""

    def has_subject(self, run: Run) -> bool:
        """True if all dumps could be read and are unedited output of a compiler."""
        timeline, compilation = run.timeline, run.timeline.compilation
        whole = len(timeline.dumps) == len(compilation.dumps)
        return whole and not any(dump.name is None or dump.edited for dump in compilation.dumps)

    def check(self, check: Check, run: Run) -> None:
        """Report findings in the dumps that they name."""
        compilation = run.timeline.compilation
        more = {UNMET: self._unmet(run)} if UNMET in check.parameters else {}
        for finding in check.run(compilation, artefacts=more):
            run.reporter.add_in(check.rule, finding, compilation.dumps)

    def _unmet(self, run: Run) -> UnmetPreconditions:
        if run.timeline.compilation.final is not None:
            return UnmetPreconditions()  # it ended: no pass comes
        modules = (module for dump in run.timeline.dumps for module in dump.file.modules)
        contents = Contents(frozenset().union(*map(opcodes_of, modules)), None)
        from hlo_lint.engine.preconditions import unmet_preconditions

        chosen = {entry.name for entry, _ in run.reporter.rules.chosen}
        demanding = (entry for entry in rule_entries() if entry.demanded_by)
        rules = [entry.load() for entry in demanding if entry.applies(contents)]
        checks = [check for rule in rules for check in checks_of(rule)]
        return UnmetPreconditions(
            unmet_preconditions(checks, chosen, run.timeline, run.reporter.before)
        )


class EachText(View):
    """Files that are not HLO."""

    def __init__(self, about: str, file_type: FileType, read: Callable[[str], object]) -> None:
        super().__init__(about)
        self.file_type = file_type
        self.read = read

    def has_subject(self, run: Run) -> bool:
        """True if there is a file of the type."""
        return any(dump.file_type is self.file_type for dump in run.files)

    def check(self, check: Check, run: Run) -> None:
        """Report a finding in the first file that has it."""
        seen: dict[tuple[str, str], PassDump] = {}  # the first file by message and text
        for dump in run.files:
            if dump.file_type is not self.file_type:
                continue
            key = dump, check.view
            if key not in run.texts:
                run.texts[key] = self.read(dump.file.text)
            for finding in check.run(run.texts[key]):
                place = LocatedFinding(check.rule, finding, dump, None)
                if seen.setdefault((finding.message, place.text), dump) is dump:
                    run.reporter.add(place)


class WholeRun(NamedTuple):
    """The files of a run, after every compilation has been checked."""

    folders: Mapping[Path, Sequence[Compilation]]
    """The compilations of each folder."""
    logs: Sequence[PassDump]
    """The logs of the autotuner."""


class WhenAllIsRead(View):
    """A view of all compilations of a run together."""

    def has_subject(self, run: Run) -> bool:
        """False: `has_any` is called after every compilation has been checked."""
        return False

    @abstractmethod
    def has_any(self, whole: WholeRun) -> bool:
        """True if a run may have a subject of this view."""

    def check(self, check: Check, run: Run) -> None:
        """Wait for `check_all`, which is called after every compilation has been checked."""

    @abstractmethod
    def check_all(self, check: Check, whole: WholeRun, reporter: Reporter) -> None:
        """Run a check over the whole run."""


class Folder(WhenAllIsRead):
    """The compilations of a folder."""

    def has_any(self, whole: WholeRun) -> bool:
        """True if any file has a dump name: the origin of loose files is unknown."""
        every = chain.from_iterable(whole.folders.values())
        return any(compilation.dumps[0].name is not None for compilation in every)

    def check_all(self, check: Check, whole: WholeRun, reporter: Reporter) -> None:
        """Report findings in the first dump of the compilation that they name."""
        for folder, compilations in whole.folders.items():
            view = DumpFolder(folder, tuple(compilations))
            for finding in check.run(view):
                reporter.add_in(check.rule, finding, view.dumps)


class AutotuningLogs(WhenAllIsRead):
    """The logs of the autotuner."""

    def has_any(self, whole: WholeRun) -> bool:
        """True if there are logs."""
        return bool(whole.logs)

    def check_all(self, check: Check, whole: WholeRun, reporter: Reporter) -> None:
        """Report findings in the logs that they name."""
        from hlo_lint.dumps.artefacts.autotune import read_autotuning

        values = tuple(read_autotuning(dump.file.text) for dump in whole.logs)
        runs = AutotuningRuns(values, tuple(dump.path.name for dump in whole.logs))
        for finding in check.run(runs):
            reporter.add(LocatedFinding(check.rule, finding, whole.logs[finding.file], None))


def _tma_log(text: str) -> object:
    from hlo_lint.kernels.tma.cutlass_log import Log, read_log
    from hlo_lint.kernels.tma.xla_text import read_descriptors

    log = read_log(text)
    return Log((*log.descriptors, *read_descriptors(text)), log.unreadable)


def _ptx(text: str) -> object:
    from hlo_lint.kernels.ptx import read_ptx

    return read_ptx(text)


def _buffers(compilation: Compilation) -> BufferAssignment | None:
    """The buffer assignment, with the positions of values from a second file, if there."""
    path = compilation.artefact_path("-buffer-assignment.txt")
    text = compilation.artefact("-buffer-assignment.txt")
    if text is None and compilation.final is not None and is_proto(compilation.final.path.name):
        path = compilation.final.path
        text = _buffers_in_proto(compilation.final)
    if text is None:
        return None
    from hlo_lint.dumps.artefacts.buffer_assignment import read_buffer_assignment
    from hlo_lint.dumps.artefacts.buffer_values import read_buffer_values

    buffers = read_buffer_assignment(text, path)
    values = compilation.artefact("-buffer-assignment-values.txt")
    return buffers if values is None else buffers.with_values(read_buffer_values(values))


def _buffers_in_proto(dump: PassDump) -> str | None:
    """The buffer assignment inside an HloProto."""
    from hlo_lint.dumps.artefacts.buffer_proto import buffer_assignment_text
    from hlo_lint.xla.proto import stored_message

    try:
        return buffer_assignment_text(stored_message(on_disk(dump.path)), dump.module)
    except (HloLintError, KeyError):  # text, or a damaged part beside the readable module
        return None


class ArtefactType(NamedTuple):
    """A file beside the dumps that a check may ask for."""

    title: str
    ending: str
    read: Callable[[Compilation], Artefact | None]

    def is_there(self, compilation: Compilation) -> bool:
        """True if a compilation has it."""
        return compilation.artefact_path(self.ending) is not None


ARTEFACT_TYPES: dict[str, ArtefactType] = {
    "BufferAssignment": ArtefactType("buffer assignment", "-buffer-assignment.txt", _buffers)
}
"""Each artefact, by its type."""

VIEWS: dict[str, View] = {
    "Computation": EachDump(
        "each computation of every dump, bodies of fusions left out unless asked for",
        frozenset({STAGE}),
    ),
    "Module": EachDump("each module of every dump", frozenset({STAGE})),
    VIOLATIONS: EachDump("the violations of XLA's verifier in each module of every dump"),
    CYCLES: OfCycles("the cycles of a module with cycles, which other rules do not check"),
    "HloFile": EachDump("every file as a text"),
    "ParserVerdict": Parsed("every file, with the verdict of XLA's own parser, which needs jaxlib"),
    "BeforeAutotuner": AutotunerInput(
        "the module before the autotuner, or the nearest dump before it"
    ),
    "FinalModule": Final(
        "the final module of a compiler, else its last dump; artefacts may go with it",
        frozenset(ARTEFACT_TYPES),
    ),
    "PassPair": EachPass(
        "the modules before and after each pass, if both are dumped; a `Stage` is that after",
        frozenset({STAGE}),
    ),
    "Log": EachText(
        "a text that prints tensor descriptors, as CUTLASS does",
        file_type=FileType.TMA_LOG,
        read=_tma_log,
    ),
    "Ptx": EachText("the assembly of a kernel", file_type=FileType.PTX, read=_ptx),
    "Compilation": WholeCompilation(
        "a compilation of a module: all its dumps, its options, its passes; "
        "`UnmetPreconditions` may go with it",
        frozenset({UNMET}),
    ),
    "DumpFolder": Folder("all compilations whose dumps are in the same folder"),
    "AutotuningRuns": AutotuningLogs("all given logs of the autotuner"),
}
"""Each view, by the name of its type."""


ABOUT_REPORT = frozenset({"unused-allowance"})
"""Rules without a check, for which suppressions/apply.py reports after all others have run."""


@cache
def checks_of(rule: Rule) -> Sequence[Check]:
    """The checks of a rule, in the order of their names.

    Raises:
        RuleError: a check has no view, or asks for an unknown type.
    """
    checks = []
    for method in check_methods(type(rule)):
        asked = asked_by(getattr(rule, method))
        parameters = {asked_type: name for name, asked_type in asked.items()}
        views = [name for name in parameters if name in VIEWS]
        others = parameters.keys() - set(views)
        view = VIEWS[views[0]] if len(views) == 1 else None
        if view is None or len(asked) != len(parameters) or not others <= view.may_go_with:
            view_names = ", ".join((*VIEWS, STAGE, *ARTEFACT_TYPES))
            raise RuleError(f"{method} of {rule.name()} must ask for some of {view_names}")
        checks.append(Check(rule, method, views[0], parameters))
    if not checks and rule.command == "check" and rule.name() not in ABOUT_REPORT:
        raise RuleError(f"{rule.name()} has no check")
    return checks
