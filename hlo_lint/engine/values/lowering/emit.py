"""Write a graph of values as HLO text without layouts, in its own types or with floats in f64."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from hlo_lint.engine.values.lowering.convolutions import as_dots
from hlo_lint.engine.values.lowering.graph import Attributes, Graph, Node, nodes_in_order
from hlo_lint.hlo.dtypes import FLOATS, PART_OF_COMPLEX
from hlo_lint.hlo.parser.literals import spelled_literal
from hlo_lint.hlo.shape import ArrayShape, read_index

NATIVE: Final[Mapping[str, str]] = {}
"""Each element type as it is."""
WIDE: Final[Mapping[str, str]] = {
    **dict.fromkeys(FLOATS, "f64"),
    **dict.fromkeys(PART_OF_COMPLEX, "c128"),
}
"""Every float as f64, so that a remaining difference does not come from rounding."""


def emit_graph(
    graph: Graph,
    types: Mapping[str, str] = NATIVE,
    *,
    keep: Sequence[Node] = (),
    given: Node | None = None,
) -> str:
    """The text of a module whose entry is the graph.

    The nodes of `keep` are further results, after those of the graph; `given` is a node whose value
    is a further parameter.
    """
    writer = _Writer(types)
    entry = Graph(-1, graph.parameters, (*graph.roots, *keep), False, True)
    if given is not None:
        entry = replace(entry, parameters=(*entry.parameters, given.shape))
        writer.given[given.number] = f"p{len(graph.parameters)}"
    writer.write(entry, "main")
    *computations, main = writer.computations
    return "\n\n".join(["HloModule values", *computations, f"ENTRY {main}"]) + "\n"


class _Writer:
    """Writes each computation once, callees first."""

    def __init__(self, types: Mapping[str, str]) -> None:
        self.types = types
        self.computations: list[str] = []
        self._names: dict[int, str] = {}
        self.given: dict[int, str] = {}
        """The names of nodes that are parameters of the entry."""

    def shape(self, shape: ArrayShape) -> str:
        return f"{shape._replace(dtype=self.types.get(shape.dtype, shape.dtype))}"

    def shapes(self, shapes: Iterable[ArrayShape]) -> str:
        return "(" + ", ".join(map(self.shape, shapes)) + ")"

    def name_of(self, graph: Graph) -> str:
        name = self._names.get(graph.number)
        if name is None:
            name = self._names[graph.number] = f"graph{graph.number}"
            self.write(graph, name)
        return name

    def write(self, graph: Graph, name: str) -> None:
        lines: list[str] = []
        names: dict[int, str] = {}
        if graph.takes_tuple:
            lines.append(f"state = {self.shapes(graph.parameters)} parameter(0)")
        for number, shape in enumerate(graph.parameters):
            element = f"get-tuple-element(state), index={number}"
            source = element if graph.takes_tuple else f"parameter({number})"
            lines.append(f"p{number} = {self.shape(shape)} {source}")
        for node in nodes_in_order(graph.roots):
            if node.opcode == "parameter":
                names[node.number] = f"p{node.attributes[0][1]}"
                continue
            if name == "main" and node.number in self.given:
                names[node.number] = self.given[node.number]
                continue
            names[node.number] = f"n{node.number}"
            operands = [names[operand.number] for operand in node.operands]
            lines += self.lines(node, names[node.number], operands)
        roots = [names[root.number] for root in graph.roots]
        if graph.gives_tuple:
            shapes = self.shapes(root.shape for root in graph.roots)
            lines.append(f"ROOT result = {shapes} tuple({', '.join(roots)})")
        else:
            lines.append(f"ROOT result = {self.shape(graph.roots[0].shape)} copy({roots[0]})")
        text = "".join(f"  {line}\n" for line in lines)
        self.computations.append(f"{name} {{\n{text}}}")

    def lines(self, node: Node, name: str, operands: list[str]) -> list[str]:
        """The instruction of a node, after instructions for its operands or computations."""
        # The state of a loop and the results of branches are tuples, also with one element.
        is_tuple = len(node.shapes) != 1 or node.opcode in ("while", "conditional")
        result = self.shapes(node.shapes) if is_tuple else self.shape(node.shape)
        match node.opcode:
            case "constant":
                assert node.literal is not None
                literal = spelled_literal(node.literal, node.shape.dtype)
                return [f"{name} = {result} constant({literal})"]
            case "while":
                return [
                    f"{name}.in = {result} tuple({', '.join(operands)})",
                    f"{name} = {result} while({name}.in)" + self.tail(node),
                ]
            case "conditional":
                return self.conditional(node, name, result, operands)
            case "bitcast-convert":
                return self.bits(node, name, operands[0])
            case "convolution" if (self.types or _is_mirrored(node)) and (dots := as_dots(node)):
                return self.inlined(dots, name, operands)
            case "bounded":
                return [f"{name} = {result} copy({operands[0]})"]
            case "convert" if result == self.shape(node.operands[0].shape):
                return [f"{name} = {result} copy({operands[0]})"]
            case "reduce-precision" if self.types:
                return [f"{name} = {result} copy({operands[0]})"]
        return [f"{name} = {result} {node.opcode}({', '.join(operands)})" + self.tail(node)]

    def inlined(self, root: Node, name: str, arguments: list[str]) -> list[str]:
        """The instructions of an expansion, with its parameters replaced by arguments."""
        lines: list[str] = []
        names: dict[int, str] = {}
        for node in nodes_in_order([root]):
            own = name if node is root else f"{name}.{node.number}"
            if node.opcode == "parameter":
                own = arguments[int(node.attributes[0][1])]
            else:
                lines += self.lines(node, own, [names[source.number] for source in node.operands])
            names[node.number] = own
        return lines

    def tail(self, node: Node) -> str:
        """The attributes of a node."""
        attributes: Attributes = node.attributes
        if node.opcode == "compare" and self.types:
            attributes = tuple(pair for pair in attributes if pair != ("type", "FLOAT"))
        if node.opcode == "sort":
            # An unstable sort may order equal keys in any way, so both sides sort stably.
            attributes = (*attributes, ("is_stable", "true"))
        texts = [f"{key}={text}" for key, text in attributes]
        texts += [f"{key}={self.name_of(graph)}" for key, graph in node.called]
        return "".join(f", {text}" for text in texts)

    def conditional(self, node: Node, name: str, result: str, operands: list[str]) -> list[str]:
        """The instructions of a conditional, whose operands are a tuple for each branch."""
        lines, arguments, start = [], [], 1
        for number, count in enumerate(read_index(node.attributes[0][1].strip("{}"))):
            part = slice(start, start + count)
            shapes = self.shapes(operand.shape for operand in node.operands[part])
            lines.append(f"{name}.{number} = {shapes} tuple({', '.join(operands[part])})")
            arguments.append(f"{name}.{number}")
            start += count
        branches = ", ".join(self.name_of(graph) for _, graph in node.called)
        every = ", ".join([operands[0], *arguments])
        lines.append(f"{name} = {result} conditional({every}), branch_computations={{{branches}}}")
        return lines

    def bits(self, node: Node, name: str, operand: str) -> list[str]:
        """A bitcast-convert of a float's own type, also where floats are f64."""
        source, target = node.operands[0].shape, node.shape
        lines: list[str] = []
        if self.shape(source) != f"{source}":
            lines.append(f"{name}.narrow = {source} convert({operand})")
            operand = f"{name}.narrow"
        bits = f"{target} bitcast-convert({operand})"
        if self.shape(target) == f"{target}":
            return [*lines, f"{name} = {bits}"]
        wide = f"{self.shape(target)} convert({name}.bits)"
        return [*lines, f"{name}.bits = {bits}", f"{name} = {wide}"]


def _is_mirrored(node: Node) -> bool:
    """True for an f32 convolution with a mirrored kernel, which XLA:CPU's library does not take."""
    window = dict(node.attributes).get("window", "")
    return node.shape.dtype == "f32" and "1" in window.partition("rhs_reversal=")[2]
