"""The rewritten graph: a module with the changes of a rewrite applied on top."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Set
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple, TypeAlias

from hlo_lint.analysis.calls import inline_computations, names_called_in
from hlo_lint.analysis.walks import control_successors, reached, without_readers
from hlo_lint.hlo.attributes.splitting import joined_attributes
from hlo_lint.hlo.ir import Computation, Instruction, Module, Operand, cached_analysis, called_names
from hlo_lint.hlo.shape import Index, Shape, element_type, parse_shape
from hlo_lint.text.errors import RewriteError
from hlo_lint.text.phrases import in_a_line


@dataclass(eq=False, repr=False, slots=True)
class NewInstruction:
    """An instruction inserted by a `Rewrite`: a possible operand and place of later insertions."""

    anchor: Instruction
    """The instruction of the module that it is inserted before."""
    name: str
    """The name without `%`."""
    opcode: str
    type_text: str
    """The shape as spelled."""
    operands: list[ReadValue]
    literal: str
    """The text between the parentheses of a constant."""
    attributes: dict[str, str]
    """Attributes as text, by name."""
    has_fresh_name: bool
    """False if the caller chose its name."""
    replaced: Instruction | None = None
    """The instruction whose place it takes, and whose attributes it inherits."""

    def __repr__(self) -> str:
        return in_a_line(f"<NewInstruction {self.name}: {self.type_text} {self.opcode}>")

    @property
    def computation(self) -> Computation:
        """The computation that it is inserted into."""
        return self.anchor.computation

    @property
    def shape(self) -> Shape:
        """The shape."""
        return parse_shape(self.type_text)


AnyInstruction: TypeAlias = "Instruction | NewInstruction"
OperandValue: TypeAlias = "Instruction | NewInstruction | Operand"
"""An operand: an instruction, or an element of its tuple as `Instruction.operands` has it."""


class ReadValue(NamedTuple):
    """An operand whose instruction is known to be defined."""

    source: AnyInstruction
    shape_index: Index = ()

    @property
    def reference(self) -> str:
        """The operand as spelled, without `%`: `call#1`."""
        return self.source.name + "".join(f"#{number}" for number in self.shape_index)

    @property
    def type_text(self) -> str:
        """The shape as spelled; empty if unknown."""
        text = self.source.type_text
        return element_type(text, self.reference.partition("#")[2]) if self.shape_index else text


class RewrittenGraph:
    """The changes of a module so far, and its operands, users and roots after them."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.new_names: set[str] = set()
        self.lines: dict[Instruction, list[NewInstruction]] = {}
        """New instructions by the instruction that they stand before, in textual order."""
        self.operands: dict[Instruction, list[ReadValue]] = {}
        """The new operand lists of instructions of the module."""
        self.attributes: dict[Instruction, dict[str, str]] = {}
        """New and changed attributes."""
        self.removed: dict[Instruction, None] = {}
        self.roots: dict[Computation, AnyInstruction] = {}
        self.computations: dict[str, Computation] = {}
        self.successors: dict[Instruction, NewInstruction] = {}
        """New instructions that took over name and shape of a replaced instruction, so the text of
        its users stays valid."""
        self._users: dict[AnyInstruction, dict[AnyInstruction, None]] = {}

    @property
    def new_instructions(self) -> list[NewInstruction]:
        """All new instructions."""
        return [new for lines in self.lines.values() for new in lines]

    def root(self, computation: Computation) -> AnyInstruction | None:
        """The root of a computation."""
        return self.roots.get(computation, computation.root)

    def operands_of(self, node: AnyInstruction) -> list[ReadValue]:
        """A copy of the operands.

        Raises:
            RewriteError: nothing defines an operand.
        """
        if isinstance(node, NewInstruction):
            return list(node.operands)
        if node in self.operands:
            return list(self.operands[node])
        reads = []
        for operand in node.operands:
            if operand.instruction is None:
                raise RewriteError(f"%{node.name} reads %{operand.name}, which is not defined")
            source = self.successors.get(operand.instruction, operand.instruction)
            reads.append(ReadValue(source, operand.shape_index))
        return reads

    def operand_types(self, node: AnyInstruction) -> tuple[str, ...]:
        """The shapes of the operands as spelled; empty if unknown."""
        if isinstance(node, NewInstruction) or node in self.operands:
            return tuple(read.type_text for read in self.operands_of(node))
        return tuple(
            ReadValue(operand.instruction, operand.shape_index).type_text
            if operand.instruction is not None
            else ""
            for operand in node.operands
        )

    def sources(self, node: AnyInstruction) -> set[AnyInstruction]:
        """The instructions that it reads."""
        if isinstance(node, NewInstruction) or node in self.operands:
            return {read.source for read in self.operands_of(node)}
        return {self.successors.get(source, source) for source in node.producers}

    def users(self, node: AnyInstruction) -> dict[AnyInstruction, None]:
        """The users of an instruction; callers update the dict as users change."""
        users = self._users.get(node)
        if users is None:
            former = node.users if isinstance(node, Instruction) else ()
            users = self._users[node] = dict.fromkeys(former)
        return users

    def users_before(self, node: AnyInstruction, value: AnyInstruction) -> set[AnyInstruction]:
        """The users of an instruction that `value` depends on, `value` included."""
        start = self.order(node)
        if value.computation is not node.computation or self.order(value) <= start:
            return set()
        makers = reached(
            [value],
            lambda maker: (read for read in self.sources(maker) if self.order(read) > start),
        )
        return self.users(node).keys() & set(makers)

    def tail(self, node: AnyInstruction) -> str:
        """The attributes as text, without inherited ones."""
        if isinstance(node, NewInstruction):
            return joined_attributes(node.attributes)
        if node not in self.attributes:
            return node.attributes_text
        return joined_attributes({**node.attributes, **self.attributes[node]})

    def order(self, node: AnyInstruction) -> tuple[int, float]:
        """A sort key: the position of an instruction in its computation."""
        if isinstance(node, Instruction):
            return node.number, inf
        return node.anchor.number, self.lines[node.anchor].index(node)

    def has_control_dependencies(self, instruction: Instruction) -> bool:
        """True if an instruction has control predecessors or successors."""
        computation = instruction.computation
        waiting = map(computation.at, control_successors(computation).get(instruction.name, ()))
        return any(
            "control-predecessors=" in self.tail(node)
            for node in (instruction, *(node for node in waiting if node not in self.removed))
        )

    # ---- changes

    def insert(self, new: NewInstruction, index: int) -> None:
        """Add a new instruction at a position among those of its place."""
        self.lines.setdefault(new.anchor, []).insert(index, new)
        for read in new.operands:
            self.users(read.source)[new] = None

    def set_operand(self, user: AnyInstruction, number: int, read: ReadValue) -> None:
        """Replace an operand; the number after the last operand appends."""
        operands = self.operands_of(user)
        former = operands[number : number + 1]
        self.users(read.source)[user] = None
        operands[number : number + 1] = [read]
        for old in former:
            users = self.users(old.source)
            if all(operand.source is not old.source for operand in operands):
                users.pop(user, None)
        if isinstance(user, NewInstruction):
            user.operands = operands
        else:
            self.operands[user] = operands

    def hand_on(self, old: Instruction, new: NewInstruction) -> None:
        """Redirect the users of an instruction to its successor of the same name and shape."""
        former = self.users(old)
        self.successors[old] = new
        self.users(new).update(former)
        former.clear()

    def remove(self, instruction: Instruction) -> None:
        """Mark an instruction as removed."""
        for source in self.sources(instruction):
            self.users(source).pop(instruction, None)
        self.removed[instruction] = None

    # ---- what changes leave unused

    def dead(self) -> set[Instruction]:
        """Former operands without users, and their operands that become dead with them."""
        queue: list[AnyInstruction] = [
            source
            for user in (*self.removed, *self.operands)
            for source in user.producers
            if source not in self.removed
        ]
        dead = without_readers(
            queue, lambda node: len(self.users(node)), self.sources, self._has_to_stay
        )
        return {node for node in dead if isinstance(node, Instruction)}

    def _has_to_stay(self, node: AnyInstruction) -> bool:
        """True if XLA keeps an instruction that has no users (`HloInstruction::HasSideEffect`)."""
        return (
            isinstance(node, NewInstruction)
            or node.is_nested
            or node is self.root(node.computation)
            or self.has_control_dependencies(node)
            or _has_effect(node, self.module)
        )

    def uncalled(self, removed: Set[Instruction]) -> list[Computation]:
        """The computations without callers after the change, transitively."""
        module, inline = self.module, inline_computations(self.module)
        changed = removed | self.attributes.keys()
        # An entry for each call that goes; grows by the calls of computations that go.
        lost = [name for instruction in changed for name in instruction.called_computations]
        if not lost:
            return []
        calls = _call_counts(module).copy()
        nodes: list[AnyInstruction] = [*self.new_instructions, *(self.attributes.keys() - removed)]
        for node in nodes:
            calls.update(called_names(self.tail(node)))
        for computation in self.computations.values():
            calls.update(names_called_in(computation))
        uncalled: list[Computation] = []
        for name in lost:
            calls[name] -= 1
            body = module.computation(name)
            if calls[name] or body is None or body.is_entry:
                continue
            if body not in inline:  # which goes with the text of its caller
                uncalled.append(body)
            lost += names_called_in(body)
        return uncalled


_KEPT: Final = frozenset(
    {"parameter", "custom-call", "infeed", "outfeed", "rng", "rng-get-and-update-state", "domain"}
)
"""Opcodes that are kept without users: parameters, and opcodes with side effects."""


def _has_effect(instruction: Instruction, module: Module) -> bool:
    waiting, seen = [instruction], set[str]()
    for called in waiting:  # which grows by the bodies of callees
        opcode = called.opcode
        # The parameters of what it calls do not keep it.
        if opcode in _KEPT and (called is instruction or opcode != "parameter"):
            return True
        is_async = opcode.endswith(("-start", "-update", "-done"))
        # A done, or an operation of another device on this channel, waits for it.
        if is_async or "channel_id=" in called.attributes_text:
            return True
        for name in called.called_computations:
            body = module.computation(name)
            if body is None:
                return True
            if name not in seen:
                seen.add(name)
                waiting += body.instructions
    return False


def fresh_name(base: str, *taken: Container[str]) -> str:
    """Make a name unique: append the first number from 2 that is not taken.

    >>> fresh_name("add", {"add", "add.2"}, {"add.3"})
    'add.4'
    """
    name, number = base, 1
    while any(name in names for names in taken):
        number += 1
        name = f"{base}.{number}"
    return name


@cached_analysis
def taken_names(module: Module) -> frozenset[str]:
    """The names of instructions and computations."""
    return frozenset(module.names())


@cached_analysis
def _call_counts(module: Module) -> Counter[str]:
    return Counter(name for computation in module for name in names_called_in(computation))
