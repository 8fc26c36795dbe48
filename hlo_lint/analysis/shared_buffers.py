"""Values that have to lie in one buffer, and reads of a value after another took its place.

Mirrors `HloAliasAnalysis` (`xla/service/hlo_alias_analysis.cc`): a loop carries an element of its
state in one buffer through operand, body, condition and result; calls, branches of conditionals and
asynchronous computations lie where their caller lies; a dynamic-update-slice, a scatter, a fusion
that ends with one, and what declares `output_to_operand_aliasing`, write into an operand. After
copy insertion the values of one buffer are never alive at once
(`CopyInsertion::AddCopiesToResolveInterference`). Only what must share is known here, not what
buffer assignment chooses to share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Final, TypeAlias

from hlo_lint.analysis.async_ops import (
    DISJOINT,
    holds_operands,
    is_done,
    is_start,
    is_update,
    operand_in_start,
    result_in_start,
    sequential_calls,
)
from hlo_lint.analysis.buffers import Position, handed_on, operand_position
from hlo_lint.analysis.calls import calls_of
from hlo_lint.hlo.attributes import Alias, Donor
from hlo_lint.hlo.attributes.splitting import control_predecessors
from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis
from hlo_lint.hlo.opcodes import CONTROL_FLOW, FORWARDS, OPCODES
from hlo_lint.hlo.records import attributes_of, name_of, opcode_of
from hlo_lint.hlo.shape import ArrayShape, Index, array_indices, part
from hlo_lint.text.lazy_dataclasses import NamedTuple, dataclass

Value: TypeAlias = Position
"""A part of a result that an instruction itself makes, and does not only hand on."""

_HANDS_ON: Final = FORWARDS - {"copy"}
_FORWARDS: Final = _HANDS_ON | {"get-tuple-element", "tuple"}
_DECLARES: Final = frozenset(
    opcode for opcode, facts in OPCODES.items() if "output_to_operand_aliasing" in facts.allowed
)
_UPDATED: Final = {
    "dynamic-update-slice": 0,
    "ragged-all-to-all": 1,
    "set-dimension-size": 0,
}
"""The operand whose memory the result takes."""
_IN_PLACE: Final = _UPDATED.keys() | _DECLARES | {"all-reduce-start", "fusion", "scatter"}
_WRITES_NOTHING: Final = frozenset({"constant", "parameter", "after-all"})


@dataclass(frozen=True, slots=True)
class Overwrite:
    """A read of a value after another value was written into its buffer."""

    writer: Instruction
    """The instruction that writes, or that runs what does."""
    value: Value
    """The value that is gone."""
    reader: Instruction


def overwrites(module: Module) -> Iterator[Overwrite]:
    """The reads that come too late, for each writer and value the first.

    In a scheduled module the order of the text counts; in another one only a reader that has to
    wait for the writer is certain to come after it.
    """
    buffers = _buffers(module)
    for computation in module.nonfusion_computations:
        yield from _in_computation(computation, buffers, scheduled=module.is_scheduled)


def kept_writes(module: Module) -> Iterator[tuple[Instruction, Value]]:
    """The writes of the entry into constants, and into parameters that the caller keeps.

    For each writer the first.
    """
    entry = module.entry
    if entry is None:
        return
    buffers = _buffers(module)
    kept: dict[int, Value] = {}
    donated = _donated(module)
    for value in buffers.sharing.get(entry, ()):
        maker, index = value
        number = buffers.of(value)
        is_kept = maker.opcode == "constant" or (
            maker.opcode == "parameter" and not _is_given(donated, maker.parameter_number, index)
        )
        if is_kept and number is not None:
            kept.setdefault(number, value)
    for writer in buffers.writers(entry) if kept else ():
        for buffer in sorted(buffers.written_by(writer) & kept.keys()):
            if kept[buffer][0] is not writer:
                yield writer, kept[buffer]
                break


def _donated(module: Module) -> frozenset[tuple[int, Index]] | None:
    """The parts of parameters that the caller gives away; None where that cannot be read."""
    given: set[tuple[int, Index]] = set()
    for name in ("input_output_alias", "buffer_donor"):
        if name not in module.attributes:
            continue
        pairs = module.attribute_or_none(name)
        if pairs is None:
            return None
        for pair in pairs if isinstance(pairs, tuple) else ():
            if isinstance(pair, Alias):
                given.add((pair.operand, pair.operand_index))
            elif isinstance(pair, Donor):
                given.add((pair.parameter, pair.shape_index))
            else:
                return None
    return frozenset(given)


def _is_given(
    donated: frozenset[tuple[int, Index]] | None, number: int | None, index: Index
) -> bool:
    return donated is None or number is None or (number, index) in donated


def swapped_elements(module: Module) -> Iterator[tuple[Instruction, int, int]]:
    """The roots of loop bodies that give an element of the state back as another, uncopied.

    The two are alive at once, and the second one lies where the first one does in the next
    iteration. With the numbers of the elements: that which is given, and its place.
    """
    calls, buffers = sequential_calls(module), _buffers(module)
    for computation in module.nonfusion_computations:
        for loop in computation.with_opcode("while"):
            body = next(iter(calls.callees(loop)), None)
            root = None if body is None else body.root
            for place in range(len(root.operand_names) if root is not None else 0):
                value = buffers.value(root, (place,)) if root is not None else None
                if root is None or value is None or value[0].opcode != "parameter":
                    continue
                if len(value[1]) == 1 and value[1][0] != place:
                    yield root, value[1][0], place
                    break


def _in_computation(
    computation: Computation, buffers: _Buffers, *, scheduled: bool
) -> Iterator[Overwrite]:
    values, order = _by_buffer(computation, buffers), _Order(computation, scheduled=scheduled)
    shared = {buffer for buffer, sharing in values.items() if len(sharing) > 1}
    readers: dict[Value, list[Instruction]] = {}
    if shared:
        makers = {maker.name for buffer in shared for maker, _ in values[buffer]}
        for value, reader in _reads(computation, buffers, makers):
            if buffers.of(value) in shared:
                readers.setdefault(value, []).append(reader)
    # A chain of updates puts thousands of values into one buffer: a writer looks only at those that
    # are there when it runs and are read after it.
    waiting = {buffer: sorted(values[buffer], key=_beginning, reverse=True) for buffer in shared}
    alive: dict[int, list[Value]] = {buffer: [] for buffer in shared}
    last_read = {value: max(reader.number for reader in read) for value, read in readers.items()}
    for writer in buffers.writers(computation) if shared else ():
        written = buffers.written_by(writer) & shared
        for buffer in sorted(written):
            while waiting[buffer] and _beginning(waiting[buffer][-1]) < writer.number:
                alive[buffer].append(waiting[buffer].pop())
            alive[buffer] = [v for v in alive[buffer] if last_read.get(v, -1) > writer.number]
            for value in sorted(alive[buffer], key=_place):
                maker = value[0]
                if maker.opcode != "parameter" and not order.is_certain(maker, writer):
                    continue
                for reader in readers.get(value, ()):
                    if buffers.begun_by(reader) is not writer and order.is_certain(writer, reader):
                        yield Overwrite(writer, value, reader)
                        break


def _place(value: Value) -> tuple[int, Index]:
    return value[0].number, value[1]


def _beginning(value: Value) -> int:
    """The position from which on it is there: a parameter is, whatever the schedule."""
    return -1 if value[0].opcode == "parameter" else value[0].number


class _Order:
    """The order of execution in a computation: by its schedule, else by its dependencies."""

    def __init__(self, computation: Computation, *, scheduled: bool) -> None:
        self._computation = computation
        self._scheduled = scheduled
        self._reached: dict[str, set[str]] = {}

    def is_certain(self, first: Instruction, second: Instruction) -> bool:
        """True if an instruction is certain to run before another."""
        if self._scheduled:
            return first.number < second.number
        if first.name not in self._reached:
            self._reached[first.name] = self._reached_from(first)
        return second.name in self._reached[first.name]

    @cached_property
    def _control_successors(self) -> dict[str, list[Instruction]]:
        successors: dict[str, list[Instruction]] = {}
        for instruction in self._computation.instructions:
            for name in control_predecessors(instruction.attributes_text):
                successors.setdefault(name, []).append(instruction)
        return successors

    def _reached_from(self, instruction: Instruction) -> set[str]:
        """Names of the instructions that have to run after one: users, and control successors."""
        reached: set[str] = set()
        todo = [instruction]
        while todo:
            at = todo.pop()
            for after in (*at.users, *self._control_successors.get(at.name, ())):
                if after.name not in reached:
                    reached.add(after.name)
                    todo.append(after)
        return reached


def _by_buffer(computation: Computation, buffers: _Buffers) -> dict[int, list[Value]]:
    """The values of a computation that share, by buffer."""
    by_buffer: dict[int, list[Value]] = {}
    for value in buffers.sharing.get(computation, ()):
        buffer = buffers.of(value)
        if buffer is not None and value[0].opcode not in _FORWARDS:
            by_buffer.setdefault(buffer, []).append(value)
    return by_buffer


def _reads(
    computation: Computation, buffers: _Buffers, makers: Iterable[str]
) -> Iterator[tuple[Value, Instruction]]:
    """Each value of some instructions with each instruction that reads it.

    The root reads what the caller gets.
    """
    root = computation.root
    for reader in _readers(computation, makers):
        for number, operand in enumerate(reader.operands):
            for index in array_indices(operand.shape):
                if operand.instruction is not None and buffers.is_read(reader, number, index):
                    value = buffers.value(operand.instruction, (*operand.index, *index))
                    if value is not None:
                        yield value, reader
    if root is not None and root.opcode in _FORWARDS:
        for index in array_indices(root.shape_or_none):
            value = buffers.value(root, index)
            if value is not None:
                yield value, root


def _readers(computation: Computation, makers: Iterable[str]) -> list[Instruction]:
    """The instructions that read a result, also one that is handed on, in the order of the text."""
    readers: set[int] = set()
    seen = set(makers)
    todo = list(seen)
    while todo:
        for number in computation.users.get(todo.pop(), ()):
            user = computation.rows[number]
            opcode = opcode_of(user)
            if opcode not in _FORWARDS:
                readers.add(number)
            # A start holds its operands until it is done.
            if (opcode in _FORWARDS or _is_async(opcode)) and name_of(user) not in seen:
                seen.add(name_of(user))
                todo.append(name_of(user))
    return [computation.at(number) for number in sorted(readers)]


@cache
def _is_async(opcode: str) -> bool:
    return opcode.endswith(("-start", "-update", "-done")) or opcode in ("send", "recv")


def _reads_element(user: Instruction, parameter: Instruction, element: int) -> bool:
    if user.opcode == "get-tuple-element":
        return user.attributes.get("index") == str(element)
    return any(
        operand.instruction is parameter and operand.index[:1] in ((), (element,))
        for operand in user.operands
    )


class _InPlace(NamedTuple):
    """A part of a result that takes the memory of a part of an operand."""

    output_index: Index
    operand: int
    operand_index: Index


def _one_or_each(count: int) -> Iterator[_InPlace]:
    """One result in operand 0, or each element of a tuple in the operand of its number."""
    for number in range(count):
        yield _InPlace((number,) if count > 1 else (), number, ())


def _handle(instruction: Instruction, _: Index) -> Position | None:
    """The start, or the update before, that an update hands on."""
    return operand_position(instruction, 0, ()) if is_update(instruction) else None


class _Buffers:
    """The values of a module that have to share a buffer: sets that are joined, by number."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._calls = sequential_calls(module)
        self._numbers: dict[Value, int] = {}
        self._fused: dict[str, tuple[_InPlace, ...]] = {}
        self._joined: list[int] = []
        self._written: dict[str, frozenset[int]] = {}
        for computation in module.nonfusion_computations:
            for instruction in self._joining(computation):
                if instruction.opcode in CONTROL_FLOW or is_start(instruction):
                    self._join_callees(instruction)
                self._join_in_place(instruction)
        self._join_donations(module)

    @cached_property
    def sharing(self) -> Mapping[Computation, Sequence[Value]]:
        """The values that may share with others, in the order of the text."""
        by_computation: dict[Computation, list[Value]] = {}
        for value in sorted(self._numbers, key=_place):
            if isinstance(part(value[0].shape_or_none, value[1]), ArrayShape):
                by_computation.setdefault(value[0].computation, []).append(value)
        return by_computation

    def writers(self, computation: Computation) -> list[Instruction]:
        """The instructions that may write a shared buffer, in the order of the text."""
        numbers = {maker.number for maker, _ in self.sharing.get(computation, ())}
        for opcode in CONTROL_FLOW & computation.opcodes:
            numbers.update(caller.number for caller in computation.with_opcode(opcode))
        return [computation.at(number) for number in sorted(numbers)]

    def of(self, value: Value) -> int | None:
        """The buffer of a value; None where it shares with no other."""
        number = self._numbers.get(value)
        return None if number is None else self._find(number)

    def value(self, instruction: Instruction, index: Index) -> Value | None:
        """The source of a part of a result, through what passes it on; None if unknown."""
        for _ in range(1 << 10):
            opcode = instruction.opcode
            if opcode in _FORWARDS and (index or opcode != "tuple"):
                position = handed_on(instruction, index, _HANDS_ON)
            elif not _is_async(opcode):
                return instruction, index
            elif is_done(instruction):
                position = result_in_start(instruction, index, _handle)
            elif is_start(instruction):
                position = operand_in_start(instruction, index)
                if position is None:
                    return instruction, index
            else:
                position = operand_position(instruction, 0, index)
            if position is None:
                return None
            instruction, index = position
        return None

    def is_read(self, reader: Instruction, number: int, index: Index) -> bool:
        """False if a call hands a tuple to computations that read other elements of it."""
        if not index or reader.opcode not in ("call", "conditional"):
            return True
        parameters = self._calls.parameters(reader, number)
        return not parameters or any(
            parameter.is_root
            or any(_reads_element(user, parameter, index[0]) for user in parameter.users)
            for parameter in parameters
        )

    def begun_by(self, instruction: Instruction) -> Instruction | None:
        """The start of the operation that an instruction is part of: itself, if it is not async."""
        if not is_done(instruction) and not is_update(instruction):
            return instruction
        handle = self._operand(instruction, 0, ())
        return None if handle is None else handle[0]

    def written_by(self, instruction: Instruction) -> frozenset[int]:
        """The shared buffers that an instruction writes, or what it runs."""
        opcode = instruction.opcode
        if opcode in CONTROL_FLOW:
            callees = self._calls.callees(instruction)
            return frozenset().union(*[self._written_in(callee) for callee in callees])
        if opcode in _FORWARDS or opcode in _WRITES_NOTHING:
            return frozenset()
        buffers = (
            self.of((instruction, index)) for index in array_indices(instruction.shape_or_none)
        )
        return frozenset(buffer for buffer in buffers if buffer is not None)

    def _written_in(self, computation: Computation) -> frozenset[int]:
        written = self._written.get(computation.name)
        if written is None:
            self._written[computation.name] = frozenset()  # a computation that calls itself
            written = self._written[computation.name] = frozenset().union(
                *map(self.written_by, self.writers(computation))
            )
        return written

    def _join_callees(self, caller: Instruction) -> None:
        callees = self._calls.callees(caller)
        if any(len(self._calls.callers(callee)) > 1 for callee in callees):
            return  # FlattenCallGraph will give each caller a copy of its own
        for number in range(len(caller.operand_names)):
            for parameter in self._calls.parameters(caller, number):
                for index in array_indices(parameter.shape_or_none):
                    self._join((parameter, index), self._operand(caller, number, index))
        # Of a loop the body: the condition gives a pred, which lies in a buffer of its own
        # (hlo_alias_analysis.cc: ComputeWhileAliasedBuffers).
        returning = callees[:1] if caller.opcode == "while" else callees
        for index in array_indices(caller.shape_or_none):
            inside = index
            if caller.opcode == "while":
                self._join((caller, index), self._operand(caller, 0, index))
            elif caller.opcode not in CONTROL_FLOW:
                if index[:1] != (1,):
                    continue
                inside = index[1:]  # of `((operands...), result, context)`
            for callee in returning:
                if callee.root is not None:
                    self._join((caller, index), self.value(callee.root, inside))

    def _join_donations(self, module: Module) -> None:
        """The results of the entry with the parameters in whose memory they are returned."""
        entry = module.entry
        root = None if entry is None else entry.root
        if entry is None or root is None or "input_output_alias=" not in module.header:
            return
        aliases = module.attribute_or_none("input_output_alias")
        parameters = {parameter.parameter_number: parameter for parameter in entry.parameters}
        for alias in aliases if isinstance(aliases, tuple) else ():
            if isinstance(alias, Alias) and alias.operand in parameters:
                result = self.value(root, alias.output_index)
                if result is not None:
                    self._join(result, (parameters[alias.operand], alias.operand_index))

    def _join_in_place(self, instruction: Instruction) -> None:
        if DISJOINT in instruction.attributes_text:
            return
        for output_index, operand, operand_index in self._in_place(instruction):
            for index in array_indices(part(instruction.shape_or_none, output_index)):
                self._join(
                    (instruction, (*output_index, *index)),
                    self._operand(instruction, operand, (*operand_index, *index)),
                )

    def _in_place(self, instruction: Instruction) -> Iterator[_InPlace]:
        """The parts of a result that lie in an operand: `AliasInfo::GetInPlaceInputOutputPairs`."""
        opcode = instruction.opcode
        if opcode in _UPDATED:
            yield _InPlace((), _UPDATED[opcode], ())
        elif opcode == "scatter":
            yield from _one_or_each((len(instruction.operand_names) - 1) // 2)
        elif opcode == "all-reduce-start" and not holds_operands(instruction.shape_or_none):
            yield from _one_or_each(len(instruction.operand_names))
        elif opcode == "fusion":
            body = self._module.callee(instruction)
            yield from () if body is None else self._fused_in_place(body)
        aliases = instruction.attribute_or_none("output_to_operand_aliasing")
        for alias in aliases if isinstance(aliases, tuple) else ():
            if isinstance(alias, Alias):
                yield _InPlace(alias.output_index, alias.operand, alias.operand_index)

    def _fused_in_place(self, body: Computation) -> tuple[_InPlace, ...]:
        """The results of a fusion that end with an update in place of one of its parameters."""
        pairs = self._fused.get(body.name)
        if pairs is None:
            self._fused[body.name] = ()  # a fusion in itself
            pairs = self._fused[body.name] = tuple(self._updated_parameters(body))
        return pairs

    def _updated_parameters(self, body: Computation) -> Iterator[_InPlace]:
        root = body.root
        if root is None or _IN_PLACE.isdisjoint(body.opcodes):
            return
        for index in array_indices(root.shape_or_none):
            result = self.value(root, index)
            for pair in () if result is None else self._in_place(result[0]):
                if result is not None and pair.output_index == result[1]:
                    updated = self._operand(result[0], pair.operand, pair.operand_index)
                    number = None if updated is None else updated[0].parameter_number
                    if updated is not None and number is not None:
                        yield _InPlace(index, number, updated[1])

    def _joining(self, computation: Computation) -> Iterator[Instruction]:
        """The instructions whose results share a buffer with what they read or call."""
        opcodes = computation.opcodes & (CONTROL_FLOW | _IN_PLACE)
        opcodes |= set(filter(_is_async, computation.opcodes))
        numbers: set[int] = set()
        for opcode in opcodes:
            positions = computation.positions(opcode)
            if opcode not in _DECLARES or _is_async(opcode):
                numbers.update(positions)
                continue
            called = calls_of(computation) if opcode == "fusion" else {}
            numbers.update(
                number
                for number in positions
                if "output_to_operand_aliasing=" in attributes_of(computation.rows[number])
                or not self._updating.isdisjoint(called.get(number, ()))
            )
        yield from map(computation.at, sorted(numbers))

    @cached_property
    def _updating(self) -> frozenset[str]:
        """Names of the bodies of fusions that may update a parameter in place."""
        return frozenset(
            body.name
            for body in self._module.computations
            if body.name in self._module.fusion_computations
            and not _IN_PLACE.isdisjoint(body.opcodes)
        )

    def _operand(self, instruction: Instruction, number: int, index: Index) -> Value | None:
        position = operand_position(instruction, number, index)
        return None if position is None else self.value(*position)

    def _join(self, one: Value, other: Value | None) -> None:
        if other is not None:
            ours, theirs = self._find(self._number(one)), self._find(self._number(other))
            # The smaller number stands for the set, so that results come in the order of the text.
            self._joined[max(ours, theirs)] = min(ours, theirs)

    def _number(self, value: Value) -> int:
        number = self._numbers.setdefault(value, len(self._joined))
        if number == len(self._joined):
            self._joined.append(number)
        return number

    def _find(self, number: int) -> int:
        while self._joined[number] != number:
            # Halve the path: chains of loops in loops would be walked again and again.
            self._joined[number] = number = self._joined[self._joined[number]]
        return number


@cached_analysis
def _buffers(module: Module) -> _Buffers:
    return _Buffers(module)
