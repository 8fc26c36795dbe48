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

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cache, cached_property, lru_cache
from itertools import chain
from typing import Final, TypeAlias

from hlo_lint.analysis.async_ops import (
    DISJOINT,
    holds_operands,
    is_done,
    is_start,
    is_update,
    operand_in_start,
    parameters_of,
    result_in_start,
    sequential_calls,
)
from hlo_lint.analysis.buffers import (
    Place,
    Position,
    element_taken,
    handed_on_place,
    operand_place,
    operand_position,
)
from hlo_lint.analysis.calls import calls_of, holders
from hlo_lint.analysis.kinds import template_of
from hlo_lint.hlo.attributes import Alias, Donor
from hlo_lint.hlo.attributes.splitting import control_predecessors
from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis
from hlo_lint.hlo.opcodes import CONTROL_FLOW, FORWARDS, OPCODES
from hlo_lint.hlo.records import attributes_of, name_of, opcode_of, references_of, type_of
from hlo_lint.hlo.shape import Index, array_indices, part, shape_or_none
from hlo_lint.text.lazy_dataclasses import NamedTuple, dataclass

Value: TypeAlias = Position
"""A part of a result that an instruction itself makes, and does not only hand on."""

_HANDS_ON: Final = FORWARDS - {"copy"}
_FORWARDS: Final = _HANDS_ON | {"get-tuple-element", "tuple"}
_ALIASING: Final = "output_to_operand_aliasing"
_DECLARES: Final = frozenset(
    opcode for opcode, facts in OPCODES.items() if _ALIASING in facts.allowed
)
_UPDATED: Final = {
    "dynamic-update-slice": 0,
    "ragged-all-to-all": 1,
    "set-dimension-size": 0,
}
"""The operand whose memory the result takes."""
_IN_PLACE: Final = _UPDATED.keys() | _DECLARES | {"all-reduce-start", "fusion", "scatter"}
_WRITES_NOTHING: Final = _FORWARDS | CONTROL_FLOW | {"constant", "parameter", "after-all"}
"""Opcodes of instructions that write no buffer themselves."""


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
    for (number, index), buffer in sorted(buffers.sharing(entry).items()):
        opcode = opcode_of(entry.rows[number])
        if opcode == "constant" or (
            opcode == "parameter"
            and not _is_given(donated, entry.at(number).parameter_number, index)
        ):
            kept.setdefault(buffer, (entry.at(number), index))
    for writer, written in buffers.writers(entry) if kept else ():
        for buffer in sorted(written & kept.keys()):
            if kept[buffer][0].number != writer:
                yield entry.at(writer), kept[buffer]
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
    calls = sequential_calls(module)
    for computation in module.nonfusion_computations:
        for loop in computation.with_opcode("while"):
            body = next(iter(calls.callees(loop)), None)
            root = None if body is None else body.root
            if body is None or root is None:
                continue
            places = [(place,) for place in range(len(root.operand_names))]
            for (place,), value in zip(places, _values(body, root.number, places), strict=True):
                if value is None or len(value[1]) != 1 or value[1][0] == place:
                    continue
                if opcode_of(body.rows[value[0]]) == "parameter":
                    yield root, value[1][0], place
                    break


def _in_computation(
    computation: Computation, buffers: _Buffers, *, scheduled: bool
) -> Iterator[Overwrite]:
    values = buffers.shared_in(computation)
    if not values:
        return
    order = _Order(computation, scheduled=scheduled)
    readers = _Readers(computation, buffers)
    begins = {
        place: _beginning(computation, place[0]) for places in values.values() for place in places
    }
    writers = [
        (writer, written & values.keys()) for writer, written in buffers.writers(computation)
    ]
    writes: dict[int, list[int]] = {buffer: [] for buffer in values}
    for writer, written in writers:
        for buffer in written:
            writes[buffer].append(writer)
    # A read that comes too late needs a writer between the beginning of a value and what may be its
    # last reader. Nearly all buffers have none, and their readers need not be known exactly.
    values = {
        buffer: places
        for buffer, places in values.items()
        if any(_is_late(begins[place], writes[buffer], readers, place) for place in places)
    }
    reading = {place: readers.of(place) for places in values.values() for place in places}
    last_read = {place: max(numbers, default=-1) for place, numbers in reading.items()}
    # A chain of updates puts thousands of values into one buffer: a writer looks only at those that
    # are there when it runs and are read after it.
    waiting = {
        buffer: sorted(places, key=begins.__getitem__, reverse=True)
        for buffer, places in values.items()
    }
    alive: dict[int, list[Place]] = {buffer: [] for buffer in values}
    for writer, written in writers:
        for buffer in sorted(written & values.keys()):
            while waiting[buffer] and begins[waiting[buffer][-1]] < writer:
                alive[buffer].append(waiting[buffer].pop())
            alive[buffer] = [place for place in alive[buffer] if last_read[place] > writer]
            for place in sorted(alive[buffer]):
                maker, index = place
                if begins[place] >= 0 and not order.is_certain(maker, writer):
                    continue
                for reader in reading[place]:
                    if order.is_certain(writer, reader):
                        read = computation.at(reader)
                        if _begun_by(read) != writer:
                            value = computation.at(maker), index
                            yield Overwrite(computation.at(writer), value, read)
                            break


def _is_late(begin: int, writes: Sequence[int], readers: _Readers, value: Place) -> bool:
    """True if there is a write after a value is there and before what may be its last reader."""
    later = bisect_right(writes, begin)
    return later < len(writes) and writes[later] < readers.latest(value)


def _beginning(computation: Computation, number: int) -> int:
    """The position from which on a value is there: a parameter is, whatever the schedule."""
    return -1 if opcode_of(computation.rows[number]) == "parameter" else number


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
            self._reached[first] = self._reached_from(first)
        return second in self._reached[first]

    @cached_property
    def _control_successors(self) -> Mapping[str, Sequence[int]]:
        successors: dict[str, list[int]] = {}
        for number, row in enumerate(self._computation.rows):
            for name in control_predecessors(attributes_of(row)):
                successors.setdefault(name, []).append(number)
        return successors

    def _reached_from(self, number: int) -> set[int]:
        """The instructions that have to run after one: users, and control successors."""
        rows, users = self._computation.rows, self._computation.users
        reached: set[int] = set()
        todo = [number]
        while todo:
            name = name_of(rows[todo.pop()])
            for after in (*users.get(name, ()), *self._control_successors.get(name, ())):
                if after not in reached:
                    reached.add(after)
                    todo.append(after)
        return reached


class _Readers:
    """The instructions of a computation that read a value, through what hands it on."""

    def __init__(self, computation: Computation, buffers: _Buffers) -> None:
        self._computation = computation
        self._buffers = buffers
        root = computation.root
        self._result = root.number if root is not None and root.opcode in _FORWARDS else None
        self._users: dict[int, tuple[Mapping[int | None, Sequence[int]], Sequence[int]]] = {}
        self._operands: dict[int, dict[str, list[tuple[int, Index]]]] = {}
        self._latest: dict[int, int] = {}
        self._values: dict[int, dict[Place | None, list[Place]]] = {}

    def latest(self, value: Place) -> int:
        """A position after which nothing reads a value, by the names of what reads it alone."""
        at, index = value
        rows = self._computation.rows
        if index:
            elements, others = self._users_of(at)
            users = [*elements.get(index[0], ()), *others]
        else:
            users = [*self._computation.users.get(name_of(rows[at]), ())]
        passing = [number for number in users if _passes_on(opcode_of(rows[number]))]
        return max([*users, *map(self._latest_user, passing)], default=-1)

    def _latest_user(self, at: int) -> int:
        """The last reader of what passes a value on."""
        rows, users = self._computation.rows, self._computation.users
        latest = self._latest.get(at)
        if latest is None:
            latest = -1
            todo, seen = [at], {at}
            while todo:
                for number in users.get(name_of(rows[todo.pop()]), ()):
                    latest = max(latest, number, self._latest.get(number, -1))
                    if number in self._latest or number in seen:
                        continue
                    if _passes_on(opcode_of(rows[number])):
                        seen.add(number)
                        todo.append(number)
            self._latest[at] = latest
        return latest

    def of(self, value: Place) -> list[int]:
        """The positions of the readers, in the order of the text.

        A root that hands on comes last: it reads what the caller gets.
        """
        readers: set[int] = set()
        todo, seen = [value], {value}
        while todo:
            at, index = todo.pop()
            elements, others = self._users_of(at)
            places = [(number, index[1:]) for number in elements.get(index[0], ())] if index else []
            for number in others:
                opcode = opcode_of(self._computation.rows[number])
                if opcode in _FORWARDS:
                    places += self._handed_on(at, index, number)
                    continue
                if self._is_read(at, index, number):
                    readers.add(number)
                # A start holds its operands until it is done.
                if _is_async(opcode):
                    places += self._in_flight(number, value)
            for place in places:
                if place not in seen:
                    seen.add(place)
                    todo.append(place)
        returned = {at for at, _ in seen if at == self._result}
        return [*sorted(readers), *returned]

    def _users_of(self, at: int) -> tuple[Mapping[int | None, Sequence[int]], Sequence[int]]:
        """The users of a result: those that take an element of it by its number, and others."""
        users = self._users.get(at)
        if users is None:
            rows = self._computation.rows
            name = name_of(rows[at])
            numbers = self._computation.users.get(name, ())
            users = {}, numbers
            if type_of(rows[at]).startswith("("):
                elements: dict[int | None, list[int]] = {}
                others: list[int] = []
                for number in numbers:
                    row = rows[number]
                    if opcode_of(row) == "get-tuple-element" and references_of(row) == (name,):
                        element = element_taken(self._computation, number)
                        elements.setdefault(element, []).append(number)
                    else:
                        others.append(number)
                users = elements, others
            self._users[at] = users
        return users

    def _operands_of(self, number: int, at: int) -> Sequence[tuple[int, Index]]:
        """The operands of an instruction that are a result, or an element of it, with its index."""
        rows = self._computation.rows
        name, references = name_of(rows[at]), references_of(rows[number])
        if references == (name,):
            return ((0, ()),)
        operands = self._operands.get(number)
        if operands is None:
            operands = self._operands[number] = {}
            for operand, reference in enumerate(references):
                source, *elements = reference.split("#")
                index = tuple(map(int, elements))
                operands.setdefault(source, []).append((operand, index))
        return operands.get(name, ())

    def _handed_on(self, at: int, index: Index, number: int) -> Iterator[Place]:
        """The places in a user that are a part of a result, unchanged."""
        opcode = opcode_of(self._computation.rows[number])
        for operand, element in self._operands_of(number, at):
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

    def _is_read(self, at: int, index: Index, number: int) -> bool:
        return any(
            index[: len(element)] == element
            and self._buffers.is_read(self._computation, number, operand, index[len(element) :])
            for operand, element in self._operands_of(number, at)
        )

    def _in_flight(self, number: int, value: Place) -> Sequence[Place]:
        """The places in a part of an asynchronous operation that are a value."""
        values = self._values.get(number)
        if values is None:
            values = self._values[number] = {}
            for index in _arrays_in(type_of(self._computation.rows[number])):
                source = _value(self._computation, number, index)
                values.setdefault(source, []).append((number, index))
        return values.get(value, ())


@lru_cache(maxsize=1 << 12)
def _arrays_in(type_text: str, index: Index = ()) -> tuple[Index, ...]:
    """The indices of the arrays in a part of a type, from that part on."""
    return tuple(array_indices(part(shape_or_none(type_text), index)))


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


def _value(computation: Computation, number: int, index: Index) -> Place | None:
    """The source of a part of a result, through what passes it on; None if unknown."""
    rows = computation.rows
    for _ in range(1 << 10):
        opcode = opcode_of(rows[number])
        place: Place | None
        if opcode in _FORWARDS and (index or opcode != "tuple"):
            place = handed_on_place(computation, number, index, _HANDS_ON)
        elif not _is_async(opcode):
            return number, index
        else:
            place = _place_in_flight(computation.at(number), index)
            if place == (number, index):
                return place
        if place is None:
            return None
        number, index = place
    return None


def _values(computation: Computation, number: int, indices: Sequence[Index]) -> list[Place | None]:
    """The sources of parts of a result; None for each that is unknown."""
    rows, number_of = computation.rows, computation.index.get
    if opcode_of(rows[number]) != "tuple":
        return [_value(computation, number, index) for index in indices]
    # The state of a loop, mostly: each operand is an array that its instruction makes.
    sources = list(map(number_of, references_of(rows[number])))
    values: list[Place | None] = []
    for index in indices:
        source = sources[index[0]] if len(index) == 1 and index[0] < len(sources) else None
        if source is not None and not _passes_on(opcode_of(rows[source])):
            values.append((source, ()))
        else:
            values.append(_value(computation, number, index))
    return values


@cache
def _passes_on(opcode: str) -> bool:
    return opcode in _FORWARDS or _is_async(opcode)


def _place_in_flight(instruction: Instruction, index: Index) -> Place | None:
    """The place that a part of an asynchronous operation comes from: itself, if it is new."""
    if is_done(instruction):
        position = result_in_start(instruction, index, _handle)
    elif is_start(instruction):
        position = operand_in_start(instruction, index) or (instruction, index)
    else:
        position = operand_position(instruction, 0, index)
    return None if position is None else (position[0].number, position[1])


def _begun_by(instruction: Instruction) -> int | None:
    """The start of the operation that an instruction is part of: itself, if it is not async."""
    if not is_done(instruction) and not is_update(instruction):
        return instruction.number
    handle = operand_place(instruction.computation, instruction.number, 0, ())
    start = None if handle is None else _value(instruction.computation, *handle)
    return None if start is None else start[0]


def _handle(instruction: Instruction, _: Index) -> Position | None:
    """The start, or the update before, that an update hands on."""
    return operand_position(instruction, 0, ()) if is_update(instruction) else None


class _Buffers:
    """The values of a module that have to share a buffer: sets that are joined, by number."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._calls = sequential_calls(module)
        self._numbers: defaultdict[Computation, dict[Place, int]] = defaultdict(dict)
        self._fused: dict[object, tuple[_InPlace, ...]] = {}
        self._joined: list[int] = []
        self._sharing: dict[Computation, Mapping[Place, int]] = {}
        self._written: dict[str, frozenset[int]] = {}
        for computation in module.nonfusion_computations:
            for number in self._joining(computation):
                opcode = opcode_of(computation.rows[number])
                if opcode in CONTROL_FLOW or _is_async(opcode):
                    self._join_callees(computation.at(number))
                self._join_in_place(computation, number)
        self._join_donations(module)

    def sharing(self, computation: Computation) -> Mapping[Place, int]:
        """The buffers of the arrays that may share with others."""
        sharing = self._sharing.get(computation)
        if sharing is None:
            rows, find = computation.rows, self._find
            sharing = self._sharing[computation] = {
                place: find(number)
                for place, number in self._numbers.get(computation, {}).items()
                if () in _arrays_in(type_of(rows[place[0]]), place[1])
            }
        return sharing

    def shared_in(self, computation: Computation) -> dict[int, list[Place]]:
        """The values that share with another one in a computation, in the order of the text."""
        if computation not in self._numbers:
            return {}
        sharing = self.sharing(computation)
        counts = Counter(sharing.values())
        if len(counts) == len(sharing):
            return {}
        shared: dict[int, list[Place]] = {}
        for place, buffer in sharing.items():
            if counts[buffer] > 1 and opcode_of(computation.rows[place[0]]) not in _FORWARDS:
                shared.setdefault(buffer, []).append(place)
        return {buffer: sorted(places) for buffer, places in shared.items() if len(places) > 1}

    def writers(self, computation: Computation) -> Iterator[tuple[int, Set[int]]]:
        """The instructions that write shared buffers, or run what does, in their order."""
        writers: defaultdict[int, set[int]] = defaultdict(set)
        for (number, _), buffer in self.sharing(computation).items():
            if opcode_of(computation.rows[number]) not in _WRITES_NOTHING:
                writers[number].add(buffer)
        for opcode in CONTROL_FLOW & computation.opcodes:
            for caller in computation.with_opcode(opcode):
                writers[caller.number].update(*map(self._written_in, self._calls.callees(caller)))
        return iter(sorted(writers.items()))

    def is_read(self, computation: Computation, reader: int, number: int, index: Index) -> bool:
        """False if a call hands a tuple to computations that read other elements of it."""
        if not index or opcode_of(computation.rows[reader]) not in ("call", "conditional"):
            return True
        parameters = tuple(self._calls.parameters(computation.at(reader), number))
        return not parameters or any(
            parameter.is_root
            or any(_reads_element(user, parameter, index[0]) for user in parameter.users)
            for parameter in parameters
        )

    def _written_in(self, computation: Computation) -> frozenset[int]:
        written = self._written.get(computation.name)
        if written is None:
            self._written[computation.name] = frozenset()  # a computation that calls itself
            written = self._written[computation.name] = frozenset().union(
                *[buffers for _, buffers in self.writers(computation)]
            )
        return written

    def _join_callees(self, caller: Instruction) -> None:
        callees = self._calls.callees(caller)
        if not callees or any(len(self._calls.callers(callee)) > 1 for callee in callees):
            return  # FlattenCallGraph will give each caller a copy of its own
        computation, at, is_loop = caller.computation, caller.number, caller.opcode == "while"
        for number in range(len(caller.operand_names)):
            for parameter in self._calls.parameters(caller, number):
                indices = _arrays_in(parameter.type_text)
                values = self._operand_values(computation, at, number, indices)
                places = [(parameter.number, index) for index in indices]
                self._join(parameter.computation, places, computation, values)
        # Of a loop the body: the condition gives a pred, which lies in a buffer of its own
        # (hlo_alias_analysis.cc: ComputeWhileAliasedBuffers).
        returning = callees[:1] if is_loop else callees
        indices = inside = _arrays_in(caller.type_text)
        if caller.opcode not in CONTROL_FLOW:  # of `((operands...), result, context)`
            indices = tuple([index for index in indices if index[:1] == (1,)])
            inside = tuple([index[1:] for index in indices])
        places = [(at, index) for index in indices]
        if is_loop:
            values = self._operand_values(computation, at, 0, indices)
            self._join(computation, places, computation, values)
        for callee in returning:
            if callee.root is not None:
                self._join(computation, places, callee, _values(callee, callee.root.number, inside))

    def _join_donations(self, module: Module) -> None:
        """The results of the entry with the parameters in whose memory they are returned."""
        entry = module.entry
        root = None if entry is None else entry.root
        if entry is None or root is None or "input_output_alias=" not in module.header:
            return
        aliases = module.attribute_or_none("input_output_alias")
        parameters = parameters_of(entry)
        for alias in aliases if isinstance(aliases, tuple) else ():
            if isinstance(alias, Alias) and alias.operand in parameters:
                result = _value(entry, root.number, alias.output_index)
                place = parameters[alias.operand][-1], alias.operand_index
                self._join(entry, [place], entry, [result])

    def _join_in_place(self, computation: Computation, number: int) -> None:
        row = computation.rows[number]
        if DISJOINT in attributes_of(row):
            return
        for output_index, operand, operand_index in self._in_place(computation.at(number)):
            indices = _arrays_in(type_of(row), output_index)
            places = [(number, (*output_index, *index)) for index in indices]
            inside = [(*operand_index, *index) for index in indices]
            values = self._operand_values(computation, number, operand, inside)
            self._join(computation, places, computation, values)

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
        aliases = instruction.attribute_or_none(_ALIASING)
        for alias in aliases if isinstance(aliases, tuple) else ():
            if isinstance(alias, Alias):
                yield _InPlace(alias.output_index, alias.operand, alias.operand_index)

    def _fused_in_place(self, body: Computation) -> tuple[_InPlace, ...]:
        """The results of a fusion that end with an update in place of one of its parameters."""
        key = template_of(body) or body
        pairs = self._fused.get(key)
        if pairs is None:
            self._fused[key] = ()  # a fusion in itself
            pairs = self._fused[key] = tuple(self._updated_parameters(body))
        return pairs

    def _updated_parameters(self, body: Computation) -> Iterator[_InPlace]:
        root = body.root
        if root is None or _IN_PLACE.isdisjoint(body.opcodes):
            return
        for index in _arrays_in(root.type_text):
            result = _value(body, root.number, index)
            if result is None:
                continue
            number, output_index = result
            for pair in self._in_place(body.at(number)):
                if pair.output_index == output_index:
                    for updated in self._operand_values(
                        body, number, pair.operand, (pair.operand_index,)
                    ):
                        parameter = updated and body.at(updated[0]).parameter_number
                        if updated is not None and parameter is not None:
                            yield _InPlace(index, parameter, updated[1])

    def _joining(self, computation: Computation) -> list[int]:
        """The instructions whose results share a buffer with what they read or call."""
        opcodes = computation.opcodes & (CONTROL_FLOW | _IN_PLACE)
        opcodes |= set(filter(_is_async, computation.opcodes))
        numbers: set[int] = set()
        for opcode in opcodes:
            if opcode not in _DECLARES or _is_async(opcode):
                numbers.update(computation.positions(opcode))
                continue
            numbers.update(
                [
                    number
                    for number in computation.positions(opcode)
                    if _ALIASING in attributes_of(computation.rows[number])
                ]
            )
            if opcode == "fusion" and not self._updating.isdisjoint(
                computation.fusion_computations
            ):
                numbers.update(
                    number
                    for number, names in calls_of(computation).items()
                    if not self._updating.isdisjoint(names)
                    and opcode_of(computation.rows[number]) == opcode
                )
        return sorted(numbers)

    @cached_property
    def _updating(self) -> frozenset[str]:
        """Names of the bodies of fusions that may update a parameter in place."""
        by_opcode = holders(self._module)
        bodies = chain.from_iterable(by_opcode.get(opcode, ()) for opcode in _IN_PLACE)
        return self._module.fusion_computations & {body.name for body in bodies}

    def _operand_values(
        self, computation: Computation, at: int, number: int, indices: Sequence[Index]
    ) -> list[Place | None]:
        """The sources of parts of an operand."""
        source = operand_place(computation, at, number, ())
        if source is None:
            return []
        operand, taken = source
        if taken:
            indices = [(*taken, *index) for index in indices]
        return _values(computation, operand, indices)

    def _join(
        self,
        computation: Computation,
        places: Iterable[Place],
        other: Computation,
        others: Iterable[Place | None],
    ) -> None:
        """Put each place of a computation into one buffer with one of another computation."""
        ours, theirs, joined = self._numbers[computation], self._numbers[other], self._joined
        for place, value in zip(places, others, strict=False):
            if value is None:
                continue
            one, two = ours.get(place), theirs.get(value)
            if one is None:
                if two is None:
                    two = theirs[value] = len(joined)
                    joined.append(two)
                ours[place] = two
            elif two is None:
                theirs[value] = one
            elif one != two:
                # The smaller number stands for the set: results come in the order of the text.
                one, two = self._find(one), self._find(two)
                joined[max(one, two)] = min(one, two)

    def _find(self, number: int) -> int:
        while self._joined[number] != number:
            # Halve the path: chains of loops in loops would be walked again and again.
            self._joined[number] = number = self._joined[self._joined[number]]
        return number


@cached_analysis
def _buffers(module: Module) -> _Buffers:
    return _Buffers(module)
