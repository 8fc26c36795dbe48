"""The dumps of one module in the order of the run, and what the run still holds for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path

from hlo_lint.dumps.file_types import Kind, kind_of
from hlo_lint.dumps.layout_evidence import layouts_bind
from hlo_lint.dumps.names import DumpName
from hlo_lint.dumps.options import (
    CHANGED_PASSES,
    EVERY_PASS,
    DebugOptions,
    PassRun,
    read_debug_options,
    read_pass_runs,
)
from hlo_lint.dumps.pass_lists import Pass, PassList, backend_of, pass_lists, recognise
from hlo_lint.dumps.phases import (
    AFTER_NORMALIZATION,
    AUTOTUNERS,
    BEFORE_LAYOUTS,
    HELPER_PIPELINES,
    LAYOUT_ASSIGNMENT,
    LOOSE_BEFORE_LAYOUTS,
    Precondition,
)
from hlo_lint.hlo.ir import HloFile, Module
from hlo_lint.hlo.parser.module import Memo, parse_file
from hlo_lint.text.files import is_proto
from hlo_lint.text.source import DIRECTIVE, decode

MIN_KNOWN_SHARE = 0.8
"""Share of a run's dumps that a release's pass list has to know for the run to be of that release;
pipelines for several devices and for flags of their own are in no list."""
MAX_MISFITS = 2
"""Number of places where passes of such a run may follow each other as they do not in the list:
flags can add or drop a pass. Runs of neighbouring releases have 5 to 30."""


@dataclass(eq=False)
class PassDump:
    """One file of HLO; its text is read when asked for."""

    path: Path
    name: DumpName | None
    """The parts of its name, or None for a file that no compiler named."""
    memo: Memo | None = field(default=None, repr=False)
    """The cache that files of one folder share."""
    _file: HloFile | None = field(default=None, repr=False)
    kind: Kind = Kind.HLO
    """Its kind; of a file that no compiler named it is known once it is read."""
    edited: bool = False
    """True if a fix has changed the text: artefacts beside it then no longer fit."""
    _can_be_read_again: bool = False
    """True if it was read from its path, not handed over."""
    _has_directives: bool | None = field(default=None, repr=False)
    """True if the bytes hold `DIRECTIVE`; None before they are read."""

    @property
    def file(self) -> HloFile:
        """Its content, read once.

        Raises:
            OSError: where the file cannot be read.
            DumpError: for a protocol buffer that cannot be turned into text.
        """
        if self._file is None:
            self._can_be_read_again = True
            if self.name is None and (text := self._other_text()) is not None:
                self._file = HloFile.of_text(text, self.path)
            elif is_proto(self.path.name):
                from hlo_lint.hlo.proto import read_proto

                self._has_directives = False
                self._file = parse_file(read_proto(self.path), self.path, self.memo)
            else:
                data = self.path.read_bytes()
                self._file = parse_file(data, self.path, self.memo)
                self._has_directives = _has_directives(self._file, data)
        return self._file

    @property
    def is_read(self) -> bool:
        """True if its text is in memory."""
        return self._file is not None

    def _other_text(self) -> str | None:
        """The text, if it is not HLO but something else that rules read."""
        if self.path.name.endswith((".gz", ".pb", ".hlo", ".hlo.pbtxt")):
            return None
        text = decode(self.path.read_bytes())
        self.kind = kind_of(self.path.name, text)
        return None if self.kind is Kind.HLO else text

    @property
    def module(self) -> Module:
        """The module it holds; of several, the first."""
        return self.file.modules[0]

    @property
    def is_named_before_layouts(self) -> bool:
        """True if people named a loose file for the time before layout-assignment."""
        return self.name is None and _loose_name_is(self.path.name, LOOSE_BEFORE_LAYOUTS)

    @property
    def may_have_directives(self) -> bool:
        """False if the text is known to hold no comment addressed to hlo-lint."""
        return self._has_directives is not False and self.kind in (Kind.HLO, Kind.PTX)

    @classmethod
    def of(cls, file: HloFile, path: Path, kind: Kind = Kind.HLO) -> PassDump:
        """A dump of what has been read already."""
        return cls(path, None, _file=file, kind=kind)

    def replace_text(self, text: str) -> None:
        """Go on with another text in place of what the file holds."""
        path = self.file.path
        if self.kind is Kind.HLO:
            self._file = parse_file(text, path, self.memo)
        else:
            self._file = HloFile.of_text(text, path, self.module.name)
        self._has_directives = None
        self.edited = True

    def release(self) -> None:
        """Forget what was read; a text that came from no file stays."""
        if self._can_be_read_again and self.kind is Kind.HLO:
            self._file = None


def _has_directives(file: HloFile, data: bytes) -> bool:
    """True if a text holds `DIRECTIVE`; files of equal text share the answer.

    The bytes are searched because joining the text would take longer.
    """
    memo = file.modules[0].analysis_cache
    cached = memo.get(DIRECTIVE)
    if cached is None:
        cached = memo[DIRECTIVE] = DIRECTIVE.encode() in data
    return bool(cached)


@dataclass(frozen=True)
class Transition:
    """One pass that reported a change: the module it met and the module it left."""

    before: PassDump
    after: PassDump


class Outcome(Enum):
    """The fate of a module that breaks a precondition."""

    BREAKS = "the pass that demands it comes next"
    REPAIRED = "a pass that establishes it comes first"
    NEVER = "no pass that demands it comes any more"
    UNSURE = "what comes next is not known"


@dataclass(frozen=True, slots=True)
class PreconditionStatus:
    """An outcome, and the sentence that says how it is known."""

    outcome: Outcome
    why: str


class Pipeline:
    """All files of one compilation of one module."""

    def __init__(self, dumps: list[PassDump], artefacts: list[Path], *, lone: bool = False) -> None:
        self.dumps = sorted(dumps, key=_in_order)
        """Every HLO text, in the order of the run."""
        self.artefacts = sorted(artefacts)
        """Every other file of this module."""
        self.lone = lone
        """True if files were given by name: what is absent then proves nothing."""

    def __repr__(self) -> str:
        return f"<Pipeline {self.title}: {len(self.dumps)} dumps>"

    @property
    def title(self) -> str:
        """`module_0001.jit_f`, or the path of a file that no compiler named."""
        name = self.dumps[0].name
        if name is None:
            return str(self.dumps[0].path)
        return f"module_{name.module_id:04d}.{name.module}"

    @cached_property
    def steps(self) -> tuple[PassDump, ...]:
        """The numbered dumps."""
        return tuple(dump for dump in self.dumps if dump.name and dump.name.step is not None)

    @cached_property
    def final(self) -> PassDump | None:
        """The final dump, if the compilation ended."""
        return next((dump for dump in self.dumps if dump.name and dump.name.is_final), None)

    @cached_property
    def is_helper(self) -> bool:
        """True if the autotuner made this module to try a backend."""
        return any(dump.name and dump.name.pipeline in HELPER_PIPELINES for dump in self.steps)

    @property
    def crashed(self) -> bool:
        """True if compilation began and never ended.

        A named dump with nothing beside it was put there by somebody: it proves nothing.
        """
        if self.final is not None or self.is_helper or self.lone:
            return False
        begun = any(dump.name and dump.name.rest.startswith(BEFORE_LAYOUTS) for dump in self.dumps)
        return begun and bool(self.steps or self.options)

    @cached_property
    def options(self) -> DebugOptions | None:
        """The flags of the run, where `*.debug_options` is there."""
        text = self.artefact(".debug_options")
        return None if text is None else read_debug_options(text)

    @cached_property
    def pass_runs(self) -> tuple[PassRun, ...] | None:
        """The passes that ran, where `*.metadata.textproto` is there."""
        text = self.artefact(".metadata.textproto")
        return None if text is None else read_pass_runs(text)

    def artefact(self, ending: str) -> str | None:
        """The text of the first artefact whose name ends so; None where there is none to read."""
        path = self.artefact_path(ending)
        try:
            if path is None or not path.is_file():
                return None  # a pipe would be waited for
            return decode(path.read_bytes())
        except OSError:
            return None

    def artefact_path(self, ending: str) -> Path | None:
        """The first artefact whose name ends so."""
        return next((path for path in self.artefacts if path.name.endswith(ending)), None)

    @cached_property
    def kernels(self) -> list[PassDump]:
        """The PTX that lies beside the HLO, to look at as text."""
        dumped = []
        for path in self.artefacts:
            if path.name.endswith(".ptx") and path.is_file():
                try:
                    text = decode(path.read_bytes())
                except OSError:
                    continue
                module = self.dumps[0].name.module if self.dumps[0].name else ""
                dumped.append(PassDump.of(HloFile.of_text(text, path, module), path, Kind.PTX))
        return dumped

    @cached_property
    def releases(self) -> tuple[PassList, ...]:
        """The known releases that are nearest; several if they are equally near."""
        return recognise([dump.name for dump in self.dumps if dump.name])

    @cached_property
    def backend(self) -> str | None:
        """`gpu`, `cpu` or `tpu`, by names and pass lists; None if unknown."""
        backends = {release.backend for release in self.releases}
        named = backend_of([dump.name for dump in self.dumps if dump.name])
        return named or (backends.pop() if len(backends) == 1 else None)

    def is_of(self, release: PassList) -> bool:
        """True if this run is of a release, as far as the passes that were dumped show."""
        names = [dump.name for dump in self.steps if dump.name]
        known_passes = sum(release.knows(name) > 0 for name in names)
        options = self.options or DebugOptions({})
        return (
            known_passes >= len(names) * MIN_KNOWN_SHARE
            and release.misfits(names, options.disabled) <= MAX_MISFITS
        )

    @cached_property
    def is_of_known_release(self) -> bool:
        """True if a known release has the passes of this run: what is known of its passes binds."""
        return bool(self.releases) and self.is_of(self.releases[0])

    @property
    def records_every_change(self) -> bool:
        """True if each change of the module left a dump."""
        options = self.options
        if options is None or "xla_dump_hlo_pipeline_re" in options.values:
            return False
        return options.pass_pattern in (CHANGED_PASSES, EVERY_PASS)

    def transitions(self) -> Iterator[Transition]:
        """The passes whose input and output are both on disk for certain.

        Where every change was dumped, a pass met what the last dump of its own pipeline holds (a
        pipeline within it is a pass of it); else only a dump that names it as the next pass does.
        """
        last: dict[str, PassDump] = {}
        for dump in self.steps:
            name = dump.name
            assert name is not None
            if not name.before:
                continue  # written in the midst of a pass
            before = last.get(name.pipeline)
            if before is not None and before.name and name.after != "pipeline-start":
                certain = self.records_every_change or before.name.before == name.after
                if certain:
                    yield Transition(before, dump)
            last[name.pipeline] = dump

    def before_autotuner(self) -> PassDump | None:
        """The autotuner's input: the dump that names it as next, else the nearest one before it.

        A file that no compiler named stands for itself. None where the autotuner has been there, or
        is not known to be near.
        """
        nearest: PassDump | None = None
        for dump in self.dumps:
            name = dump.name
            if name is None:
                return dump
            if name.after in AUTOTUNERS and name.step is not None:
                return nearest
            if name.before in AUTOTUNERS or name.rest.startswith("before_config_assignment"):
                return dump
            if self.has_layouts(dump) and not name.is_final:
                nearest = dump
        return nearest if self.final is None else None

    def after_autotuner(self) -> PassDump | None:
        """The autotuner's output: the first dump after it, else the final one."""
        for dump in self.steps:
            if dump.name and dump.name.after in AUTOTUNERS:
                return dump
        return self.final

    # What is still to come

    def has_layouts(self, dump: PassDump) -> bool:
        """True unless the layouts in a dump are known to bind nothing: to be those before
        layout-assignment."""
        return self.layouts_bind(dump) is not False

    def layouts_bind(self, dump: PassDump) -> bool | None:
        """True if layout-assignment has run, False if not; None if a loose file allows both."""
        name = dump.name
        if name is None:
            if dump.is_named_before_layouts:
                return False
            if _loose_name_is(dump.path.name, AFTER_NORMALIZATION):
                return True
            return layouts_bind(dump.file)
        if name.step is None:
            return not name.rest.startswith(BEFORE_LAYOUTS)
        for other in self.steps:
            if other.name and other.name.after == LAYOUT_ASSIGNMENT:
                assert other.name.step is not None
                return name.step >= other.name.step
        places = [
            place >= release.layouts_from
            for release in self.releases
            for place in release.places(name.pipeline, name.after, name.before)
        ]
        return all(places)

    def meeting(self, dump: PassDump, precondition: Precondition) -> PreconditionStatus:
        """The fate of the module in a dump if it breaks a precondition."""
        demanded = precondition.demanded_by
        name = dump.name
        if self.final is not None:
            return PreconditionStatus(Outcome.NEVER, "the module was compiled to the end")
        if name is None:
            return self._meeting_of_loose(dump)
        lists = pass_lists(self.backend)
        if self.backend and all(passes.last_place(demanded) is None for passes in lists):
            never = f"XLA:{self.backend.upper()} does not run {demanded}"
            return PreconditionStatus(Outcome.NEVER, never)
        over = name.rest.partition(".txt")[0].endswith(AFTER_NORMALIZATION)
        if over and precondition.about_layouts:
            return PreconditionStatus(Outcome.NEVER, f"no {demanded} is left to run")
        if self.is_helper:
            return PreconditionStatus(
                Outcome.NEVER, "the autotuner's helper modules are not normalized"
            )
        if self.options is not None and self.options.disabled(demanded):
            return PreconditionStatus(Outcome.NEVER, f"{demanded} is disabled")
        if name.before == demanded:
            return PreconditionStatus(Outcome.BREAKS, f"{demanded} is named as the next pass")
        meetings = {
            self._first(passes, precondition): release for release, passes in self._futures(dump)
        }
        if len(meetings) == 1:
            ((outcome, release),) = meetings.items()
            return self._judged(outcome, release, dump, precondition)
        if self.crashed:
            return PreconditionStatus(Outcome.BREAKS, "compilation ended with this dump")
        return PreconditionStatus(
            Outcome.UNSURE, "which passes come next cannot be told from the dump's name"
        )

    def likened_to(self, release: PassList) -> str:
        """The release, or the unknown release that it is nearest to."""
        if self.is_of(release):
            return release.title
        return f"a release that is not known, nearest to {release.title}"

    def upcoming(self, dump: PassDump) -> tuple[PassList | None, list[Pass]]:
        """The passes to run after the last dump of a module, disabled ones included, and the
        release that has them; None if unknown."""
        runs = self.pass_runs
        for release in self.releases[:1]:
            places = self._places(release, dump)
            name = dump.name
            assert name is not None
            if runs and (ran := release.places(runs[-1].pipeline, runs[-1].name, "")):
                return release, release.remaining(ran[-1], runs[-1].pipeline, "")
            if places:
                return release, release.remaining(places[0], name.pipeline, name.before)
        return None, []

    def _judged(
        self, outcome: Outcome, release: str, dump: PassDump, precondition: Precondition
    ) -> PreconditionStatus:
        demanded = precondition.demanded_by
        assert dump.name is not None
        match outcome:
            case Outcome.BREAKS:
                guards = " or ".join(precondition.established_by)
                if self.options and any(map(self.options.disabled, precondition.established_by)):
                    return PreconditionStatus(
                        outcome, f"{guards} is disabled, and {demanded} is still to run"
                    )
                return PreconditionStatus(
                    outcome, f"{release} does not run {guards} before the next {demanded}"
                )
            case Outcome.REPAIRED:
                guard = dump.name.before
                if self.crashed and self.options is None and guard in precondition.established_by:
                    return PreconditionStatus(
                        Outcome.UNSURE,
                        f"compilation ended with this dump, and no debug_options file says "
                        f"whether {guard} was disabled",
                    )
                return PreconditionStatus(outcome, f"{release} repairs it first")
            case _:
                return PreconditionStatus(outcome, f"{release} does not run {demanded} again")

    def _meeting_of_loose(self, dump: PassDump) -> PreconditionStatus:
        if _loose_name_is(dump.path.name, AFTER_NORMALIZATION):
            return PreconditionStatus(Outcome.NEVER, "its name says that optimization is over")
        if dump.module.is_scheduled:
            return PreconditionStatus(
                Outcome.NEVER, "the module is scheduled, so layouts are settled"
            )
        if ":T(" in dump.module.header:
            return PreconditionStatus(Outcome.NEVER, "its layouts have tiles, so it is of XLA:TPU")
        return PreconditionStatus(Outcome.UNSURE, "nothing says which passes come next")

    def _first(self, passes: list[Pass], precondition: Precondition) -> Outcome:
        """The first to come: the pass that demands, or one that establishes."""
        for _, name in passes:
            if self.options is not None and self.options.disabled(name):
                continue
            if name == precondition.demanded_by:
                return Outcome.BREAKS
            if name in precondition.established_by:
                return Outcome.REPAIRED
        return Outcome.NEVER

    def _futures(self, dump: PassDump) -> Iterator[tuple[str, list[Pass]]]:
        """The passes that may run after a dump: for each near release and each possible place."""
        name = dump.name
        assert name is not None
        if self.pass_runs:
            for number, run in enumerate(self.pass_runs):
                if dump.path.name in run.dumps:
                    ran = [(r.pipeline, r.name) for r in self.pass_runs[number + 1 :]]
                    last = self.pass_runs[-1]
                    for release in self.releases:
                        for place in release.places(last.pipeline, last.name, "")[-1:]:
                            ran = [*ran, *release.remaining(place, last.pipeline, "")]
                            break
                    yield "the module's metadata: this run", ran
                    return
        for release in self.releases:
            for place in self._places(release, dump):
                yield release.title, release.remaining(place, name.pipeline, name.before)

    def _places(self, release: PassList, dump: PassDump) -> list[int]:
        """Places of a dump in a release's list, its predecessors considered."""
        lowest = -1
        for step in self.steps:
            assert step.name is not None
            places = release.places(step.name.pipeline, step.name.after, step.name.before)
            later = [place for place in places if place > lowest] or places
            if step is dump:
                return later[:1] if len(self.steps) > 1 else later
            if later and step.name.after != "pipeline-end":
                lowest = later[0]
        return []

    def release_text(self) -> None:
        """Forget what was read of every dump."""
        for dump in self.dumps:
            dump.release()


def _in_order(dump: PassDump) -> tuple[int, int, str]:
    name = dump.name
    if name is None:
        return 1, 0, str(dump.path)
    if name.step is not None:
        return 1, name.step, dump.path.name
    if name.rest.startswith(BEFORE_LAYOUTS):
        return 0, BEFORE_LAYOUTS.index(name.rest.partition(".")[0]), dump.path.name
    return (3 if name.is_final else 2), 0, dump.path.name


def _loose_name_is(name: str, endings: tuple[str, ...]) -> bool:
    return name.rpartition(".")[0].endswith(endings)
