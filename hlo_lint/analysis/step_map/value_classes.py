"""Numbers for the values before and after a pass: equal numbers, equal values.

Names do not count. Calls, fusions, loops and asynchronous wrappers that exist on one side only are
read through: an instruction that was inlined, outlined or fused keeps its number, as do the parts
of combined collectives and operations that became asynchronous.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from functools import cache, cached_property
from itertools import islice
from typing import Any, Final, TypeVar

from hlo_lint.analysis.calls import calls_of, positions_of
from hlo_lint.analysis.grouping import by_key
from hlo_lint.analysis.kinds import template_of
from hlo_lint.analysis.pass_pairs import ChangedComputation, PassPair, bare_type
from hlo_lint.analysis.value_attributes import choosing_attributes
from hlo_lint.analysis.value_numbering import ValueNumbering
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.opcodes import COMMUTATIVE, FORWARDS, HAS_GROUPS, without_sugar
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_before_metadata,
    attributes_of,
    name_in,
    name_of,
    opcode_of,
    operands_of,
    references_of,
    type_of,
)
from hlo_lint.text.source import whole_number

ValueNumber = int | tuple["ValueNumber", ...]
"""The number of a value, or the values of a tuple's elements."""
T = TypeVar("T")
Label = tuple[Any, ...]
"""An opcode, then all that chooses the value besides the operands; or `("kept", computation, name)`
for an unchanged instruction, which is not numbered by its operands."""
ValueNode = tuple[Label, tuple[ValueNumber, ...]]
Place = tuple[Computation, int]
"""An instruction: its computation and position."""

_FORWARDS: Final = FORWARDS | {"async-done", "async-update", "copy-done", "copy-start"}
"""Opcodes whose value is that of operand 0. The layout does not count."""
_PER_OPERAND: Final = HAS_GROUPS - {"all-to-all", "ragged-all-to-all"} | {"collective-permute"}
"""Collectives that treat each operand alone: a combined collective has a value for each."""
_NOT_SOUGHT: Final = frozenset({"bitcast", "call", "copy", "fusion", "get-tuple-element"})
"""Opcodes of which a pass adds many: to seek their unchanged equals takes long."""
_MAX_DEPTH: Final = 50
_MAX_READINGS: Final = 4
"""The number of times that instructions may be numbered, on average; calls beyond are not read
through."""


class ValueClasses(ValueNumbering):
    """The values of the computations that a pass changed.

    What the pass left alone has one value before and after: it is not numbered by its operands, and
    a rewritten operand does not hide its readers.
    """

    def __init__(self, pair: PassPair) -> None:
        super().__init__()
        self._nodes: list[ValueNode] = []
        bodies = [body for body in pair.changed if body.keeps_names]
        named = {body.before.name for body in bodies}
        self.before = _Side(self, pair.before, pair.removed, named)
        for body in bodies:
            self.before.read_alone(body.before, _like_changed(body).union(body.removed))
        self.after = _Side(self, pair.after, pair.added, named)
        for body in bodies:
            earlier = self.before.values[body.before]
            self.after.read_alone(body.after, set(body.added), earlier)
        # An entry without its names is numbered wholly; of an unchanged entry, only the callers.
        for side, entry, changed in (
            (self.before, pair.before.entry, pair.removed),
            (self.after, pair.after.entry, pair.added),
        ):
            if entry is not None and entry not in side.values:
                side.read_alone(entry, None if entry in changed else side.callers(entry))

    @property
    def nodes(self) -> Sequence[ValueNode]:
        """The operation and the operands of each number."""
        # Only the keys that were numbered since the last call, which are the last of the table.
        new = islice(reversed(self._numbers), len(self._numbers) - len(self._nodes))
        for key in reversed(list(new)):
            assert isinstance(key, tuple)
            self._nodes.append((key[0], key[1:]))
        return self._nodes

    def node(self, value: ValueNumber) -> ValueNode:
        """The operation that computes a value, and its operands."""
        return self.nodes[value] if isinstance(value, int) else (("tuple",), value)

    def revealed(self, old: ValueNumber, new: ValueNumber) -> tuple[ValueNumber, ValueNumber]:
        """Two values, numbered by their operands if one is of an unchanged instruction."""
        (opcode, *place), (opcode_now, *place_now) = self.node(old)[0], self.node(new)[0]
        if opcode == "kept" != opcode_now:
            old = self.before.numbered(*place)
        elif opcode_now == "kept" != opcode:
            new = self.after.numbered(*place_now)
        return old, new

    def only_members(
        self, old: ValueNumber, new: ValueNumber
    ) -> tuple[Instruction, Instruction] | None:
        """The only instruction with a value before the pass, and that with another after it."""
        if not isinstance(old, int) or not isinstance(new, int):
            return None
        ours, theirs = self.before.members.get(old, ()), self.after.members.get(new, ())
        if len(ours) != 1 or len(theirs) != 1:
            return None
        (before, number), (after, position) = ours[0], theirs[0]
        return before.at(number), after.at(position)


class _ValuesByName(dict[str, ValueNumber]):
    """The values of a computation by name; other instructions are numbered when they are read."""

    def __init__(self, number: Callable[[str], ValueNumber]) -> None:
        super().__init__()
        self._number = number

    def __missing__(self, name: str) -> ValueNumber:
        return self.setdefault(name, self._number(name))


class _Side:
    """A module before or after the pass."""

    def __init__(
        self, classes: ValueClasses, module: Module, changed: Sequence[Computation], named: Set[str]
    ) -> None:
        self._classes = classes
        self._module = module
        self._read_through = {computation.name for computation in changed} - named
        self._left = _MAX_READINGS * sum(
            len(computation.rows) for computation in module.computations
        )
        self._done: dict[tuple[str, tuple[ValueNumber, ...]], ValueNumber] = {}
        self._active: set[str] = set()
        self.numbered = cache(self._by_operands)
        self.members: dict[int, list[Place]] = {}
        """The instructions of each class, in the order in which the program runs them."""
        self.values: dict[Computation, Mapping[str, ValueNumber]] = {}
        """The values in computations that are read alone, by name."""

    def read_alone(
        self,
        computation: Computation,
        numbered: Set[int] | None,
        earlier: Mapping[str, ValueNumber] | None = None,
    ) -> None:
        """Number the instructions of a computation by their operands; parameters are unknowns.

        Args:
            numbered: the positions of the instructions; all if None. Others are unchanged.
            earlier: the values before the pass, by name; None for the computation before it.
        """
        where = "" if computation is self._module.entry else computation.name  # entries get renamed
        rows = computation.rows
        constants: set[str] = set()

        def parameter(row: InstructionRecord) -> ValueNumber:
            return self._node(("parameter", where, operands_of(row).strip()))

        def unchanged(name: str) -> ValueNumber:
            number = computation.index.get(name)
            # One of `positions` without a value yet is defined below its reader: undefined for it.
            if number is None or number in positions:
                return self._node(("undefined", name))
            row = rows[number]
            if opcode_of(row) == "parameter":
                return parameter(row)
            if earlier is not None:
                return earlier[name]
            if opcode_of(row) == "constant":
                constants.add(operands_of(row))
                return self._node(_constant(row))
            return self._node(("kept", where, name))

        positions = set(range(len(rows))) if numbered is None else set(numbered)
        # The value of a tuple is that of its elements, also if its line is unchanged.
        if earlier is None:
            positions.update(computation.positions("tuple"))
        values = self.values[computation] = _ValuesByName(unchanged)
        self._number(computation, sorted(positions), values, parameter)
        # An instruction is alone in its class only if no unchanged constant has its value.
        equal = [
            number
            for number in (computation.positions("constant") if constants else ())
            if operands_of(rows[number]) in constants and number not in positions
        ]
        self._number(computation, equal, values, parameter)

    def callers(self, computation: Computation) -> set[int]:
        """The positions of the instructions that run computations that are read through."""
        calls = calls_of(computation).items()
        return {number for number, names in calls if not self._read_through.isdisjoint(names)}

    def _number(
        self,
        computation: Computation,
        positions: Sequence[int],
        values: dict[str, ValueNumber],
        parameter: Callable[[InstructionRecord], ValueNumber],
    ) -> None:
        """Enter the values of the instructions at some positions, in the order of the text."""
        self._left -= len(positions)
        for number in positions:
            row = computation.rows[number]
            is_parameter = opcode_of(row) == "parameter"
            values[name_of(row)] = (
                parameter(row) if is_parameter else self._numbered(computation, number, values)
            )

    def _numbered(
        self, computation: Computation, number: int, values: Mapping[str, ValueNumber]
    ) -> ValueNumber:
        """The value of an instruction by its operands."""
        row, callees = computation.rows[number], calls_of(computation).get(number, ())
        operands = [self._read(values, reference) for reference in references_of(row)]
        return self._value(row, operands, callees, (computation, number))

    def _by_operands(self, where: str, name: str) -> ValueNumber:
        """The value of an unchanged instruction, numbered by its operands."""
        computation = self._module.computation(where) if where else self._module.entry
        assert computation is not None
        number = computation.index.get(name)
        if number is None:  # a broken text may have two computations of a name
            return self._node(("kept", where, name))
        return self._numbered(computation, number, self.values[computation])

    def _run(self, name: str, arguments: Sequence[ValueNumber]) -> ValueNumber | None:
        """The result of a computation; None if it is not read through."""
        computation = self._module.computation(name)
        if computation is None or name in self._active or len(self._active) >= _MAX_DEPTH:
            return None
        if name not in self._read_through or self._left < 0:
            return None
        key = name, tuple(arguments)
        if key not in self._done:
            self._active.add(name)
            values = _ValuesByName(lambda name: self._node(("undefined", name)))

            def parameter(row: InstructionRecord) -> ValueNumber:
                at = whole_number(operands_of(row).strip())
                if at is None or not 0 <= at < len(arguments):
                    return self._node(("free", name, name_of(row)))
                return arguments[at]

            self._number(computation, range(len(computation.rows)), values, parameter)
            root = computation.root
            self._done[key] = self._node(("empty",)) if root is None else values[root.name]
            self._active.discard(name)
        return self._done[key]

    def _read(self, values: Mapping[str, ValueNumber], reference: str) -> ValueNumber:
        if "#" not in reference:
            return values[reference]
        name, *path = reference.split("#")
        value = values[name]
        for index in path:
            value = self._element(value, index)
        return value

    def _element(self, value: ValueNumber, index: str) -> ValueNumber:
        number = whole_number(index)
        if isinstance(value, tuple) and number is not None and 0 <= number < len(value):
            return value[number]
        return self._node(("element", index), (value,))

    def _value(
        self,
        row: InstructionRecord,
        operands: list[ValueNumber],
        callees: Sequence[str],
        place: Place,
    ) -> ValueNumber:
        """The value of an instruction, entered among the members of its class."""
        opcode = opcode_of(row)
        base = without_sugar(opcode)
        if opcode == "tuple":
            self._enter(("tuple",), operands, place)
            return tuple(operands)
        if opcode == "get-tuple-element" and operands:
            index = dict(choosing_attributes(opcode, attributes_of(row))).get("index", "")
            value = self._element(operands[0], index)
            self._enter((opcode,), (value,), place)
            return value
        if operands and (opcode in _FORWARDS or opcode == f"{base}-done"):
            # Its value is the operand's. copy-start is a member of the copies, a done of the dones.
            is_end = opcode.endswith(("-done", "-update"))
            self._enter((opcode if is_end else base,), operands[:1], place)
            return operands[0]
        if opcode == "constant":
            return self._enter(_constant(row), (), place)
        through = self._through(base, operands, callees)
        if through is not None:
            self._enter((base,), (through,), place)
            return through
        if base in COMMUTATIVE:
            operands = sorted(operands, key=repr)
        # A start's type has its operands, too; that of a combined collective, all results.
        is_typed = opcode == base and base not in _PER_OPERAND
        applied = tuple(self._callee(name) for name in callees)
        meaning = choosing_attributes(base, attributes_before_metadata(attributes_of(row)))
        label = base, bare_type(type_of(row)) if is_typed else "", meaning
        # A combiner puts collectives together that each compute what they did alone.
        if base in _PER_OPERAND and len(operands) > 1:
            return tuple([self._enter(label, (operand, *applied), place) for operand in operands])
        return self._enter(label, (*operands, *applied), place)

    def _node(self, label: Label, operands: Sequence[ValueNumber] = ()) -> int:
        """The number of an operation on operands."""
        return self._classes.number((label, *operands))

    def _enter(self, label: Label, operands: Sequence[ValueNumber], place: Place) -> int:
        number = self._node(label, operands)
        self.members.setdefault(number, []).append(place)
        return number

    @cached_property
    def classes_of(self) -> Mapping[Place, Sequence[int]]:
        """The classes of each instruction: several if its computation is called twice."""
        return _inverted(self.members)

    @cached_property
    def alike(self) -> Mapping[Hashable, Sequence[Place]]:
        """The instructions by opcode, type and operands; their attributes may differ."""
        nodes = self._classes.nodes
        return by_key(
            ((*label[:2], operands), place)
            for number, places in self.members.items()
            for label, operands in [nodes[number]]
            for place in places
        )

    @cached_property
    def alike_of(self) -> Mapping[Place, Sequence[Hashable]]:
        """The opcode, type and operands of each instruction."""
        return _inverted(self.alike)

    def _through(
        self, base: str, operands: Sequence[ValueNumber], callees: Sequence[str]
    ) -> ValueNumber | None:
        """The value of a caller that is read through."""
        match base:
            case "call" | "fusion" | "async" if len(callees) == 1:
                return self._run(callees[0], operands)
            case "while" if len(callees) == 2 and operands:
                return self._loop(operands[0], callees)
            case "conditional" if len(callees) == len(operands) - 1:
                branches = zip(callees, operands[1:], strict=True)
                results = [self._run(callee, (given,)) for callee, given in branches]
                values = [result for result in results if result is not None]
                if len(values) < len(results):
                    return None
                return self._node(("conditional",), (operands[0], *values))
        return None

    def _loop(self, given: ValueNumber, callees: Sequence[str]) -> ValueNumber | None:
        if isinstance(given, tuple):
            # Two elements that start alike differ by their order.
            ranks = Counter[ValueNumber]()
            leaves = []
            for value in given:
                leaves.append(self._node(("state", ranks[value]), (value,)))
                ranks[value] += 1
            state: ValueNumber = tuple(leaves)
        else:
            state = self._node(("state", 0), (given,))
        condition, body = (self._run(callee, (state,)) for callee in callees)
        if condition is None or body is None:
            return None
        if not isinstance(state, tuple):
            return self._node(("loop",), (state, condition, body))
        return tuple(
            self._node(("loop",), (leaf, condition, self._element(body, str(number))))
            for number, leaf in enumerate(state)
        )

    def _callee(self, name: str) -> int:
        """The number of a computation that an instruction applies or runs.

        Reducers and comparators count by what they do: passes share them and copy them.
        """
        computation = self._module.computation(name)
        template = None if computation is None else template_of(computation)
        return self._node(("computation", name) if template is None else ("callee", template))


def _constant(row: InstructionRecord) -> Label:
    """The label of a constant; a NaN has no sign, an elided literal equals those of its name."""
    literal = "".join(operands_of(row).split()).replace("-nan", "nan")
    return "constant", bare_type(type_of(row)), name_of(row) if "..." in literal else literal


def _like_changed(body: ChangedComputation) -> set[int]:
    """The positions of unchanged instructions that may have the value of a changed one.

    A pass merges or clones an operation: its name vanished or is new. Its equals have its opcode,
    and read the same names, or others with equal values.
    """
    rows, others = body.before.rows, body.after.rows
    gone = [rows[number] for number in body.removed]
    new = [others[number] for number in body.added]
    opcodes = {opcode_of(row) for row in gone if name_of(row) not in body.after.index}
    opcodes.update(opcode_of(row) for row in new if name_of(row) not in body.before.index)
    opcodes -= _NOT_SOUGHT | {"constant", "tuple"}
    read = {opcode: set[str]() for opcode in opcodes}
    for row in (*gone, *new):
        if opcode_of(row) in opcodes:
            read[opcode_of(row)].update(references_of(row), map(name_in, references_of(row)))
    alike = {
        number
        for opcode, names in read.items()
        for number in body.before.positions(opcode)
        if not names.isdisjoint(references_of(rows[number]))
    }
    literals = {
        operands_of(side.rows[number])
        for side in (body.before, body.after)
        for name in set().union(*read.values())
        if (number := side.index.get(name)) is not None
        and opcode_of(side.rows[number]) == "constant"
    }
    equal = [rows[n] for n in body.before.positions("constant") if operands_of(rows[n]) in literals]
    # Names whose values may equal others: a reader of one may equal the reader of another.
    doubled = set(map(name_of, (*gone, *new, *equal, *map(rows.__getitem__, alike))))
    readers = {opcode for opcode, names in read.items() if not doubled.isdisjoint(names)}
    for number in positions_of(body.before, opcodes) if readers else ():
        row = rows[number]
        if opcode_of(row) in readers and not doubled.isdisjoint(map(name_in, references_of(row))):
            alike.add(number)
            doubled.add(name_of(row))
            readers.update(other for other, names in read.items() if name_of(row) in names)
    return alike


def _inverted(members: Mapping[T, Sequence[Place]]) -> Mapping[Place, Sequence[T]]:
    return by_key((place, key) for key, places in members.items() for place in places)
