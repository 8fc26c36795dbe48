"""Values that have to share a buffer.

Mirrors `HloAliasAnalysis` (`xla/service/hlo_alias_analysis.cc`): a loop carries an element of its
state in the same buffer through operand, body, condition and result; calls, branches of
conditionals and asynchronous computations share the buffers of their caller; a
dynamic-update-slice, a scatter, a fusion that ends with either, and an instruction with
`output_to_operand_aliasing` write into an operand. These values must share; buffer assignment may
let others share, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cache, cached_property, lru_cache
from itertools import chain
from typing import Final, NamedTuple

from hlo_lint.analysis.async_chains import (
    holds_operands,
    is_async,
    is_done,
    is_start,
    is_update,
    source_in_chain,
)
from hlo_lint.analysis.buffers import (
    NumberedPart,
    ResultPart,
    handed_on_place,
    input_output_aliases,
    operand_place,
    operand_position,
)
from hlo_lint.analysis.calls import calls_of, holders, positions_of
from hlo_lint.analysis.grouping import by_key
from hlo_lint.analysis.kinds import template_of
from hlo_lint.analysis.memory_accesses import DISJOINT
from hlo_lint.analysis.sequential_calls import parameters_of, sequential_calls
from hlo_lint.hlo.attributes.plain import Alias
from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis
from hlo_lint.hlo.opcodes import CONTROL_FLOW, NO_KERNEL, OPCODES, SAME_MEMORY, TUPLES
from hlo_lint.hlo.records import attributes_of, opcode_of, references_of, type_of
from hlo_lint.hlo.shape import Index, array_indices, part, shape_or_none

PASSES_ON: Final = SAME_MEMORY | TUPLES
_ALIASING: Final = "output_to_operand_aliasing"
_DECLARES: Final = frozenset(
    opcode for opcode, facts in OPCODES.items() if _ALIASING in facts.allowed
)
_UPDATED: Final = {"dynamic-update-slice": 0, "ragged-all-to-all": 1, "set-dimension-size": 0}
"""The operand whose memory the result takes."""
_IN_PLACE: Final = _UPDATED.keys() | _DECLARES | {"all-reduce-start", "fusion", "scatter"}
_WRITES_NOTHING: Final = NO_KERNEL | CONTROL_FLOW
"""Opcodes of instructions that do not write buffers themselves."""


@lru_cache(maxsize=1 << 12)
def arrays_in(type_text: str, index: Index = ()) -> tuple[Index, ...]:
    """The indices of the arrays in a part of a type, relative to the part."""
    return tuple(array_indices(part(shape_or_none(type_text), index)))


def _reads_element(user: Instruction, parameter: Instruction, element: int) -> bool:
    if user.opcode == "get-tuple-element":
        return user.attributes.get("index") == str(element)
    return any(
        operand.instruction is parameter and operand.shape_index[:1] in ((), (element,))
        for operand in user.operands
    )


class _InPlace(NamedTuple):
    """A part of a result that takes the memory of a part of an operand."""

    output_index: Index
    operand: int
    operand_index: Index


def _one_or_each(count: int) -> Iterator[_InPlace]:
    """A single result in operand 0, or each element of a tuple in the operand of its number."""
    for number in range(count):
        yield _InPlace((number,) if count > 1 else (), number, ())


def source_place(computation: Computation, number: int, index: Index) -> NumberedPart | None:
    """The source of a part of a result, behind instructions that pass it on; None if unknown."""
    rows = computation.rows
    while True:
        opcode = opcode_of(rows[number])
        place: NumberedPart | None
        if opcode in PASSES_ON and (index or opcode != "tuple"):
            place = handed_on_place(computation, number, index, SAME_MEMORY)
        elif not is_async(opcode):
            return number, index
        else:
            instruction = computation.at(number)
            position = source_in_chain(instruction, index, _handle)
            if position is None and is_start(instruction):
                return number, index  # a part that is new
            place = position and (position[0].number, position[1])
        if place is None:
            return None
        number, index = place


def copied_place(computation: Computation, number: int) -> NumberedPart | None:
    """The source of a copy that keeps the type and layout; None for any other row.

    Written over its source, such a copy changes nothing. It occurs in a conditional: a branch
    returns a value twice, so both results share a buffer, and another branch returns a value and
    its copy.
    """
    row = computation.rows[number]
    if opcode_of(row) != "copy":
        return None
    source = next(map(computation.index.get, references_of(row)), None)
    if source is None or type_of(computation.rows[source]) != type_of(row):
        return None
    return source_place(computation, source, ())


def start_of(instruction: Instruction) -> int | None:
    """The start of an instruction's asynchronous operation; itself if it is not asynchronous."""
    if not is_done(instruction) and not is_update(instruction):
        return instruction.number
    handle = operand_place(instruction.computation, instruction.number, 0, ())
    start = None if handle is None else source_place(instruction.computation, *handle)
    return None if start is None else start[0]


def _handle(instruction: Instruction, _: Index) -> ResultPart | None:
    """The start or the earlier update that an update passes on."""
    return operand_position(instruction, 0, ()) if is_update(instruction) else None


class SharedBuffers:
    """The values of a module that have to share a buffer, as a union-find structure."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._calls = sequential_calls(module)
        self._numbers: defaultdict[Computation, dict[NumberedPart, int]] = defaultdict(dict)
        self._fused: dict[object, tuple[_InPlace, ...]] = {}
        self._joined: list[int] = []
        self.sharing = cache(self._buffers_in)
        self._written: dict[str, frozenset[int]] = {}
        for computation in module.nonfusion_computations:
            for number in self._joining(computation):
                opcode = opcode_of(computation.rows[number])
                if opcode in CONTROL_FLOW or is_async(opcode):
                    self._join_callees(computation.at(number))
                self._join_in_place(computation, number)
        self._join_donations(module)

    def _buffers_in(self, computation: Computation) -> Mapping[NumberedPart, int]:
        """The buffers of the arrays that may share with others."""
        rows, find = computation.rows, self._find
        return {
            place: find(number)
            for place, number in self._numbers.get(computation, {}).items()
            if () in arrays_in(type_of(rows[place[0]]), place[1])
        }

    def shared_in(self, computation: Computation) -> dict[int, list[NumberedPart]]:
        """The values that share a buffer within a computation, in the order of the text."""
        if computation not in self._numbers:
            return {}
        sharing = self.sharing(computation)
        counts = Counter(sharing.values())
        if len(counts) == len(sharing):
            return {}
        shared = by_key(
            (buffer, place)
            for place, buffer in sharing.items()
            if counts[buffer] > 1 and opcode_of(computation.rows[place[0]]) not in PASSES_ON
        )
        return {buffer: sorted(places) for buffer, places in shared.items() if len(places) > 1}

    def writers(self, computation: Computation) -> Iterator[tuple[int, Set[int]]]:
        """The instructions that write shared buffers, or run such writers, in their order."""
        writers: defaultdict[int, set[int]] = defaultdict(set)
        for (number, _), buffer in self.sharing(computation).items():
            if opcode_of(computation.rows[number]) not in _WRITES_NOTHING:
                writers[number].add(buffer)
        for opcode in CONTROL_FLOW & computation.opcodes:
            for caller in computation.with_opcode(opcode):
                writers[caller.number].update(*map(self._written_in, self._calls.callees(caller)))
        return iter(sorted(writers.items()))

    def is_read(self, computation: Computation, reader: int, number: int, index: Index) -> bool:
        """False if a call passes a tuple to computations that only read other elements of it."""
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
            return  # FlattenCallGraph will clone the callee for each caller
        computation, position, is_loop = caller.computation, caller.number, caller.opcode == "while"
        for number in range(len(caller.operand_names)):
            for parameter in self._calls.parameters(caller, number):
                indices = arrays_in(parameter.type_text)
                values = self._operand_values(computation, position, number, indices)
                places = [(parameter.number, index) for index in indices]
                self._join(parameter.computation, places, computation, values)
        # For a loop, only the body: the condition's pred has its own buffer
        # (hlo_alias_analysis.cc: ComputeWhileAliasedBuffers).
        returning = callees[:1] if is_loop else callees
        indices = inside = arrays_in(caller.type_text)
        if caller.opcode not in CONTROL_FLOW:  # of `((operands...), result, context)`
            indices = tuple([index for index in indices if index[:1] == (1,)])
            inside = tuple([index[1:] for index in indices])
        places = [(position, index) for index in indices]
        if is_loop:
            values = self._operand_values(computation, position, 0, indices)
            self._join(computation, places, computation, values)
        for callee in returning:
            if callee.root is not None:
                root = callee.root.number
                values = [source_place(callee, root, index) for index in inside]
                self._join(computation, places, callee, values)

    def _join_donations(self, module: Module) -> None:
        """The results of the entry with the parameters in whose memory they are returned."""
        entry = module.entry
        root = None if entry is None else entry.root
        if entry is None or root is None or "input_output_alias=" not in module.header:
            return
        parameters = parameters_of(entry)
        for alias in input_output_aliases(module):
            if alias.operand in parameters:
                result = source_place(entry, root.number, alias.output_index)
                place = parameters[alias.operand][-1], alias.operand_index
                self._join(entry, [place], entry, [result])

    def _join_in_place(self, computation: Computation, number: int) -> None:
        row = computation.rows[number]
        if DISJOINT in attributes_of(row):
            return
        for output_index, operand, operand_index in self._in_place(computation.at(number)):
            indices = arrays_in(type_of(row), output_index)
            places = [(number, (*output_index, *index)) for index in indices]
            inside = [(*operand_index, *index) for index in indices]
            values = self._operand_values(computation, number, operand, inside)
            self._join(computation, places, computation, values)

    def _in_place(self, instruction: Instruction) -> Iterator[_InPlace]:
        """The parts of a result in an operand's buffer: `AliasInfo::GetInPlaceInputOutputPairs`."""
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
        """The results of a fusion that end with an in-place update of a parameter."""
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
        for index in arrays_in(root.type_text):
            result = source_place(body, root.number, index)
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
        """The instructions whose results share a buffer with their operands or callees."""
        opcodes, rows = computation.opcodes, computation.rows
        joining = (opcodes & (CONTROL_FLOW | _IN_PLACE) - _DECLARES) | set(
            filter(is_async, opcodes)
        )
        numbers = set(positions_of(computation, joining))
        numbers.update(
            number
            for number in positions_of(computation, _DECLARES)
            if _ALIASING in attributes_of(rows[number])
        )
        if not self._updating.isdisjoint(computation.fusion_computations):
            numbers.update(
                number
                for number, names in calls_of(computation).items()
                if not self._updating.isdisjoint(names) and opcode_of(rows[number]) == "fusion"
            )
        return sorted(numbers)

    @cached_property
    def _updating(self) -> frozenset[str]:
        """Names of the bodies of fusions that may update a parameter in place."""
        by_opcode = holders(self._module)
        bodies = chain.from_iterable(by_opcode.get(opcode, ()) for opcode in _IN_PLACE)
        return self._module.fusion_computations & {body.name for body in bodies}

    def _operand_values(
        self, computation: Computation, position: int, number: int, indices: Sequence[Index]
    ) -> list[NumberedPart | None]:
        source = operand_place(computation, position, number, ())
        if source is None:
            return []
        operand, taken = source
        if taken:
            indices = [(*taken, *index) for index in indices]
        return [source_place(computation, operand, index) for index in indices]

    def _join(
        self,
        computation: Computation,
        places: Iterable[NumberedPart],
        source: Computation,
        others: Iterable[NumberedPart | None],
    ) -> None:
        ours, theirs, joined = self._numbers[computation], self._numbers[source], self._joined
        for place, value in zip(places, others, strict=False):
            if value is None:
                continue
            left, right = ours.get(place), theirs.get(value)
            if left is None:
                if right is None:
                    right = theirs[value] = len(joined)
                    joined.append(right)
                ours[place] = right
            elif right is None:
                theirs[value] = left
            elif left != right:
                # The smaller number represents the set: results are in the order of the text.
                left, right = self._find(left), self._find(right)
                joined[max(left, right)] = min(left, right)

    def _find(self, number: int) -> int:
        while self._joined[number] != number:
            # Halve the path: chains of loops in loops would be walked again and again.
            self._joined[number] = number = self._joined[self._joined[number]]
        return number


@cached_analysis
def buffers_of(module: Module) -> SharedBuffers:
    """The values of a module that have to share a buffer."""
    return SharedBuffers(module)
