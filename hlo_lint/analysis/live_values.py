"""Writes into memory whose old value is read later, by the buffer assignment."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from hlo_lint.analysis.memory_accesses import DISJOINT, Accesses, Life, MemoryAccess
from hlo_lint.analysis.sequential_calls import sequential_calls
from hlo_lint.analysis.shared_buffers import copied_place
from hlo_lint.hlo.ir import Computation, Instruction, Module

if TYPE_CHECKING:
    from hlo_lint.dumps.artefacts.buffer_assignment import Allocation, BufferAssignment

_ON_PURPOSE: Final = (DISJOINT, '"ConcatBitcast"')
"""Texts of instructions that declare that they use disjoint parts of a shared buffer."""


class Clash(NamedTuple):
    """A write into the memory of a value that is read afterwards."""

    writer: Instruction
    """The instruction in the schedule: the loop rather than an instruction of its body."""
    written: MemoryAccess
    lost: Life


def clashes(module: Module, buffers: BufferAssignment) -> Iterator[Clash]:
    """The first write that clobbers each value, by computation."""
    if not any(map(_takes_turns, buffers.allocations)):
        return
    accesses = Accesses(module, buffers)
    for computation in sequential_calls(module).computations:
        yield from _in_computation(computation, accesses)


def _takes_turns(allocation: Allocation) -> bool:
    """True if bytes of an allocation belong to several values."""
    end = 0
    for place in sorted([value.slice for value in allocation.values], key=_OFFSET):
        if place.size and place.offset < end:
            return True
        end = max(end, place.end)
    return False


_OFFSET = attrgetter("offset")


def _in_computation(computation: Computation, accesses: Accesses) -> Iterator[Clash]:
    waiting = [life for lives in accesses.lives(computation).values() for life in lives]
    waiting.sort(key=lambda life: -life.first)
    alive: dict[int, list[Life]] = {}
    lost: set[int] = set()
    for instruction in computation.instructions:
        number = instruction.number
        while waiting and waiting[-1].first < number:
            life = waiting.pop()
            alive.setdefault(life.read.value.slice.allocation, []).append(life)
        for written in accesses.touches(instruction):
            allocation = written.value.slice.allocation
            if not written.writes or allocation not in alive:
                continue
            alive[allocation] = [life for life in alive[allocation] if life.last > number]
            for life in alive[allocation]:
                value = life.read.value
                if (
                    life.reader is not instruction
                    and value.id not in (written.value.id, *lost)
                    and value.slice.overlaps(written.value.slice)
                    and not _is_copied_onto_itself(written, life.read)
                    and not any(mark in instruction.attributes_text for mark in _ON_PURPOSE)
                ):
                    lost.add(value.id)
                    yield Clash(instruction, written, life)


def _is_copied_onto_itself(written: MemoryAccess, read: MemoryAccess) -> bool:
    """True for a copy into the memory of its own source."""
    if written.value.slice != read.value.slice:
        return False
    writer = written.instruction
    place = copied_place(writer.computation, writer.number)
    if place is None:
        return False
    number, index = place
    source = writer.computation.at(number).name
    return (source, index) == (read.value.instruction, read.value.index)
