"""The passes that a release runs, in order, as places for the dumps of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from itertools import filterfalse, islice
from pathlib import Path
from typing import Final, NamedTuple

from hlo_lint.dumps.names import DumpName
from hlo_lint.dumps.phases import BEFORE_CONFIG_ASSIGNMENT, BINDING_PASSES, HELPER_PIPELINES
from hlo_lint.text.errors import UsageError, nearest

PassName = tuple[str, str]
"""Pipeline and pass, as in dump file names."""

PassStep = tuple[str, str, str]
"""Pipeline, the pass that has run, and the next one."""

PassSteps = Mapping[PassStep, Callable[[str], bool]]
"""The steps of a run, each with the passes that were disabled there."""

MIN_KNOWN_SHARE = 0.8
"""The least share of a run's steps that a release's pass list has to contain for the run to be of
that release; the lists lack pipelines for special flags, and partitioning is not counted
(`PARTITIONS`)."""
PARTITIONS = "spmd-"
"""The prefix of pipelines that partition a program: the lists are learnt on a single device."""
MAX_MISFIT_SHARE = 0.0125
"""The largest share of misfits in the steps of such a run: flags and several devices add some.
Folders of twelve programs have 0.015 to 0.12 for the next release, and 0 for the exact release on a
single device."""
MAX_STRANGER_SHARE = 0.035
"""The largest share of strangers, for the same reason."""
_CONFIG_ASSIGNER = ("config-assigner", "config-assigner", "")
"""Releases with this pass write a named dump before it."""


class PassList:
    """The passes of a backend and release, in the order of the run; `pass_list` caches them.

    >>> gpu = pass_list("gpu-jax0.10.0")
    >>> at = gpu.places("post-layout_assignment", "autotuner", "")
    >>> [name for _, name in gpu.passes[at[0] + 1 : at[0] + 3]]
    ['cublas-gemm-broadcast-folding-rewriter', 'layout_normalization']
    """

    def __init__(self, name: str, passes: tuple[PassName, ...]) -> None:
        self.name = name
        """`gpu-jax0.10.0`"""
        self.passes = passes
        # The dumps of all modules ask for the same places and steps.
        self._known_places: dict[PassStep, list[int]] = {}
        self._known_shares: dict[PassStep, float] = {}
        self._known_remaining: dict[tuple[int, str, str], list[PassName]] = {}

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Callable[[str], PassList], tuple[str]]:
        return pass_list, (self.name,)  # unpickled from the cache of the other process

    @property
    def backend(self) -> str:
        """`gpu`, `cpu` or `tpu`"""
        return self.name.partition("-")[0]

    @property
    def version(self) -> str:
        """`0.10.0`"""
        return self.name.partition("-jax")[2]

    @property
    def title(self) -> str:
        """`XLA:GPU with the passes of jax 0.10.0`: other releases may run the same passes."""
        return f"XLA:{self.backend.upper()} with the passes of jax {self.version}"

    @cached_property
    def layouts_from(self) -> int:
        """The place of layout-assignment."""
        return [name for _, name in self.passes].index("layout-assignment")

    @cached_property
    def _places(self) -> dict[PassName, list[int]]:
        places: dict[PassName, list[int]] = {}
        for place, entry in enumerate(self.passes):
            places.setdefault(entry, []).append(place)
        return places

    def places(self, pipeline: str, after: str, before: str) -> list[int]:
        """The places of a dump with these parts of a name: the passes after which it may be.

        Names repeat, so there may be several places; the next pass distinguishes them if possible.
        Empty if the release has no such pass.
        """
        key = pipeline, after, before
        if key not in self._known_places:
            after, before = unnumbered(after), unnumbered(before)
            places = self._places.get((pipeline, after), [])
            # The following pass identifies the run of a repeated pass. If none fits, a flag added
            # or removed the following pass, and every run is possible.
            fitting = [place for place in places if self._following[place] == before]
            if not places:  # a pass this release does not have, before one that it has
                fitting = [place - 1 for place in self._places.get((pipeline, before), ())]
            self._known_places[key] = fitting or places
        return self._known_places[key]

    def last_place(self, name: str) -> int | None:
        """The place of the last run of a pass in any pipeline, or None."""
        return self._last.get(name)

    @cached_property
    def _last(self) -> dict[str, int]:
        return {name: place for place, (_, name) in enumerate(self.passes)}

    @cached_property
    def _following(self) -> list[str]:
        """For each place, the next pass of its pipeline; empty after the last."""
        following: list[str] = []
        ahead: dict[str, str] = {}
        for pipeline, name in reversed(self.passes):
            following.append(ahead.get(pipeline, ""))
            ahead[pipeline] = name
        following.reverse()
        return following

    def remaining(self, place: int, pipeline: str, before: str) -> list[PassName]:
        """The passes after a place, without passes that `before` proves to be skipped."""
        # A dump between two passes of its pipeline proves that passes listed between them do not
        # run.
        key = place, pipeline, before
        if key not in self._known_remaining:
            later = self.passes[place + 1 :]
            following = pipeline, unnumbered(before)
            stop = later.index(following) if following in later else 0
            self._known_remaining[key] = [
                entry
                for number, entry in enumerate(later)
                if number >= stop or entry[0] != pipeline
            ]
        return self._known_remaining[key]

    def knows(self, step: PassStep) -> float:
        """The fit of a step of a run: 1 if the passes are adjacent, less if others are between them
        or only one is in the list, 0 if neither is."""
        if step not in self._known_shares:
            pipeline, after, before = step
            places = self._places.get((pipeline, after), [])
            is_before_known = (pipeline, before) in self._places if before else bool(places)
            share = (bool(places) + is_before_known) / 4  # half for both, a quarter for one
            if any(self._following[place] == before for place in places):
                share = 1
            self._known_shares[step] = share
        return self._known_shares[step]

    def contradictions(self, steps: PassSteps) -> tuple[int, int]:
        """The numbers of misfits and of strangers in a run.

        A misfit is a step from one pass to another that this list lacks, apart from disabled
        passes; a stranger is a pass that its pipeline lacks in this list. Pipelines that are not
        in the list do not count: flags and several devices add some.
        """
        misfits, strangers = 0, set[PassName]()
        for (pipeline, after, before), is_disabled in steps.items():
            places = self._places.get((pipeline, after), [])
            if (pipeline, "pipeline-start") in self._places:
                strangers.update(
                    (pipeline, name)
                    for name in (after, before)
                    if name and (pipeline, name) not in self._places
                )
            if places and (pipeline, before) in self._places:
                nexts = {self._following[place] for place in places}
                for place in places if before not in nexts else ():
                    later = (name for run, name in self.passes[place + 1 :] if run == pipeline)
                    nexts.update(islice(filterfalse(is_disabled, later), 1))
                misfits += before not in nexts
        return misfits, len(strangers)

    def fits(self, steps: PassSteps) -> bool:
        """True if the dumped passes show that a run may be of this release."""
        common = [step for step in steps if not step[0].startswith(PARTITIONS)]
        listed = sum(self.knows(step) >= 0.5 for step in common)
        misfits, strangers = self.contradictions(steps)
        return (
            listed >= len(common) * MIN_KNOWN_SHARE
            and misfits <= len(steps) * MAX_MISFIT_SHARE
            and strangers <= len(steps) * MAX_STRANGER_SHARE
        )


def jax_release(name: str | None) -> tuple[int, ...]:
    """The release of a list, as numbers; empty for None.

    >>> jax_release("gpu-jax0.10.2")
    (0, 10, 2)
    """
    return tuple(map(int, name.partition("-jax")[2].split("."))) if name else ()


def unnumbered(name: str) -> str:
    """A pass's name without the number from the run.

    >>> unnumbered("apply-xla-transforms-4")
    'apply-xla-transforms'
    """
    return _NUMBERED if name.startswith(_NUMBERED) else name


_NUMBERED = "apply-xla-transforms"


PARTITIONING: Final = frozenset(
    "sharding-propagation shardy-xla spmd-cleanup spmd-partitioner spmd-partitioning "
    "tpu-spmd-partitioning".split()
)
"""Passes and pipelines of programs for several devices, which the lists lack."""


@cache
def pass_lists(backend: str | None = None) -> tuple[PassList, ...]:
    """All lists, or those of a backend, from the oldest release to the newest."""
    folder = Path(__file__).parent / "pipelines"
    names = [path.stem for path in folder.glob(f"{backend or '*'}-*.txt")]
    by_release = sorted(names, key=lambda name: (name.partition("-")[0], jax_release(name)))
    return tuple(map(pass_list, by_release))


@cache
def pass_list(name: str) -> PassList:
    """The list of a backend and release.

    Raises:
        FileNotFoundError: if it does not exist.
    """
    path = Path(__file__).parent / "pipelines" / f"{name}.txt"
    passes = []
    for line in path.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            pipeline, _, entry = line.partition(" ")
            passes.append((pipeline, unnumbered(entry)))
    return PassList(name, tuple(passes))


@cache
def passes_and_pipelines() -> frozenset[str]:
    """The passes and pipelines of all releases: reading them takes longer than most checks."""
    from hlo_lint.dumps.contracts import unlisted_passes

    listed = (part for release in pass_lists() for run in release.passes for part in run)
    return PARTITIONING.union(BINDING_PASSES, unlisted_passes(), listed)


def known_pass(name: str | None) -> str | None:
    """Check the name of a pass or a pipeline, and return it; None stays None.

    Raises:
        UsageError: for a name in no release; names the nearest.
    """
    if name is not None and name not in BINDING_PASSES and name not in passes_and_pipelines():
        near = nearest(name, passes_and_pipelines(), ", ".join(BINDING_PASSES))
        raise UsageError(f"no release has a pass or a pipeline named {name}: {near}")
    return name


class Recognition(NamedTuple):
    """The release derived from the steps of a run, or of all runs of a folder."""

    nearest: tuple[PassList, ...] = ()
    """The nearest known releases; several if they are equally near."""
    is_known: bool = False
    """True if these have the passes of the run, so facts about their passes apply."""


def recognise(steps: PassSteps, backend: str | None) -> Recognition:
    """The release of a run, by the names of its dumps: dumps do not contain a version.

    A list with two adjacent passes scores twice as much as a list with another pass between them,
    to distinguish neighbouring releases.
    """
    if not steps:
        return Recognition()  # a lone text: no need to read the lists
    scores = {entry: sum(map(entry.knows, steps)) for entry in pass_lists(backend)}
    most = max(scores.values(), default=0)
    nearest = tuple(entry for entry, score in scores.items() if most and score == most)
    fitting = tuple(entry for entry in nearest if entry.fits(steps))
    return Recognition(fitting or nearest, bool(fitting))


def steps_of(names: Iterable[DumpName], is_disabled: Callable[[str], bool]) -> PassSteps:
    """The steps that the names of dumps show."""
    steps: dict[PassStep, Callable[[str], bool]] = {}
    for name in names:
        if name.step is not None:
            steps[name.pipeline, unnumbered(name.after), unnumbered(name.before)] = is_disabled
        elif name.rest.startswith(BEFORE_CONFIG_ASSIGNMENT):
            steps[_CONFIG_ASSIGNER] = is_disabled
    return steps


def recognise_folder(
    runs: Iterable[tuple[Sequence[DumpName], PassSteps]],
) -> dict[str, Recognition]:
    """The release of the runs of a folder, for each backend.

    A single XLA wrote them all, and a small module alone fits several releases: a release that any
    module contradicts is excluded for all.
    """
    by_backend: dict[str, dict[PassStep, Callable[[str], bool]]] = {}
    for names, steps in runs:
        if steps and not is_helper(names):
            backend = backend_of(names)
            backends = {backend} if backend else {r.backend for r in recognise(steps, None).nearest}
            if len(backends) == 1:
                by_backend.setdefault(backends.pop(), {}).update(steps)
    return {backend: recognise(steps, backend) for backend, steps in by_backend.items()}


def is_helper(names: Iterable[DumpName]) -> bool:
    """True if a pass made this module for a trial, and it never runs."""
    return any(name.step is not None and name.pipeline in HELPER_PIPELINES for name in names)


def backend_of(names: Iterable[DumpName]) -> str | None:
    """The backend in the names of dumps; None unless it is unique."""
    backends = {name.backend for name in names} - {None}
    return backends.pop() if len(backends) == 1 else None
