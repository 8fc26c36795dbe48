"""A module's values as a runnable program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from hlo_lint.engine.values.lowering.graph import Graph, Node, nodes_in_order
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import ArrayShape

if TYPE_CHECKING:
    from hlo_lint.engine.values.hostile import Wanted

Origins = Mapping[tuple[str, int], Instruction]
"""The first instruction that computes a node, by scope and node number.

The scope is the body of a loop, a branch, or "" for the entry: equal nodes of two loops share a
number."""


@dataclass(frozen=True)
class Program:
    """The values of a module, as a graph with its inputs and the sources of its nodes."""

    graph: Graph
    inputs: tuple[Input, ...]
    """The parameters of the graph, in order."""
    origins: Origins
    last: Origins
    """The last instruction with the value of a node, such as the copy of a copy."""
    cuts: Sequence[Cut]
    """The operations that cannot be run, in the order of the module."""
    devices: int
    endless: Sequence[tuple[Instruction, str]] = ()
    """Loops that do not end, each with the reason; such a program is not run."""

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes of the graph, and those of the computations that it calls."""
        return tuple(nodes_of(self.graph.roots))


def nodes_of(roots: Sequence[Node]) -> Iterator[Node]:
    """The nodes that compute values, also in called computations."""
    bodies = [roots]
    seen: set[int] = set()
    for body in bodies:
        for node in nodes_in_order(body):
            yield node
            bodies += [callee.roots for _, callee in node.called if callee.number not in seen]
            seen.update(callee.number for _, callee in node.called)


@dataclass(frozen=True, slots=True)
class Input:
    """A parameter of a program: a leaf of a module's parameter, on a device."""

    leaf: int
    """The number of the leaf among those of all parameters."""
    device: int
    """0 also for a parameter that all devices share."""
    shape: ArrayShape
    limit: int | None
    """The size that its integers index; None if they are no indices."""
    given: tuple[int, ...] = ()
    """Fixed values, where random values are invalid: sizes and offsets of a ragged exchange."""
    wanted: Wanted | None = None
    """The facts for hostile values; None for ordinary values."""


@dataclass(frozen=True, slots=True)
class Cut:
    """An operation replaced by a made-up function, which is equal for equal operands."""

    instruction: Instruction
    what: str
    """The target of a custom call, or the opcode."""
    signature: str
    """Its operands and results."""
