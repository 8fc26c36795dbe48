"""The values of a module, as a program that runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from hlo_lint.engine.values.lowering.graph import Graph
from hlo_lint.engine.values.lowering.thresholds import thresholds
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import ArrayShape

Origins = Mapping[tuple[str, int], Instruction]
"""The instruction that computes a node, by the body of a loop, a branch or "" for the entry, and
the number of the node: equal nodes of two loops are one. Of several instructions the first."""


@dataclass(frozen=True)
class Program:
    """The values of a module."""

    graph: Graph
    parameters: tuple[Input, ...]
    """The parameters of the graph, in order, without their thresholds."""
    origins: Origins
    last: Origins
    """The last instruction whose value a node is: the copy of a copy."""
    cuts: tuple[Cut, ...]
    """The operations that cannot be run, in the order of the module."""
    devices: int

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """The parameters of the graph, in order."""
        constants = thresholds(self.graph)
        return tuple(
            replace(parameter, thresholds=tuple(sorted(constants.get(number, ()))))
            for number, parameter in enumerate(self.parameters)
        )


@dataclass(frozen=True, slots=True)
class Input:
    """A parameter of a program: a leaf of a parameter of the module, on one device."""

    leaf: int
    """The number of the leaf among those of all parameters."""
    device: int
    """0 also for a parameter that all devices share."""
    shape: ArrayShape
    limit: int | None
    """The size that its integers index, if they index anything."""
    thresholds: tuple[float, ...] = ()
    """The constants that the program compares its elements with."""


@dataclass(frozen=True, slots=True)
class Cut:
    """An operation that is replaced by a function that nobody knows: equal for equal operands."""

    instruction: Instruction
    what: str
    """The target of a custom call, or the opcode."""
    signature: str
    """Its operands and results."""
