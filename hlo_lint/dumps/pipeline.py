"""The dumps of one module in the order of the run, and what the run still holds for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
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
from hlo_lint.text.source import decode
from hlo_lint.text.stored import on_disk, plain_name, read_stored

if TYPE_CHECKING:
    from hlo_lint.dumps.options import DebugOptions, PassRun


class Transition(NamedTuple):
    """One pass that reported a change: the module it met and the module it left."""

    before: PassDump
    after: PassDump


class _Place(NamedTuple):
    """The place of a numbered dump in the pass list of a release."""

    places: Sequence[int]
    """Empty if the release has no such pass."""
    first: int
    last: int


_NOWHERE = _Place((), 0, 0)


class Pipeline:
    """All files of one compilation of one module."""

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
        """True if files were given by name: what is absent then proves nothing."""
        self.folder_release = folder_release
        """The release that all runs of its folder and backend show; None if it is by itself."""

    def with_dumps(self, dumps: list[PassDump], artefacts: list[Path]) -> Pipeline:
        """The same run with other files of it, or with the same in another folder."""
        return Pipeline(dumps, artefacts, lone=self.lone, folder_release=self.folder_release)

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
    def steps(self) -> tuple[NumberedDump, ...]:
        """The numbered dumps."""
        return tuple(dump for dump in self.dumps if isinstance(dump, NumberedDump))

    @cached_property
    def final(self) -> PassDump | None:
        """The final dump, if the compilation ended."""
        return next((dump for dump in self.dumps if dump.name and dump.name.is_final), None)

    @cached_property
    def is_helper(self) -> bool:
        """True if a pass made this module to try something, and nothing runs it."""
        return is_helper(self.names)

    @cached_property
    def crashed(self) -> bool:
        """True if compilation began and never ended.

        A named dump with nothing beside it was put there by somebody: it proves nothing.
        """
        if self.final is not None or self.is_helper or self.lone:
            return False
        return self.begins and bool(self.steps or self.options)

    @property
    def begins(self) -> bool:
        """True if the compiler's input is there."""
        return any(dump.name and dump.name.rest.startswith(BEFORE_LAYOUTS) for dump in self.dumps)

    @cached_property
    def options(self) -> DebugOptions | None:
        """The flags of the run, where `*.debug_options` is there."""
        text = self.artefact(".debug_options")
        if text is None:
            return None
        from hlo_lint.dumps.options import read_debug_options

        return read_debug_options(text)

    @cached_property
    def pass_runs(self) -> tuple[PassRun, ...] | None:
        """The passes that ran, where `*.metadata.textproto` is there."""
        text = self.artefact(".metadata.textproto")
        if text is None:
            return None
        from hlo_lint.dumps.options import read_pass_runs

        return read_pass_runs(text)

    def artefact(self, ending: str) -> str | None:
        """The text of the first artefact whose name ends so; None where there is none to read."""
        path = self.artefact_path(ending)
        try:
            if path is None or not on_disk(path).is_file():
                return None  # a pipe would be waited for
            return decode(read_stored(path))
        except (OSError, DumpError):
            return None

    def artefact_path(self, ending: str) -> Path | None:
        """The first artefact whose name ends so."""
        return next(
            (path for path in self.artefacts if plain_name(path.name).endswith(ending)), None
        )

    @cached_property
    def kernels(self) -> list[PassDump]:
        """The PTX that lies beside the HLO, to look at as text."""
        dumped = []
        for path in self.artefacts:
            if plain_name(path.name).endswith(".ptx") and on_disk(path).is_file():
                try:
                    text = decode(read_stored(path))
                except (OSError, DumpError):
                    continue
                module = self.dumps[0].name.module if self.dumps[0].name else ""
                dumped.append(PassDump.of(HloFile.of_text(text, path, module), path, FileType.PTX))
        return dumped

    @cached_property
    def size(self) -> int:
        """Bytes of its texts when first asked; a file that cannot be read has none."""
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
        """True if the flags of the run switch a pass off."""
        return self.options is not None and self.options.disabled(name)

    @property
    def recognition(self) -> Recognition:
        """The release by its folder, where others of it are known, else by its own dumps."""
        return self._own_release if self.folder_release is None else self.folder_release

    @cached_property
    def _own_release(self) -> Recognition:
        return recognise(self.steps_taken, backend_of(self.names))

    @property
    def releases(self) -> tuple[PassList, ...]:
        """The known releases that are nearest; several if they are equally near."""
        return self.recognition.nearest

    @property
    def is_of_known_release(self) -> bool:
        """True if a known release has the passes of this run: what is known of its passes binds."""
        return self.recognition.is_known

    @property
    def release(self) -> PassList | None:
        """The one known release that has the passes of this run; None if none or several have."""
        nearest, is_known = self.recognition
        return nearest[0] if is_known and len(nearest) == 1 else None

    @property
    def possible_releases(self) -> tuple[PassList, ...]:
        """The releases this run may be of: those that fit, else all that are known of its
        backend; what is said of passes has to hold in each of them."""
        return self.releases if self.is_of_known_release else pass_lists(self.backend)

    @property
    def compiler(self) -> str:
        """`XLA:GPU`; `XLA` if the backend is unknown."""
        return f"XLA:{self.backend.upper()}" if self.backend else "XLA"

    def places(self, release: PassList, dump: PassDump) -> Sequence[int]:
        """Places of a dump in a release's list, its predecessors considered.

        A pass may stand in a list several times. Each numbered dump takes the first place after
        that of the dump before it; a dump on its own may have any.
        """
        return self._places_in(release).get(dump.path, _NOWHERE).places

    def place_range(self, release: PassList, dump: NumberedDump) -> tuple[int, int]:
        """The first and the last place that a dump may have in a release's list.

        A pass that the release does not have stands where the dump before it stood.
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
                # A pipeline that is run again begins above the last place: then every place may be
                # meant.
                later = [place for place in places if place > lowest] or places
                if len(self.steps) > 1:
                    later = later[:1]
                if later:
                    first, last = later[0], later[-1]
                    if name.after != "pipeline-end":
                        lowest = first
                by_path[step.path] = _Place(later, first, last)
        return by_path

    @cached_property
    def _places(self) -> dict[str, dict[Path, _Place]]:
        return {}

    @property
    def release_title(self) -> str:
        """`XLA:GPU with the passes of jax 0.10.0`, or of several; if none is known, the backend."""
        if not self.is_of_known_release:
            return f"{self.compiler} of a release whose passes are not known"
        first, *others = self.releases
        names = [release.name for release in self.releases]
        listed = [release.name for release in pass_lists(first.backend)]
        at = listed.index(first.name)
        if len(others) > 1 and listed[at : at + len(names)] == names:
            return f"{first.title} to {others[-1].version}"
        return " or ".join([first.title, *(release.version for release in others)])

    @cached_property
    def backend(self) -> str | None:
        """`gpu`, `cpu` or `tpu`, by names and pass lists; None if unknown."""
        if named := backend_of(self.names):
            return named
        backends = {release.backend for release in self.releases}
        return backends.pop() if len(backends) == 1 else None

    @property
    def records_every_change(self) -> bool:
        """True if each change of the module left a dump."""
        return self.options is not None and self.options.records_every_change

    def transitions(self) -> Iterator[Transition]:
        """The passes whose input and output are both on disk for certain.

        Where every change was dumped, a pass met what the last dump of its own pipeline holds (a
        pipeline within it is a pass of it), or, where one within it left no dump as a pass, the
        last dump of that one; else only a dump that names it as the next pass does.
        """
        steps = [dump for dump in self.steps if dump.name.before]  # others are of a pass's midst
        last: dict[str, int] = {}
        for at, dump in enumerate(steps):
            name = dump.name
            before = last.get(name.pipeline)
            if before is not None and name.after != "pipeline-start":
                if steps[before].name.before == name.after:
                    yield Transition(steps[before], dump)
                elif self.records_every_change:
                    is_inner = last.get(name.after, -1) > before  # the pass is that pipeline
                    is_unsaid = not is_inner and _is_left_unsaid(steps[before : at + 1])
                    yield Transition(steps[at - 1 if is_unsaid else before], dump)
            last[name.pipeline] = at

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
            if self.layouts_bind(dump) is not False and not name.is_final:
                nearest = dump
        return nearest if self.final is None else None

    def after_autotuner(self) -> PassDump | None:
        """The autotuner's output: the first dump after it, else the final one."""
        for dump in self.steps:
            if dump.name.after in AUTOTUNERS:
                return dump
        return self.final

    def layouts_bind(self, dump: PassDump) -> bool | None:
        """True if layout-assignment has run, False if not; None if nothing says.

        The run decides, else the lists of its releases, else the text.
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
            return True  # the autotuner takes fusions out of modules that have layouts
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
        """Forget what was read of every dump."""
        for dump in self.dumps:
            dump.release()


def is_behind(places: tuple[int, int], place: int) -> bool | None:
    """True if a range of places is at or after a place, False if before it; None if it holds it."""
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
    """True if a pipeline within another one changed the module, and left no dump as its pass.

    XLA:TPU writes none, nor does a fixed point that ends at its limit. The first and the last dump
    are of the outer pipeline. A pass that runs the inner one in its midst has changed the module
    before it.
    """
    before, start, inner = steps[0], steps[1], steps[-2]
    return (
        start.name.after == "pipeline-start"
        and inner is not start
        and start.text_identity == before.text_identity != inner.text_identity
    )
