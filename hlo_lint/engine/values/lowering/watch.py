"""Watch instructions, whose values become results of a program.

The value of an instruction in a loop is its last value. A loop carries watched values in its state,
and a branch returns them, each with a predicate that is true once the instruction has run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import partial, reduce
from typing import NamedTuple

from hlo_lint.analysis.calls import callees_of
from hlo_lint.engine.values.lowering.graph import (
    LoweredValue,
    Node,
    Nodes,
    assembled,
    bare,
    leaf_nodes,
    with_leaves,
)
from hlo_lint.hlo.dtypes import PART_OF_COMPLEX, is_complex, is_float
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape


class Last(NamedTuple):
    """The last value of an instruction in the computation being lowered."""

    value: LoweredValue
    has_run: Node | None
    """A predicate; None where it always runs."""


Lasts = Sequence[tuple[Instruction, Last]]


class Watch:
    """The watched instructions of a module, and their values as far as it is lowered."""

    def __init__(self, module: Module, instructions: Sequence[Instruction], nodes: Nodes) -> None:
        self.module = module
        self.instructions = dict.fromkeys(instructions)
        self.seen: dict[Instruction, Last] = {}
        self._nodes = nodes
        self._inside: dict[str, list[Instruction]] = {}

    def inside(self, name: str) -> list[Instruction]:
        """The watched instructions in a computation and in those that it calls."""
        watched = self._inside.get(name)
        if watched is None:
            watched = self._inside[name] = []
            computation = self.module.computation(name)
            if computation is not None:
                watched += filter(self.instructions.__contains__, computation.instructions)
                for callee in callees_of(self.module, computation):
                    watched += self.inside(callee.name)
            self._inside[name] = watched = list(dict.fromkeys(watched))
        return watched

    def wanted(self, computation: Computation) -> list[Instruction]:
        """The instructions of a computation that are watched, or that call watched instructions."""
        return [
            instruction
            for instruction in computation.instructions
            if instruction in self.instructions
            or any(map(self.inside, instruction.called_computations))
        ]

    def shape(self, instruction: Instruction) -> Shape:
        """The shape of the value kept for an instruction."""
        return instruction.shape

    def computed(
        self, instruction: Instruction, value: LoweredValue, operands: Iterable[LoweredValue]
    ) -> None:
        """Keep the value of an instruction."""
        self.see(instruction, value)

    def see(
        self, instruction: Instruction, value: LoweredValue, has_run: Node | None = None
    ) -> None:
        """Keep a value, which replaces an earlier value where `has_run` is true."""
        before = self.seen.get(instruction)
        if has_run is not None and before is not None:
            nodes = self._nodes
            leaves = [
                nodes.select(nodes.broadcast(has_run, new.shape.dims), new, old)
                for new, old in zip(leaf_nodes(value), leaf_nodes(before.value), strict=True)
            ]
            value = with_leaves(value, iter(leaves))
            has_run = before.has_run and nodes.binary("or", has_run, before.has_run)
        self.seen[instruction] = Last(value, has_run)

    def scoped(self, seen: Lasts) -> Watch:
        """A copy for a called computation, where only these values were seen."""
        inner = copy(self)
        inner.seen = dict(seen)
        return inner

    def results(self, carried: Sequence[Instruction]) -> list[Node]:
        """The values seen in this scope, each with its predicate."""
        nodes: list[Node] = []
        for instruction in carried:
            last = self.seen.get(instruction)
            if last is None:
                nodes += self.initial_values([instruction])
            else:
                nodes += [*leaf_nodes(last.value), last.has_run or self._nodes.scalar(1, "pred")]
        return nodes

    def initial_values(self, carried: Sequence[Instruction]) -> list[Node]:
        """The values of instructions that have not run, each with its predicate."""
        values: list[Node] = []
        for instruction in carried:
            values += [self._nodes.filled(0, leaf) for leaf in bare(self.shape(instruction))]
            values.append(self._nodes.scalar(0, "pred"))
        return values

    def last_values(self, carried: Sequence[Instruction], nodes: Iterator[Node]) -> Lasts:
        """Values and predicates from the nodes that hold them."""
        return [(i, Last(assembled(self.shape(i), nodes), next(nodes))) for i in carried]


class FirstNonFinite(Watch):
    """Watches instructions that turn NaN-free operands into a NaN, or finite ones into infinity.

    The predicate of an instruction says whether it did so; its value, where it is kept, is a tuple
    of its result and its operands when it first did.
    """

    def __init__(
        self, module: Module, instructions: Sequence[Instruction], nodes: Nodes, *, keeps: bool
    ) -> None:
        super().__init__(module, instructions, nodes)
        self._keeps = keeps

    def shape(self, instruction: Instruction) -> Shape:
        """The shape of the value kept for an instruction."""
        if not self._keeps:
            return TupleShape(())
        shapes = instruction.shape, *(operand.shape for operand in instruction.operands)
        return TupleShape(tuple([shape for shape in shapes if shape is not None]))

    def computed(
        self, instruction: Instruction, value: LoweredValue, operands: Iterable[LoweredValue]
    ) -> None:
        """Keep the value and operands of an instruction, and whether it makes a NaN or infinity."""
        operands = tuple(operands)
        turns_bad = [
            self._nodes.binary(
                "and", self._all(test, operands), self._nodes.unary("not", self._all(test, value))
            )
            for test in ("is-finite", "compare")
        ]
        kept = (value, *operands) if self._keeps else ()
        self.see(instruction, kept, self._nodes.binary("or", *turns_bad))

    def see(
        self, instruction: Instruction, value: LoweredValue, has_run: Node | None = None
    ) -> None:
        """Keep a value, unless an earlier value was kept."""
        before = self.seen.get(instruction)
        super().see(instruction, value, has_run)
        if before is not None and before.has_run is not None:
            super().see(instruction, *before)

    def _all(self, test: str, value: LoweredValue) -> Node:
        """True if all floats of a value are finite, or, by `compare`, equal to themselves."""
        nodes, true = self._nodes, self._nodes.scalar(1, "pred")
        tests = []
        for leaf in leaf_nodes(value):
            parts = [leaf] if is_float(leaf.shape.dtype) else []
            if is_complex(leaf.shape.dtype):
                of_part = ArrayShape(PART_OF_COMPLEX[leaf.shape.dtype], leaf.shape.dims)
                parts = [nodes.make(opcode, of_part, (leaf,)) for opcode in ("real", "imag")]
            for part in parts:
                wide = part if part.shape.dtype == "f64" else nodes.convert(part, "f32")
                if test == "compare":
                    result = nodes.compare(wide, wide, "EQ")
                else:
                    result = nodes.make(test, ArrayShape("pred", wide.shape.dims), (wide,))
                tests.append(nodes.reduced(result, "and", 1))
        return reduce(partial(nodes.binary, "and"), tests, true)
