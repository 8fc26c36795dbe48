"""The difference in cost between two runs, traced to the passes that cause it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from hlo_lint.analysis.calls import instructions_of
from hlo_lint.analysis.cost import ModuleCosts
from hlo_lint.analysis.diff.bisection import BisectionStep, aligned_steps, flag_differences
from hlo_lint.analysis.opcode_costs import NOTHING, library_cost
from hlo_lint.analysis.roofline import Device
from hlo_lint.dumps.artefacts.measured import Measured
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.selection import modules_of
from hlo_lint.engine.cost_figures import (
    HELD,
    INSTRUCTIONS,
    MAIN,
    MEASURED,
    MOVED,
    PEAK,
    TEMPORARIES,
    TIME,
    CostRow,
    Figures,
    LinesOfPython,
    Onset,
    assigned_memory,
    final_module,
    memory_by_line,
    size_of,
)
from hlo_lint.engine.findings import SourceLine
from hlo_lint.hlo.arrays import operand_array
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.text.phrases import sized

SHARE: Final = 0.5
"""The share of the final difference from which on a difference has begun."""
ROUNDING: Final = 1e-9
"""The relative difference between sums of times that is due to rounding."""


@dataclass(frozen=True)
class CostComparison:
    """Two runs of a program, compared by the costs of their final modules."""

    before: Compilation
    after: Compilation
    device: Device | None
    rows: tuple[CostRow, ...]
    """All quantities, the main quantities first."""
    line_quantity: str
    """The quantity of `lines`."""
    lines: tuple[CostRow, ...]
    """Differences of that quantity by line of Python, the largest first."""
    notes: tuple[str, ...]

    @property
    def same(self) -> bool:
        """True if no quantity differs except the number of instructions, which has no cost."""
        return not any(row.change for row in self.rows if row.name != INSTRUCTIONS)

    @property
    def weight(self) -> float:
        """The time or the bytes of the module, by which modules are sorted."""
        rows = {row.name: row for row in self.rows}
        for name in (MEASURED, TIME, MOVED):
            if name in rows and rows[name].after is not None:
                return max(rows[name].before or 0, rows[name].after or 0)
        return 0.0


def compare_costs(
    before: Compilation,
    after: Compilation,
    device: Device | None = None,
    measured: tuple[Measured | None, Measured | None] = (None, None),
) -> CostComparison:
    """Compare the costs of the final modules of two runs, and find where differences begin.

    Args:
        before, after: the runs; an unfinished run counts by its last dump.
        device: the device whose time is estimated; None for no estimate.
        measured: the profile of each run.

    Raises:
        DumpError: a dump cannot be read, or holds no HLO.
    """
    return _Comparison((before, after), device, measured).result()


@dataclass(eq=False)
class _Comparison:
    """The state of a comparison of two runs."""

    sides: tuple[Compilation, Compilation]
    device: Device | None
    measured: tuple[Measured | None, Measured | None]

    def __post_init__(self) -> None:
        before, after = self.sides
        self.origins = LinesOfPython()
        self._held: dict[tuple[str | Computation, ...], Figures] = {}
        self.modules = final_module(before), final_module(after)
        self.memory = assigned_memory(before), assigned_memory(after)
        self.untimed = untimed_differences(*self.modules)
        # If a run has loops with unknown trip counts, single iterations are compared.
        self.loops_once = any(ModuleCosts(module).unknown_loops for module in self.modules)
        (ours, theirs), once = self.modules, self.loops_once
        self.ends = (
            Figures(ours, self.origins, self.device, self.measured[0], loops_once=once),
            Figures(theirs, self.origins, self.device, self.measured[1], loops_once=once),
        )

    def result(self) -> CostComparison:
        names = dict.fromkeys((*MAIN, *sorted({*self.ends[0].by_line, *self.ends[1].by_line})))
        rows = [row for name in names if name != HELD and (row := self._row(name)) is not None]
        timed = (MEASURED,) if self.untimed else (MEASURED, TIME)
        quantity = next((name for name in timed if name in self._quantities()), MOVED)
        return CostComparison(
            *self.sides,
            self.device,
            tuple(map(self._named, rows)),
            quantity,
            tuple(map(self._named, self._lines(quantity))),
            tuple(self._notes()),
        )

    def _named(self, row: CostRow) -> CostRow:
        return replace(row, origin=self.origins.function_of(row.origin))

    def _quantities(self) -> set[str]:
        ours, theirs = (set(figures.by_line) for figures in self.ends)
        return ours & theirs

    def _row(self, name: str) -> CostRow | None:
        if name in (PEAK, TEMPORARIES):
            return self._memory_row(name)
        if name == TIME and self.device is None:
            return None
        if name == MEASURED and name not in self._quantities():
            return None
        ours, theirs = (figures.total(name) for figures in self.ends)
        if abs(theirs - ours) <= ROUNDING * theirs:
            return CostRow(name, ours, ours, None, None)
        changes = {
            line: _difference(*self.ends, name, line)
            for figures in self.ends
            for line in figures.by_line.get(name, ())
            if line is not None
        }
        line = _largest(changes, 1 if theirs > ours else -1)
        is_known = name != TIME or not self.untimed
        return CostRow(name, ours, theirs, self._onset(name, line), line, is_known)

    def _lines(self, name: str) -> list[CostRow]:
        ours, theirs = self.ends
        lines = {line for figures in self.ends for line in figures.by_line.get(name, ())}
        changes = {line: theirs.of_line(name, line) - ours.of_line(name, line) for line in lines}
        return [
            CostRow(
                name,
                ours.of_line(name, line),
                theirs.of_line(name, line),
                self._onset(name, line) if line is not None else None,
                line,
            )
            for line in sorted(lines, key=lambda line: (-abs(changes[line]), str(line)))
            if abs(changes[line]) > ROUNDING * theirs.total(name)
        ]

    # The pass after which a difference begins

    @cached_property
    def _steps(self) -> list[tuple[BisectionStep, Module, Module]]:
        """The steps at which both runs have a module, with both modules."""
        steps: list[tuple[BisectionStep, Module, Module]] = []
        ours: PassDump | None = None
        theirs: PassDump | None = None
        for step in aligned_steps(*self.sides):
            ours, theirs = step.before or ours, step.after or theirs
            if ours is not None and theirs is not None:
                steps.append((step, modules_of(ours)[0], modules_of(theirs)[0]))
        return steps

    def _figures(self, module: Module) -> Figures:
        """The quantities of single iterations: passes add and drop trip counts of loops."""
        key = module.pieces
        if key not in self._held:
            self._held[key] = Figures(module, self.origins, self.device, loops_once=True)
        return self._held[key]

    def _onset(self, name: str, line: SourceLine | None) -> Onset | None:
        """The first step from which on the difference stays near the final difference."""
        change = _difference(*self.ends, name, line)
        if name == MEASURED:
            name = MOVED  # dumps of passes have no measured time, so bytes of the line stand for it
        ours, theirs = map(self._figures, self.modules)
        end = _difference(ours, theirs, name, line)
        onset: Onset | None = None
        if end * change <= 0:
            return None
        for number, (step, before, after) in reversed(list(enumerate(self._steps))):
            difference = _difference(self._figures(before), self._figures(after), name, line)
            if difference / end < SHARE:
                break
            onset = Onset(step, number == 0)
        return onset

    # Memory

    def _memory_row(self, name: str) -> CostRow | None:
        sums = [size_of(memory, name) for memory in self.memory]
        if sums == [None, None]:
            return None
        ours, theirs = sums
        if ours is None or theirs is None or ours == theirs:
            return CostRow(name, ours, theirs, None, None)
        before, after = (
            memory_by_line(memory, module, self.origins)
            for memory, module in zip(self.memory, self.modules, strict=True)
        )
        sign = 1 if theirs > ours else -1
        changes = {line: after.get(line, 0) - before.get(line, 0) for line in {*before, *after}}
        line = _largest(changes, sign)
        if line is None:
            return CostRow(name, ours, theirs, None, None)
        # Memory is assigned after all passes; passes only show the results of that line.
        held = _difference(*self.ends, HELD, line)
        since = self._onset(HELD, line) if held * sign > 0 else None
        return CostRow(name, ours, theirs, since, line)

    def _notes(self) -> Iterator[str]:
        for side, compilation, memory in zip("AB", self.sides, self.memory, strict=True):
            if compilation.lone:
                continue  # a file named by the user has no further files
            if compilation.final is None:
                yield f"{side} has no final module: its last dump is compared"
            if not compilation.steps:
                yield f"{side} has no dumps of passes: XLA_FLAGS=--xla_dump_hlo_pass_re=.*"
            if memory is None:
                yield f"{side} has no buffer assignment: its memory is unknown"
        profiled = [bool(figures.total(MEASURED)) for figures in self.ends]
        if any(profiled) and not all(profiled):
            side, without = "AB" if profiled[0] else "BA"
            yield f"{side} has a profile of this module, {without} does not: no measured time"
        if self.loops_once:
            yield "a loop has an unknown trip count: one iteration of each loop is compared"
        if self.device is None:
            yield "no time is estimated: --target names the device (h100, v5e, a gpu_target_config)"
        else:
            if self.untimed:
                yield (
                    "the estimated times do not say which run is faster: the time of such kernels "
                    f"depends on more than their bytes; {'; '.join(self.untimed)}"
                )
            yield (
                f"time is a lower bound for {self.device.name}, by memory and arithmetic of each "
                "kernel: no launches, no network"
            )
        yield from flag_differences(*self.sides)


def _difference(ours: Figures, theirs: Figures, name: str, line: SourceLine | None) -> float:
    """The difference of a quantity, for a line or by default in total."""
    if line is None:
        return theirs.total(name) - ours.total(name)
    return theirs.of_line(name, line) - ours.of_line(name, line)


def _largest(changes: Mapping[SourceLine, float], sign: int) -> SourceLine | None:
    """The line with most of a change of this sign; None if no line has any."""
    line = max(changes, key=lambda line: (sign * changes[line], str(line)), default=None)
    return line if line is not None and sign * changes[line] > 0 else None


def untimed_differences(before: Module, after: Module) -> tuple[str, ...]:
    """A kernel of unknown time that only one of two modules has, for each module that has one.

    Scatters are equal if their updates write equally many bytes side by side.
    """
    ours, theirs = _untimed(before), _untimed(after)
    return tuple(
        f"{side} has {kinds[kind].opcode} %{kinds[kind].name}: {kind}"
        for side, kinds, others in (("A", ours, theirs), ("B", theirs, ours))
        for kind in [kind for kind in kinds if kind not in others][:1]
    )


def _untimed(module: Module) -> Mapping[str, Instruction]:
    """The kernels of unknown time, by the fact that their time depends on."""
    kernels: dict[str, Instruction] = {}
    for scatter in instructions_of(module, "scatter"):
        if length := scatter_run(scatter):
            kernels.setdefault(f"each update writes {sized(length)} side by side", scatter)
    for call in instructions_of(module, "custom-call"):
        if library_cost(call) == NOTHING:
            kernels.setdefault(call.custom_call_target, call)
    return kernels


def scatter_run(scatter: Instruction) -> int | None:
    """The bytes that each update of a scatter writes side by side; None if unknown."""
    array, updates = operand_array(scatter, 0), operand_array(scatter, len(scatter.operands) - 1)
    windows = scatter.integers_attribute("update_window_dims")
    if array is None or updates is None or windows is None or not array.has_valid_layout:
        return None
    single = {
        dimension
        for name in ("inserted_window_dims", "input_batching_dims")
        for dimension in scatter.integers_attribute(name) or ()
    }
    spread = [dimension for dimension in range(array.rank) if dimension not in single]
    if len(spread) != len(windows) or any(window >= updates.rank for window in windows):
        return None
    sizes = {
        dimension: updates.dims[window] for dimension, window in zip(spread, windows, strict=True)
    }
    elements = 1
    for dimension in array.minor_to_major:
        elements *= sizes.get(dimension, 1)
        if sizes.get(dimension, 1) < array.dims[dimension]:
            break
    return elements * (array.byte_size or 0) // (array.elements or 1)
