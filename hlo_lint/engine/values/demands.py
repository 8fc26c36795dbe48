"""The numbers at which a program decides, wraps, rounds or reaches beyond an array.

The walk goes from each operation that does so back to the parameters, and inverts the arithmetic
with constants on the way: `x * 3 + 1 == 22` asks for an `x` of 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from math import exp, inf, isfinite, isnan, log, nan, sqrt
from operator import add, mul, neg, sub
from typing import TYPE_CHECKING, Final

from hlo_lint.engine.values.inputs import ends_of
from hlo_lint.engine.values.lowering.graph import Node, nodes_in_order
from hlo_lint.hlo.dtypes import BITS, ELEMENT_TYPES, is_float, is_integer
from hlo_lint.hlo.shape import read_index
from hlo_lint.text.source import whole_number

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.graph import Graph

MAX_NUMBERS: Final = 48
"""The most numbers that an operand is asked for."""
MAX_LITERAL: Final = 16
"""The most elements of a constant whose numbers count: a larger constant is a table."""
_MOVING: Final = frozenset("broadcast concatenate copy pad reshape reverse slice transpose".split())
"""Opcodes whose results hold elements of all operands."""
_LIKE: Final = _MOVING | set("bounded clamp dot maximum minimum reduce reduce-window".split())
"""Opcodes whose results may equal an element of any operand."""
_HELD: Final = _MOVING | {"convert", "clamp", "maximum", "minimum", "select"}
"""Opcodes through which the numbers of constants are followed."""

_CARRYING: Final = frozenset(
    "broadcast convert copy multiply negate reduce-precision reshape reverse transpose".split()
)
"""Opcodes that keep which elements are 0, but for their order."""

_FOLDED: Final[Mapping[str, Callable[..., float]]] = {
    "add": add,
    "subtract": sub,
    "multiply": mul,
    "negate": neg,
}

Numbers = Mapping[float, None]
"""A set of numbers in the order in which they were asked for."""


@dataclass(frozen=True, slots=True)
class Addends:
    """The elements of a parameter that an operation sums."""

    dims: tuple[int, ...]
    """The dimensions of the operand of the sum."""
    axes: tuple[int, ...]
    """Those that are summed over."""
    path: tuple[Node, ...] = ()
    """The operations between the sum and the parameter, the nearest to the parameter last."""


SUMMED: Final = 2
"""The use of a parameter whose own elements are summed."""


@dataclass
class Demands:
    """The numbers wanted of each parameter of a graph."""

    numbers: dict[int, dict[float, None]] = field(default_factory=dict)
    """By the number of the parameter."""
    counts: set[int] = field(default_factory=set)
    """The parameters that decide how often a loop runs."""
    addends: dict[int, dict[int, Addends]] = field(default_factory=dict)
    """The sums of elements of a parameter, by the side of the product that it is, 0 or 1, or by
    `SUMMED`."""


def demands(
    graph: Graph, given: Mapping[int, tuple[float, ...]] | None = None, counts: Iterable[int] = ()
) -> Demands:
    """The numbers wanted of the parameters of a graph.

    `given` holds the numbers of parameters that begin as constants, `counts` the results that
    decide how often a loop runs.
    """
    nodes = nodes_in_order(graph.roots)
    held, moved = _held(nodes, given or {}), _moved(nodes)
    result = Demands()
    wants: dict[int, list[Iterable[float]]] = {}
    addends: dict[int, dict[int, Addends]] = {}
    counted = {graph.roots[number].number for number in counts}
    parts: dict[int, set[int]] = {}  # the results of a loop that are counted
    for node in reversed(nodes):
        asked, sums = _fair(wants.pop(node.number, ()), node), addends.pop(node.number, {})
        if node.opcode == "parameter":
            number = int(node.attributes[0][1])
            result.numbers[number], result.addends[number] = asked, sums
            if node.number in counted:
                result.counts.add(number)
            continue
        if node.number in counted and node.opcode == "get-tuple-element":
            parts.setdefault(node.operands[0].number, set()).update(node.integers("index"))
        elif node.number in counted:
            counted.update(operand.number for operand in node.operands)
        for number, numbers in _asked(node, asked, held):
            wants.setdefault(node.operands[number].number, []).append(numbers)
        # The first sum in the order of the program stays: before it, the least is computed.
        for number, sides in _summed(node, sums, moved):
            addends.setdefault(node.operands[number].number, {}).update(sides)
        for number, callee in _called(node, held, parts.get(node.number, ())):
            for operand_number, numbers in callee.numbers.items():
                operand = node.operands[number + operand_number]
                wants.setdefault(operand.number, []).append(numbers)
                addends.setdefault(operand.number, {}).update(
                    callee.addends.get(operand_number, {})
                )
            counted.update(node.operands[number + count].number for count in callee.counts)
    return result


def _fair(wants: Sequence[Iterable[float]], node: Node) -> dict[float, None]:
    """The numbers that the type of a node can hold: of each use the first ones."""
    dtype = node.shapes[0].dtype
    low, high = ends_of(dtype) if is_integer(dtype) else (-inf, inf)
    result: dict[float, None] = {}
    for number in chain.from_iterable(zip_longest(*wants, fillvalue=nan)):
        if len(result) >= MAX_NUMBERS:
            break
        if low <= number <= high:  # not for a NaN
            result[int(number) if is_integer(dtype) else number] = None
    return result


# ---- the numbers of constants


def _held(
    nodes: Sequence[Node], given: Mapping[int, tuple[float, ...]]
) -> dict[int, tuple[float, ...]]:
    """The numbers in nodes that depend on no parameter, or on one with given numbers."""
    held: dict[int, tuple[float, ...]] = {}
    for node in nodes:
        if not (is_integer(node.shapes[0].dtype) or is_float(node.shapes[0].dtype)):
            continue
        sources = [held.get(operand.number) for operand in node.operands]
        if node.opcode == "parameter":
            number = int(node.attributes[0][1])
            if number in given:
                held[node.number] = given[number]
        elif node.opcode == "constant" and node.literal is not None:
            if node.literal.size <= MAX_LITERAL:
                convert = int if is_integer(node.shape.dtype) else float
                numbers = {convert(n): None for n in node.literal.ravel()}
                held[node.number] = tuple(n for n in numbers if not isnan(n))
        elif node.opcode == "iota":
            axis = whole_number(dict(node.attributes).get("iota_dimension", ""))
            if axis is not None and 0 <= axis < node.shape.rank:
                size = node.shape.dims[axis]
                held[node.number] = (0, size // 2, size - 1)
        elif node.opcode in _HELD and any(sources):
            numbers = {number: None for source in sources for number in source or ()}
            held[node.number] = tuple(numbers)[:MAX_LITERAL]
        elif node.opcode in _FOLDED and all(source and len(source) == 1 for source in sources):
            held[node.number] = (_FOLDED[node.opcode](*chain(*filter(None, sources))),)
    return held


# ---- the addends of sums


def _moved(nodes: Sequence[Node]) -> set[int]:
    """The nodes that hold elements of a parameter in another order or type."""
    moved: set[int] = set()
    for node in nodes:
        if node.opcode == "parameter" or (
            node.opcode in _CARRYING and any(operand.number in moved for operand in node.operands)
        ):
            moved.add(node.number)
    return moved


def _summed(
    node: Node, sums: Mapping[int, Addends], moved: Set[int]
) -> Iterator[tuple[int, dict[int, Addends]]]:
    """For the operands of a node, the sums of their elements; `sums` are those of its own."""
    if node.opcode in _CARRYING and sums:
        further = {side: replace(one, path=(*one.path, node)) for side, one in sums.items()}
        yield from ((number, further) for number in range(len(node.operands)))
    elif node.opcode in ("dot", "convolution"):
        axes = [node.integers("lhs_contracting_dims"), node.integers("rhs_contracting_dims")]
        if node.opcode == "convolution":
            kernel = dict(node.attributes)["dim_labels"].partition("_")[2].partition("->")[0]
            axes[1] = tuple(axis for axis, label in enumerate(kernel) if label != "o")
        for side, operand in enumerate(node.operands):
            if axes[side] and operand.number in moved:
                yield side, {side: Addends(operand.shape.dims, axes[side])}
    elif node.opcode == "reduce" and node.called[0][1].roots[0].opcode == "add":
        yield 0, {SUMMED: Addends(node.operands[0].shape.dims, node.integers("dimensions"))}


# ---- the numbers asked of operands


def _asked(
    node: Node, asked: Numbers, held: Mapping[int, tuple[float, ...]]
) -> Iterator[tuple[int, Iterable[float]]]:
    """For the operands of a node, the numbers at which it decides, or becomes one of `asked`."""
    operands = node.operands
    of = [held.get(operand.number, ()) for operand in operands]
    opcode = node.opcode
    if not operands:
        return
    first = operands[0].shapes[0].dtype
    match opcode:
        case "compare" | "clamp" | "maximum" | "minimum" | "remainder" | "sort":
            for number, operand in enumerate(operands):
                others = [of[other] for other in range(len(operands)) if other != number]
                yield number, near((n for other in others for n in other), operand.shape.dtype)
        case "dynamic-slice" | "dynamic-update-slice":
            is_update = opcode == "dynamic-update-slice"
            part = operands[1].shape if is_update else node.shape
            starts = enumerate(operands[1 + is_update :], 1 + is_update)
            dims = operands[0].shape.dims
            for (number, start), size, taken in zip(starts, dims, part.dims, strict=False):
                yield number, borders(size - taken, size, start.shape.dtype)
            yield from ((number, asked) for number in range(1 + is_update))
        case "gather" | "scatter":
            place = len(operands) // 2 if opcode == "scatter" else 1
            sizes = node.integers("slice_sizes")
            dims = operands[0].shape.dims
            key = "start_index_map" if opcode == "gather" else "scatter_dims_to_operand_dims"
            for axis in node.integers(key):
                if axis < len(dims):
                    last = dims[axis] - (sizes[axis] if axis < len(sizes) else 1)
                    yield place, borders(last, dims[axis], operands[place].shape.dtype)
            yield 0, asked
        case "multiply" | "divide":
            for number in range(2 if opcode == "multiply" else 1):
                constants = of[1 - number]
                if len(constants) == 1 and constants[0] and isfinite(constants[0]):
                    yield number, leaving(first, constants[0], opcode == "divide")
        case "conditional" if first != "pred":
            last = len(node.called) - 1
            yield 0, [*range(last + 1), *borders(last, last + 1, first)]
        case "shift-left" | "shift-right-arithmetic" | "shift-right-logical":
            bits = BITS[first]
            yield 1, (0, 1, bits - 1, bits, bits + 1, -1, 1 << 30)
        case "convert":
            yield 0, asked
            yield 0, [*rounding(node)]
            yield 0, [n + 0.5 for n in asked if is_float(first)]
        case "reduce" | "reduce-window":
            count = len(operands) // 2
            for number in range(count):
                firsts = of[number + count]
                # Beyond a first value by more than a new constant may be rounded.
                close = near(firsts, operands[number].shape.dtype)
                yield number, [*close, *(2 * n for n in firsts)]
    if opcode in _LIKE:
        for number in range(len(operands)):
            yield number, asked
    match opcode:
        case "select":
            yield 1, asked
            yield 2, asked
        case "multiply" if operands[0] is operands[1]:
            yield 0, [sign * sqrt(n) for n in asked if 0 <= n < 1e30 for sign in (1, -1)]
        case "add" | "subtract" | "multiply" | "divide" | "xor" | "and" | "or" | "remainder":
            for number in range(2):
                constants = of[1 - number]
                if len(constants) == 1:
                    results = (_inverse(opcode, number, n, constants[0]) for n in asked)
                    yield number, [*chain.from_iterable(results)]
                else:
                    # With the neutral element in the other operand, at first in the second one.
                    neutral = [float(opcode in ("multiply", "divide"))] if asked else []
                    yield number, [*neutral, *asked] if number else [*asked, *neutral]
        case "negate":
            yield 0, [-n for n in asked]
        case "not" if first != "pred":
            yield 0, [~int(n) for n in asked if isfinite(n)]
        case "abs":
            yield 0, [m for n in asked for m in (n, -n)]
        case "floor" | "ceil" | "round-nearest-even" | "round-nearest-afz":
            yield 0, [m for n in asked for m in (n, n - 0.5, n + 0.5)]
        case "exponential":
            yield 0, [log(n) for n in asked if 0 < n < inf]
        case "log":
            yield 0, [exp(n) for n in asked if abs(n) < 80]
        case "sqrt":
            yield 0, [n * n for n in asked if 0 <= n < 1e30]
        case "shift-left" | "shift-right-arithmetic" | "shift-right-logical" if len(of[1]) == 1:
            factor = 2 ** min(max(int(of[1][0]), 0), 63)
            whole = [int(n) for n in asked if isfinite(n)]
            yield 0, [n // factor if opcode == "shift-left" else n * factor for n in whole]


def _inverse(opcode: str, place: int, wanted: float, constant: float) -> Iterator[float]:
    """Operands with which an operation on them and a constant gives the wanted number."""
    if not (isfinite(wanted) and isfinite(constant)):
        return
    match opcode:
        case "add":
            yield wanted - constant
        case "subtract":
            yield wanted + constant if place == 0 else constant - wanted
        case "multiply" if constant:
            are_whole = isinstance(wanted, int) and isinstance(constant, int)
            yield wanted // constant if are_whole else wanted / constant
        case "divide" if place == 0:
            yield wanted * constant
        case "xor":
            yield int(wanted) ^ int(constant)
        case "and" | "or" | "remainder" if place == 0:
            yield wanted
            if opcode == "remainder":
                yield wanted + constant
                yield wanted - constant


def near(numbers: Iterable[float], dtype: str) -> list[float]:
    """The numbers, then their neighbours in a type."""
    import numpy as np

    numbers = list(numbers)
    steps = [number + step for step in (-1, 1) for number in numbers if abs(number) < 2**53]
    if is_integer(dtype):
        return [*numbers, *(n + step for step in (-1, 1) for n in numbers if isfinite(n))]
    if not is_float(dtype):
        return []
    unit = 2.0 ** (1 - ELEMENT_TYPES[dtype].significand_bits)
    beside = [
        float(number + sign * unit * np.abs(number) or sign * unit)
        for sign in (-1, 1)
        for number in numbers
        if isfinite(number)
    ]
    return [*numbers, *steps, *beside]


def leaving(dtype: str, factor: float, is_divisor: bool) -> Iterator[float]:
    """Numbers whose product with a factor is too large or too small for a type.

    For floats only those that are not extremes themselves.
    """
    if is_integer(dtype) and abs(factor) > 1 and not is_divisor:
        yield from (end // int(factor) + step for end in ends_of(dtype) for step in (-1, 1))
    elif is_float(dtype):
        facts, size = ELEMENT_TYPES[dtype], 1 / abs(factor) if is_divisor else abs(factor)
        root = 2.0 ** (facts.max_exponent // 2)
        largest = 2.0 ** min(facts.max_exponent + 1, 1023) / size
        smallest = 2.0 ** -min(facts.max_exponent + facts.significand_bits, 1022) / size
        yield from (n for n in (largest, -largest) if n < root)
        yield from (n for n in (smallest, -smallest) if n * root > 1)


def borders(last: int, size: int, dtype: str) -> tuple[int, ...]:
    """Indices at the last valid start, beside it, beyond the array and far from it."""
    low, high = ends_of(dtype)
    return tuple(dict.fromkeys((last + 1, -1, last, 0, last - 1, size, 1, -size, low, high)))


def rounding(node: Node) -> Iterator[float]:
    """Numbers that a conversion rounds, wraps or cannot represent."""
    source, target = node.operands[0].shape.dtype, node.shape.dtype
    if is_integer(target) and (is_integer(source) or is_float(source)):
        low, high = ends_of(target)
        yield from (high, high + 1, low, low - 1, 2 * high + 1, 2 * high + 2)
        if is_float(source):
            yield from (0.5, -0.5, 1.5, -1.5, 2.75)
    if is_float(target):
        facts = ELEMENT_TYPES[target]
        step = 1 << facts.significand_bits
        yield from (step, step + 1, -step - 1, 2 * step + 3)
        if is_float(source):
            yield from (1 + 0.75 / step, 1 + 1.5 / step, 0.1)
            # Beside the middle of two numbers, where rounding twice differs.
            least = 2.0 ** (1 - ELEMENT_TYPES[source].significand_bits)
            yield from (1 + 1 / step + least, 1 + 3 / step - least)
        if facts.max_exponent < 1000:
            yield 2.0**facts.max_exponent
            yield -(2.0**facts.max_exponent)


# ---- computations that a node calls


def _called(
    node: Node, held: Mapping[int, tuple[float, ...]], counted: Iterable[int]
) -> Iterator[tuple[int, Demands]]:
    """The demands of called computations, with the operand of their first parameter.

    Loops outside count the results `counted`.
    """
    graphs = dict(node.called)
    if node.opcode == "while" and "condition" in graphs and "body" in graphs:
        given = {
            number: held[operand.number]
            for number, operand in enumerate(node.operands)
            if operand.number in held
        }
        condition = demands(graphs["condition"], given, counts=(0,))
        yield 0, condition
        counts, body = condition.counts | {*counted}, condition
        for _ in range(2):
            body = demands(graphs["body"], given, counts)
            body.counts |= counts
            counts = body.counts
        # A counter reaches a number only if the loop runs as often.
        # A second turn reads what the first one computed.
        reached = [
            n
            for number in counts
            for demanded in (condition, body)
            for n in demanded.numbers.get(number, ())
        ]
        for number in counts:
            operand = node.operands[number]
            if is_integer(operand.shape.dtype):
                steps = [n + step for step in (0, 1) for n in reached if isfinite(n)]
                asked = _fair([body.numbers.get(number, ()), steps], operand)
                body.numbers[number] = asked
        yield 0, body
    elif node.opcode == "conditional":
        start = 1
        sizes = read_index(node.attributes[0][1].strip("{}"))
        for (_, graph), count in zip(node.called, sizes, strict=True):
            yield start, demands(graph)
            start += count
    elif node.opcode in ("map", "sort", "reduce", "reduce-window", "scatter"):
        for _, graph in node.called:
            callee = demands(graph)
            operands: dict[int, dict[float, None]] = {}
            count = max(len(graph.parameters) // 2, 1)
            for number, numbers in callee.numbers.items():
                places = {"sort": number // 2, "scatter": number + (number >= count)}
                places |= dict.fromkeys(("reduce", "reduce-window"), number % count)
                place = places.get(node.opcode, number)
                if place < len(node.operands):
                    operands.setdefault(place, {}).update(numbers)
            yield 0, Demands(operands)
