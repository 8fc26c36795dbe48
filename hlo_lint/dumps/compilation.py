"""A compilation of a module: its dumps in the order of the run, its release, its artefacts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hlo_lint.dumps.file_types import FileType
from hlo_lint.dumps.layout_evidence import evidence_in
from hlo_lint.dumps.names import DumpName
from hlo_lint.dumps.pass_dump import NumberedDump, PassDump
from hlo_lint.dumps.pass_lists import (
    PassList,
    PassSteps,
    Recognition,
    backend_of,
    is_helper,
    pass_lists,
    recognise,
    steps_of,
)
from hlo_lint.dumps.phases import AFTER_NORMALIZATION, AUTOTUNERS, BEFORE_LAYOUTS, LAYOUT_ASSIGNMENT
from hlo_lint.hlo.ir import HloFile
from hlo_lint.text.errors import DumpError
from hlo_lint.text.phrases import counted, in_a_line
from hlo_lint.text.source import decode
from hlo_lint.text.stored import on_disk, plain_name, read_stored

if TYPE_CHECKING:
    from hlo_lint.dumps.run_records import DebugOptions, PassRun


class Transition(NamedTuple):
    """A pass with its input and its output module."""

    before: PassDump
    after: PassDump


class _Place(NamedTuple):
    """The place of a numbered dump in the pass list of a release."""

    places: Sequence[int]
    """Empty if the release has no such pass."""
    first: int
    last: int


_NOWHERE = _Place((), 0, 0)
_EMITTED = (".thunk_sequence.txt", ".ptx")
"""Endings of the files that XLA:GPU writes once it has emitted thunks and kernels."""


class Compilation:
    """All files of a compilation of a module."""

    def __init__(
        self,
        dumps: list[PassDump],
        artefacts: list[Path],
        *,
        lone: bool = False,
        folder_release: Recognition | None = None,
    ) -> None:
        self.dumps = sorted(dumps, key=_in_order)
        """Every HLO text, in the order of the run."""
        self.artefacts = sorted(artefacts)
        """Every other file of this module."""
        self.lone = lone
        """True if files were given by name: absent files are then no evidence."""
        self.folder_release = folder_release
        """The release derived from all runs of its folder and backend; None if it is alone."""
        self._places: dict[str, dict[Path, _Place]] = {}

    def with_dumps(self, dumps: list[PassDump], artefacts: list[Path]) -> Compilation:
        """A copy of the run with other files, or with its files in another folder."""
        return Compilation(dumps, artefacts, lone=self.lone, folder_release=self.folder_release)

    def __repr__(self) -> str:
        return in_a_line(f"<Compilation {self.title}: {counted(len(self.dumps), 'dump')}>")

    @property
    def title(self) -> str:
        """`module_0001.jit_f`, or the path of a loose file."""
        name = self.dumps[0].name
        if name is None:
            return str(self.dumps[0].path)
        return f"module_{name.module_id:04d}.{name.module}"

    @cached_property
    def steps(self) -> tuple[NumberedDump, ...]:
        """The numbered dumps."""
        return tuple(dump for dump in self.dumps if isinstance(dump, NumberedDump))

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that a check may read."""
        return (*(dump.path for dump in self.dumps), *self.artefacts)

    @cached_property
    def final(self) -> PassDump | None:
        """The final dump, if the compilation ended."""
        return next((dump for dump in self.dumps if dump.name and dump.name.is_final), None)

    @cached_property
    def is_helper(self) -> bool:
        """True if a pass made this module for a trial, and it never runs."""
        return is_helper(self.names)

    @cached_property
    def crashed(self) -> bool:
        """True if compilation began and never ended.

        A lone named dump may have been copied there, so it is not evidence.
        """
        if self.final is not None or self.is_helper or self.lone:
            return False
        return self.begins and bool(self.steps or self.options)

    @property
    def stops_before_emission(self) -> bool:
        """True if XLA:GPU wrote the final module, but no thunk sequence or PTX after it."""
        final = self.final
        if final is None or final.name is None or self.lone or not self.begins:
            return False
        is_gpu = "gpu_after_optimizations" in final.name.rest
        # In a copy of chosen files, the options are absent, too.
        return is_gpu and not any(map(self.artefact_path, _EMITTED)) and self.options is not None

    @property
    def begins(self) -> bool:
        """True if the dump of the compiler's input exists."""
        return any(dump.name and dump.name.rest.startswith(BEFORE_LAYOUTS) for dump in self.dumps)

    @cached_property
    def options(self) -> DebugOptions | None:
        """The flags of the run, if `*.debug_options` exists."""
        text = self.artefact(".debug_options")
        if text is None:
            return None
        from hlo_lint.dumps.run_records import read_debug_options

        return read_debug_options(text)

    @cached_property
    def pass_runs(self) -> tuple[PassRun, ...] | None:
        """The passes that ran, if `*.metadata.textproto` exists."""
        text = self.artefact(".metadata.textproto")
        if text is None:
            return None
        from hlo_lint.dumps.run_records import read_pass_runs

        return read_pass_runs(text)

    def artefact(self, ending: str) -> str | None:
        """The text of the first artefact with an ending; None if missing or unreadable."""
        path = self.artefact_path(ending)
        return None if path is None else _text_of(path)

    def artefact_path(self, ending: str) -> Path | None:
        """The first artefact with an ending."""
        paths = (path for path in self.artefacts if plain_name(path.name).endswith(ending))
        return next(paths, None)

    @cached_property
    def kernels(self) -> list[PassDump]:
        """The PTX files beside the HLO, as text."""
        module = self.dumps[0].name.module if self.dumps[0].name else ""
        return [
            PassDump.of(HloFile.of_text(text, path, module), path, FileType.PTX)
            for path in self.artefacts
            if plain_name(path.name).endswith(".ptx") and (text := _text_of(path)) is not None
        ]

    @cached_property
    def size(self) -> int:
        """Bytes of its texts; an unreadable file counts as 0."""
        size = 0
        for dump in self.dumps:
            with suppress(OSError):
                size += on_disk(dump.path).stat().st_size
        return size

    @property
    def names(self) -> list[DumpName]:
        """The parts of the names of its dumps."""
        return [dump.name for dump in self.dumps if dump.name]

    @property
    def steps_taken(self) -> PassSteps:
        """The steps from pass to pass that its dumps show."""
        return steps_of(self.names, self.is_disabled)

    def is_disabled(self, name: str) -> bool:
        """True if the flags of the run disable a pass."""
        return self.options is not None and self.options.disabled(name)

    @property
    def recognition(self) -> Recognition:
        """The release by its folder if that has other runs, else by its own dumps."""
        return self._own_release if self.folder_release is None else self.folder_release

    @cached_property
    def _own_release(self) -> Recognition:
        return recognise(self.steps_taken, backend_of(self.names))

    @property
    def releases(self) -> tuple[PassList, ...]:
        """The nearest known releases; several if they are equally near."""
        return self.recognition.nearest

    @property
    def is_of_known_release(self) -> bool:
        """True if a known release has the passes of this run, so facts about its passes apply."""
        return self.recognition.is_known

    @property
    def release(self) -> PassList | None:
        """The known release with the passes of this run; None unless it is unique."""
        nearest, is_known = self.recognition
        return nearest[0] if is_known and len(nearest) == 1 else None

    @property
    def possible_releases(self) -> tuple[PassList, ...]:
        """The releases this run may be of: those that fit, else all known releases of its backend.
        Statements about passes have to hold in each of them."""
        return self.releases if self.is_of_known_release else pass_lists(self.backend)

    @property
    def compiler(self) -> str:
        """`XLA:GPU`; `XLA` if the backend is unknown."""
        return f"XLA:{self.backend.upper()}" if self.backend else "XLA"

    def places(self, release: PassList, dump: PassDump) -> Sequence[int]:
        """The places of a dump in a release's list, given the dumps before it.

        A pass may be in a list several times. Each numbered dump takes the first place after that
        of the previous dump; a lone dump may have any place.
        """
        return self._places_in(release).get(dump.path, _NOWHERE).places

    def place_range(self, release: PassList, dump: NumberedDump) -> tuple[int, int]:
        """The first and the last place that a dump may have in a release's list.

        A pass that the release lacks has the place of the previous dump.
        """
        place = self._places_in(release)[dump.path]
        return place.first, place.last

    def _places_in(self, release: PassList) -> dict[Path, _Place]:
        by_path = self._places.get(release.name)
        if by_path is None:
            by_path = self._places[release.name] = {}
            lowest, first, last = -1, 0, len(release.passes)
            for step in self.steps:
                name = step.name
                places = release.places(name.pipeline, name.after, name.before)
                # A pipeline that runs again begins above the last place: then every place is
                # possible.
                later = [place for place in places if place > lowest] or places
                if len(self.steps) > 1:
                    later = later[:1]
                if later:
                    first, last = later[0], later[-1]
                    if name.after != "pipeline-end":
                        lowest = first
                by_path[step.path] = _Place(later, first, last)
        return by_path

    @property
    def release_title(self) -> str:
        """`XLA:GPU with the passes of jax 0.10.0`, or of several releases, or the backend."""
        if not self.is_of_known_release:
            return f"{self.compiler} of a release with unknown passes"
        first, *others = self.releases
        names = [release.name for release in self.releases]
        listed = [release.name for release in pass_lists(first.backend)]
        index = listed.index(first.name)
        if len(others) > 1 and listed[index : index + len(names)] == names:
            return f"{first.title} to {others[-1].version}"
        return " or ".join([first.title, *(release.version for release in others)])

    @cached_property
    def backend(self) -> str | None:
        """`gpu`, `cpu` or `tpu`, by names and pass lists; None if unknown."""
        if named := backend_of(self.names):
            return named
        backends = {release.backend for release in self.releases}
        return backends.pop() if len(backends) == 1 else None

    @cached_property
    def records_every_change(self) -> bool:
        """True if each change of the module left a dump, by the flags or by the dumps.

        A pipeline's start is dumped if `xla_dump_hlo_pass_re` matches its first pass. Only for `.*`
        XLA then omits the dump after that pass, where it changed nothing.
        """
        if self.options is not None:
            return self.options.records_every_change
        # XLA wrote no flags up to jax 0.5, nor for a compilation that died up to 0.6. Of a folder
        # from which files were taken, nothing can be said: XLA numbers its dumps without a gap.
        numbers = [dump.name.step for dump in self.steps]
        return numbers == list(range(len(numbers))) and any(
            first.name.after == "pipeline-start"
            and first.name.pipeline == second.name.pipeline
            and second.name.after not in (first.name.before, "pipeline-start")
            for first, second in pairwise(self.steps)
        )

    def transitions(self) -> Iterator[Transition]:
        """The passes whose input and output are both certainly on disk.

        If every change was dumped, the input of a pass is the last dump of its pipeline (an inner
        pipeline counts as a pass), or, if an inner pipeline left no dump as a pass, the last dump
        of the inner pipeline. Otherwise only a dump that names the pass as the next is its input.
        """
        steps = [dump for dump in self.steps if dump.name.before]  # not from inside a pass
        last: dict[str, int] = {}
        for index, dump in enumerate(steps):
            name = dump.name
            before = last.get(name.pipeline)
            if before is not None and name.after != "pipeline-start":
                if steps[before].name.before == name.after:
                    yield Transition(steps[before], dump)
                elif self.records_every_change:
                    is_inner = last.get(name.after, -1) > before  # the pass is that pipeline
                    is_unsaid = not is_inner and _is_left_unsaid(steps[before : index + 1])
                    yield Transition(steps[index - 1 if is_unsaid else before], dump)
            last[name.pipeline] = index

    def before_autotuner(self) -> PassDump | None:
        """The autotuner's input: the dump that names it as next, else the nearest before it.

        A loose file is its own input. None if the autotuner has already run, or may not be near.
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
            if self.layouts_bind(dump) is not False and not name.is_final:
                nearest = dump
        return nearest if self.final is None else None

    def after_autotuner(self) -> PassDump | None:
        """The autotuner's output: the first dump after it, else the final dump."""
        for dump in self.steps:
            if dump.name.after in AUTOTUNERS:
                return dump
        return self.final

    def layouts_bind(self, dump: PassDump) -> bool | None:
        """True if layout-assignment has run, False if not; None if unknown.

        Decided by the run, else by the lists of its releases, else by the text.
        """
        name = dump.name
        if name is None:
            if dump.is_named_before_layouts:
                return False
            if dump.stem_ends_with(AFTER_NORMALIZATION):
                return True
        elif name.step is None:
            return not name.rest.startswith(BEFORE_LAYOUTS)
        elif self.is_helper:
            return True  # the autotuner extracts fusions from modules with layouts
        elif self.assigned_at is not None:
            return name.step >= self.assigned_at
        elif isinstance(dump, NumberedDump):
            answers = {
                is_behind(self.place_range(release, dump), release.layouts_from)
                for release in self.releases
            }
            if len(answers) == 1 and None not in answers:
                return answers.pop()
        return evidence_in(dump.file).binds

    @cached_property
    def assigned_at(self) -> int | None:
        """The step after layout-assignment, if that was dumped."""
        after = (dump.step for dump in self.steps if dump.name.after == LAYOUT_ASSIGNMENT)
        return next(after, None)

    def release_text(self) -> None:
        """Release the texts of all dumps."""
        for dump in self.dumps:
            dump.release()


def _text_of(path: Path) -> str | None:
    """The text of a file; None if it is missing, unreadable, or a pipe, which would block."""
    try:
        return decode(read_stored(path)) if on_disk(path).is_file() else None
    except (OSError, DumpError):
        return None


def is_behind(places: tuple[int, int], place: int) -> bool | None:
    """True if a range of places is at or after a place, False if before; None if around it."""
    first, last = places
    return True if first >= place else False if last < place else None


def _in_order(dump: PassDump) -> tuple[int, int, str]:
    name = dump.name
    if name is None:
        return 1, 0, str(dump.path)
    if name.step is not None:
        return 1, name.step, dump.path.name
    for place, rest in enumerate(BEFORE_LAYOUTS):
        if name.rest.startswith(rest):
            return 0, place, dump.path.name
    return (3 if name.is_final else 2), 0, dump.path.name


def _is_left_unsaid(steps: Sequence[NumberedDump]) -> bool:
    """True if an inner pipeline changed the module, and left no dump as a pass.

    XLA:TPU writes no such dump, and neither does a fixed point that ends at its limit. The first
    and the last dump are of the outer pipeline. A pass that runs the inner pipeline in the middle
    has changed the module before it.
    """
    before, start, inner = steps[0], steps[1], steps[-2]
    return (
        start.name.after == "pipeline-start"
        and inner is not start
        and start.text_identity == before.text_identity != inner.text_identity
    )
