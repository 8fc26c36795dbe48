"""While loops: counters, trip counts, elements that iterations carry."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import Final, NamedTuple

from hlo_lint.analysis.buffers import ResultPart, operand_position, origins
from hlo_lint.analysis.calls import instructions_of
from hlo_lint.analysis.sequential_calls import sequential_calls
from hlo_lint.analysis.walks import chain
from hlo_lint.hlo.constants import number_of
from hlo_lint.hlo.dtypes import BITS
from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis
from hlo_lint.hlo.opcodes import SAME_ELEMENTS
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.text.source import whole_number

COMPARISONS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    name: getattr(operator, name.lower()) for name in ("LT", "LE", "GT", "GE", "EQ", "NE")
}
MIRRORED: Final = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "EQ": "EQ", "NE": "NE"}


@dataclass(frozen=True, slots=True)
class Counter:
    """An element of the loop's state that the condition compares with a constant."""

    index: int
    """Index of the element of the state."""
    dtype: str
    first: int | None
    """Its value when the loop begins; None if it is not a constant."""
    step: int
    """The increment of each iteration."""
    direction: str
    """The loop goes on while `counter direction limit`: `LT`."""
    limit: int

    @property
    def never_ends(self) -> bool:
        """True if no value that the counter takes ends the loop, overflow included."""
        if self.first is None:
            return False
        bits = BITS.get(self.dtype, 64)
        # XLA's integers wrap around, so the counter takes every value of its type that is a
        # multiple of this stride away: the loop ends if the condition is false for any of them.
        stride = gcd(self.step, 1 << bits)
        least = -(1 << bits - 1) if self.dtype.startswith("s") else 0
        lowest = least + (self.first - least) % stride
        highest = lowest + ((1 << bits) - 1 - (lowest - least)) // stride * stride
        if self.direction == "NE":
            return (self.limit - self.first) % stride != 0
        if self.direction == "EQ":
            return self.step == 0 and self.first == self.limit
        last = highest if self.direction in ("LT", "LE") else lowest
        return COMPARISONS[self.direction](last, self.limit)

    @property
    def trip_count(self) -> int | None:
        """The number of iterations; None if the constants do not determine it."""
        if self.first is None or self.never_ends:
            return None
        if not COMPARISONS[self.direction](self.first, self.limit):
            return 0
        distance, step = self.limit - self.first, self.step
        if self.direction in ("GT", "GE"):
            distance, step = -distance, -step
        match self.direction:
            # -(-a // b) rounds up: the counter may jump over the limit.
            case "LT" | "GT" if step > 0:
                return -(-distance // step)
            case "LE" | "GE" if step > 0:
                return distance // step + 1
            case "NE" if step and distance % step == 0 and distance // step > 0:
                return distance // step
            case _:
                return None


class LoopAnnotations(NamedTuple):
    """The annotations of a while."""

    trip_count: int
    init: int
    step: int
    induction_variable: int | None
    """Its index in the loop's tuple; None if the while has no such annotation."""


@dataclass(frozen=True)
class Loop:
    """A while loop with its computations."""

    instruction: Instruction
    body: Computation
    condition: Computation

    @cached_property
    def declared_trip_count(self) -> int | None:
        """The `known_trip_count` of its backend config, if any."""
        annotated = read_loop(self.instruction)
        return None if annotated is None else annotated.trip_count

    @property
    def trip_count(self) -> int | None:
        """The number of iterations, as declared, else by the counter; None if neither is known."""
        if self.declared_trip_count is not None:
            return self.declared_trip_count
        return self.counter.trip_count if self.counter is not None else None

    @cached_property
    def counter(self) -> Counter | None:
        """The counter; None unless the condition is a comparison with a constant."""
        root = self.condition.root
        if root is None or root.opcode != "compare" or len(root.operand_names) != 2:
            return None
        direction = root.attributes.get("direction", "")
        if direction not in COMPARISONS:
            return None
        # The limit may be on the left: `compare(limit, counter)` is the mirrored comparison.
        for own, limit_operand, way in ((0, 1, direction), (1, 0, MIRRORED[direction])):
            index, limit = state_element(root, own), scalar(root, limit_operand)
            if index is not None and limit is not None:
                step = self.step(index)
                shape = root.operand_shape(own)
                if step is None or not isinstance(shape, ArrayShape) or shape.dtype not in BITS:
                    return None
                first = self._first(index)
                return Counter(index, shape.dtype, first, step, way, limit)
        return None

    @cached_property
    def float_counter(self) -> tuple[str, float, float, str, float] | None:
        """The type, first value, step, direction and limit of a floating-point counter."""
        root, state = self.condition.root, _followed(self.instruction, 0)
        end = self.body.root
        if root is None or root.opcode != "compare" or end is None or state is None:
            return None
        index, limit = state_element(root, 0), number_of(_followed(root, 1))
        shape, direction = root.operand_shape(0), root.attributes.get("direction", "")
        if index is None or limit is None or not isinstance(shape, ArrayShape):
            return None
        if {state.opcode, end.opcode} != {"tuple"} or index >= len(end.operand_names):
            return None
        change = _followed(end, index)
        if change is None or change.opcode not in ("add", "subtract"):
            return None
        if state_element(change, 0) != index:
            return None
        first, step = number_of(_followed(state, index)), number_of(_followed(change, 1))
        if first is None or step is None or not shape.dtype.startswith("f"):
            return None
        step = -step if change.opcode == "subtract" else step
        return shape.dtype, first, step, direction, limit

    def is_invariant(self, index: int) -> bool:
        """True if the body returns an element of the state unchanged."""
        root = self.body.root
        return root is not None and root.opcode == "tuple" and state_element(root, index) == index

    def step(self, index: int) -> int | None:
        """The constant that an iteration adds to an element of the state, if it does."""
        root = self.body.root
        if root is None or root.opcode != "tuple" or index >= len(root.operand_names):
            return None
        if self.is_invariant(index):
            return 0
        # A body that was unrolled counts more than once.
        for reader, operand, total in chain((root, index, 0), _counted):
            if reader is not root and state_element(reader, operand) == index:
                return total
        return None

    def _first(self, index: int) -> int | None:
        state = _followed(self.instruction, 0)
        if state is None or state.opcode != "tuple":
            return None
        # A peeled iteration counts before the loop.
        for reader, operand, total in chain((state, index, 0), _counted):
            first = scalar(reader, operand)
            if first is not None:
                return first + total
        return None


def _counted(place: tuple[Instruction, int, int]) -> tuple[Instruction, int, int] | None:
    """An operand that adds a constant: its instruction, the other operand, the total so far."""
    reader, operand, total = place
    change = _followed(reader, operand)
    if change is None or change.opcode not in ("add", "subtract"):
        return None
    # Addition commutes; `constant - counter` is not a step.
    for number in (1,) if change.opcode == "subtract" else (1, 0):
        amount = scalar(change, number)
        if amount is not None:
            return change, 1 - number, total + (-amount if change.opcode == "subtract" else amount)
    return None


@cached_analysis
def loops(module: Module) -> tuple[Loop, ...]:
    """The loops of a module whose computations are defined, in the order of the text."""
    whiles = instructions_of(module, "while")
    pairs = [(loop, sequential_calls(module).callees(loop)) for loop in whiles]
    return tuple(Loop(loop, *callees) for loop, callees in pairs if len(callees) == 2)


def read_loop(instruction: Instruction) -> LoopAnnotations | None:
    """The annotations of a while; None if its trip count is unknown.

    `WhileLoopTripCountAnnotator` writes them (while_loop_trip_count_annotator.cc).

    >>> from hlo_lint.hlo.parser.module import parse_file
    >>> text = '''ENTRY e {
    ...   p = (s32[], f32[4]) parameter(0)
    ...   ROOT w = (s32[], f32[4]) while(p), condition=c, body=b, backend_config={
    ...     "known_trip_count":{"n":"8"},"known_init_step":{"init":"1","step":"2"},
    ...     "known_induction_variable":{"tuple_index":"0"}}
    ... }'''
    >>> read_loop(parse_file(text).modules[0].entry.root)
    LoopAnnotations(trip_count=8, init=1, step=2, induction_variable=0)
    """
    if "known_trip_count" not in instruction.attributes_text:
        return None
    config = instruction.backend_config()
    trip_count = integer_field(config.get("known_trip_count"), "n")
    if trip_count is None:
        return None
    steps = config.get("known_init_step")
    init, step = integer_field(steps, "init"), integer_field(steps, "step")
    variable = integer_field(config.get("known_induction_variable"), "tuple_index")
    # XLA's annotator writes no step for a floating-point counter.
    if init is None or step is None:
        return LoopAnnotations(trip_count, 0, 0, None)
    return LoopAnnotations(trip_count, init, step, variable)


def integer_field(message: object, name: str) -> int | None:
    """A field of 64 bits, which proto3's JSON prints as a string and leaves out if it is 0."""
    if not isinstance(message, Mapping):
        return None
    value = message.get(name, 0)
    if isinstance(value, str):
        return whole_number(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


class SliceDescriptor(NamedTuple):
    """The place of a slice in memory, by `DynamicSliceConfig` instead of the operands."""

    byte_offset: int
    byte_stride: int
    """The distance between iterations."""
    loop_index: int | None
    """The enclosing loop whose iterations count; None if the offset is constant."""


def slice_descriptor(instruction: Instruction) -> SliceDescriptor | None:
    """The `dynamic_slice_config` of a slice; None if it is missing or of an unknown form."""
    if '"dynamic_slice_config"' not in instruction.attributes_text:
        return None
    config = instruction.backend_config().get("dynamic_slice_config")
    if not isinstance(config, Mapping) or "table" in config:
        return None  # no dump at hand has a table
    loop = integer_field(config, "loop_index") if "loop_index" in config else None
    linear = config.get("linear", config)  # its own message since jax 0.12
    offset, stride = (integer_field(linear, name) for name in ("byte_offset", "byte_stride"))
    return None if offset is None or stride is None else SliceDescriptor(offset, stride, loop)


def scalar(instruction: Instruction, operand: int) -> int | None:
    """The integer value of an operand; None if it is not a constant."""
    source = _followed(instruction, operand)
    if source is None or source.opcode != "constant":
        return None
    return whole_number(source.operands_text.strip())


def state_element(instruction: Instruction, operand: int) -> int | None:
    """The index of the element of its computation's parameter that an operand reads, if any."""
    source = _source(instruction, operand)
    if source is None or source[0].opcode != "parameter" or len(source[1]) != 1:
        return None
    return source[1][0]


def _followed(instruction: Instruction, operand: int) -> Instruction | None:
    """The instruction that computes an operand, behind instructions that only pass it on."""
    source = _source(instruction, operand)
    return None if source is None or source[1] else source[0]


def _source(instruction: Instruction, operand: int) -> ResultPart | None:
    """The part of a result that an operand is, behind instructions that only pass it on."""
    place = operand_position(instruction, operand, ())
    return None if place is None else [*origins(*place, SAME_ELEMENTS)][-1]
