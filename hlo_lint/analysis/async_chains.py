"""Asynchronous operations: the chain from a start over its updates to its dones.

Starts, updates and dones are recognized by their opcodes, in dump form (`async-start`,
`copy-start`, `send`) and in the form that names the operation (`fusion-start`, `all-gather-start`).
The value of a start may pass through tuples, loops and calls before a done takes it; meanwhile the
operation runs beside the schedule, and other instructions must not touch its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Final, NamedTuple

from hlo_lint.analysis.buffers import ResultPart, operand_position
from hlo_lint.analysis.calls import opcodes_of, with_opcodes
from hlo_lint.analysis.sequential_calls import Calls, sequential_calls
from hlo_lint.analysis.walks import chain, reached
from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis
from hlo_lint.hlo.opcodes import CONTROL_FLOW, FORWARDS, TRANSFERS
from hlo_lint.hlo.shape import Index, Shape, TupleShape

SHARDING: Final = frozenset({"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"})
"""Targets of custom calls that only annotate a value, also the value of a start."""


def is_start(instruction: Instruction) -> bool:
    """True if it begins an asynchronous operation."""
    return _begins(instruction.opcode)


def _begins(opcode: str) -> bool:
    return opcode.endswith("-start") or opcode in TRANSFERS


@cache
def is_async(opcode: str) -> bool:
    """True for the opcode of a start, an update or a done."""
    return _begins(opcode) or opcode.endswith(("-update", "-done"))


def has_async(module: Module) -> bool:
    """True if a module has starts or dones."""
    return any(_begins(opcode) or opcode.endswith("-done") for opcode in opcodes_of(module))


def is_update(instruction: Instruction) -> bool:
    """True if it passes a running operation on."""
    return instruction.opcode.endswith("-update")


def is_done(instruction: Instruction) -> bool:
    """True if it waits for an asynchronous operation."""
    return instruction.opcode.endswith("-done")


class LiveInterval(NamedTuple):
    """Instructions of a computation that run while an operation is in flight."""

    computation: Computation
    begin: int
    end: int
    """The number of the last instruction, plus 1."""

    @property
    def instructions(self) -> Iterator[Instruction]:
        """The instructions, in the order of the schedule."""
        return (self.computation.at(number) for number in range(self.begin, self.end))


@dataclass(frozen=True, eq=False)
class AsyncChain:
    """An asynchronous operation from its start to its done."""

    start: Instruction
    updates: tuple[Instruction, ...]
    dones: tuple[Instruction, ...]
    """Instructions that wait for it: two if a loop carries it, in its body and after it."""
    intervals: tuple[LiveInterval, ...]
    """The intervals in which it is in flight, if the order of the text is the schedule."""
    escapes: bool
    """True if its value cannot be followed everywhere."""
    is_carried: bool
    """True if a loop, a call or a conditional passes its value on."""

    @property
    def until(self) -> str:
        """The names of the instructions that wait for it, for messages."""
        return f"%{self.dones[0].name}" if self.dones else "the end"

    def is_simple(self) -> bool:
        """True if the only done follows the start in the same computation."""
        return (
            not self.is_carried
            and not self.escapes
            and len(self.dones) == 1
            and self.dones[0].computation is self.start.computation
            and self.dones[0].number > self.start.number
        )


@cached_analysis
def async_chains(module: Module) -> tuple[AsyncChain, ...]:
    """Every asynchronous operation of a module, in the order of the text."""
    calls = sequential_calls(module)
    return tuple(
        _Follower(start, calls).chain()
        for computation in calls.computations
        for start in starts(computation)
    )


def starts(computation: Computation) -> Iterator[Instruction]:
    """The starts of a computation, in the order of the text."""
    return with_opcodes(computation, filter(_begins, computation.opcodes))


def dones(computation: Computation) -> Iterator[Instruction]:
    """The dones of a computation, in the order of the text."""
    ends = (opcode for opcode in computation.opcodes if opcode.endswith("-done"))
    return with_opcodes(computation, ends)


_MAX_INDEX_DEPTH = 100


class _Follower:
    """Follows the value of a start through tuples, loops and calls."""

    def __init__(self, start: Instruction, calls: Calls) -> None:
        self._start = start
        self._calls = calls
        self._places: list[ResultPart] = []
        self._updates: list[Instruction] = []
        self._dones: list[Instruction] = []
        self._takers: set[Instruction] = set()
        """Loops, calls and conditionals that pass the value on."""
        self._escapes = False

    def chain(self) -> AsyncChain:
        self._places += reached([(self._start, ())], self._following)
        parts = tuple(self._updates), tuple(sorted(self._dones, key=attrgetter("number")))
        intervals, is_carried = tuple(self._intervals()), bool(self._takers)
        return AsyncChain(self._start, *parts, intervals, self._escapes, is_carried)

    def _following(self, place: ResultPart) -> Iterator[ResultPart]:
        instruction, index = place
        if len(index) > _MAX_INDEX_DEPTH:
            self._escapes = True  # only recursion nests tuples like this
            return
        for user in instruction.users:
            for number, operand in enumerate(user.operands):
                taken = len(operand.shape_index)
                # An element of the start's own tuple is an array, not a handle.
                if operand.name == instruction.name and index[:taken] == operand.shape_index:
                    yield from self._used(user, number, index[taken:])
        # Without a ROOT mark XLA takes the last instruction (hlo_computation.cc: Builder::Build).
        if instruction.is_root or instruction is instruction.computation.root:
            yield from self._returned(instruction.computation, index)

    def _used(self, user: Instruction, number: int, index: Index) -> Iterator[ResultPart]:
        opcode = user.opcode
        if is_done(user):
            if index:  # a group of sends and receives returns their own handles
                yield user, index[1:]
            elif user not in self._dones:
                self._dones.append(user)
        elif is_update(user) and not index:
            # Only operand 0 is the handle: a handle that is passed as data cannot be followed.
            if number == 0:
                self._updates.append(user)
                yield user, ()
            else:
                self._escapes = True
        elif opcode == "get-tuple-element":
            if index and user.tuple_index == index[0]:
                yield user, index[1:]
        elif opcode == "tuple":
            yield user, (number, *index)
        elif opcode in FORWARDS or user.custom_call_target in SHARDING:
            yield user, index
        elif opcode in CONTROL_FLOW:
            self._takers.add(user)
            for parameter in self._calls.parameters(user, number):
                yield parameter, index
            if opcode == "while":
                yield user, index
        else:
            self._escapes = True

    def _returned(self, computation: Computation, index: Index) -> Iterator[ResultPart]:
        callers = self._calls.callers(computation)
        if not callers:
            self._escapes = True
        for caller in callers:
            if caller.opcode != "while":
                yield caller, (1, *index) if is_start(caller) else index
            # The condition returns a pred: only the body's result reaches the next iteration.
            elif computation is self._calls.callees(caller)[0]:
                self._takers.add(caller)
                yield caller, index
                for parameter in self._calls.parameters(caller, 0):
                    yield parameter, index

    def _intervals(self) -> Iterator[LiveInterval]:
        begins = [(self._start.computation, self._start.number + 1)]
        for instruction, _ in self._places:
            if instruction.opcode == "parameter":
                begins.append((instruction.computation, 0))
            elif instruction.opcode in CONTROL_FLOW or (
                is_start(instruction) and instruction is not self._start
            ):
                begins.append((instruction.computation, instruction.number + 1))
        # A loop or call that takes the value ends an interval here: the operation runs on in its
        # body, which has an interval of its own from the parameter on.
        stops = {*self._dones, *self._takers}
        for computation, begin in dict.fromkeys(begins):
            ends = (s.number for s in stops if s.computation is computation and s.number >= begin)
            end = min(ends, default=len(computation.rows))
            if begin < end:
                yield LiveInterval(computation, begin, end)


def source_in_chain(
    instruction: Instruction,
    index: Index,
    source: Callable[[Instruction, Index], ResultPart | None],
) -> ResultPart | None:
    """The part of an operand that equals a part of a start, an update or a done; None if it is new.

    `source` leads from an update back to its start.
    """
    if is_done(instruction):
        return result_in_start(instruction, index, source)
    if is_start(instruction):
        return operand_in_start(instruction, index)
    return operand_position(instruction, 0, index)


def operand_in_start(start: Instruction, index: Index) -> ResultPart | None:
    """The part of an operand that equals a part of a start's tuple; None if it is new."""
    if start.opcode == "copy-start" and index == (1,):
        return operand_position(start, 0, ())
    if not index or index[0] != 0 or result_index(start) in ((), (0,)):
        return None
    if holds_operands(start.shape_or_none):
        return operand_position(start, index[1], index[2:]) if len(index) > 1 else None
    return operand_position(start, 0, index[1:])


def result_in_start(
    done: Instruction, index: Index, source: Callable[[Instruction, Index], ResultPart | None]
) -> ResultPart | None:
    """The part of a done's operand that equals a part of its result.

    The start determines the form of the result; `source` leads from an update back to the start.
    """
    handle = operand_position(done, 0, ())
    if handle is None:
        return None

    def before(step: Instruction) -> Instruction | None:
        place = None if is_start(step) else source(step, ())
        return None if place is None else place[0]

    *_, start = chain(handle[0], before)
    prefix = result_index(start) if is_start(start) else (1,)
    if prefix is None:
        return None
    if start.opcode == "recv":  # its done is (data, token): data is element 0 of both
        prefix = ()
    return handle[0], (*handle[1], *prefix, *index)


def result_index(start: Instruction) -> Index | None:
    """The part of a start's tuple that the operation writes; None for a send.

    `copy-start` is (destination, source, context), `recv` (data, context, token); an
    `all-reduce-start` of old releases is the result itself; all others hold operands first.
    """
    if start.opcode == "send":
        return None
    if start.opcode in ("copy-start", "recv"):
        return (0,)
    if start.opcode == "all-reduce-start" and not holds_operands(start.shape_or_none):
        return ()
    return (1,)


def holds_operands(shape: Shape | None) -> bool:
    """True if a shape is `((operands…), result, …)`; an old variadic all-reduce is flat."""
    return isinstance(shape, TupleShape) and isinstance(shape.elements[0], TupleShape)
