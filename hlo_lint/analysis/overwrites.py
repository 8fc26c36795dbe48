"""Reads of a value after another value was written into their shared buffer.

After copy insertion the values of one buffer are never alive at once
(`CopyInsertion::AddCopiesToResolveInterference`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from hlo_lint.analysis.async_chains import is_async
from hlo_lint.analysis.buffers import (
    NumberedPart,
    ResultPart,
    donated_parts,
    element_taken,
    input_output_aliases,
)
from hlo_lint.analysis.grouping import by_key
from hlo_lint.analysis.sequential_calls import sequential_calls
from hlo_lint.analysis.shared_buffers import (
    PASSES_ON,
    SharedBuffers,
    arrays_in,
    buffers_of,
    copied_place,
    source_place,
    start_of,
)
from hlo_lint.analysis.walks import control_successors, reached
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.records import name_of, opcode_of, references_of, type_of
from hlo_lint.hlo.shape import Index


class Overwrite(NamedTuple):
    """A read of a value after another value was written into its buffer."""

    writer: Instruction
    """The instruction that writes, or that runs the writer."""
    value: ResultPart
    reader: Instruction


def overwrites(module: Module) -> Iterator[Overwrite]:
    """The reads that come too late; the first for each writer and value.

    In a scheduled module the order of the text counts; otherwise only a reader that depends on the
    writer is certain to come after it.
    """
    buffers = buffers_of(module)
    for computation in module.nonfusion_computations:
        yield from _in_computation(computation, buffers, scheduled=module.is_scheduled)


def kept_writes(module: Module) -> Iterator[tuple[Instruction, ResultPart]]:
    """The first write of each writer in the entry into constants or non-donated parameters."""
    entry = module.entry
    if entry is None:
        return
    buffers = buffers_of(module)
    kept: dict[int, ResultPart] = {}
    donated = donated_parts(module)
    for (number, index), buffer in sorted(buffers.sharing(entry).items()):
        opcode = opcode_of(entry.rows[number])
        if opcode == "constant" or (
            opcode == "parameter"
            and donated is not None
            and (parameter := entry.at(number).parameter_number) is not None
            and (parameter, index) not in donated
        ):
            kept.setdefault(buffer, (entry.at(number), index))
    for writer, written in buffers.writers(entry) if kept else ():
        for buffer in sorted(written & kept.keys()):
            if kept[buffer][0].number != writer:
                yield entry.at(writer), kept[buffer]
                break


def swapped_elements(module: Module) -> Iterator[tuple[Instruction, int, int]]:
    """The roots of loop bodies that return an element of the state as another, uncopied.

    Yields the root, the number of the returned element and its new number. Both are alive at once,
    but the next iteration needs the returned element in the buffer of the other. Two elements that
    begin and stay equal share a buffer from the start.
    """
    calls = sequential_calls(module)
    for computation in module.nonfusion_computations:
        for loop in computation.with_opcode("while"):
            body = next(iter(calls.callees(loop)), None)
            root = None if body is None else body.root
            if body is None or root is None:
                continue
            places = range(len(root.operand_names))
            given = [source_place(body, root.number, (place,)) for place in places]
            for place, value in enumerate(given):
                if value is None or len(value[1]) != 1 or value[1][0] == place:
                    continue
                # A value that the body computes has a buffer of its own.
                if opcode_of(body.rows[value[0]]) != "parameter":
                    continue
                init = loop.producer()
                first = {
                    init and source_place(computation, init.number, index)
                    for index in ((place,), value[1])
                }
                taken = value[1][0]
                if (
                    not taken < len(given)
                    or given[taken] != value
                    or len(first) > 1
                    or None in first
                ):
                    yield root, value[1][0], place
                    break


def swapped_results(module: Module) -> Iterator[tuple[Instruction, Index, Instruction]]:
    """The root of the entry with each part that aliases a parameter but is a different parameter,
    uncopied: that parameter is in its caller's buffer."""
    entry = module.entry
    root = None if entry is None else entry.root
    if entry is None or root is None or "input_output_alias=" not in module.header:
        return
    for alias in input_output_aliases(module):
        place = source_place(entry, root.number, alias.output_index)
        if place is None or opcode_of(entry.rows[place[0]]) != "parameter":
            continue
        value = entry.at(place[0])
        if value.parameter_number not in (None, alias.operand):
            yield root, alias.output_index, value


def _in_computation(
    computation: Computation, buffers: SharedBuffers, *, scheduled: bool
) -> Iterator[Overwrite]:
    values = buffers.shared_in(computation)
    if not values:
        return
    order = _Order(computation, scheduled=scheduled)
    readers = _Readers(computation, buffers)
    # The positions at which values begin; parameters are live from the start.
    begins = {
        place: -1 if opcode_of(computation.rows[place[0]]) == "parameter" else place[0]
        for places in values.values()
        for place in places
    }
    writers = [
        (writer, written & values.keys()) for writer, written in buffers.writers(computation)
    ]
    writes = by_key((buffer, writer) for writer, written in writers for buffer in written)
    # A late read needs a writer after the beginning of a value.
    values = {
        buffer: places
        for buffer, places in values.items()
        if buffer in writes and any(begins[place] < writes[buffer][-1] for place in places)
    }
    reading = {place: readers.of(place) for places in values.values() for place in places}
    last_read = {place: max(numbers, default=-1) for place, numbers in reading.items()}
    # A chain of updates puts thousands of values into a buffer: a writer looks only at values that
    # are live when it runs.
    waiting = {
        buffer: sorted(places, key=begins.__getitem__, reverse=True)
        for buffer, places in values.items()
    }
    alive: dict[int, list[NumberedPart]] = {buffer: [] for buffer in values}
    for writer, written in writers:
        for buffer in sorted(written & values.keys()):
            while waiting[buffer] and begins[waiting[buffer][-1]] < writer:
                alive[buffer].append(waiting[buffer].pop())
            alive[buffer] = [place for place in alive[buffer] if last_read[place] > writer]
            for place in sorted(alive[buffer]):
                maker, index = place
                # Without a schedule, the write may come before the value.
                if begins[place] >= 0 and not order.is_certain(maker, writer):
                    continue
                # A copy over its own source changes nothing.
                if place == copied_place(computation, writer):
                    continue
                for reader in reading[place]:
                    if order.is_certain(writer, reader):
                        read = computation.at(reader)
                        if start_of(read) != writer:
                            value = computation.at(maker), index
                            yield Overwrite(computation.at(writer), value, read)
                            break


class _Order:
    """The order of execution in a computation: by its schedule, else by its dependencies."""

    def __init__(self, computation: Computation, *, scheduled: bool) -> None:
        self._computation = computation
        self._scheduled = scheduled
        self._reached: dict[int, set[int]] = {}

    def is_certain(self, first: int, second: int) -> bool:
        """True if an instruction is certain to run before another."""
        if self._scheduled:
            return first < second
        if first not in self._reached:
            self._reached[first] = set(reached(self._after(first), self._after))
        return second in self._reached[first]

    def _after(self, number: int) -> Iterable[int]:
        computation = self._computation
        name = name_of(computation.rows[number])
        yield from computation.users.get(name, ())
        yield from control_successors(computation).get(name, ())


class _Readers:
    """The instructions of a computation that read a value, directly or through renames."""

    def __init__(self, computation: Computation, buffers: SharedBuffers) -> None:
        self._computation = computation
        self._buffers = buffers
        root = computation.root
        self._result = root.number if root is not None and root.opcode in PASSES_ON else None
        self._users = cache(self._users_of)
        self._operands = cache(self._operands_by_name)
        self._values = cache(self._in_flight)

    def of(self, value: NumberedPart) -> list[int]:
        """The positions of the readers, in the order of the text.

        A root that passes the value on comes last: the caller reads it.
        """
        readers: set[int] = set()

        def places_of(place: NumberedPart) -> Sequence[NumberedPart]:
            position, index = place
            elements, others = self._users(position)
            places = [(number, index[1:]) for number in elements.get(index[0], ())] if index else []
            for number in others:
                opcode = opcode_of(self._computation.rows[number])
                if opcode in PASSES_ON:
                    places += self._handed_on(position, index, number)
                    continue
                for operand, element in self._operands_of(number, position):
                    inner = index[len(element) :]
                    if index[: len(element)] == element and self._buffers.is_read(
                        self._computation, number, operand, inner
                    ):
                        readers.add(number)
                # A start holds its operands until it is done.
                if is_async(opcode):
                    places += self._values(number).get(value, ())
            return places

        returned = {
            position for position, _ in reached([value], places_of) if position == self._result
        }
        return [*sorted(readers), *returned]

    def _users_of(self, position: int) -> tuple[Mapping[int | None, Sequence[int]], Sequence[int]]:
        """The users of a result: get-tuple-elements by their index, and all others."""
        rows = self._computation.rows
        name = name_of(rows[position])
        numbers = self._computation.users.get(name, ())
        if not type_of(rows[position]).startswith("("):
            return {}, numbers
        elements: dict[int | None, list[int]] = {}
        others: list[int] = []
        for number in numbers:
            row = rows[number]
            if opcode_of(row) == "get-tuple-element" and references_of(row) == (name,):
                element = element_taken(self._computation, number)
                elements.setdefault(element, []).append(number)
            else:
                others.append(number)
        return elements, others

    def _operands_of(self, number: int, position: int) -> Sequence[tuple[int, Index]]:
        """The operands of instruction `number` that are a result, or an element with its index."""
        rows = self._computation.rows
        name, references = name_of(rows[position]), references_of(rows[number])
        if references == (name,):
            return ((0, ()),)
        return self._operands(number).get(name, ())

    def _operands_by_name(self, number: int) -> Mapping[str, Sequence[tuple[int, Index]]]:
        return by_key(
            (source, (operand, tuple(map(int, elements))))
            for operand, reference in enumerate(references_of(self._computation.rows[number]))
            for source, *elements in [reference.split("#")]
        )

    def _handed_on(self, position: int, index: Index, number: int) -> Iterator[NumberedPart]:
        """The places in a user that hold a part of a result unchanged."""
        opcode = opcode_of(self._computation.rows[number])
        for operand, element in self._operands_of(number, position):
            rest = index[len(element) :]
            if index[: len(element)] != element:
                continue
            if opcode == "tuple":
                yield number, (operand, *rest)
            elif opcode != "get-tuple-element":
                if operand == 0:
                    yield number, rest
            elif operand == 0 and rest and rest[0] == element_taken(self._computation, number):
                yield number, rest[1:]

    def _in_flight(self, number: int) -> Mapping[NumberedPart | None, Sequence[NumberedPart]]:
        """The places in a start, an update or a done that hold each value."""
        return by_key(
            (source_place(self._computation, number, index), (number, index))
            for index in arrays_in(type_of(self._computation.rows[number]))
        )
