"""Integers that index computations yield in the iterations of loops with known trip counts.

An index is computed from the annotations of a loop by running its instructions, through fusions,
calls, async starts and loop-carried values. It is None if the walk fails.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from hlo_lint.analysis.calls import callee_name, calls_of
from hlo_lint.analysis.grouping import by_key
from hlo_lint.analysis.loops import COMPARISONS, read_loop, state_element
from hlo_lint.analysis.walks import chain, operands_first, reached
from hlo_lint.hlo.attributes.plain import Slice
from hlo_lint.hlo.dtypes import integer_range, is_integer
from hlo_lint.hlo.ir import Computation, Instruction, Module, Operand
from hlo_lint.hlo.opcodes import SAME_ELEMENTS
from hlo_lint.hlo.shape import ArrayShape, Index
from hlo_lint.text.source import whole_number

MAX_CONTEXTS = 64
"""The largest number of contexts per computation; a nest of three loops has 16."""
MAX_WAYS = 1000
"""The largest number of call chains from a computation outwards, complete or partial."""
MAX_STEPS = 2000
"""The largest number of instructions that are run for a value."""
MAX_REPLAY = 4
"""Iterations replayed for a carried value that is not the induction variable."""

_CALLERS = ("fusion", "call", "async-start", "while")


class Context(NamedTuple):
    """A way into a computation: a call site, and the iteration if that is a while."""

    call: Instruction
    iteration: int
    caller: Context | None
    """The context of the computation with the call; None for the entry computation."""


def loops_around(context: Context | None) -> Sequence[Context]:
    """The contexts of the enclosing loops, innermost first."""
    contexts = chain(context, attrgetter("caller"))
    return [context for context in contexts if context.call.opcode == "while"]


def in_iteration(context: Context | None) -> str:
    """` in iteration 3 of %while`, of the innermost loop; empty outside of loops."""
    loops = loops_around(context)
    return f" in iteration {loops[0].iteration} of %{loops[0].call.name}" if loops else ""


def _iterations(call: Instruction) -> Sequence[int]:
    """The sampled iterations of a loop; empty if its trip count is unknown."""
    if call.opcode != "while":
        return (0,)
    loop = read_loop(call)
    if loop is None or loop.trip_count < 1:
        return ()
    last = loop.trip_count - 1
    # The first three show offset and stride; the last meets the bounds.
    return sorted({0, min(1, last), min(2, last), last})


class LoopValues:
    """Runs the scalar integer instructions of a module."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._entry = module.entry
        self._callers = by_key(
            (body.name, call)
            for computation in module.computations
            for opcode in _CALLERS
            for call in computation.with_opcode(opcode)
            if (body := self._body(call)) is not None
        )

    def contexts(self, computation: Computation) -> Iterator[Context | None]:
        """The ways into a computation: iterations 0, 1, 2 and the last of each enclosing loop.

        Ways through a loop of unknown trip count are left out.
        """

        def outwards(way: tuple[Instruction, ...]) -> Iterator[tuple[Instruction, ...]]:
            inside = way[-1].computation if way else computation
            calls = () if inside is self._entry else self._callers.get(inside.name, ())
            return ((*way, call) for call in reversed(calls) if _iterations(call))

        here: tuple[Instruction, ...] = ()
        ways = islice(reached([here], outwards), MAX_WAYS)
        contexts = (context for way in ways for context in self._along(way, computation))
        return islice(contexts, MAX_CONTEXTS)

    def _along(
        self, way: tuple[Instruction, ...], computation: Computation
    ) -> Sequence[Context | None]:
        """The contexts of a chain of calls, innermost first; empty if it misses the entry."""
        if (way[-1].computation if way else computation) is not self._entry:
            return ()
        contexts: list[Context | None] = [None]
        for call in reversed(way):
            iterations = _iterations(call)
            contexts = [
                Context(call, iteration, caller) for caller in contexts for iteration in iterations
            ]
            del contexts[MAX_CONTEXTS:]
        return contexts

    def value(
        self,
        operand: Operand,
        context: Context | None,
        ids: Mapping[str, int] = MappingProxyType({}),
    ) -> int | None:
        """The integer that an operand is in a context; None if that is unknown.

        `ids` are the values of `partition-id` and `replica-id`.
        """
        return _Run(self._body, ids).value(operand, context)

    def slice_offsets(self, instruction: Instruction) -> Iterator[tuple[Context | None, int]]:
        """The byte offset of a slice in its array, in each context where it is known.

        XLA clamps the indices of dynamic slices; contexts with an index out of bounds are left
        out.
        """
        operands = instruction.operands
        first = 2 if instruction.opcode == "dynamic-update-slice" else 1
        sliced = instruction.operand_shape(0)
        part = instruction.operand_shape(1) if first == 2 else instruction.shape_or_none
        if not isinstance(sliced, ArrayShape) or not isinstance(part, ArrayShape):
            return
        strides = byte_strides(sliced)
        if strides is None or sliced.rank != part.rank:
            return
        if instruction.opcode == "slice":
            bounds = instruction.attribute_or_none("slice")
            if isinstance(bounds, tuple) and len(bounds) == sliced.rank:
                starts = [bound.start for bound in bounds if isinstance(bound, Slice)]
                yield None, sum(map(operator.mul, starts, strides))
            return
        if len(operands) - first != sliced.rank:
            return
        # XLA clamps a start to 0 … size - slice, so any index is right if the limit is 0.
        limits = [size - taken for size, taken in zip(sliced.dims, part.dims, strict=True)]
        for context in self.contexts(instruction.computation):
            offset = 0
            for operand, limit, stride in zip(operands[first:], limits, strides, strict=True):
                index = self.value(operand, context) if limit else 0
                if index is None or not 0 <= index <= limit:
                    break
                offset += index * stride
            else:
                yield context, offset

    def _body(self, call: Instruction) -> Computation | None:
        if call.opcode == "while":
            name = callee_name(call, "body") or ""
        else:
            names = calls_of(call.computation).get(call.number, ())
            name = names[0] if len(names) == 1 else ""
        return self._module.computation(name)


def byte_strides(shape: ArrayShape) -> list[int] | None:
    """Bytes between neighbours along each dimension; None for tiled or packed layouts."""
    bits = shape.element_bits
    if bits is None or bits % 8 or not shape.has_valid_layout:
        return None
    if shape.layout is not None and shape.layout.tiles:
        return None
    strides, size = [0] * shape.rank, bits // 8
    for dimension in shape.minor_to_major:
        strides[dimension] = size
        size *= shape.dims[dimension]
    return strides


_Place: TypeAlias = tuple[Instruction, Index, Context | None]
"""A part of a result in a context."""
_HANDS_ON: Final = SAME_ELEMENTS.union(
    "async-done call copy-start fusion get-tuple-element parameter tuple".split()
)


class _Run:
    """The computation of a value, with its intermediate values."""

    def __init__(
        self, body: Callable[[Instruction], Computation | None], ids: Mapping[str, int]
    ) -> None:
        self._body, self._ids = body, ids
        self._read: dict[_Place, Sequence[_Place | None]] = {}

    def value(self, operand: Operand, context: Context | None) -> int | None:
        """The integer that an operand is; None if that is unknown, or takes too many steps."""
        start = _place(operand, (), context)
        values: dict[_Place | None, int | None] = {}
        for place in () if start is None else operands_first([start], self._sources):
            instruction = place[0]
            numbers = [
                number for source in self._read[place] if (number := values.get(source)) is not None
            ]
            if instruction.opcode in self._ids:
                values[place] = self._ids[instruction.opcode]
            elif instruction.opcode in _HANDS_ON:
                values[place] = numbers[0] if numbers else _counted(place)
            elif instruction.opcode == "constant":
                values[place] = _constant(instruction)
            elif len(numbers) == len(self._read[place]):
                value = _computed(instruction, numbers)
                # Wrapped values are not followed. `None in range(…)` would go over the numbers.
                is_exact = value is not None and value in (_range(instruction) or ())
                values[place] = value if is_exact else None
        return values.get(start)

    def _sources(self, place: _Place) -> Iterable[_Place]:
        self._read[place] = () if len(self._read) > MAX_STEPS else tuple(self._needed(*place))
        return filter(None, self._read[place])

    def _needed(
        self, instruction: Instruction, path: Index, context: Context | None
    ) -> Iterator[_Place | None]:
        """The value that is passed on, or the operands of the computation."""
        opcode, first = instruction.opcode, instruction.operand(0)
        match opcode:
            case "parameter":
                yield self._argument(instruction, path, context)
            case "tuple" if path:
                yield _place(instruction.operand(path[0]), path[1:], context)
            case "get-tuple-element":
                number = instruction.tuple_index
                yield None if number is None else _place(first, (number, *path), context)
            case "copy-start":
                yield _place(first, (), context) if path in ((), (0,)) else None
            case "async-done":
                start = None if first is None else first.instruction
                if start is not None and start.opcode == "async-start":
                    yield self._result(start, path, context)
            case "fusion" | "call":
                yield self._result(instruction, path, context)
            case _ if opcode in SAME_ELEMENTS:
                yield _place(first, path, context)
            case _ if not path and _range(instruction) is not None:
                for operand in instruction.operands:
                    yield _place(operand, (), context)

    def _result(self, call: Instruction, path: Index, context: Context | None) -> _Place | None:
        body = self._body(call)
        root = None if body is None else body.root
        return None if root is None else (root, path, Context(call, 0, context))

    def _argument(
        self, parameter: Instruction, path: Index, context: Context | None
    ) -> _Place | None:
        number = parameter.parameter_number
        if context is None or number is None or _counted((parameter, path, context)) is not None:
            return None
        call, iteration, caller = context
        if call.opcode != "while":
            return _place(call.operand(number), path, caller)
        root = parameter.computation.root
        if root is None:
            return None
        is_carried = len(path) == 1 and root.opcode == "tuple"
        if iteration == 0 or (is_carried and state_element(root, path[0]) == path[0]):
            return _place(call.operand(0), path, caller)
        # The parameter holds the body's result of the previous iteration.
        before = Context(call, iteration - 1, caller)
        return (root, path, before) if iteration <= MAX_REPLAY else None


def _place(operand: Operand | None, path: Index, context: Context | None) -> _Place | None:
    if operand is None or operand.instruction is None:
        return None
    return operand.instruction, (*operand.shape_index, *path), context


def _counted(place: _Place) -> int | None:
    """The value of a loop's counter, by the loop's annotation."""
    instruction, path, context = place
    if instruction.opcode != "parameter" or context is None or context.call.opcode != "while":
        return None
    loop = read_loop(context.call)
    if loop is None or path != (loop.induction_variable,):
        return None
    return loop.init + context.iteration * loop.step


def _constant(instruction: Instruction) -> int | None:
    text = instruction.operands_text.strip()
    if text in ("true", "false"):
        return int(text == "true")
    shape = instruction.shape_or_none
    is_scalar = isinstance(shape, ArrayShape) and shape.elements == 1
    return whole_number(text) if is_scalar else None


_OPERATIONS: Final[Mapping[str, Callable[..., int]]] = {
    "convert": operator.pos,
    "negate": operator.neg,
    "abs": operator.abs,
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "minimum": min,
    "maximum": max,
    "and": operator.and_,
    "or": operator.or_,
}
"""The arithmetic of integers, by opcode."""
_UNARY: Final = ("convert", "negate", "abs")


def _computed(instruction: Instruction, values: list[int]) -> int | None:
    """The result of an arithmetic instruction on integers."""
    opcode = instruction.opcode
    if opcode in _OPERATIONS and len(values) == (1 if opcode in _UNARY else 2):
        return _OPERATIONS[opcode](*values)
    match opcode, values:
        case "not", [value] if instruction.type_text.startswith("pred"):
            return 1 - value
        case "clamp", [low, value, high]:
            return min(max(value, low), high)
        case "select", [condition, left, right]:
            return left if condition else right
        # XLA divides towards zero as C does; Python's // rounds down.
        case "divide", [left, right] if right:
            return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        case "remainder", [left, right] if right:
            return abs(left) % abs(right) * (-1 if left < 0 else 1)  # the sign of the dividend
        case "compare", [left, right]:
            relation = COMPARISONS.get(instruction.attributes.get("direction", ""))
            return None if relation is None else int(relation(left, right))
    return None


def _range(instruction: Instruction) -> range | None:
    """The numbers of a scalar's type; None for other results."""
    shape = instruction.shape_or_none
    if not isinstance(shape, ArrayShape) or shape.elements != 1:
        return None
    if shape.dtype == "pred":
        return range(2)
    return integer_range(shape.dtype) if is_integer(shape.dtype) else None
