"""Values of instructions as results of a program: of one in a loop the last.

A loop carries them in its state, and a branch gives them back, each with a predicate that is true
once the instruction has run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import NamedTuple

from hlo_lint.engine.values.lowering.graph import (
    LoweredValue,
    Node,
    Nodes,
    assembled,
    bare,
    leaf_nodes,
)
from hlo_lint.hlo.ir import Computation, Instruction, Module


class Last(NamedTuple):
    """The last value of an instruction in the computation that is being lowered."""

    value: LoweredValue
    has_run: Node | None
    """A predicate; None where it always runs."""


Lasts = Sequence[tuple[Instruction, Last]]


class Watch:
    """The watched instructions of a module, and their values as far as it is lowered."""

    def __init__(self, module: Module, instructions: Sequence[Instruction], nodes: Nodes) -> None:
        self.instructions = instructions
        self.seen: dict[Instruction, Last] = {}
        self._nodes = nodes
        self._by_name = {computation.name: computation for computation in module.computations}
        self._inside: dict[str, list[Instruction]] = {}

    def inside(self, name: str) -> list[Instruction]:
        """The watched instructions in a computation and in those that it calls."""
        watched = self._inside.get(name)
        if watched is None:
            watched = self._inside[name] = []
            computation = self._by_name.get(name)
            called = [
                callee
                for instruction in (computation.instructions if computation else ())
                for callee in instruction.called_computations
            ]
            own = [i for i in self.instructions if i.computation is computation]
            inner = [i for callee in dict.fromkeys(called) for i in self.inside(callee)]
            watched += dict.fromkeys([*own, *inner])
        return watched

    def wanted(self, computation: Computation) -> list[Instruction]:
        """The instructions of a computation that are watched, or that call what is."""
        return [
            instruction
            for instruction in computation.instructions
            if instruction in self.instructions
            or any(map(self.inside, instruction.called_computations))
        ]

    def see(
        self, instruction: Instruction, value: LoweredValue, has_run: Node | None = None
    ) -> None:
        """Keep a value, which replaces the one before it where the instruction has run."""
        before = self.seen.get(instruction)
        if has_run is not None and before is not None:
            nodes = self._nodes
            leaves = [
                nodes.make(
                    "select", one.shape, (nodes.broadcast(has_run, one.shape.dims), one, other)
                )
                for one, other in zip(leaf_nodes(value), leaf_nodes(before.value), strict=True)
            ]
            value = _like(value, iter(leaves))
            has_run = before.has_run and nodes.binary("or", has_run, before.has_run)
        self.seen[instruction] = Last(value, has_run)

    def scoped(self, seen: Lasts) -> Watch:
        """The same instructions in a called computation, where only these values were seen."""
        inner = copy(self)
        inner.seen = dict(seen)
        return inner

    def results(self, carried: Sequence[Instruction]) -> list[Node]:
        """The values seen in this scope, each with its predicate."""
        nodes: list[Node] = []
        for instruction in carried:
            last = self.seen.get(instruction)
            if last is None:
                nodes += initial_values([instruction], self._nodes)
            else:
                nodes += [*leaf_nodes(last.value), last.has_run or self._nodes.scalar(1, "pred")]
        return nodes


def initial_values(carried: Sequence[Instruction], nodes: Nodes) -> list[Node]:
    """The values of instructions that have not run, each with its predicate."""
    values: list[Node] = []
    for instruction in carried:
        values += [nodes.filled(0, leaf) for leaf in bare(instruction.shape)]
        values.append(nodes.scalar(0, "pred"))
    return values


def last_values(carried: Sequence[Instruction], nodes: Iterator[Node]) -> Lasts:
    """Values and predicates from the nodes that hold them."""
    return [(i, Last(assembled(i.shape, nodes), next(nodes))) for i in carried]


def _like(value: LoweredValue, leaves: Iterator[Node]) -> LoweredValue:
    """A value with other arrays in it."""
    if isinstance(value, tuple):
        return tuple(_like(part, leaves) for part in value)
    return None if value is None else next(leaves)
