"""Loops of known trip count, and the integers that index computations give in their iterations.

From the annotations of a loop an index is computed by running its instructions, through fusions,
calls, async starts and values that the loop carries. Whatever is not followed is None.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import islice
from operator import mul
from typing import NamedTuple

from hlo_lint.analysis.calls import calls_of
from hlo_lint.analysis.loops import COMPARISONS, read_loop
from hlo_lint.hlo.attributes import Slice
from hlo_lint.hlo.ir import Computation, Instruction, Module, Operand
from hlo_lint.hlo.shape import ArrayShape, Index
from hlo_lint.text.source import whole_number

MAX_CONTEXTS = 64
"""Contexts of one computation that are looked at; a nest of three loops has 16."""
MAX_STEPS = 2000
"""Instructions that are run for one value."""
MAX_REPLAY = 4
"""Iterations replayed for a carried value that is not the induction variable."""

_CALLERS = ("fusion", "call", "async-start", "while")


class Context(NamedTuple):
    """One way into a computation: a call site, and the iteration if that is a while."""

    call: Instruction
    iteration: int
    caller: Context | None
    """The context of the call's own computation; None for the entry computation."""

    @property
    def loops(self) -> Iterator[Context]:
        """The contexts of the enclosing loops, innermost first."""
        context: Context | None = self
        while context is not None:
            if context.call.opcode == "while":
                yield context
            context = context.caller


class LoopValues:
    """Runs the scalar integer instructions of one module."""

    def __init__(self, module: Module) -> None:
        self._computations = {part.name: part for part in module.computations}
        self._entry = module.entry
        self._callers: dict[str, list[Instruction]] = defaultdict(list)
        for computation in module.computations:
            if computation.opcodes.isdisjoint(_CALLERS):
                continue
            for opcode in _CALLERS:
                for call in computation.with_opcode(opcode):
                    body = self._body(call)
                    if body is not None:
                        self._callers[body.name].append(call)

    def contexts(self, computation: Computation) -> Iterator[Context | None]:
        """The ways into a computation: iterations 0, 1, 2 and the last of each enclosing loop.

        Ways through a loop of unknown trip count are left out.
        """
        return islice(self._contexts(computation, 0), MAX_CONTEXTS)

    def _contexts(self, computation: Computation, depth: int) -> Iterator[Context | None]:
        if computation is self._entry:
            yield None
            return
        if depth > 32:
            return  # recursion, which XLA refuses
        for call in self._callers.get(computation.name, ()):
            iterations = [0]
            if call.opcode == "while":
                loop = read_loop(call)
                if loop is None or loop.trip_count < 1:
                    continue
                last = loop.trip_count - 1
                # Offset and stride show in the first three; the last one meets the bounds.
                iterations = sorted({0, min(1, last), min(2, last), last})
            for caller in self._contexts(call.computation, depth + 1):
                for iteration in iterations:
                    yield Context(call, iteration, caller)

    def value(self, operand: Operand, context: Context | None) -> int | None:
        """The integer that an operand is in a context; None if that is unknown."""
        run = _Run(self._body)
        return run.operand(operand, (), context)

    def slice_offsets(self, instruction: Instruction) -> Iterator[tuple[Context | None, int]]:
        """The byte in its array at which a slice begins, in each context where that is known.

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
                yield None, sum(map(mul, starts, strides))
            return
        if len(operands) - first != sliced.rank:
            return
        # XLA clamps a start to 0 … size - slice, so any index is right where the limit is 0.
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
            name = call.attributes.get("body", "").strip().removeprefix("%")
        else:
            names = calls_of(call.computation).get(call.number, ())
            name = names[0] if len(names) == 1 else ""
        return self._computations.get(name)


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


class _Run:
    """One value, with what was computed on the way to it."""

    def __init__(self, body: Callable[[Instruction], Computation | None]) -> None:
        self._body = body
        self._values: dict[tuple[Instruction, Index, Context | None], int | None] = {}
        self._left = MAX_STEPS

    def operand(self, operand: Operand, path: Index, context: Context | None) -> int | None:
        if operand.instruction is None:
            return None
        path = (*operand.index, *path)
        key = operand.instruction, path, context
        if key not in self._values:
            self._values[key] = None  # a cycle is unknown
            self._left -= 1
            if self._left < 0:
                return None
            self._values[key] = self._instruction(operand.instruction, path, context)
        return self._values[key]

    def _instruction(
        self, instruction: Instruction, path: Index, context: Context | None
    ) -> int | None:
        operands = instruction.operands
        match instruction.opcode:
            case "parameter":
                return self._parameter(instruction, path, context)
            case "tuple" if path and path[0] < len(operands):
                return self.operand(operands[path[0]], path[1:], context)
            case "get-tuple-element" if operands:
                number = instruction.tuple_index
                if number is None:
                    return None
                return self.operand(operands[0], (number, *path), context)
            case "copy" | "bitcast" | "reshape" | "opt-barrier" | "copy-done" if operands:
                return self.operand(operands[0], path, context)
            case "copy-start" if operands and path in ((), (0,)):
                return self.operand(operands[0], (), context)
            case "async-done" if operands and operands[0].instruction is not None:
                start = operands[0].instruction
                return self._result(start, path, context) if start.opcode == "async-start" else None
            case "fusion" | "call":
                return self._result(instruction, path, context)
            case "constant":
                return _constant(instruction)
        if path or not operands:
            return None
        values = []
        for operand in operands:
            value = self.operand(operand, (), context)
            if value is None:
                return None
            values.append(value)
        return _fitting(instruction, _computed(instruction, values))

    def _result(self, call: Instruction, path: Index, context: Context | None) -> int | None:
        body = self._body(call)
        if body is None or body.root is None:
            return None
        return self.operand(Operand(body.root.name, (), body.root), path, Context(call, 0, context))

    def _parameter(
        self, parameter: Instruction, path: Index, context: Context | None
    ) -> int | None:
        at = parameter.parameter_number
        if context is None or at is None:
            return None
        call, iteration, caller = context
        operands = call.operands
        if call.opcode != "while":
            return self.operand(operands[at], path, caller) if at < len(operands) else None
        loop = read_loop(call)
        if loop is not None and path == (loop.induction_variable,):
            return loop.init + iteration * loop.step
        root = parameter.computation.root
        if root is None or not operands:
            return None
        if iteration == 0 or _is_carried_unchanged(root, parameter, path):
            return self.operand(operands[0], path, caller)
        if iteration > MAX_REPLAY:
            return None
        # What the body gave back in the iteration before is what the parameter holds now.
        before = Context(call, iteration - 1, caller)
        return self.operand(Operand(root.name, (), root), path, before)


def _is_carried_unchanged(root: Instruction, parameter: Instruction, path: Index) -> bool:
    """True if every iteration hands on an element of the loop's tuple as it got it."""
    if root.opcode != "tuple" or len(path) != 1 or path[0] >= len(root.operand_names):
        return False
    operand = root.operands[path[0]]
    source, index = operand.instruction, operand.index
    if source is not None and source.opcode == "get-tuple-element" and not index:
        number = source.tuple_index
        index = () if number is None else (number,)
        first = source.operand(0)
        if first is None:
            return False
        source, index = first.instruction, (*first.index, *index)
    return source is parameter and index == path


def _constant(instruction: Instruction) -> int | None:
    text = instruction.operands_text.strip()
    if text in ("true", "false"):
        return int(text == "true")
    shape = instruction.shape_or_none
    is_scalar = isinstance(shape, ArrayShape) and shape.elements == 1
    return whole_number(text) if is_scalar else None


def _computed(instruction: Instruction, values: list[int]) -> int | None:
    """The result of an arithmetic instruction on integers."""
    match instruction.opcode, values:
        case "convert", [value]:
            return value
        case "negate", [value]:
            return -value
        case "abs", [value]:
            return abs(value)
        case "add", [left, right]:
            return left + right
        case "subtract", [left, right]:
            return left - right
        case "multiply", [left, right]:
            return left * right
        case "minimum", [left, right]:
            return min(left, right)
        case "maximum", [left, right]:
            return max(left, right)
        case "clamp", [low, value, high]:
            return min(max(value, low), high)
        case "select", [condition, left, right]:
            return left if condition else right
        case "and", [left, right]:
            return left & right
        case "or", [left, right]:
            return left | right
        # XLA divides towards zero as C does; Python's // rounds down.
        case "divide", [left, right] if right:
            return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        case "remainder", [left, right] if right:
            return abs(left) % abs(right) * (-1 if left < 0 else 1)  # the sign of the dividend
        case "compare", [left, right]:
            relation = COMPARISONS.get(instruction.attributes.get("direction", ""))
            return None if relation is None else int(relation(left, right))
    return None


_RANGES = {
    "pred": (0, 1),
    **{f"s{bits}": (-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"u{bits}": (0, (1 << bits) - 1) for bits in (8, 16, 32, 64)},
}


def _fitting(instruction: Instruction, value: int | None) -> int | None:
    """The value if the result's type holds it: what wraps around is not followed."""
    shape = instruction.shape_or_none
    if value is None or not isinstance(shape, ArrayShape) or shape.elements != 1:
        return None
    low, high = _RANGES.get(shape.dtype, (1, 0))
    return value if low <= value <= high else None
