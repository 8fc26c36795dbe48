"""The dumps of a module in the order of the run, with the places of each subject of a check.

Half of the files repeat an earlier file, and most computations of the rest are unchanged, too. So a
check runs over each distinct subject once, and its findings are copied to all dumps that hold it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, product, starmap
from typing import TYPE_CHECKING, Any, NamedTuple

from hlo_lint.analysis.cycles import cycles_of
from hlo_lint.analysis.grouping import by_key
from hlo_lint.analysis.stage import ANY_STAGE
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.file_types import FileType
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.engine.memo import RunMemo
from hlo_lint.engine.stages import StageOf, Stages
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.rules.base import Rule, Stage
from hlo_lint.rules.checks import VIOLATIONS, Check
from hlo_lint.rules.findings import Finding

if TYPE_CHECKING:
    from hlo_lint.analysis.verifier import Violations


class ModuleRef(NamedTuple):
    """A module of a dump."""

    position: int
    """The position of the dump in the timeline."""
    number: int
    """The number of the module in its file."""


class Occurrence(NamedTuple):
    """A finding in a module."""

    finding: Finding
    ref: ModuleRef


class LocatedFinding(NamedTuple):
    """A finding in a file, with its module and stage."""

    rule: Rule
    finding: Finding
    dump: PassDump
    module: Module | None
    stage: Stage = ANY_STAGE
    """The stage of the module, for its fix."""
    layouts_bind: bool = True
    """False if layout-assignment may still run on the module."""

    @property
    def text(self) -> str:
        """The text at the finding, which is equal in every dump that repeats it."""
        subject = self.finding.at
        if isinstance(subject, Instruction):
            return f"{subject.computation.name} {subject.text}"
        return self.dump.file.text[subject.start : subject.end]


class _Everything(NamedTuple):
    """All distinct subjects of a view in the dumps of a timeline."""

    stages: Mapping[object, Sequence[Stage]]
    """The distinct stages of each subject."""
    outside_fusions: Mapping[object, object]
    """The subjects outside of fusions in at least one module, as keys."""


class Timeline:
    """The readable HLO dumps of a compilation."""

    def __init__(
        self,
        compilation: Compilation,
        dumps: Iterable[PassDump],
        memo: RunMemo,
        stage_of: StageOf | None = None,
    ) -> None:
        self.compilation = compilation
        self.memo = memo
        ordered, beside = _in_order(compilation, list(dumps))
        self.dumps = ordered + beside
        self.length = len(ordered)
        """The number of dumps with a known position; named dumps without a step number follow."""
        self.stages = Stages(compilation, stage_of)
        texts = by_key((dump.text_identity, position) for position, dump in enumerate(self.dumps))
        self._modules = [
            ([ModuleRef(position, number) for position in positions], module)
            for positions in texts.values()
            for number, module in enumerate(self.dumps[positions[0]].file.modules)
        ]
        """The modules of each distinct text, with all their places."""
        self._stages: dict[ModuleRef, Stage] = {}
        self._views: dict[str, _Everything] = {}
        self._violations: dict[tuple[int, Stage], Violations | None] = {}
        """The violations by identity of a module's text and the verifier's options, or None.

        The dumps keep the texts alive."""
        self._refs: dict[tuple[str, bool], dict[object, list[Sequence[ModuleRef]]]] = {}

    @property
    def last(self) -> range:
        """The positions of the last dump of the run, and of the dumps without a known position."""
        return range(max(0, self.length - 1), len(self.dumps))

    @cached_property
    def ends(self) -> tuple[tuple[Module, Stage], ...]:
        """The modules at the `last` positions, each with its stage."""
        return tuple(
            (module, self.stage(ModuleRef(position, number)))
            for position in self.last
            for number, module in enumerate(self.dumps[position].file.modules)
        )

    def module(self, ref: ModuleRef) -> Module:
        """The module of a reference."""
        return self.dumps[ref.position].file.modules[ref.number]

    def stage(self, ref: ModuleRef) -> Stage:
        """The stage of a module; equal stages are the same object."""
        stage = self._stages.get(ref)
        if stage is None:
            dump = self.dumps[ref.position]
            stage = self._stages[ref] = self.stages.of(dump, dump.file.modules[ref.number])
        return stage

    @cached_property
    def next_pass(self) -> str | None:
        """The pass that comes next, if a stated stage names it."""
        stated = self.stages.stated(self.dumps[-1]) if self.dumps else None
        return (stated.next_pass or None) if stated is not None else None

    def violations(self, module: Module, stage: Stage) -> Violations | None:
        """The cached violations of a module; None if it has no violations."""
        key = id(module.pieces), stage.options
        if key not in self._violations:
            violations = self.memo.verifier.violations(module, stage)
            self._violations[key] = violations if violations.by_check else None
        return self._violations[key]

    def finds_at_end(self, check: Check) -> bool:
        """True if a check finds something at the end of the run, in any of the `last` dumps."""
        if check.rule.handwritten_only and all(stage.unique_names for _, stage in self.ends):
            return False
        return any(True for position in self.last for _ in self.find_at(check, position))

    def find(self, check: Check) -> Iterator[Occurrence]:
        """The findings of a check in all dumps."""
        rule = check.rule
        everything = self._everything(check.view)
        for view in _with_opcodes(
            check, everything.outside_fusions if rule.skip_fusion_bodies else everything.stages
        ):
            for stage in everything.stages[view] if check.takes_stage else (None,):
                if findings := self._run(check, view, stage):
                    places = self._places(check.view, rule.skip_fusion_bodies, view, stage)
                    yield from starmap(Occurrence, product(findings, places))

    def find_at(
        self, check: Check, position: int, stage: Stage | None = None
    ) -> Iterator[Occurrence]:
        """The findings of a check in a dump, at its own stage or a given stage."""
        for number, module in enumerate(self.dumps[position].file.modules):
            ref = ModuleRef(position, number)
            there = stage or self.stage(ref) if check.takes_stage else None
            for view in _with_opcodes(
                check, _views(check.view, check.rule.skip_fusion_bodies, module)
            ):
                for finding in self._run(check, view, there):
                    yield Occurrence(finding, ref)

    def _run(self, check: Check, view: Any, stage: Any) -> tuple[Finding, ...]:
        if check.view == VIOLATIONS:
            violations = self.violations(view, stage)
            return () if violations is None else check.run(violations._replace(module=view))
        return check.run(view, stage)

    def _everything(self, view_name: str) -> _Everything:
        cached = self._views.get(view_name)
        if cached is None:
            held: dict[Stage, list[Sequence[object]]] = {}
            for refs, module in self._modules:
                views = _views(view_name, False, module)
                for stage in dict.fromkeys(map(self.stage, refs)):
                    held.setdefault(stage, []).append(views)
            stages: dict[object, list[Stage]] = {}
            for stage, groups in held.items():
                for view in dict.fromkeys(chain.from_iterable(groups)):
                    stages.setdefault(view, []).append(stage)
            outside_fusions: Mapping[object, object] = stages
            if view_name == "Computation":
                outside = (module.nonfusion_computations for _, module in self._modules)
                outside_fusions = dict.fromkeys(chain.from_iterable(outside))
            cached = self._views[view_name] = _Everything(stages, outside_fusions)
        return cached

    def _places(
        self, view_name: str, skip_fusion_bodies: bool, view: object, stage: Stage | None
    ) -> Iterator[ModuleRef]:
        """The places of a subject at a stage."""
        # Made on demand: most checks have no findings, and need no places.
        held = self._refs.get((view_name, skip_fusion_bodies))
        if held is None:
            held = self._refs[view_name, skip_fusion_bodies] = {}
            for refs, module in self._modules:
                for viewed in dict.fromkeys(_views(view_name, skip_fusion_bodies, module)):
                    held.setdefault(viewed, []).append(refs)
        for ref in chain.from_iterable(held.get(view, ())):
            if stage is None or self.stage(ref) is stage:
                yield ref


def has_cycle(dump: PassDump) -> bool:
    """True if a module of a dump has a cycle, which only rules about form can check."""
    return dump.file_type is FileType.HLO and any(map(cycles_of, dump.file.modules))


def _views(view_name: str, skip_fusion_bodies: bool, module: Module) -> Sequence[object]:
    """The subjects of a view in a module; an HloFile is a subject of its first module."""
    match view_name:
        case "Computation":
            return module.nonfusion_computations if skip_fusion_bodies else module.computations
        case "Module" | "Violations":
            return (module,)
        case "Cycles":
            cycles = cycles_of(module)
            return () if cycles is None else (cycles,)
        case _:
            return (module.file,) if module.file.modules[0] is module else ()


def _with_opcodes(check: Check, views: Iterable[object]) -> Iterable[object]:
    """The subjects that hold an opcode of the rule."""
    opcodes = check.rule.opcodes
    if check.view != "Computation" or opcodes is None:
        return views
    absent = opcodes.isdisjoint
    return [view for view in views if not absent(view.opcodes)]  # type: ignore[attr-defined]


def _in_order(
    compilation: Compilation, dumps: list[PassDump]
) -> tuple[list[PassDump], list[PassDump]]:
    """The dumps in the order of the run, and the dumps with an unknown position.

    A named dump from the middle of a run is placed after a numbered dump with equal text: the first
    such dump if layouts do not bind, else the last.
    """
    steps = [dump for dump in dumps if dump.name and dump.name.step is not None]
    if not steps:
        return dumps, []
    begin: list[PassDump] = []
    end: list[PassDump] = []
    beside: list[PassDump] = []
    followers: dict[PassDump, list[PassDump]] = {}
    same = by_key((dump.text_identity, dump) for dump in steps)
    for dump in dumps:
        if dump.name is None or dump.name.step is not None:
            continue
        if dump.name.rest.startswith("before_optimizations"):
            begin.append(dump)
        elif dump.name.is_final:
            end.append(dump)
        elif dump.text_identity in same:
            layouts = compilation.layouts_bind(dump)
            step = same[dump.text_identity][0 if layouts is False else -1]
            fits = compilation.layouts_bind(step) == layouts
            (followers.setdefault(step, []) if fits else beside).append(dump)
        else:
            beside.append(dump)
    run = [dump for step in steps for dump in (step, *followers.get(step, ()))]
    return begin + run + end, beside
