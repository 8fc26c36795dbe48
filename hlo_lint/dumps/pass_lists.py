"""The passes that a release runs, in order, and the place of a dump in that order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property
from pathlib import Path

from hlo_lint.dumps.names import DumpName
from hlo_lint.dumps.phases import AUTOTUNERS, RELEASE_MARKS
from hlo_lint.text.lazy_dataclasses import dataclass

Pass = tuple[str, str]
"""Pipeline and pass, as dump file names spell them."""


@dataclass(frozen=True)
class PassList:
    """The passes of one backend and release, in the order of the run.

    >>> gpu = pass_list("gpu-jax0.10.0")
    >>> at = gpu.places("post-layout_assignment", "autotuner", "")
    >>> [name for _, name in gpu.passes[at[0] + 1 : at[0] + 3]]
    ['cublas-gemm-broadcast-folding-rewriter', 'layout_normalization']
    """

    name: str
    """`gpu-jax0.10.0`"""
    passes: tuple[Pass, ...]

    @property
    def backend(self) -> str:
        """`gpu`, `cpu` or `tpu`"""
        return self.name.partition("-")[0]

    @property
    def title(self) -> str:
        """`XLA:GPU of jax 0.10.0`"""
        release = self.name.partition("-jax")[2]
        return f"XLA:{self.backend.upper()} of jax {release}"

    @cached_property
    def layouts_from(self) -> int:
        """The place of layout-assignment."""
        return next(
            place for place, (_, name) in enumerate(self.passes) if name == "layout-assignment"
        )

    @cached_property
    def _places(self) -> dict[Pass, list[int]]:
        places: dict[Pass, list[int]] = {}
        for place, entry in enumerate(self.passes):
            places.setdefault(entry, []).append(place)
        return places

    def places(self, pipeline: str, after: str, before: str) -> list[int]:
        """Places of a dump with these parts of a name: the passes after which it may be.

        Names repeat, so there may be several; what is next in the list tells them apart as far as
        it can. Empty where the release has no such pass.
        """
        key = pipeline, after, before
        positions = self._known.get(key)
        if positions is None:
            positions = self._known[key] = self._find(
                pipeline, unnumbered(after), unnumbered(before)
            )
        return positions

    @cached_property
    def _known(self) -> dict[tuple[str, str, str], list[int]]:
        return {}

    def _find(self, pipeline: str, after: str, before: str) -> list[int]:
        after_places = self._places.get((pipeline, after), [])
        before_places = self._places.get((pipeline, before), [])
        if not after_places:  # a pass this release does not have, before one that it has
            return [place - 1 for place in before_places]
        # Which run of a repeated pass it was shows in what follows. Where nothing fits, a flag
        # added or removed the pass that follows, and every run stays possible.
        fitting = [place for place in after_places if self._next(place, pipeline) == before]
        return fitting or after_places

    def last_place(self, name: str) -> int | None:
        """The place of the last run of a pass, in whatever pipeline; None where none runs it."""
        return self._last.get(name)

    @cached_property
    def _last(self) -> dict[str, int]:
        return {name: place for place, (_, name) in enumerate(self.passes)}

    def _next(self, place: int, pipeline: str) -> str:
        """The next pass of the same pipeline after a place."""
        if self.passes[place][0] == pipeline:
            return self._following[place]
        return next((name for other, name in self.passes[place + 1 :] if other == pipeline), "")

    @cached_property
    def _following(self) -> list[str]:
        """For each place the pass of its pipeline that follows; empty after the last."""
        following: list[str] = []
        ahead: dict[str, str] = {}
        for pipeline, name in reversed(self.passes):
            following.append(ahead.get(pipeline, ""))
            ahead[pipeline] = name
        following.reverse()
        return following

    def remaining(self, place: int, pipeline: str, before: str) -> list[Pass]:
        """The passes after a place, without those that `before` shows to be left out."""
        # A dump between two passes of its pipeline proves that those listed between them do not
        # run.
        later = self.passes[place + 1 :]
        try:
            stop = later.index((pipeline, unnumbered(before)))
        except ValueError:
            return list(later)
        return [
            entry for number, entry in enumerate(later) if number >= stop or entry[0] != pipeline
        ]

    def knows(self, name: DumpName) -> float:
        """The fit of a dump's name: 1 if the passes follow each other, less if one has
        been left out between them, 0 if the release has none of them."""
        after_places = self._places.get((name.pipeline, unnumbered(name.after)), [])
        before = unnumbered(name.before)
        if any(self._next(place, name.pipeline) == before for place in after_places):
            return 1
        return 0.5 if after_places and (name.pipeline, before) in self._places else 0

    def misfits(self, names: Iterable[DumpName], is_disabled: Callable[[str], bool]) -> int:
        """The number of places where a run goes from one pass to another and this list does not,
        passes that the run disabled aside. Passes and pipelines that are not in the list do not
        count: flags and further devices add some."""
        wrong = set()
        for name in names:
            step = name.pipeline, unnumbered(name.after), unnumbered(name.before)
            places = self._places.get(step[:2], ())
            if places and (name.pipeline, step[2]) in self._places:
                nexts = {self._next_enabled(place, is_disabled) for place in places}
                if step[2] not in nexts:
                    wrong.add(step)
        return len(wrong)

    def _next_enabled(self, place: int, is_disabled: Callable[[str], bool]) -> str:
        pipeline = self.passes[place][0]
        for other, name in self.passes[place + 1 :]:
            if other == pipeline and not is_disabled(name):
                return name
        return ""


def unnumbered(name: str) -> str:
    """A pass's name without the number that a run gives it.

    >>> unnumbered("apply-xla-transforms-4")
    'apply-xla-transforms'
    """
    return _NUMBERED if name.startswith(_NUMBERED) else name


_NUMBERED = "apply-xla-transforms"


@cache
def pass_lists(backend: str | None = None) -> tuple[PassList, ...]:
    """Every list, or those of one backend, by name."""
    folder = Path(__file__).parent / "pipelines"
    names = sorted(path.stem for path in folder.glob(f"{backend or '*'}-*.txt"))
    return tuple(map(pass_list, names))


@cache
def pass_list(name: str) -> PassList:
    """The list of one backend and release.

    Raises:
        FileNotFoundError: where there is none of that name.
    """
    path = Path(__file__).parent / "pipelines" / f"{name}.txt"
    passes = []
    for line in path.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            pipeline, _, entry = line.partition(" ")
            passes.append((pipeline, unnumbered(entry)))
    return PassList(name, tuple(passes))


def recognise(names: Sequence[DumpName]) -> tuple[PassList, ...]:
    """The known releases that are nearest to a run; several if they are equally near.

    A mark that only some releases have decides, then the number of names that a list knows. Empty
    if there is no mark, and none knows any.
    """
    backend = backend_of(names)
    marked = [entry for entry in _marked(names) if backend in (None, entry.backend)]
    # A list that has the two passes in this order counts twice as much as one that has another
    # between them, so that neighbouring releases can be told apart.
    steps = [name for name in names if name.step is not None]
    known_steps = {entry: sum(map(entry.knows, steps)) for entry in marked or pass_lists(backend)}
    most = max(known_steps.values(), default=0)
    if not most and not marked:
        return ()
    return tuple(entry for entry, count in known_steps.items() if count == most)


def backend_of(names: Iterable[DumpName]) -> str | None:
    """The backend that names of dumps show; None if none does, or several do."""
    backends = {name.backend for name in names} - {None}
    return backends.pop() if len(backends) == 1 else None


def _marked(names: Sequence[DumpName]) -> tuple[PassList, ...]:
    seen = {(name.pipeline, entry) for name in names for entry in (name.after, name.before)}
    if any(name.rest.startswith("before_config_assignment") for name in names):
        seen.add((AUTOTUNERS[-1], AUTOTUNERS[-1]))  # releases with this pass write this dump
    for titles, pipeline, entry in RELEASE_MARKS:
        if (pipeline, entry) in seen or (pipeline == entry and any(p == entry for p, _ in seen)):
            return tuple(map(pass_list, titles))
    return ()
