"""The `Stage` of every module of a run, from dump names and pass lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

from hlo_lint.analysis.stage import stage_at
from hlo_lint.dumps.pass_dump import PassDump, is_fusion_body
from hlo_lint.dumps.pass_lists import PassList, pass_lists
from hlo_lint.dumps.phases import (
    BEFORE_LAYOUTS,
    HOST_OFFLOADER,
    LAYOUT_ASSIGNMENT,
    LAYOUT_NORMALIZATION,
)
from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.hlo.ir import Module
from hlo_lint.rules.base import Stage
from hlo_lint.text.source import DIRECTIVE

StageOf = Callable[[Path], Stage | None]
"""The stage that a caller states for the file of a path; None if it states none."""

FINAL = "after_optimizations"
"""The end of the names of final modules."""


class Stages:
    """The stages of one pipeline's dumps."""

    def __init__(self, pipeline: Pipeline, stage_of: StageOf | None = None) -> None:
        self.pipeline = pipeline
        self._stage_of = stage_of
        self._stated: dict[PassDump, Stage | None] = {}
        self._known: dict[tuple[PassDump, bool], Stage] = {}
        self._distinct: dict[Stage, Stage] = {}
        self._last_places: dict[str, tuple[int, ...]] = {}

    def of(self, dump: PassDump, module: Module) -> Stage:
        """The stage of a module of a dump: the same object for equal stages."""
        key = dump, module.is_scheduled
        if key not in self._known:
            stated = self.stated(dump)
            if stated is not None:
                made = stated._replace(scheduled=stated.scheduled or module.is_scheduled)
            elif dump.name is None:
                made = self._of_file(dump, scheduled=module.is_scheduled)
            else:
                made = self._of_step(dump, module)
            self._known[key] = self._distinct.setdefault(made, made)
        return self._known[key]

    def stated(self, dump: PassDump) -> Stage | None:
        """The stage that a comment in the text states, else a caller; None if nobody does."""
        if dump not in self._stated:
            in_text = None
            if dump.may_have_directives and DIRECTIVE in dump.file.text:
                from hlo_lint.engine.suppressions.comments import stage_in

                in_text = stage_in(dump.file)
            self._stated[dump] = in_text or (self._stage_of(dump.path) if self._stage_of else None)
        return self._stated[dump]

    def layouts_bind(self, dump: PassDump) -> bool | None:
        """True if layout-assignment has run, False if not; None if a loose file allows both."""
        stated = self.stated(dump)
        return self.pipeline.layouts_bind(dump) if stated is None else stated.layouts

    def _of_file(self, dump: PassDump, *, scheduled: bool) -> Stage:
        """Of a file that no compiler named."""
        name = dump.path.name.rpartition(".")[0]
        layouts, final = scheduled or self.pipeline.has_layouts(dump), name.endswith(FINAL)
        return Stage(layouts=layouts, scheduled=scheduled, final=final, assumed=True)

    def _of_step(self, dump: PassDump, module: Module) -> Stage:
        assert dump.name is not None
        layouts, final = self._has_layouts(dump), dump.name.is_final
        is_body = is_fusion_body(dump.path, module)
        normalized = None if is_body else self._is_behind(dump, LAYOUT_NORMALIZATION)
        backend, release = self.pipeline.backend, self.pipeline.release
        is_tpu = backend == "tpu"
        host_memory = is_tpu or self._is_behind(dump, HOST_OFFLOADER) is not False
        return stage_at(
            backend,
            release=release.name if release else None,
            layouts=layouts,
            normalized=normalized,
            scheduled=module.is_scheduled,
            host_memory=host_memory,
            final=final,
            unique_names=backend is not None,
            assumed=backend is None and not (layouts and self._assigned is not None),
        )

    @cached_property
    def _candidates(self) -> tuple[PassList, ...]:
        """The releases that fit; of a run of named dumps alone, all of its backend."""
        backend = self.pipeline.backend
        return self.pipeline.releases or (pass_lists(backend) if backend else ())

    @cached_property
    def _is_helper(self) -> bool:
        return self.pipeline.is_helper

    def _has_layouts(self, dump: PassDump) -> bool:
        name = dump.name
        assert name is not None
        if name.step is None:
            return not name.rest.startswith(BEFORE_LAYOUTS)
        if self._is_helper or name.after == LAYOUT_ASSIGNMENT:
            return True
        if self._assigned is not None:
            return name.step >= self._assigned
        return self._is_behind(dump, LAYOUT_ASSIGNMENT) is True

    @cached_property
    def _assigned(self) -> int | None:
        """The step after layout-assignment, where it was dumped."""
        for dump in self.pipeline.steps:
            if dump.name.after == LAYOUT_ASSIGNMENT:
                return dump.step
        return None

    def _is_behind(self, dump: PassDump, wanted: str) -> bool | None:
        """True if the last run of a pass lies after a dump; None where the releases do not say."""
        name = dump.name
        assert name is not None
        lasts = self._lasts(wanted)
        if not lasts:
            return None
        if name.step is None:
            return not name.rest.startswith(BEFORE_LAYOUTS)
        return _are_behind(self._places[dump], lasts)

    def _lasts(self, wanted: str) -> tuple[int, ...]:
        """The last place of a pass in each release; empty unless all of them run it."""
        cached = self._last_places.get(wanted)
        if cached is None:
            cached = ()
            options = self.pipeline.options
            # Passes over a fusion that was taken out of its module are in no list.
            if not self._is_helper and not (options is not None and options.disabled(wanted)):
                places = [release.last_place(wanted) for release in self._candidates]
                if None not in places:
                    cached = tuple(place for place in places if place is not None)
            self._last_places[wanted] = cached
        return cached

    @cached_property
    def _places(self) -> dict[PassDump, tuple[tuple[int, int], ...]]:
        """The first and the last place that each numbered dump may have, for each release."""
        columns = [list(self._walk(release)) for release in self._candidates]
        return dict(zip(self.pipeline.steps, zip(*columns, strict=True), strict=True))

    def _walk(self, release: PassList) -> Iterator[tuple[int, int]]:
        """The place of each dump: the first that it may have after the dump before it.

        A pass the release does not know stands where the one before it stood, at first anywhere.
        """
        steps = self.pipeline.steps
        at = 0, len(release.passes)
        for dump in steps:
            name = dump.name
            places = release.places(name.pipeline, name.after, name.before)
            if len(steps) == 1 and places:
                at = places[0], places[-1]  # on its own it may be any of them
            elif places:
                first = next((place for place in places if place >= at[0]), places[0])
                at = first, first
            yield at


def _are_behind(places: tuple[tuple[int, int], ...], lasts: tuple[int, ...]) -> bool | None:
    """True if places lie after others; None where some do, or where it cannot be said."""
    answers = {
        True if first >= last else False if end < last else None
        for (first, end), last in zip(places, lasts, strict=True)
    }
    return answers.pop() if len(answers) == 1 else None
