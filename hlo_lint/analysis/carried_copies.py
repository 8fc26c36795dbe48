"""Copies of loop-carried values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from hlo_lint.analysis.buffers import ResultPart, handed_on, operand_position
from hlo_lint.analysis.data_movement import moves
from hlo_lint.analysis.loops import Loop, loops
from hlo_lint.analysis.sequential_calls import Calls, sequential_calls
from hlo_lint.analysis.walks import chain, reached
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.opcodes import SAME_ELEMENTS
from hlo_lint.hlo.shape import ArrayShape, Index


class CarriedCopy(NamedTuple):
    """A copy of an element of a loop's state, in the body or in its callees."""

    copy: Instruction
    loop: Loop
    element: Index
    shape: ArrayShape
    """The copied array."""

    @property
    def byte_count(self) -> int:
        """Bytes that the copy reads and writes each time."""
        return 2 * (self.shape.byte_size or 0)

    @property
    def total_bytes(self) -> int:
        """Bytes over all iterations; over a single iteration if their number is unknown."""
        trips = self.loop.trip_count
        return self.byte_count * (1 if trips is None else trips)


def carried_copies(module: Module, least: int) -> Iterator[CarriedCopy]:
    """The copies of whole elements of loop states that move `least` bytes or more, by loop."""
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
    """The body and its callees, without bodies of inner loops, which have their own state."""

    def callees(computation: Computation) -> Iterator[Computation]:
        for opcode in ("call", "conditional"):
            for caller in computation.with_opcode(opcode):
                yield from calls.callees(caller)

    return reached([loop.body], callees)


def _carried(
    copy: Instruction, loop: Loop, calls: Calls, kernels: set[Instruction]
) -> Index | None:
    """The index of the element of the loop's state that a copy reads whole, if it does."""
    position = operand_position(copy, 0, ())
    for instruction, index in chain(position, lambda place: _source(*place, calls, kernels)):
        if instruction.opcode == "parameter" and instruction.computation is loop.body:
            return index
    return None


def _source(
    instruction: Instruction, index: Index, calls: Calls, kernels: set[Instruction]
) -> ResultPart | None:
    """The place that a part of a value comes from unchanged; None if it is computed."""
    if instruction.opcode == "parameter":
        callers = calls.callers(instruction.computation)
        argument = calls.argument(callers[0], instruction) if len(callers) == 1 else None
        return None if argument is None else (argument[0], (*argument[1], *index))
    if instruction.opcode == "copy-start":
        # The result is a tuple of the copy, the source and a context.
        return operand_position(instruction, 0, ())
    return (
        operand_position(instruction, 0, index)
        if instruction in kernels
        else handed_on(instruction, index, SAME_ELEMENTS)
    )
