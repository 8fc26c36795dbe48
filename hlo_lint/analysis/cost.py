"""The cost of a module, kernel by kernel: flops, transcendental operations, bytes.

Differences from XLA's `HloCostAnalysis`: a loop counts as often as it runs if that is known; if a
fusion only slices an operand, only the slices count; tuples are free; custom calls have bytes, and
GEMMs and convolutions among them have flops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from hlo_lint.analysis.buffers import renamed_source
from hlo_lint.analysis.calls import callees_of, calls_of
from hlo_lint.analysis.loops import loops
from hlo_lint.analysis.opcode_costs import (
    FREE,
    MOST,
    NOTHING,
    SLICES,
    Cost,
    applications,
    byte_count,
    cost_of_kind,
    library_cost,
)
from hlo_lint.analysis.walks import operands_first, reached
from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis
from hlo_lint.hlo.kinds import reading_of
from hlo_lint.hlo.opcodes import RUNS_SCHEDULE, wrapped_opcode
from hlo_lint.hlo.records import opcode_of


class ModuleCosts:
    """The cost of each kernel of a module, and the number of times that it runs.

    A loop with an unknown number of iterations counts once, as in XLA; with `loops_once`, every
    loop does.
    """

    def __init__(self, module: Module, *, loops_once: bool = False) -> None:
        self.module = module
        self._loops_once = loops_once
        self._loops = {loop.instruction: loop for loop in loops(module)}
        self._totals: dict[str, Cost] = {}
        for computation in operands_first(module.computations, partial(callees_of, module)):
            total = _without_callers(computation)
            for number in calls_of(computation):
                total += self.of(computation.at(number))
            self._totals.setdefault(computation.name, total)

    @property
    def total(self) -> Cost:
        """The cost of the whole module: of its entry, with its callees."""
        entry = self.module.entry
        return NOTHING if entry is None else self._totals.get(entry.name, NOTHING)

    def of(self, instruction: Instruction) -> Cost:
        """The cost of an instruction with its callees, over all iterations of a loop."""
        number, computation = instruction.number, instruction.computation
        names = calls_of(computation).get(number, ())
        callees = [self._totals.get(name, NOTHING) for name in names]
        opcode = instruction.opcode
        if opcode == "fusion":
            body = self.module.computation(names[0]) if names else None
            own = 0 if body is None else _fusion_bytes(instruction, body)
            return Cost(bytes=own) + sum((cost.inside() for cost in callees), NOTHING)
        if opcode == "while":
            return sum(callees, NOTHING).times(self.trip_count(instruction))
        if opcode == "conditional":
            return max(callees, key=lambda cost: (cost.bytes, cost.flops), default=NOTHING)
        # The start of an asynchronous computation has a short spelling, too.
        if callees and (opcode in ("call", "async-start") or wrapped_opcode(opcode) is not None):
            return sum(callees, NOTHING)
        reading = reading_of(computation)
        kind = reading.kinds[reading.kind_of[number]]
        cost = cost_of_kind(*kind)
        if callees and opcode in _APPLIES:
            applied = sum((callee.inside() for callee in callees), NOTHING)
            cost += applied.times(applications(opcode, *kind[1:]))
        if opcode == "custom-call":
            cost += library_cost(instruction)
        return cost

    def trip_count(self, instruction: Instruction) -> int:
        """The number of times that a loop runs, or counts as running."""
        loop = None if self._loops_once else self._loops.get(instruction)
        return 1 if loop is None or loop.trip_count is None else loop.trip_count

    @property
    def unknown_loops(self) -> list[Instruction]:
        """The loops with an unknown number of iterations."""
        return [instruction for instruction, loop in self._loops.items() if loop.trip_count is None]

    def kernels(self) -> Iterator[tuple[Instruction, int]]:
        """The instructions that become kernels, each with the number of times that it runs.

        All branches of a conditional count.
        """
        entry = self.module.entry
        times: Counter[Computation] = Counter({entry: 1} if entry is not None else {})
        run = partial(callees_of, self.module, opcodes=RUNS_SCHEDULE)
        for computation in reversed(operands_first(times, run)):  # callers first
            calls = calls_of(computation)
            for number, row in enumerate(computation.rows):
                opcode = opcode_of(row)
                if opcode not in RUNS_SCHEDULE:
                    if opcode not in FREE:
                        yield computation.at(number), times[computation]
                    continue
                trips = self.trip_count(computation.at(number)) if opcode == "while" else 1
                for callee in filter(None, map(self.module.computation, calls.get(number, ()))):
                    times[callee] = min(MOST, times[callee] + trips * times[computation])


_APPLIES: Final = frozenset(
    "all-reduce all-reduce-start map reduce reduce-scatter reduce-window scan scatter "
    "select-and-scatter".split()
)
"""Opcodes that apply their computation to elements."""


@cached_analysis
def _without_callers(computation: Computation) -> Cost:
    """The cost of the instructions that call nothing, kind by kind."""
    reading, calls = reading_of(computation), calls_of(computation)
    counts = Counter(reading.kind_of)
    counts.subtract(Counter(reading.kind_of[number] for number in calls))
    total = NOTHING
    for number, count in counts.items():
        if count > 0:
            total += cost_of_kind(*reading.kinds[number]).times(count)
    return total


# Fusions


def _fusion_bytes(fusion: Instruction, body: Computation) -> int:
    reads = _parameter_reads(body)
    total = 0
    for result in _results(body):
        # In place: only the update is written.
        is_update = result.opcode == "dynamic-update-slice" and len(result.operand_names) > 1
        total += byte_count(result.operand_shape(1) if is_update else result.shape_or_none)
    for number, operand in enumerate(fusion.operands):
        total += reads[number] if number in reads else byte_count(operand.shape)
    return total


@cached_analysis
def _parameter_reads(body: Computation) -> Mapping[int, int]:
    """The bytes read from each parameter that the fusion reads only in part."""
    reads: dict[int, int] = {}
    updated = {
        name
        for result in _results(body)
        if result.opcode == "dynamic-update-slice"
        for name in result.operand_names[:1]
    }
    """The names of values that the fusion updates in place: they are not read."""
    for parameter in body.with_opcode("parameter"):
        number = parameter.parameter_number
        if number is None:
            continue
        read = 0
        whole = not parameter.users
        for source in reached([parameter], _bitcasts_of):
            name = source.name
            for user in source.users:
                if user.opcode == "bitcast":
                    continue
                is_first = user.operand_names[0].partition("#")[0] == name
                if is_first and user.opcode in SLICES and user.operand_names.count(name) == 1:
                    read += byte_count(user.shape_or_none)
                elif not (is_first and user.opcode == "dynamic-update-slice" and name in updated):
                    whole = True
        if not whole:
            reads[number] = min(read, byte_count(parameter.shape_or_none))
    return reads


def _bitcasts_of(instruction: Instruction) -> list[Instruction]:
    return [user for user in instruction.users if user.opcode == "bitcast"]


def _results(body: Computation) -> list[Instruction]:
    """The instructions whose values the fusion writes."""
    root = body.root
    if root is None:
        return []
    results = root.producers if root.opcode == "tuple" else (root,)
    return [renamed_source(result, ("bitcast",)) or result for result in results]
