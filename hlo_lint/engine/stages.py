"""The `Stage` of each module of a run, derived from its place among the passes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from hlo_lint.analysis.stage import stage_at
from hlo_lint.dumps.compilation import Compilation, is_behind
from hlo_lint.dumps.layout_evidence import Evidence, evidence_in
from hlo_lint.dumps.pass_dump import NumberedDump, PassDump, is_fusion_body
from hlo_lint.dumps.pass_lists import PassList, pass_lists
from hlo_lint.dumps.phases import BEFORE_LAYOUTS, HOST_OFFLOADER, LAYOUT_NORMALIZATION
from hlo_lint.hlo.ir import Module
from hlo_lint.rules.base import Stage
from hlo_lint.text.source import DIRECTIVE

StageOf = Callable[[Path], Stage | None]
"""The stage that a caller states for a path, or None."""

FINAL = "after_optimizations"
"""The end of the names of final modules."""


class Stages:
    """The stages of a compilation's dumps."""

    def __init__(self, compilation: Compilation, stage_of: StageOf | None = None) -> None:
        self.compilation = compilation
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
                stage = stated._replace(scheduled=stated.scheduled or module.is_scheduled)
            elif dump.name is None:
                stage = self._of_file(dump, scheduled=module.is_scheduled)
            else:
                stage = self._of_step(dump, module)
            self._known[key] = self._distinct.setdefault(stage, stage)
        return self._known[key]

    def stated(self, dump: PassDump) -> Stage | None:
        """The stage that a comment in the text states, else the caller, else None."""
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
        return self.compilation.layouts_bind(dump) if stated is None else stated.layouts

    def _of_file(self, dump: PassDump, *, scheduled: bool) -> Stage:
        """The stage of a file without a dump name."""
        layouts = scheduled or self._has_layouts(dump)
        is_early = dump.is_named_before_layouts or evidence_in(dump.file) is Evidence.UNASSIGNED
        return Stage(
            layouts=layouts,
            scheduled=scheduled,
            final=dump.path.name.rpartition(".")[0].endswith(FINAL),
            assumed=layouts or not is_early,
        )

    def _of_step(self, dump: PassDump, module: Module) -> Stage:
        assert dump.name is not None
        layouts, final = self._has_layouts(dump), dump.name.is_final
        is_body = is_fusion_body(dump.path, module)
        normalized = None if is_body else self._is_behind(dump, LAYOUT_NORMALIZATION)
        backend, release = self.compilation.backend, self.compilation.release
        host_memory = backend == "tpu" or self._is_behind(dump, HOST_OFFLOADER) is not False
        is_assigned = layouts and self.compilation.assigned_at is not None
        stage = stage_at(
            backend,
            release=release.name if release else None,
            layouts=layouts,
            normalized=normalized,
            scheduled=module.is_scheduled,
            host_memory=host_memory,
            final=final,
            unique_names=backend is not None,
            assumed=backend is None and not is_assigned,
        )
        # Until then an element size is the one that layout-assignment copied from an operand.
        return stage._replace(packed=stage.packed and dump.name.before != "sub-byte-size-setter")

    @cached_property
    def _candidates(self) -> tuple[PassList, ...]:
        """The releases that fit the run; all releases of its backend if no step is numbered."""
        backend = self.compilation.backend
        return self.compilation.releases or (pass_lists(backend) if backend else ())

    def _has_layouts(self, dump: PassDump) -> bool:
        """`Compilation.layouts_bind`; where a text allows both, opcodes of later passes decide."""
        bind = self.compilation.layouts_bind(dump)
        return evidence_in(dump.file) is Evidence.LATER_PASSES if bind is None else bind

    def _is_behind(self, dump: PassDump, wanted: str) -> bool | None:
        """True if the last run of a pass is before a dump; None if the releases disagree."""
        name = dump.name
        assert name is not None
        lasts = self._lasts(wanted)
        if not lasts:
            return None
        if not isinstance(dump, NumberedDump):
            return not name.rest.startswith(BEFORE_LAYOUTS)
        ranges = (self.compilation.place_range(release, dump) for release in self._candidates)
        answers = set(map(is_behind, ranges, lasts))
        return answers.pop() if len(answers) == 1 else None

    def _lasts(self, wanted: str) -> tuple[int, ...]:
        """The last place of a pass in each release; empty unless all of them run it."""
        cached = self._last_places.get(wanted)
        if cached is None:
            cached = ()
            options = self.compilation.options
            # Lists do not have the passes over an extracted fusion.
            if not self.compilation.is_helper and not (
                options is not None and options.disabled(wanted)
            ):
                places = [release.last_place(wanted) for release in self._candidates]
                if None not in places:
                    cached = tuple(place for place in places if place is not None)
            self._last_places[wanted] = cached
        return cached
