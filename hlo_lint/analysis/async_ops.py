"""Asynchronous operations: the memory in use between a start and its done.

A start, its updates and its done are told apart by their opcodes, in dump form (`async-start`,
`copy-start`, `send`) and in the form that names the operation (`fusion-start`, `all-gather-start`).
The value of a start may travel through tuples, loops and calls before a done takes it; wherever it
is, the operation runs beside the schedule, and other instructions must keep off its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from hlo_lint.analysis.buffers import Position, handed_on, operand_position
from hlo_lint.analysis.calls import opcodes_of
from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis
from hlo_lint.hlo.opcodes import CONTROL_FLOW, FORWARDS, NO_KERNEL
from hlo_lint.hlo.shape import Index, Shape, TupleShape, array_indices, part

if TYPE_CHECKING:
    from hlo_lint.dumps.artefacts.buffer_assignment import AssignedValue, BufferAssignment

DISJOINT = "xla_disjoint_read_write_regions"
"""A frontend attribute: what an instruction reads and writes of one buffer does not overlap.

Copy insertion then leaves its users on that buffer (`xla/frontend_attributes.h`).
"""
_RENAMES = ("bitcast", "opt-barrier", "add-dependency", "while")
"""Opcodes whose result lies in the memory of operand 0."""
_SHARDING = frozenset({"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"})
_ALLOCATES = frozenset({"AllocateBuffer", "CreateBuffer", "PinnedHostAllocateBuffer"})
"""Targets of custom calls that give memory and write nothing."""


def is_start(instruction: Instruction) -> bool:
    """True if it begins an asynchronous operation."""
    return _begins(instruction.opcode)


def _begins(opcode: str) -> bool:
    return opcode.endswith("-start") or opcode in ("send", "recv")


def _ends(opcode: str) -> bool:
    return opcode.endswith("-done")


@cache
def is_async(opcode: str) -> bool:
    """True for an opcode that begins, goes on with or ends an asynchronous operation."""
    return _begins(opcode) or opcode.endswith("-update") or _ends(opcode)


def has_flights(module: Module) -> bool:
    """True if anything in a module begins an asynchronous operation, or waits for one."""
    return any(_begins(opcode) or _ends(opcode) for opcode in opcodes_of(module))


def is_update(instruction: Instruction) -> bool:
    """True if it hands a running operation on."""
    return instruction.opcode.endswith("-update")


def is_done(instruction: Instruction) -> bool:
    """True if it waits for an asynchronous operation."""
    return _ends(instruction.opcode)


def operation(instruction: Instruction) -> str:
    """The operation that a start, an update or a done is part of: `all-gather`, `async`, `send`."""
    opcode = instruction.opcode
    for ending in ("-start", "-update", "-done"):
        opcode = opcode.removesuffix(ending)
    return opcode


class LiveInterval(NamedTuple):
    """Instructions of one computation that run while an operation is in flight."""

    computation: Computation
    begin: int
    """The number of the first."""
    end: int
    """One more than the number of the last."""

    @property
    def instructions(self) -> Iterator[Instruction]:
        """In the order of the schedule."""
        return (self.computation.at(number) for number in range(self.begin, self.end))


@dataclass(frozen=True, eq=False)
class AsyncOp:
    """An asynchronous operation from its start to its done."""

    start: Instruction
    updates: tuple[Instruction, ...]
    dones: tuple[Instruction, ...]
    """Instructions that wait for it: two if a loop carries it, in its body and after it."""
    intervals: tuple[LiveInterval, ...]
    """The intervals in which it is in flight, if the order of the text is the schedule."""
    escapes: bool
    """True if its value goes where it cannot be followed."""
    is_carried: bool
    """True if a loop, a call or a conditional takes its value along."""

    @property
    def until(self) -> str:
        """The names of the instructions that wait for it, for messages."""
        return f"%{self.dones[0].name}" if self.dones else "the end"

    def is_simple(self) -> bool:
        """True if one done after the start, in the same computation, is all there is."""
        return (
            not self.is_carried
            and not self.escapes
            and len(self.dones) == 1
            and self.dones[0].computation is self.start.computation
            and self.dones[0].number > self.start.number
        )


@cached_analysis
def parameters_of(computation: Computation) -> Mapping[int | None, Sequence[int]]:
    """The positions of its parameters by their numbers, None where the text gives none."""
    positions: dict[int | None, list[int]] = {}
    for parameter in computation.with_opcode("parameter"):
        positions.setdefault(parameter.parameter_number, []).append(parameter.number)
    return positions


class Calls:
    """The callers that run the instructions of a computation one by one: no fusion, no reducer."""

    def __init__(self, module: Module) -> None:
        self._by_name = {computation.name: computation for computation in module.computations}
        fused = module.fusion_computations
        self.computations = tuple(c for c in module.computations if c.name not in fused)
        self._callees: dict[Instruction, tuple[Computation, ...]] = {}

    @cached_property
    def _callers(self) -> Mapping[str, Sequence[Instruction]]:
        # Reducers and comparators run once for each element: they have no schedule of their own.
        callers: dict[str, list[Instruction]] = {}
        for computation in self.computations:
            opcodes = {*CONTROL_FLOW & computation.opcodes, *filter(_begins, computation.opcodes)}
            for caller in _of_opcodes(computation, opcodes):
                for callee in self.callees(caller):
                    callers.setdefault(callee.name, []).append(caller)
        return callers

    def callees(self, caller: Instruction) -> tuple[Computation, ...]:
        """The computations whose instructions run when this one does; of a loop the body first."""
        callees = self._callees.get(caller)
        if callees is None:
            by_name = map(self._by_name.get, self._names(caller))
            callees = tuple([callee for callee in by_name if callee is not None])
            self._callees[caller] = callees
        return callees

    def _names(self, caller: Instruction) -> Sequence[str]:
        if caller.opcode == "while":
            return _attribute(caller, "body"), _attribute(caller, "condition")
        if caller.opcode in ("call", "conditional"):
            return caller.called_computations
        if caller.opcode.endswith("-start"):
            return (_attribute(caller, "calls"),)  # not `to_apply`, which is for one element
        return ()

    def callers(self, computation: Computation) -> tuple[Instruction, ...]:
        """The instructions that run it."""
        return tuple(self._callers.get(computation.name, ()))

    def parameters(self, caller: Instruction, operand: int) -> Iterator[Instruction]:
        """The parameters that an operand becomes."""
        for number, callee in enumerate(self.callees(caller)):
            wanted = operand
            if caller.opcode == "conditional":
                if operand != number + 1:
                    continue
                wanted = 0
            for parameter in parameters_of(callee).get(wanted, ()):
                yield callee.at(parameter)

    def argument(self, caller: Instruction, parameter: Instruction) -> Position | None:
        """The argument that a caller passes for a parameter."""
        number = parameter.parameter_number
        if caller.opcode == "conditional":
            callees = [callee.name for callee in self.callees(caller)]
            number = callees.index(parameter.computation.name) + 1
        return None if number is None else operand_position(caller, number, ())


sequential_calls = cached_analysis(Calls)
"""The callers and callees of a module, read once for all rules."""


@cached_analysis
def flights(module: Module) -> tuple[AsyncOp, ...]:
    """Every asynchronous operation of a module, in the order of the text."""
    calls = sequential_calls(module)
    return tuple(
        _Follower(start, calls).flight()
        for computation in calls.computations
        for start in starts(computation)
    )


def starts(computation: Computation) -> Iterator[Instruction]:
    """The starts of a computation, in the order of the text."""
    return _of_opcodes(computation, filter(_begins, computation.opcodes))


def dones(computation: Computation) -> Iterator[Instruction]:
    """The dones of a computation, in the order of the text."""
    return _of_opcodes(computation, filter(_ends, computation.opcodes))


def _of_opcodes(computation: Computation, opcodes: Iterable[str]) -> Iterator[Instruction]:
    numbers = sorted(chain.from_iterable(map(computation.positions, opcodes)))
    return map(computation.at, numbers)


_MAX_INDEX_DEPTH = 100


class _Follower:
    """Follows the value of one start through tuples, loops and calls."""

    def __init__(self, start: Instruction, calls: Calls) -> None:
        self._start = start
        self._calls = calls
        self._seen: set[Position] = set()
        self._todo: list[Position] = []
        self._updates: list[Instruction] = []
        self._dones: list[Instruction] = []
        self._takers: set[Instruction] = set()
        """Loops, calls and conditionals that take the value along."""
        self._escapes = False

    def flight(self) -> AsyncOp:
        self._visit(self._start, ())
        while self._todo:
            self._follow(*self._todo.pop())
        return AsyncOp(
            self._start,
            tuple(self._updates),
            tuple(sorted(self._dones, key=lambda done: done.number)),
            tuple(self._intervals()),
            self._escapes,
            bool(self._takers),
        )

    def _visit(self, instruction: Instruction, index: Index) -> None:
        if len(index) > _MAX_INDEX_DEPTH:
            self._escapes = True  # only a computation that starts itself nests tuples like this
        elif (instruction, index) not in self._seen:
            self._seen.add((instruction, index))
            self._todo.append((instruction, index))

    def _follow(self, at: Instruction, index: Index) -> None:
        for user in at.users:
            for number, operand in enumerate(user.operands):
                taken = len(operand.index)
                # An element of the start's own tuple is an array, no handle.
                if operand.name == at.name and index[:taken] == operand.index:
                    self._used(user, number, index[taken:])
        # Without a ROOT mark XLA takes the last instruction (hlo_computation.cc: Builder::Build).
        if at.is_root or at is at.computation.root:
            self._returned(at.computation, index)

    def _used(self, user: Instruction, number: int, index: Index) -> None:
        opcode = user.opcode
        if is_done(user):
            if index:  # what a group of sends and receives gives back: their own handles
                self._visit(user, index[1:])
            elif user not in self._dones:
                self._dones.append(user)
        elif is_update(user) and not index:
            # Only operand 0 is the handle: one that is handed over as data cannot be followed.
            if number == 0:
                self._updates.append(user)
                self._visit(user, ())
            else:
                self._escapes = True
        elif opcode == "get-tuple-element":
            if index and user.tuple_index == index[0]:
                self._visit(user, index[1:])
        elif opcode == "tuple":
            self._visit(user, (number, *index))
        elif opcode in FORWARDS or user.custom_call_target in _SHARDING:
            self._visit(user, index)
        elif opcode in CONTROL_FLOW:
            self._takers.add(user)
            for parameter in self._calls.parameters(user, number):
                self._visit(parameter, index)
            if opcode == "while":
                self._visit(user, index)
        else:
            self._escapes = True

    def _returned(self, computation: Computation, index: Index) -> None:
        callers = self._calls.callers(computation)
        if not callers:
            self._escapes = True
        for caller in callers:
            if caller.opcode != "while":
                self._visit(caller, (1, *index) if is_start(caller) else index)
            # The condition gives a pred: only what the body gives back goes into the next
            # iteration.
            elif computation is self._calls.callees(caller)[0]:
                self._takers.add(caller)
                self._visit(caller, index)
                for parameter in self._calls.parameters(caller, 0):
                    self._visit(parameter, index)

    def _intervals(self) -> Iterator[LiveInterval]:
        begins = [(self._start.computation, self._start.number + 1)]
        for at, _ in self._seen:
            if at.opcode == "parameter":
                begins.append((at.computation, 0))
            elif at.opcode in CONTROL_FLOW or (is_start(at) and at is not self._start):
                begins.append((at.computation, at.number + 1))
        # A loop or call that takes the value ends an interval here: the operation runs on in its
        # body, which has an interval of its own from the parameter on.
        stops = {*self._dones, *self._takers}
        for computation, begin in dict.fromkeys(begins):
            ends = (s.number for s in stops if s.computation is computation and s.number >= begin)
            end = min(ends, default=len(computation.rows))
            if begin < end:
                yield LiveInterval(computation, begin, end)


class MemoryAccess(NamedTuple):
    """An instruction that reads or writes a value's memory."""

    instruction: Instruction
    """The instruction that does; for a loop, one of its body."""
    value: AssignedValue
    writes: bool

    def __str__(self) -> str:
        verb = "writes" if self.writes else "reads"
        index = "{" + ",".join(map(str, self.value.index)) + "}" if self.value.index else ""
        name = f"%{self.value.instruction}{index}"
        if self.value.instruction == self.instruction.name:
            name = f"its result {index}".rstrip()
        return f"%{self.instruction.name} {verb} {name}: {self.value.slice}"


class Race(NamedTuple):
    """An instruction that is in the way of an operation in flight."""

    flight: AsyncOp
    instruction: Instruction
    """The one that stands in the schedule: the loop, not what is in its body."""
    theirs: MemoryAccess
    """The access of the instruction to the memory."""
    ours: MemoryAccess
    """The access of the operation to it."""


class Clobber(NamedTuple):
    """A value that an operation writes over, and that is read when it is done."""

    flight: AsyncOp
    ours: MemoryAccess
    read: MemoryAccess
    """The last time."""
    reader: Instruction
    """The instruction that does, in the schedule."""


class Life(NamedTuple):
    """A value from the first instruction that has it to the last that reads it."""

    first: int
    last: int
    begin: int
    end: int
    read: MemoryAccess
    reader: Instruction


class Accesses:
    """Reads and writes of memory, by the buffer assignment."""

    def __init__(self, module: Module, buffers: BufferAssignment) -> None:
        self._buffers = buffers
        self._module = module
        self._touches: dict[Instruction, tuple[MemoryAccess, ...]] = {}
        self._values: dict[Position, tuple[AssignedValue, ...]] = {}
        self._inside: dict[str, tuple[MemoryAccess, ...]] = {}
        self._spans: dict[Computation, dict[int, list[Life]]] = {}

    @cached_property
    def _calls(self) -> Calls:
        return sequential_calls(self._module)

    def races(self, flight: AsyncOp) -> Iterator[Race]:
        """Each instruction that is in the way, once for each way in which it is."""
        own = [(flight.start, touch) for touch in self.touches(flight.start)]
        for update in flight.updates:
            reads = self._reads(update, first=1)
            own += [(update, touch) for touch in reads]
        if not own:
            return
        allocations = {touch.value.slice.allocation for _, touch in own}
        for interval in flight.intervals:
            for at in interval.instructions:
                if _share_on_purpose(flight.start, at):
                    continue
                reported: set[tuple[bool, bool]] = set()
                for theirs in self.touches(at):
                    if theirs.value.slice.allocation not in allocations:
                        continue
                    for since, ours in own:
                        ways = (theirs.writes, ours.writes)
                        # What an update adds is in use from the update on, not from the start.
                        early = since.computation is at.computation and since.number > at.number
                        if (
                            any(ways)
                            and ways not in reported
                            and (since is flight.start or not early)
                            and theirs.value.slice.overlaps(ours.value.slice)
                        ):
                            reported.add(ways)
                            yield Race(flight, at, theirs, ours)

    def losses(self, flight: AsyncOp) -> Iterator[Clobber]:
        """Each value that is there before the start, lies in the way, and is read after the done.

        Nothing in between has to touch it: the operation itself destroys it.
        """
        if not flight.is_simple():
            return
        start, done = flight.start, flight.dones[0]
        own = [touch for touch in self.touches(start) if touch.writes]
        # A value that the operation itself writes is not lost by it.
        results = {touch.value.id for touch in own}
        lives = self.lives(start.computation)
        for ours in own:
            begin, end = ours.value.offset, ours.value.slice.end
            for life in lives.get(ours.value.slice.allocation, ()):
                if (
                    life.first < start.number
                    and life.last > done.number
                    and life.begin < end
                    and begin < life.end
                    and life.read.value.id not in results
                ):
                    yield Clobber(flight, ours, life.read, life.reader)

    def folds(self, flight: AsyncOp) -> Iterator[tuple[MemoryAccess, MemoryAccess]]:
        """The operand of a copy that overlaps its result, shifted: neither order of bytes is right.

        The very same memory is not a fold: there the copy changes nothing.
        """
        if flight.start.opcode != "copy-start":
            return
        touches = self.touches(flight.start)
        for read in (touch for touch in touches if not touch.writes):
            for written in (touch for touch in touches if touch.writes):
                a, b = read.value.slice, written.value.slice
                if a.overlaps(b) and a != b:
                    yield read, written

    def lives(self, computation: Computation) -> dict[int, list[Life]]:
        """By allocation: from where to where each value of a computation is there and read."""
        cached = self._spans.get(computation)
        if cached is not None:
            return cached
        first: dict[int, int] = {}
        last: dict[int, tuple[Instruction, MemoryAccess]] = {}
        for at in computation.instructions:
            for touch in self.touches(at):
                if not touch.writes:
                    last[touch.value.id] = (at, touch)
            for index in array_indices(at.shape_or_none):
                for value in self.values(at, index):
                    first.setdefault(value.id, at.number)
        root = computation.root
        if root is not None:
            for index in array_indices(root.shape_or_none):
                for value in self.values(root, index):
                    last[value.id] = (root, MemoryAccess(root, value, writes=False))
        lives: dict[int, list[Life]] = {}
        for number, (reader, read) in last.items():
            place = read.value.slice
            if number in first and place.size:
                # What the computation gives back is needed after its last instruction.
                end = len(computation.rows) if reader is root else reader.number
                life = Life(first[number], end, place.offset, place.end, read, reader)
                lives.setdefault(place.allocation, []).append(life)
        self._spans[computation] = lives
        return lives

    def touches(self, instruction: Instruction) -> tuple[MemoryAccess, ...]:
        """The accesses of an instruction, with those of all that runs inside of it."""
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
        if opcode in NO_KERNEL or is_done(instruction) or is_update(instruction):
            return
        if opcode == "custom-call" and instruction.custom_call_target in _ALLOCATES:
            return
        # A branch does the work of a conditional: the instruction itself reads only what selects
        # one.
        if opcode == "conditional":
            yield from self._reads(instruction, last=1)
        elif opcode not in CONTROL_FLOW:
            yield from self._reads(instruction)
            yield from self._writes(instruction)
        yield from self._nested(instruction)

    def _nested(self, caller: Instruction) -> Iterator[MemoryAccess]:
        for callee in self._calls.callees(caller):
            inside = self._inside.get(callee.name)
            if inside is None:
                inside = self._inside[callee.name] = tuple(
                    touch
                    for instruction in callee.instructions
                    for touch in self.touches(instruction)
                )
            yield from inside

    def _reads(
        self, instruction: Instruction, first: int = 0, last: int | None = None
    ) -> Iterator[MemoryAccess]:
        for operand in instruction.operands[first:last]:
            if operand.instruction is None:
                continue
            for index in array_indices(operand.shape):
                for value in self.values(operand.instruction, (*operand.index, *index)):
                    yield MemoryAccess(instruction, value, writes=False)

    def _writes(self, instruction: Instruction) -> Iterator[MemoryAccess]:
        shape = instruction.shape_or_none
        prefix: Index = ()
        if is_start(instruction):
            # Of a start's tuple only the result is written: the operands are aliases, the contexts
            # flags.
            result_index = _result_index(instruction)
            if result_index is None:
                return
            prefix, shape = result_index, part(shape, result_index)
        for index in array_indices(shape):
            for value in self.values(instruction, (*prefix, *index)):
                yield MemoryAccess(instruction, value, writes=True)

    def values(self, instruction: Instruction, index: Index) -> tuple[AssignedValue, ...]:
        """The values, each with its memory, that a part of an instruction's result may be.

        Where the assignment does not name the position, the one that it takes its memory from is
        asked: what only renames, what a caller passes, what an asynchronous computation gives.
        """
        place = instruction, index
        values = self._values.get(place)
        if values is None:
            values = self._values[place] = self._found_values(place)
        return values

    def _found_values(self, at: Position | None) -> tuple[AssignedValue, ...]:
        for _ in range(64):
            if at is None:
                break
            assigned = self._buffers.values_of(at[0].name, at[1])
            if assigned:
                return assigned
            at = self._source(*at)
        return ()

    def _source(self, at: Instruction, index: Index) -> Position | None:
        opcode = at.opcode
        if opcode == "parameter":
            for caller in self._calls.callers(at.computation):
                argument = self._calls.argument(caller, at)
                if argument is not None:
                    return argument[0], (*argument[1], *index)
            return None
        if opcode == "call":
            return self._root(at, index)
        if is_done(at):
            return result_in_start(at, index, self._source)
        if is_start(at):
            return self._source_of_start(at, index)
        return operand_position(at, 0, index) if is_update(at) else handed_on(at, index, _RENAMES)

    def _source_of_start(self, start: Instruction, index: Index) -> Position | None:
        prefix = _result_index(start)
        if prefix is not None and index[: len(prefix)] == prefix:
            return self._root(start, index[len(prefix) :])
        return operand_in_start(start, index)

    def _root(self, caller: Instruction, index: Index) -> Position | None:
        for callee in self._calls.callees(caller):
            if callee.root is not None:
                return callee.root, index
        return None


def operand_in_start(start: Instruction, index: Index) -> Position | None:
    """The part of an operand that a part of a start's tuple is; None for any other part."""
    if start.opcode == "copy-start" and index == (1,):
        return operand_position(start, 0, ())
    if not index or index[0] != 0 or _result_index(start) in ((), (0,)):
        return None
    if holds_operands(start.shape_or_none):
        return operand_position(start, index[1], index[2:]) if len(index) > 1 else None
    return operand_position(start, 0, index[1:])


def result_in_start(
    done: Instruction, index: Index, source: Callable[[Instruction, Index], Position | None]
) -> Position | None:
    """The part of its operand that a part of a done's result is.

    The form of the result is the start's to say; `source` leads from an update back to it.
    """
    handle = operand_position(done, 0, ())
    if handle is None:
        return None
    start = handle[0]
    for _ in range(64):
        before = None if is_start(start) else source(start, ())
        if before is None:
            break
        start = before[0]
    prefix = _result_index(start) if is_start(start) else (1,)
    if prefix is None:
        return None
    if start.opcode == "recv":  # its done is (data, token): the data are element 0 of both
        prefix = ()
    return handle[0], (*handle[1], *prefix, *index)


def _result_index(start: Instruction) -> Index | None:
    """The part of a start's tuple that the operation writes; None for one that only sends.

    `copy-start` is (destination, source, context), `recv` (data, context, token); an
    `all-reduce-start` of old releases is the result itself; all others hold operands first.
    """
    if start.opcode == "send":
        return None
    if start.opcode in ("copy-start", "recv"):
        return (0,)
    shape = start.shape_or_none
    if start.opcode == "all-reduce-start" and not holds_operands(shape):
        return ()
    return (1,)


def holds_operands(shape: Shape | None) -> bool:
    """True if a shape is `((operands…), result, …)`; an old variadic all-reduce is flat."""
    return isinstance(shape, TupleShape) and isinstance(shape.elements[0], TupleShape)


def _share_on_purpose(start: Instruction, other: Instruction) -> bool:
    """True if both say that they use different regions of what they share."""
    return all(DISJOINT in op.attributes_text for op in (start, other))


def _attribute(instruction: Instruction, name: str) -> str:
    value = instruction.attribute_or_none(name)
    if isinstance(value, tuple) and value and isinstance(value[0], str):
        return value[0]
    return value.removeprefix("%") if isinstance(value, str) else ""
