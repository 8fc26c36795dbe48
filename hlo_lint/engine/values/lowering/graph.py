"""Hash-consed graphs of values: equal values are the same node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final, TypeAlias, TypeVar

from hlo_lint.analysis.value_numbering import ValueNumbering
from hlo_lint.analysis.walks import operands_first
from hlo_lint.hlo.attributes.plain import Padding
from hlo_lint.hlo.parser.literals import AnyArray, numpy_dtype
from hlo_lint.hlo.shape import (
    ArrayShape,
    BufferShape,
    OpaqueShape,
    Shape,
    TupleShape,
    read_index,
    spelled_index,
)
from hlo_lint.text.errors import HloLintError
from hlo_lint.xla.limits import Deadline

MAX_NODES: Final = 400_000
"""The most nodes of a program: inlining may make a module many times larger."""


class NotLowered(HloLintError):
    """A module that cannot be made to run on XLA:CPU; the message says why."""

    def __init__(self, message: str, instruction: str = "") -> None:
        super().__init__(message)
        self.instruction = instruction
        """The name of the failing instruction; empty if the whole module fails."""


Shapes = tuple[ArrayShape, ...]
Sizes = Sequence["Node | None"]
"""The size of a bounded array in each dimension; None where a dimension is static."""
Attributes = tuple[tuple[str, str], ...]


@dataclass(eq=False, slots=True)
class Node:
    """A value: an array, or all results of an operation with several."""

    number: int
    """Equal numbers of one `Nodes` are equal values, given equal parameters."""
    opcode: str
    shapes: Shapes
    """One shape, without a layout; several for an operation with several results."""
    operands: tuple[Node, ...]
    attributes: Attributes
    called: tuple[tuple[str, Graph], ...]
    """The computations it calls, each with its attribute."""
    literal: AnyArray | None = field(default=None, repr=False)
    """The value of a constant."""
    sizes: Sizes = ()
    """Empty for an array that is not bounded."""

    @property
    def shape(self) -> ArrayShape:
        """The shape of the only result."""
        return self.shapes[0]

    def integers(self, name: str) -> tuple[int, ...]:
        """The integers of an attribute: of `dimensions={1,0}` 1 and 0; none if it has none."""
        return read_index(dict(self.attributes).get(name, "").strip("{} "))


@dataclass(eq=False, slots=True)
class Graph:
    """A computation: parameters, and the nodes that are its results."""

    number: int
    parameters: Shapes
    roots: tuple[Node, ...]
    takes_tuple: bool
    """True if the parameters are elements of a tuple, as in a loop's body."""
    gives_tuple: bool
    """True if the results are elements of a tuple, even a single result."""


T = TypeVar("T")
Tree: TypeAlias = "T | tuple[Tree[T], ...] | None"
"""An array, a tuple, or None for a token."""
LoweredValue: TypeAlias = "Tree[Node]"


class Nodes:
    """Makes nodes, and returns the existing node of an equal value."""

    def __init__(self, deadline: Deadline | None = None) -> None:
        self._deadline = deadline or Deadline()
        self._numbering = ValueNumbering()
        self._nodes: list[Node] = []
        self._graph_numbering = ValueNumbering()
        self._graphs: list[Graph] = []
        self.has_bounded = False
        """True once an array had a size that is known at run time."""
        self.asked = 0
        """The number of nodes requested by the program being lowered."""
        self.made: list[Node] = []
        """The nodes requested by the instructions being lowered, innermost last."""

    def make(
        self,
        opcode: str,
        shapes: ArrayShape | Shapes,
        operands: Sequence[Node] = (),
        attributes: Attributes = (),
        called: tuple[tuple[str, Graph], ...] = (),
        literal: AnyArray | None = None,
    ) -> Node:
        """The node of an operation; a constant has a literal."""
        if isinstance(shapes, ArrayShape):
            shapes = (shapes,)
        operands = tuple(operands)
        key = (
            opcode,
            shapes,
            tuple(operand.number for operand in operands),
            attributes,
            tuple((name, graph.number) for name, graph in called),
            literal is not None and literal.tobytes(),
        )
        number = self._numbering.number(key)
        if number == len(self._nodes):
            node = Node(number, opcode, shapes, operands, attributes, called, literal)
            self._nodes.append(node)
        node = self._nodes[number]
        self.made.append(node)
        self.asked += 1
        if not self.asked % 512:
            self._deadline.check()
        if self.asked > MAX_NODES:
            raise NotLowered(f"it has more than {MAX_NODES} operations when calls are inlined")
        return node

    def graph(
        self,
        parameters: Shapes,
        roots: Sequence[Node],
        *,
        takes_tuple: bool = False,
        gives_tuple: bool = False,
    ) -> Graph:
        """A computation, or the existing computation with equal parameters and results."""
        roots = tuple(roots)
        gives_tuple = gives_tuple or len(roots) != 1
        key = (parameters, tuple(root.number for root in roots), takes_tuple, gives_tuple)
        number = self._graph_numbering.number(key)
        if number == len(self._graphs):
            self._graphs.append(Graph(number, parameters, roots, takes_tuple, gives_tuple))
        return self._graphs[number]

    def parameter(self, number: int, shape: ArrayShape) -> Node:
        """A parameter, shared by all computations that read this number and shape."""
        return self.make("parameter", shape, attributes=(("", str(number)),))

    def constant(self, literal: AnyArray, dtype: str) -> Node:
        """A constant, or a broadcast scalar if all elements are equal."""
        shape = ArrayShape(dtype, literal.shape)
        data = literal.tobytes()
        size = literal.dtype.itemsize
        if literal.ndim and literal.size and data == data[:size] * literal.size:
            scalar = self.constant(literal.reshape(-1)[0][()].reshape(()), dtype)
            return self.broadcast(scalar, shape.dims)
        return self.make("constant", shape, literal=literal)

    def scalar(self, number: float, dtype: str) -> Node:
        """A scalar constant."""
        import numpy as np

        return self.constant(np.asarray(number).astype(numpy_dtype(dtype)), dtype)

    # ---- operations that return their operand where they change nothing

    def elements(self, node: Node) -> list[Node]:
        """The results of an operation with several."""
        return [
            self.make("get-tuple-element", shape, (node,), (("index", str(number)),))
            for number, shape in enumerate(node.shapes)
        ]

    def reshape(self, node: Node, dims: tuple[int, ...]) -> Node:
        """A reshape of an array; reshapes of reshapes are merged."""
        if node.opcode == "reshape":  # its operand is not a reshape: all are made here
            node = node.operands[0]
        if node.shape.dims == dims:
            return node
        if prod(node.shape.dims) != prod(dims):
            raise NotLowered(f"a reshape of {node.shape} to {list(dims)} changes the element count")
        return self.make("reshape", ArrayShape(node.shape.dtype, dims), (node,))

    def transpose(self, node: Node, permutation: Sequence[int]) -> Node:
        """A transpose, or a reshape if only dimensions of size 1 move."""
        permutation = tuple(permutation)
        dims = tuple(node.shape.dims[axis] for axis in permutation)
        moved = [axis for axis in permutation if node.shape.dims[axis] != 1]
        if moved == sorted(moved):
            return self.reshape(node, dims)
        if node.opcode == "transpose":
            inner = node.integers("dimensions")
            return self.transpose(node.operands[0], [inner[axis] for axis in permutation])
        order = (("dimensions", spelled_index(permutation)),)
        return self.make("transpose", ArrayShape(node.shape.dtype, dims), (node,), order)

    def broadcast(self, node: Node, dims: tuple[int, ...], dimensions: Sequence[int] = ()) -> Node:
        """The array repeated; `dimensions` maps its dimensions to those of the result."""
        if node.shape.dims == dims and tuple(dimensions) == tuple(range(len(dims))):
            return node
        places = (("dimensions", spelled_index(dimensions)),)
        return self.make("broadcast", ArrayShape(node.shape.dtype, dims), (node,), places)

    def filled(self, number: float, shape: ArrayShape) -> Node:
        """An array with all elements equal to a number."""
        return self._repeated(number, shape)

    def convert(self, node: Node, dtype: str) -> Node:
        """The elements converted to another type."""
        if node.shape.dtype == dtype:
            return node
        return self.make("convert", ArrayShape(dtype, node.shape.dims), (node,))

    def bitcast_convert(self, node: Node, shape: ArrayShape) -> Node:
        """The bits of the elements as elements of another type."""
        return node if node.shape == shape else self.make("bitcast-convert", shape, (node,))

    def binary(self, opcode: str, left: Node, right: Node | float) -> Node:
        """An elementwise operation on arrays of equal shape; a scalar on the right is repeated."""
        return self.make(opcode, left.shape, (left, self._repeated(right, left.shape)))

    def _repeated(self, node: Node | float, shape: ArrayShape) -> Node:
        """A scalar or a number in all elements of an array; another array as it is."""
        node = node if isinstance(node, Node) else self.scalar(node, shape.dtype)
        return node if node.shape.dims else self.broadcast(node, shape.dims)

    def iota(self, dtype: str, dims: tuple[int, ...], axis: int) -> Node:
        """An array whose elements are their indices along a dimension."""
        return self.make("iota", ArrayShape(dtype, dims), (), (("iota_dimension", str(axis)),))

    def compare(self, left: Node, right: Node | float, direction: str) -> Node:
        """A comparison of arrays of equal shape; a scalar on the right is repeated."""
        operands = left, self._repeated(right, left.shape)
        shape = ArrayShape("pred", left.shape.dims)
        return self.make("compare", shape, operands, (("direction", direction),))

    def select(self, chosen: Node, on_true: Node, on_false: Node) -> Node:
        """The elements of one of two arrays of equal shape."""
        return self.make("select", on_true.shape, (chosen, on_true, on_false))

    def dynamic_slice(self, node: Node, starts: Sequence[Node], sizes: Sequence[int]) -> Node:
        """A slice of some sizes from computed indices on."""
        shape = ArrayShape(node.shape.dtype, tuple(sizes))
        kept = (("dynamic_slice_sizes", spelled_index(sizes)),)
        return self.make("dynamic-slice", shape, (node, *starts), kept)

    def dot(
        self,
        left: Node,
        right: Node,
        dtype: str,
        batch: Sequence[tuple[int, int]],
        contracting: Sequence[tuple[int, int]],
    ) -> Node:
        """A product of arrays over pairs of dimensions."""
        sides = []
        attributes = []
        for number, (name, node) in enumerate((("lhs", left), ("rhs", right))):
            shared, summed = ([pair[number] for pair in pairs] for pairs in (batch, contracting))
            attributes += [(f"{name}_batch_dims", shared), (f"{name}_contracting_dims", summed)]
            sides.append([axis for axis in range(node.shape.rank) if axis not in shared + summed])
        dims = [left.shape.dims[axis] for axis in [axis for axis, _ in batch] + sides[0]]
        dims += [right.shape.dims[axis] for axis in sides[1]]
        kept = tuple((name, spelled_index(axes)) for name, axes in attributes if axes)
        return self.make("dot", ArrayShape(dtype, tuple(dims)), (left, right), kept)

    def unary(self, opcode: str, node: Node) -> Node:
        """An elementwise operation that keeps the type."""
        return self.make(opcode, node.shape, (node,))

    def reduced(self, node: Node, opcode: str, first: float) -> Node:
        """A reduction over all dimensions; `first` is the neutral element."""
        if not node.shape.dims:
            return node
        dtype = node.shape.dtype
        called = (("to_apply", self.combiner(opcode, dtype)),)
        dimensions = (("dimensions", spelled_index(range(node.shape.rank))),)
        operands = node, self.scalar(first, dtype)
        return self.make("reduce", ArrayShape(dtype, ()), operands, dimensions, called)

    def combiner(self, opcode: str, dtype: str) -> Graph:
        """The computation of a reduction by a binary operation."""
        scalar = ArrayShape(dtype, ())
        left, right = (self.parameter(number, scalar) for number in range(2))
        return self.graph((scalar, scalar), [self.binary(opcode, left, right)])

    def slice(
        self, node: Node, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int] = ()
    ) -> Node:
        """A slice of an array from `starts` to `limits`, with optional strides."""
        every = strides or [1] * len(starts)
        parts = list(zip(starts, limits, every, strict=True))
        dims = tuple(-((start - limit) // stride) for start, limit, stride in parts)
        if dims == node.shape.dims:
            return node
        ranges = ", ".join(
            f"[{start}:{limit}{f':{stride}' * (stride > 1)}]" for start, limit, stride in parts
        )
        shape = ArrayShape(node.shape.dtype, dims)
        return self.make("slice", shape, (node,), (("slice", "{" + ranges + "}"),))

    def scalars(self, node: Node) -> list[Node]:
        """The elements of a vector as scalars."""
        return [
            self.reshape(self.slice(node, [index], [index + 1]), ())
            for index in range(node.shape.dims[0])
        ]

    def pad(self, node: Node, filler: Node, paddings: Sequence[Padding]) -> Node:
        """The array padded with a scalar; negative padding removes elements."""
        dims = tuple(
            max(padding.low, 0) + size + max(size - 1, 0) * padding.interior + max(padding.high, 0)
            for size, padding in zip(node.shape.dims, paddings, strict=True)
        )
        if dims != node.shape.dims:
            spelled = (
                f"{max(padding.low, 0)}_{max(padding.high, 0)}"
                + f"_{padding.interior}" * bool(padding.interior)
                for padding in paddings
            )
            shape = ArrayShape(node.shape.dtype, dims)
            node = self.make("pad", shape, (node, filler), (("padding", "x".join(spelled)),))
        starts = [max(-padding.low, 0) for padding in paddings]
        ends = [max(-padding.high, 0) for padding in paddings]
        return self.slice(node, starts, [size - end for size, end in zip(dims, ends, strict=True)])

    def padded(self, node: Node, dims: tuple[int, ...], number: float = 0) -> Node:
        """The array with a number after its elements in each dimension."""
        sizes = zip(dims, node.shape.dims, strict=True)
        paddings = [Padding(0, size - own) for size, own in sizes]
        return self.pad(node, self.scalar(number, node.shape.dtype), paddings)

    def concatenate(self, parts: Sequence[Node], axis: int) -> Node:
        """Arrays concatenated along a dimension."""
        if len(parts) == 1:
            return parts[0]
        dims = list(parts[0].shape.dims)
        dims[axis] = sum(part.shape.dims[axis] for part in parts)
        shape = ArrayShape(parts[0].shape.dtype, tuple(dims))
        return self.make("concatenate", shape, parts, (("dimensions", spelled_index([axis])),))


def leaf_nodes(value: LoweredValue) -> Iterator[Node]:
    """The arrays in a value, in order."""
    if isinstance(value, tuple):
        for part in value:
            yield from leaf_nodes(part)
    elif value is not None:
        yield value


def with_leaves(value: LoweredValue, leaves: Iterator[T]) -> Tree[T]:
    """A value with other arrays in it."""
    if isinstance(value, tuple):
        return tuple([with_leaves(part, leaves) for part in value])
    return None if value is None else next(leaves)


def bare(shape: Shape) -> Iterator[ArrayShape]:
    """The arrays in a shape without their layouts, in order.

    Raises:
        NotLowered: an array has a dimension that is known at run time only.
    """
    match shape:
        case TupleShape(elements):
            for element in elements:
                yield from bare(element)
        case ArrayShape(dtype, dims, _, dynamic):
            if any(dynamic) or min(dims, default=0) < 0:
                raise NotLowered(f"{shape} has a size that is known at run time only")
            yield ArrayShape(dtype, dims)
        case BufferShape(element):
            yield from bare(element)  # between `Pin` and `Unpin` a buffer has a single value


def assembled(shape: Shape, leaves: Iterator[Node]) -> LoweredValue:
    """A value of a shape from its arrays.

    Raises:
        NotLowered: there are fewer arrays than in the shape.
    """
    match shape:
        case TupleShape(elements):
            return tuple([assembled(element, leaves) for element in elements])
        case OpaqueShape():
            return None
        case _:
            for leaf in leaves:
                return leaf
            raise NotLowered("it has fewer results than its type says")


def element_of(value: LoweredValue, index: Sequence[int]) -> LoweredValue:
    """The element of a nested tuple at an index."""
    for number in index:
        if not isinstance(value, tuple) or number >= len(value):
            raise NotLowered("an element of a non-tuple is read, or its index is too large")
        value = value[number]
    return value


def nodes_in_order(roots: Iterable[Node]) -> list[Node]:
    """The roots and all nodes that they depend on, operands first."""
    return operands_first(roots, lambda node: node.operands)
