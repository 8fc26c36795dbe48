"""The steps of a run, lowered to programs on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from hlo_lint.analysis.device_groups import count_of, is_name_of_part
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.engine.values.lowering.graph import Nodes, NotLowered
from hlo_lint.engine.values.lowering.lower import Lowering
from hlo_lint.engine.values.lowering.program import Program
from hlo_lint.engine.values.lowering.shards import ProgramShardings, layout_of
from hlo_lint.engine.values.programs import Comparison, StepOutcome
from hlo_lint.text.errors import DumpError
from hlo_lint.xla.limits import Deadline, NoTimeLeft

StepProgress = Callable[[str], None]

NOT_LOOKED_AT: Final = Comparison(StepOutcome.BETWEEN)


@dataclass(eq=False)
class ValidatedStep:
    """A dump with its program and its verdict."""

    dump: PassDump
    number: int = 0
    """Its position in the run."""
    program: Program | None = None
    """None if it could not be lowered, or was not needed."""
    comparison: Comparison = NOT_LOOKED_AT
    """The verdict against the dump before it."""
    is_tried: bool = False
    """True once lowering was tried."""
    before: ValidatedStep | None = None
    """The step before it that became a program."""
    is_judged: bool = True
    """False for the first dump of a run, which has no predecessor to compare with."""

    def has_graph_of(self, step: ValidatedStep | None) -> bool:
        """True if two steps are equal by graph."""
        if self.program is None or step is None or step.program is None:
            return False
        return self.program.graph is step.program.graph

    @property
    def label(self) -> str:
        """The pass and its pipeline, or the name of the file."""
        name = self.dump.name
        return name.label if name is not None else self.dump.path.name


class RunSteps:
    """The steps of a run, lowered to programs on demand."""

    def __init__(
        self, dumps: Sequence[PassDump], deadline: Deadline, progress: StepProgress
    ) -> None:
        self.steps = [ValidatedStep(dump, number) for number, dump in enumerate(dumps)]
        if self.steps:
            self.steps[0].is_judged = False
        self.progress = progress
        self._deadline, self._nodes = deadline, Nodes(deadline)
        self._replicated = shared_parameters(dumps, deadline)
        self._first, self._layout = partitioned(dumps, deadline)
        self._compilation = Compilation([*dumps], [])
        self._texts: dict[tuple[tuple[int, ...], bool, bool, int], ValidatedStep] = {}

    def lower(self, step: ValidatedStep, before: ValidatedStep | None = None) -> Program | None:
        """The program of a step; an earlier step `before` gives the device count of the run."""
        if not step.is_tried:
            self.progress(step.dump.path.name)
            program = None if before is None or self._layout is not None else before.program
            devices = 1 if program is None else program.devices
            bind = self._compilation.layouts_bind(step.dump) is not False
            key = step.dump.text_identity, step.number >= self._first, bind, devices
            same = self._texts.setdefault(key, step)
            step.is_tried = True
            if same is step:
                self._lower(step, *key[1:])
            else:  # a third of the dumps repeat the text of another
                step.program = same.program
                step.comparison = step.comparison if same.program else same.comparison
        return step.program

    def _lower(
        self, step: ValidatedStep, is_partitioned: bool, layouts_bind: bool, devices: int
    ) -> None:
        """Lower a dump to a program, or record the reason for its failure."""
        try:
            self._deadline.check()
            modules = step.dump.file.modules
            if len(modules) != 1:
                raise NotLowered(f"it holds {len(modules)} modules")
            lowering = partial(Lowering, modules[0], self._nodes, self._replicated)
            lowering = partial(lowering, layouts_bind=layouts_bind, devices=devices)
            try:
                parts = lowering(layout=self._layout, is_partitioned=is_partitioned)
                step.program = parts.program()
            except NotLowered:
                if self._layout is None:
                    raise
                step.program = lowering().program()
        except NoTimeLeft as error:
            step.comparison = Comparison(StepOutcome.NOT_RUN, str(error))
        except (DumpError, NotLowered, OSError) as error:
            step.comparison = Comparison(StepOutcome.NOT_LOWERED, str(error))

    def between(self, first: ValidatedStep, last: ValidatedStep) -> ValidatedStep | None:
        """The step nearest to the middle between two that can be lowered."""
        middle = (first.number + last.number) / 2
        between = self.steps[first.number + 1 : last.number]
        steps = sorted(between, key=lambda step: abs(step.number - middle))
        return next((step for step in steps if self.lower(step, first)), None)


def shared_parameters(dumps: Sequence[PassDump], deadline: Deadline) -> frozenset[int]:
    """The replicated parameters, by the first dump that shards any parameter."""
    for dump in dumps:
        if deadline.left <= 0:
            break
        try:
            entry = dump.module.entry
        except (DumpError, OSError):
            continue
        shardings = {
            parameter.parameter_number or 0: parameter.attributes["sharding"]
            for parameter in (entry.parameters if entry is not None else ())
            if "sharding=" in parameter.attributes_text and "sharding" in parameter.attributes
        }
        if shardings:
            return frozenset(
                number for number, text in shardings.items() if text.startswith("{replicated")
            )
    return frozenset()


def partitioned(
    dumps: Sequence[PassDump], deadline: Deadline
) -> tuple[int, ProgramShardings | None]:
    """The position of the first partitioned dump, and the shardings of its predecessor."""
    may_be = _may_be_partitioned(dumps)
    for number, dump in enumerate(dumps if may_be else ()):
        if deadline.left <= 0:
            break
        try:
            entry = dump.module.entry
            ran = dump.name.after if dump.name is not None else ""
            if entry is None or not (is_name_of_part(entry.name) or ran in _PARTITIONERS):
                continue
            layout = layout_of(dumps[number - 1].module) if number else None
        except (DumpError, NotLowered, OSError, ValueError):
            break
        return number, layout
    return len(dumps), None


def _may_be_partitioned(dumps: Sequence[PassDump]) -> bool:
    """False if the last dump has a single partition: the others need not be read."""
    if not dumps or any(dump.name and dump.name.after in _PARTITIONERS for dump in dumps):
        return bool(dumps)
    try:
        module = dumps[-1].module
        name = module.entry.name if module.entry is not None else ""
        return is_name_of_part(name) or count_of(module, "num_partitions") > 1
    except (DumpError, OSError):
        return True


_PARTITIONERS: Final = frozenset({"spmd-partitioning", "tpu-spmd-partitioning"})
"""The partitioners, for texts whose entry computation has another name."""
