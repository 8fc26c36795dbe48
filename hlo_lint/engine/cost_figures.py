"""The cost of a module: a figure for each quantity, by line of Python."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from hlo_lint.analysis.cost import ModuleCosts
from hlo_lint.analysis.diff.bisection import BisectionStep
from hlo_lint.analysis.opcode_costs import byte_count
from hlo_lint.analysis.roofline import Device
from hlo_lint.analysis.walks import chain
from hlo_lint.dumps.artefacts.buffer_assignment import (
    Allocation,
    BufferAssignment,
    read_buffer_assignment,
)
from hlo_lint.dumps.artefacts.measured import Measured
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.selection import FIRST, in_order, modules_of
from hlo_lint.engine.diagnose import origin_of
from hlo_lint.engine.findings import SourceLine
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.opcodes import COMMUNICATES, NO_BUFFER

SECONDS, BYTES, FLOPS, COUNT = "s", "B", "flop", ""
"""The units of quantities."""
TIME, MEASURED = "estimated time", "measured time"
MOVED, WORK, TRANSCENDENTALS = "bytes moved", "flops", "transcendentals"
PEAK, TEMPORARIES = "peak memory", "temporaries"
KERNELS, FUSIONS, INSTRUCTIONS = "kernels", "fusions", "instructions"
UNITS: Final = {
    **dict.fromkeys((TIME, MEASURED), SECONDS),
    **dict.fromkeys((MOVED, PEAK, TEMPORARIES), BYTES),
    **dict.fromkeys((WORK, TRANSCENDENTALS), FLOPS),
}
"""The units of quantities other than counts."""
MAIN: Final = (MEASURED, TIME, MOVED, WORK, TRANSCENDENTALS, PEAK, TEMPORARIES, KERNELS, FUSIONS)
"""The quantities that are always shown, in their order."""
COLLECTIVE: Final = " bytes"
HELD: Final = "held"
"""Bytes of results outside fusions, which stand for memory before buffers are assigned."""


@dataclass(frozen=True, slots=True)
class Onset:
    """The pass after which a difference begins."""

    step: BisectionStep
    is_first: bool
    """True if the first comparable modules differ already, before any pass."""

    @property
    def title(self) -> str:
        """The pass, such as `priority-fusion of fusion`, or a phrase for the start of the run."""
        name = self.step.name
        if self.is_first:
            return "before any pass" if name.startswith(FIRST) else f"the first dump ({name})"
        is_pass = self.step.pipeline or self.step.stage
        return self.step.title if is_pass else f"the last dumped pass ({name})"


@dataclass(frozen=True, slots=True)
class CostRow:
    """A quantity of both final modules."""

    name: str
    before: float | None
    """None if it is unknown for that run."""
    after: float | None
    since: Onset | None
    """The onset of the difference; None if the values are equal, or dumps do not show it."""
    origin: SourceLine | None
    """The line of Python that accounts for most of the difference."""
    is_known: bool = True
    """False if the difference says nothing, as both values are too low by unknown amounts."""

    @property
    def unit(self) -> str:
        """The unit of both values."""
        return BYTES if self.name.endswith(COLLECTIVE) else UNITS.get(self.name, COUNT)

    @property
    def change(self) -> float:
        """The difference; 0 if a value is unknown."""
        if self.before is None or self.after is None:
            return 0.0
        return self.after - self.before


class Figures:
    """The quantities of a module, by name, and by name and line of Python."""

    def __init__(
        self,
        module: Module,
        origins: LinesOfPython,
        device: Device | None,
        measured: Measured | None = None,
        *,
        loops_once: bool = False,
    ) -> None:
        self.by_line: dict[str, dict[SourceLine | None, float]] = {}
        costs = ModuleCosts(module, loops_once=loops_once)
        seconds = measured.seconds(module) if measured is not None else {}
        for instruction, times in costs.kernels():
            line = origins.of(instruction, module)
            for name, amount in _amounts(instruction, costs, times, device):
                self._add(name, line, amount)
            if instruction.name in seconds:
                self._add(MEASURED, line, seconds[instruction.name])
        self._add(INSTRUCTIONS, None, sum(len(part.rows) for part in module.computations))

    def _add(self, name: str, line: SourceLine | None, amount: float) -> None:
        if amount:
            lines = self.by_line.setdefault(name, {})
            lines[line] = lines.get(line, 0.0) + amount

    def total(self, name: str) -> float:
        """The sum of a quantity over all lines."""
        return sum(self.by_line.get(name, {}).values(), 0.0)

    def of_line(self, name: str, line: SourceLine | None) -> float:
        """The part of a quantity that comes from a line."""
        return self.by_line.get(name, {}).get(line, 0.0)


def _amounts(
    instruction: Instruction, costs: ModuleCosts, times: int, device: Device | None
) -> Iterator[tuple[str, float]]:
    """The amounts that an instruction adds to quantities."""
    cost, opcode = costs.of(instruction), instruction.opcode
    yield MOVED, cost.bytes * times
    yield WORK, cost.flops * times
    yield TRANSCENDENTALS, cost.transcendentals * times
    if device is not None:
        yield TIME, device.seconds(cost) * times
    if opcode not in NO_BUFFER:
        yield HELD, byte_count(instruction.shape_or_none)
    if opcode.endswith("-done") or opcode == "constant":
        return
    yield KERNELS, 1
    if opcode == "fusion":
        yield FUSIONS, 1
        yield f"fusion {instruction.attribute_text('kind') or ''}".rstrip(), 1
    elif opcode == "custom-call":
        yield f"custom-call {instruction.custom_call_target}", 1
    else:
        yield opcode, 1
    if opcode in COMMUNICATES:
        sent = sum(byte_count(operand.shape) for operand in instruction.operands)
        yield opcode.removesuffix("-start") + COLLECTIVE, sent * times


class LinesOfPython:
    """The lines of Python of instructions; an instruction without a line gets its producer's."""

    def __init__(self) -> None:
        self._known: dict[tuple[Computation, int, tuple[str, ...]], SourceLine | None] = {}
        self._functions: dict[SourceLine, str] = {}
        self._one_of_each: dict[SourceLine, SourceLine] = {}

    def of(self, instruction: Instruction, module: Module) -> SourceLine | None:
        """The line of an instruction, or of its nearest producer with a line; None without any.

        The function is left out, as old releases do not print it; `function_of` adds it.
        """
        line, passed = None, []
        for value in chain(instruction, Instruction.producer):
            key = value.computation, value.number, module.tables
            if key in self._known:
                line = self._known[key]
                break
            passed.append(key)
            if own := self._own(value, module):
                line = replace(own, function="")
                line = self._one_of_each.setdefault(line, line)  # equal lines compare by identity
                if own.function:
                    self._functions[line] = own.function
                break
        # All that was passed has this line too: a chain is walked once.
        self._known.update(dict.fromkeys(passed, line))
        return line

    def function_of(self, line: SourceLine | None) -> SourceLine | None:
        """A line with its function, where an instruction names it."""
        return line and replace(line, function=self._functions.get(line, ""))

    def _own(self, instruction: Instruction, module: Module) -> SourceLine | None:
        """The line of an instruction, else the last line in its called computation."""
        line = origin_of(instruction, module)
        body = module.callee(instruction) if line is None else None
        if body is None:
            return line
        inside = (origin_of(inner, module) for inner in reversed(body.instructions))
        return next(filter(None, inside), None)


class MeasuredKernel(NamedTuple):
    """An instruction of a final module, with its time in a run of the module, in seconds."""

    seconds: float
    instruction: Instruction
    origin: SourceLine | None


def measured_kernels(compilation: Compilation, measured: Measured) -> list[MeasuredKernel]:
    """The instructions of the final module that a profile names, the longest first.

    Raises:
        DumpError: the module cannot be read.
    """
    module, origins = final_module(compilation), LinesOfPython()
    seconds = measured.seconds(module)
    kernels = {kernel.name: kernel for kernel, _ in ModuleCosts(module).kernels()}
    return [
        MeasuredKernel(time, kernels[name], origins.function_of(origins.of(kernels[name], module)))
        for name, time in seconds.items()
        if name in kernels
    ]


def final_module(compilation: Compilation) -> Module:
    """The final module of a run, or the module of its last dump if the run is unfinished."""
    return modules_of(compilation.final or in_order(compilation)[-1])[0]


def assigned_memory(compilation: Compilation) -> BufferAssignment | None:
    """The buffer assignment of a run; None if it is missing or unreadable."""
    text = compilation.artefact("-buffer-assignment.txt")
    return None if text is None else read_buffer_assignment(text)


def size_of(memory: BufferAssignment | None, name: str) -> float | None:
    """The bytes of device memory in total, or of the temporaries; None if unknown."""
    if memory is None:
        return None
    held = memory.allocations if name == PEAK else _temporaries(memory.allocations)
    sizes = (part.size for part in held if not part.color and "thread-local" not in part.flags)
    return float(sum(sizes))


def _temporaries(allocations: Iterable[Allocation]) -> Sequence[Allocation]:
    """The allocations other than arguments, results, constants and thread-local memory."""
    others = {"constant", "thread-local", "maybe-live-out"}
    return [
        allocation
        for allocation in allocations
        if allocation.parameter is None and others.isdisjoint(allocation.flags)
    ]


def memory_by_line(
    memory: BufferAssignment | None, module: Module, origins: LinesOfPython
) -> dict[SourceLine, int]:
    """The bytes of temporary memory that values of each line of Python ever occupy."""
    by_name = {instruction.name: instruction for instruction in module.instructions()}
    places: dict[tuple[SourceLine, int], list[tuple[int, int]]] = {}
    for allocation in _temporaries(memory.allocations if memory is not None else ()):
        begins = sorted({*(value.offset for value in allocation.values), allocation.size})
        for value in () if allocation.color else allocation.values:
            instruction = by_name.get(value.instruction)
            line = None if instruction is None else origins.of(instruction, module)
            if line is not None:
                # The padding before the next value belongs to this value.
                end = value.offset + value.size
                end = begins[min(bisect_left(begins, end), len(begins) - 1)]
                places.setdefault((line, allocation.index), []).append((value.offset, end))
    sizes: dict[SourceLine, int] = {}
    for (line, _), ranges in places.items():
        sizes[line] = sizes.get(line, 0) + _covered(ranges)
    return sizes


def _covered(ranges: Iterable[tuple[int, int]]) -> int:
    """The number of bytes that ranges cover, overlaps counted once."""
    covered = end = 0
    for first, after in sorted(ranges):
        covered += max(0, after - max(first, end))
        end = max(end, after)
    return covered
