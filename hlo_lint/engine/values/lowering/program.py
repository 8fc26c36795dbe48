"""A module's values as a runnable program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from typing import Final

from hlo_lint.engine.values.lowering.graph import Graph, Node, nodes_in_order
from hlo_lint.hlo.dtypes import is_float, is_integer
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.text.source import whole_number

Origins = Mapping[tuple[str, int], Instruction]
"""The first instruction that computes a node, by scope and node number.

The scope is the body of a loop, a branch, or "" for the entry: equal nodes of two loops share a
number."""


@dataclass(frozen=True)
class Program:
    """The values of a module, as a graph with its inputs and the sources of its nodes."""

    graph: Graph
    parameters: tuple[Input, ...]
    """The parameters of the graph, in order, without their thresholds."""
    origins: Origins
    last: Origins
    """The last instruction with the value of a node, such as the copy of a copy."""
    cuts: tuple[Cut, ...]
    """The operations that cannot be run, in the order of the module."""
    devices: int
    endless: tuple[tuple[Instruction, str], ...] = ()
    """Loops that do not end, each with the reason; such a program is not run."""

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes of the graph, and those of the computations that it calls."""
        nodes: list[Node] = []
        graphs = [self.graph]
        seen: set[int] = set()
        for graph in graphs:
            for node in nodes_in_order(graph.roots):
                nodes.append(node)
                graphs += [callee for _, callee in node.called if callee.number not in seen]
                seen.update(callee.number for _, callee in node.called)
        return tuple(nodes)

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
    thresholds: tuple[float, ...] = ()
    """The constants that the program compares its elements with."""


@dataclass(frozen=True, slots=True)
class Cut:
    """An operation replaced by a made-up function, which is equal for equal operands."""

    instruction: Instruction
    what: str
    """The target of a custom call, or the opcode."""
    signature: str
    """Its operands and results."""


MAX_INTEGER: Final = 1 << 16
"""The largest integer threshold: larger constants are ends of ranges."""
MAX_FLOAT: Final = 32.0
"""The largest float threshold: a large float in a sum hides every other difference."""
MAX_ELEMENTS: Final = 16
"""The most elements of an array of thresholds: a larger array is a table."""
_DECIDING: Final = frozenset("clamp compare maximum minimum remainder".split())
_COMPUTING: Final = frozenset("abs add multiply negate subtract".split())
"""Opcodes whose results are large where their operands are."""
_MOVING: Final = frozenset(
    "broadcast clamp concatenate convert maximum minimum reshape reverse select slice "
    "transpose".split()
)
"""Opcodes whose results hold elements of their operands."""


def thresholds(graph: Graph) -> dict[int, set[float]]:
    """The constants that a program compares a parameter's elements with, by parameter number.

    `x < 3`, `clamp(0, x, 6)`: a wrong comparison shows at these numbers and next to them, where
    random values rarely are.
    """
    result: dict[int, set[float]] = {}
    holds: dict[int, tuple[frozenset[int], frozenset[float]]] = {}
    """The parameters and the constants whose elements are in a node."""
    for node in nodes_in_order(graph.roots):
        if node.opcode == "parameter" and _is_real(node):
            holds[node.number] = frozenset({int(node.attributes[0][1])}), frozenset()
        elif node.opcode in ("constant", "iota"):
            holds[node.number] = frozenset(), _numbers(node)
        elif node.opcode in _DECIDING | _MOVING | _COMPUTING or _takes_largest(node):
            operands = [holds[source.number] for source in node.operands if source.number in holds]
            parameters = frozenset().union(*(numbers for numbers, _ in operands))
            constants = frozenset().union(*(numbers for _, numbers in operands))
            if node.opcode in _DECIDING:
                for parameter in parameters:
                    result.setdefault(parameter, set()).update(constants)
            if node.opcode in _MOVING or _takes_largest(node):
                holds[node.number] = parameters, constants
            elif node.opcode in _COMPUTING:
                holds[node.number] = parameters, frozenset()
    return result


def _takes_largest(node: Node) -> bool:
    """True for a reduction by maximum or minimum."""
    roots = [graph.roots[0].opcode for _, graph in node.called if node.opcode == "reduce"]
    return roots in (["maximum"], ["minimum"])


def _numbers(node: Node) -> frozenset[float]:
    """The constants in a node; for an iota its ends and its middle."""
    if node.opcode == "iota":
        axis = whole_number(dict(node.attributes).get("iota_dimension", ""))
        if axis is None or not 0 <= axis < node.shape.rank:
            return frozenset()  # XLA refuses it
        size = node.shape.dims[axis]
        return frozenset({0, size // 2, size - 1})
    if node.literal is None or node.literal.size > MAX_ELEMENTS or not _is_real(node):
        return frozenset()
    numbers = map(float, node.literal.ravel())
    limit = MAX_FLOAT if is_float(node.shape.dtype) else MAX_INTEGER
    return frozenset(number for number in numbers if isfinite(number) and abs(number) <= limit)


def _is_real(node: Node) -> bool:
    """True for integers and floats: neither predicates nor complex numbers."""
    return is_integer(node.shape.dtype) or is_float(node.shape.dtype)
