"""Copies of what a loop carries from one iteration to the next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from hlo_lint.analysis.buffers import ResultPart, handed_on, operand_position
from hlo_lint.analysis.data_movement import moves
from hlo_lint.analysis.loops import Loop, loops
from hlo_lint.analysis.sequential_calls import Calls, sequential_calls
from hlo_lint.analysis.walks import reached
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.opcodes import FORWARDS
from hlo_lint.hlo.shape import ArrayShape, Index

_MAX_STEPS = 256
_HANDS_ON = FORWARDS | {"copy-done", "reshape"}


class CarriedCopy(NamedTuple):
    """A copy, in the body of a loop or in what it calls, of an element of the loop's state."""

    copy: Instruction
    loop: Loop
    element: Index
    shape: ArrayShape
    """The copied array."""

    @property
    def byte_count(self) -> int:
        """Bytes that one copy reads and writes."""
        return 2 * (self.shape.byte_size or 0)

    @property
    def total_bytes(self) -> int:
        """Bytes of all iterations; of one where their number is not known."""
        trips = self.loop.trip_count
        return self.byte_count * (1 if trips is None else trips)


def carried_copies(module: Module, least: int) -> Iterator[CarriedCopy]:
    """The copies of whole elements of loop states that take so many bytes, loop by loop."""
    kernels = {move.kernel for move in moves(module)}
    moved: defaultdict[Computation, list[int]] = defaultdict(list)
    for kernel in kernels:
        moved[kernel.computation].append(kernel.number)
    for loop in loops(module):
        calls = sequential_calls(module)
        for computation in _run_in_each_iteration(loop, calls):
            places = {*moved[computation], *computation.positions("copy-start")}
            for instruction in map(computation.at, sorted(places)):
                operand = instruction.operand(0)
                shape = None if operand is None else operand.shape
                if not isinstance(shape, ArrayShape):
                    continue
                copied = CarriedCopy(instruction, loop, (), shape)
                if copied.total_bytes < least:
                    continue
                element = _carried(instruction, loop, calls, kernels)
                if element is not None:
                    yield copied._replace(element=element)


def _run_in_each_iteration(loop: Loop, calls: Calls) -> Iterator[Computation]:
    """The body, and what it calls or chooses from; bodies of inner loops have their own state."""

    def callees(computation: Computation) -> Iterator[Computation]:
        for opcode in ("call", "conditional"):
            yield from chain.from_iterable(map(calls.callees, computation.with_opcode(opcode)))

    return reached([loop.body], callees)


def _carried(
    copy: Instruction, loop: Loop, calls: Calls, kernels: set[Instruction]
) -> Index | None:
    """The index of the loop's state that a copy reads whole; None if it reads something else."""
    position = operand_position(copy, 0, ())
    for _ in range(_MAX_STEPS):
        if position is None:
            return None
        at, index = position
        if at.opcode == "parameter" and at.computation is loop.body:
            return index
        position = _source(at, index, calls, kernels)
    return None


def _source(
    at: Instruction, index: Index, calls: Calls, kernels: set[Instruction]
) -> ResultPart | None:
    """The source from which a part of a value comes unchanged; None if it is computed."""
    if at.opcode == "parameter":
        callers = calls.callers(at.computation)
        argument = calls.argument(callers[0], at) if len(callers) == 1 else None
        return None if argument is None else (argument[0], (*argument[1], *index))
    if at.opcode == "copy-start":
        # The result is a tuple of the copy, the source and a context.
        return operand_position(at, 0, ())
    return operand_position(at, 0, index) if at in kernels else handed_on(at, index, _HANDS_ON)
