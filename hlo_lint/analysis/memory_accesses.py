"""Accesses of memory, by a buffer assignment, that conflict with operations in flight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from hlo_lint.analysis.async_chains import (
    AsyncChain,
    is_async,
    is_done,
    is_start,
    is_update,
    result_index,
    source_in_chain,
)
from hlo_lint.analysis.buffers import ResultPart, handed_on
from hlo_lint.analysis.grouping import by_key
from hlo_lint.analysis.sequential_calls import sequential_calls
from hlo_lint.analysis.walks import chain
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.opcodes import CONTROL_FLOW, NO_KERNEL, SAME_MEMORY
from hlo_lint.hlo.shape import Index, array_indices, part, spelled_index

if TYPE_CHECKING:
    from hlo_lint.dumps.artefacts.buffer_assignment import AssignedValue, BufferAssignment

DISJOINT = "xla_disjoint_read_write_regions"
"""A frontend attribute: an instruction's reads and writes of a buffer do not overlap.

Copy insertion then leaves its users on that buffer (`xla/frontend_attributes.h`).
"""
_ALLOCATES = frozenset({"AllocateBuffer", "CreateBuffer", "PinnedHostAllocateBuffer"})
"""Targets of custom calls that allocate memory without writing it."""


class MemoryAccess(NamedTuple):
    """An instruction that reads or writes a value's memory."""

    instruction: Instruction
    """The instruction that accesses; for a loop, an instruction of its body."""
    value: AssignedValue
    writes: bool

    def __str__(self) -> str:
        verb = "writes" if self.writes else "reads"
        index = spelled_index(self.value.index) if self.value.index else ""
        name = f"%{self.value.instruction}{index}"
        if self.value.instruction == self.instruction.name:
            name = f"its result {index}".rstrip()
        return f"%{self.instruction.name} {verb} {name}: {self.value.slice}"


class Race(NamedTuple):
    """An instruction that conflicts with an operation in flight."""

    chain: AsyncChain
    instruction: Instruction
    """The instruction in the schedule: the loop rather than an instruction of its body."""
    theirs: MemoryAccess
    ours: MemoryAccess


class Clobber(NamedTuple):
    """A value that an operation overwrites, and that is read after its done."""

    chain: AsyncChain
    ours: MemoryAccess
    read: MemoryAccess
    reader: Instruction
    """The instruction in the schedule that reads."""


class Life(NamedTuple):
    """A value, from the first instruction that has it to the last that reads it."""

    first: int
    last: int
    read: MemoryAccess
    reader: Instruction


class Accesses:
    """Reads and writes of memory, by the buffer assignment."""

    def __init__(self, module: Module, buffers: BufferAssignment) -> None:
        self._buffers = buffers
        self._calls = sequential_calls(module)
        self._touches: dict[Instruction, tuple[MemoryAccess, ...]] = {}
        self._values = cache(self._values_of)
        self._lives = cache(self._lives_in)

    def races(self, chain: AsyncChain) -> Iterator[Race]:
        """The instructions that conflict with an operation, once for each kind of conflict."""
        own = [(chain.start, touch) for touch in self.touches(chain.start)]
        for update in chain.updates:
            own += [(update, touch) for touch in self._reads(update, first=1)]
        if not own:
            return
        allocations = {touch.value.slice.allocation for _, touch in own}
        for interval in chain.intervals:
            for instruction in interval.instructions:
                if all(DISJOINT in op.attributes_text for op in (chain.start, instruction)):
                    continue  # both declare that they use different regions of a shared buffer
                reported: set[tuple[bool, bool]] = set()
                for theirs in self.touches(instruction):
                    if theirs.value.slice.allocation not in allocations:
                        continue
                    for since, ours in own:
                        ways = (theirs.writes, ours.writes)
                        # An update's operands are in use from the update on, not from the start.
                        early = (
                            since.computation is instruction.computation
                            and since.number > instruction.number
                        )
                        if (
                            any(ways)
                            and ways not in reported
                            and (since is chain.start or not early)
                            and theirs.value.slice.overlaps(ours.value.slice)
                        ):
                            reported.add(ways)
                            yield Race(chain, instruction, theirs, ours)

    def losses(self, chain: AsyncChain) -> Iterator[Clobber]:
        """The values from before the start that the operation overwrites and that are read later.

        The operation itself destroys them: no other instruction is involved.
        """
        if not chain.is_simple():
            return
        start, done = chain.start, chain.dones[0]
        own = [touch for touch in self.touches(start) if touch.writes]
        # A value that the operation itself writes is not lost by it.
        results = {touch.value.id for touch in own}
        lives = self._lives(start.computation)
        for ours in own:
            for life in lives.get(ours.value.slice.allocation, ()):
                if (
                    life.first < start.number
                    and life.last > done.number
                    and life.read.value.slice.overlaps(ours.value.slice)
                    and life.read.value.id not in results
                ):
                    yield Clobber(chain, ours, life.read, life.reader)

    def folds(self, chain: AsyncChain) -> Iterator[tuple[MemoryAccess, MemoryAccess]]:
        """The operand of a copy that overlaps its result, shifted: no order of bytes is right.

        Exactly the same memory is not a fold: the copy then changes nothing.
        """
        if chain.start.opcode != "copy-start":
            return
        touches = self.touches(chain.start)
        for read in (touch for touch in touches if not touch.writes):
            for written in (touch for touch in touches if touch.writes):
                a, b = read.value.slice, written.value.slice
                if a.overlaps(b) and a != b:
                    yield read, written

    def _lives_in(self, computation: Computation) -> Mapping[int, Sequence[Life]]:
        """The live ranges of a computation's values, by allocation."""
        first: dict[int, int] = {}
        last: dict[int, tuple[Instruction, MemoryAccess]] = {}
        for instruction in computation.instructions:
            for touch in self.touches(instruction):
                if not touch.writes:
                    last[touch.value.id] = (instruction, touch)
            for index in array_indices(instruction.shape_or_none):
                for value in self._values(instruction, index):
                    first.setdefault(value.id, instruction.number)
        root = computation.root
        if root is not None:
            for index in array_indices(root.shape_or_none):
                for value in self._values(root, index):
                    last[value.id] = (root, MemoryAccess(root, value, writes=False))
        # The computation's result is needed after its last instruction.
        ends = {root: len(computation.rows)}
        return by_key(
            (place.allocation, Life(first[number], ends.get(reader, reader.number), read, reader))
            for number, (reader, read) in last.items()
            for place in [read.value.slice]
            if number in first and place.size
        )

    def touches(self, instruction: Instruction) -> tuple[MemoryAccess, ...]:
        """The accesses of an instruction, and of all instructions that run inside it."""
        cached = self._touches.get(instruction)
        if cached is None:
            self._touches[instruction] = ()  # against a computation that calls itself
            unique = {
                (touch.instruction, touch.value.id, touch.writes): touch
                for touch in self._all_touches(instruction)
            }
            cached = self._touches[instruction] = tuple(unique.values())
        return cached

    def _all_touches(self, instruction: Instruction) -> Iterator[MemoryAccess]:
        opcode = instruction.opcode
        # A done only waits: the memory traffic is that of its start.
        if opcode in NO_KERNEL or is_done(instruction) or is_update(instruction):
            return
        if opcode == "custom-call" and instruction.custom_call_target in _ALLOCATES:
            return
        # The branches do the work of a conditional: the instruction itself reads only the selector.
        if opcode == "conditional":
            yield from self._reads(instruction, last=1)
        elif opcode not in CONTROL_FLOW:
            yield from self._reads(instruction)
            yield from self._writes(instruction)
        for callee in self._calls.callees(instruction):
            for inside in callee.instructions:
                yield from self.touches(inside)

    def _reads(
        self, instruction: Instruction, first: int = 0, last: int | None = None
    ) -> Iterator[MemoryAccess]:
        for operand in instruction.operands[first:last]:
            if operand.instruction is None:
                continue
            for index in array_indices(operand.shape):
                for value in self._values(operand.instruction, (*operand.shape_index, *index)):
                    yield MemoryAccess(instruction, value, writes=False)

    def _writes(self, instruction: Instruction) -> Iterator[MemoryAccess]:
        shape = instruction.shape_or_none
        prefix: Index = ()
        if is_start(instruction):
            # A start writes only its result: the operands in its tuple are aliases, the contexts
            # flags.
            written = result_index(instruction)
            if written is None:
                return
            prefix, shape = written, part(shape, written)
        for index in array_indices(shape):
            for value in self._values(instruction, (*prefix, *index)):
                yield MemoryAccess(instruction, value, writes=True)

    def _values_of(self, instruction: Instruction, index: Index) -> tuple[AssignedValue, ...]:
        """The values, each with its memory, that a part of an instruction's result may be.

        If the assignment does not list the position, its source is looked up: through renames,
        arguments of callers, and results of asynchronous computations.
        """
        sources = chain((instruction, index), lambda place: self._source(*place))
        listed = (self._buffers.values_of(source.name, part) for source, part in sources)
        return next(filter(None, listed), ())

    def _source(self, instruction: Instruction, index: Index) -> ResultPart | None:
        opcode = instruction.opcode
        if opcode == "parameter":
            for caller in self._calls.callers(instruction.computation):
                argument = self._calls.argument(caller, instruction)
                if argument is not None:
                    return argument[0], (*argument[1], *index)
            return None
        if opcode == "call":
            return self._root(instruction, index)
        if not is_async(opcode):
            return handed_on(instruction, index, SAME_MEMORY | {"while"})
        prefix = result_index(instruction) if is_start(instruction) else None
        if prefix is not None and index[: len(prefix)] == prefix:
            return self._root(instruction, index[len(prefix) :])
        return source_in_chain(instruction, index, self._source)

    def _root(self, caller: Instruction, index: Index) -> ResultPart | None:
        for callee in self._calls.callees(caller):
            if callee.root is not None:
                return callee.root, index
        return None
