"""An interpreter of data movement on bytes: the proof that a fix keeps every value.

The addresses are computed here and not by `hlo_lint.hlo.layouts`: a mistake there cannot hide here.
Every unit of the inputs carries a tag of its own, tile padding too, so two regions that write the
same bytes moved the same elements to the same places, whatever the values are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hlo_lint.hlo.dtypes import BITS
from hlo_lint.hlo.shape import UNBOUNDED, ArrayShape, ShapeSyntaxError
from hlo_lint.text.errors import HloLintError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hlo_lint.hlo.ir import Computation, Instruction, Module, Operand

Bytes = NDArray[np.uint8]
Words = NDArray[np.unsignedinteger[Any]]
"""Elements or slots as bit patterns: one row each, two words for an element of 128 bits."""

MAX_SLOTS = 1 << 25
"""Larger arrays are refused: the addresses of one alone take a quarter of a gigabyte."""


class NotCovered(HloLintError):
    """An instruction that this interpreter cannot execute; nothing is known about its value."""

    def __init__(self, reason: str, instruction: str = "") -> None:
        super().__init__(f"%{instruction}: {reason}" if instruction else reason)
        self.reason = reason
        self.instruction = instruction
        """Its name, or empty where a shape alone was asked about."""


class ValueChanged(HloLintError):
    """An instruction that cannot mean what its shapes say: a bitcast to another size, for one."""


@dataclass(frozen=True, slots=True)
class InstructionComparison:
    """The result for one instruction that a fix touched."""

    computation: str
    instruction: str
    """Its name, or empty where the computation itself differs."""
    elements: int
    """Number of elements that were compared."""
    equal: bool
    detail: str


# Addresses ------------------------------------------------------------------------------------


def addresses(shape: ArrayShape) -> NDArray[np.int64]:
    """The slot of each element, elements in logical row-major order; padding takes slots too.

    >>> from hlo_lint.hlo.shape import Layout
    >>> addresses(ArrayShape("f32", (2, 3), Layout((0, 1)))).tolist()
    [0, 2, 4, 1, 3, 5]

    Raises:
        NotCovered: where the layout has parts whose meaning is not known here.
    """
    return _placed(shape)[0]


def slots(shape: ArrayShape) -> int:
    """Size of the array in elements, tile padding included.

    >>> from hlo_lint.hlo.shape import Layout
    >>> slots(ArrayShape("f32", (3, 5), Layout((1, 0), tiles=((2, 4),))))
    32
    """
    return _placed(shape)[1]


@lru_cache(maxsize=8)
def _placed(shape: ArrayShape) -> tuple[NDArray[np.int64], int]:
    physical = _split(shape)
    contributions = [np.zeros(size, np.int64) for size in shape.dims]
    stride = 1
    for dimension, extent, coordinate in reversed(physical):
        if dimension is not None:
            contributions[dimension] += coordinate * stride
        stride *= extent
    if stride > MAX_SLOTS:
        raise NotCovered(f"{shape} is too large to execute")
    total = np.zeros(shape.dims, np.int64)
    for dimension, contribution in enumerate(contributions):
        rest = (1,) * (shape.rank - 1 - dimension)
        total += contribution.reshape(-1, *rest)
    flat = total.reshape(-1)
    flat.flags.writeable = False
    return flat, stride


def _split(shape: ArrayShape) -> list[tuple[int | None, int, NDArray[np.int64]]]:
    """Physical dimensions, major to minor: logical dimension, extent, coordinate by its index.

    A tile cuts each of the minor dimensions in two, "which tile" and "where in the tile"; a later
    tile cuts what the earlier one left (https://openxla.org/xla/tiled_layout).
    """
    _check_layout(shape)
    physical: list[tuple[int | None, int, NDArray[np.int64]]] = [
        (dimension, shape.dims[dimension], np.arange(shape.dims[dimension], dtype=np.int64))
        for dimension in reversed(shape.minor_to_major)
    ]
    for tile in shape.layout.tiles if shape.layout is not None else ():
        # A tile of more dimensions than the array: the array gets major dimensions of size 1.
        missing = len(tile) - len(physical)
        physical[:0] = [(None, 1, np.zeros(1, np.int64)) for _ in range(missing)]
        first = len(physical) - len(tile)
        outer, inner = physical[:first], []
        for (dimension, extent, coordinate), size in zip(physical[first:], tile, strict=True):
            if size is None:
                raise NotCovered(f"{shape} combines dimensions in a tile")
            if size <= 0:
                raise NotCovered(f"{shape} has a tile of size {size}")
            outer.append((dimension, -(-extent // size), coordinate // size))
            inner.append((dimension, size, coordinate % size))
        physical = outer + inner
    return physical


def _check_layout(shape: ArrayShape) -> None:
    if UNBOUNDED in shape.dims:
        raise NotCovered(f"{shape} is unbounded")
    if max(shape.elements, *shape.dims, 0) > MAX_SLOTS:
        raise NotCovered(f"{shape} is too large to execute")
    if sorted(shape.minor_to_major) != list(range(shape.rank)):
        raise NotCovered(f"the layout of {shape} does not name each dimension once")
    if shape.layout is not None and shape.layout.rest:
        raise NotCovered(f"{shape} has {''.join(shape.layout.rest)} in its layout")


# Bytes ----------------------------------------------------------------------------------------


def _value_bits(shape: ArrayShape) -> int:
    """Number of bits of an element that carry its value: 4 of an s4 in a byte, 1 of a pred."""
    bits = BITS.get(shape.dtype)
    if bits is None:
        raise NotCovered(f"the width of {shape.dtype} is not known")
    return 1 if shape.dtype == "pred" else bits


def _slot_bits(shape: ArrayShape) -> int:
    """Size of an element in memory, in bits."""
    value = _value_bits(shape)
    packed = shape.layout.element_size_in_bits if shape.layout is not None else 0
    bits = packed or max(value, 8)
    if bits < value or bits not in (1, 2, 4, 8, 16, 32, 64, 128):
        raise NotCovered(f"{shape} has elements of {bits} bits")
    return bits


def _size(shape: ArrayShape) -> int:
    return (slots(shape) * _slot_bits(shape) + 7) // 8


def _unpack(data: Bytes, bits: int, count: int) -> Words:
    """The first `count` slots of a string of bytes; the first slot of a byte is its lowest bits."""
    if bits < 8:
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        parts = (data[:, np.newaxis] >> shifts) & np.uint8((1 << bits) - 1)
        return parts.reshape(-1, 1)[:count]
    width = min(bits, 64)
    return data.view(f"<u{width // 8}").reshape(-1, bits // width)[:count]


def _pack(values: Words, bits: int, data: Bytes) -> Bytes:
    """The bytes whose first slots are `values`; bits after them stay as they are in `data`."""
    if bits >= 8:
        return np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    every = _unpack(data, bits, len(data) * (8 // bits)).copy()
    every[: len(values)] = values
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    packed: Bytes = np.bitwise_or.reduce(every.reshape(-1, 8 // bits) << shifts, axis=1)
    return packed


@dataclass(frozen=True, eq=False, slots=True)
class Memory:
    """One array value as it lies in memory.

    >>> from hlo_lint.hlo.shape import Layout
    >>> shape = ArrayShape("u8", (2, 2), Layout((0, 1)))
    >>> memory = Memory.holding(shape, np.array([[1], [2], [3], [4]], np.uint8))
    >>> memory.data.tolist(), memory.elements().ravel().tolist()
    ([1, 3, 2, 4], [1, 2, 3, 4])
    """

    shape: ArrayShape
    data: Bytes
    """Every byte, tile padding included."""

    def __post_init__(self) -> None:
        if len(self.data) != _size(self.shape):
            raise ValueChanged(
                f"{self.shape} takes {_size(self.shape)} bytes, there are {len(self.data)}"
            )

    def elements(self) -> Words:
        """The bit pattern of each element, in logical row-major order; padding is left out."""
        where, count = _placed(self.shape)
        words = np.take(_unpack(self.data, _slot_bits(self.shape), count), where, axis=0)
        value = _value_bits(self.shape)
        if value == _slot_bits(self.shape):
            return words
        return words & np.array((1 << value) - 1, words.dtype)

    @classmethod
    def holding(cls, shape: ArrayShape, elements: Words, padding: int = 0) -> Memory:
        """The memory in which `shape` lays `elements` out; `padding` is what nobody writes."""
        where, count = _placed(shape)
        bits = _slot_bits(shape)
        data = np.full(_size(shape), padding, np.uint8)
        values = _unpack(data, bits, count).copy()
        values[where] = elements.astype(values.dtype, copy=False)
        return cls(shape, _pack(values, bits, data))


# Instructions ---------------------------------------------------------------------------------


def execute(instruction: Instruction, operands: list[Memory], *, padding: int = 0) -> Memory:
    """The memory of the result; `padding` fills the bytes that the instruction does not write.

    Raises:
        NotCovered: for every opcode but reshape, copy, transpose and bitcast.
        ValueChanged: where its shapes contradict its opcode.
    """
    run = _EXECUTE.get(instruction.opcode)
    if run is None:
        raise NotCovered(instruction.opcode, instruction.name)
    shape = _array(instruction)
    if len(operands) != 1:
        raise ValueChanged(f"{instruction.opcode} takes one operand, not {len(operands)}")
    try:
        return run(instruction, operands[0], shape, padding)
    except NotCovered as error:
        raise NotCovered(error.reason, instruction.name) from None


def _reshape(_: Instruction, source: Memory, shape: ArrayShape, padding: int) -> Memory:
    same_type = source.shape.dtype == shape.dtype
    if not same_type or source.shape.elements != shape.elements:
        raise ValueChanged(f"reshape from {source.shape} to {shape}")
    return Memory.holding(shape, source.elements(), padding)


def _copy(_: Instruction, source: Memory, shape: ArrayShape, padding: int) -> Memory:
    if _logical(source.shape) != _logical(shape):
        raise ValueChanged(f"copy from {source.shape} to {shape}")
    return Memory.holding(shape, source.elements(), padding)


def _transpose(instruction: Instruction, source: Memory, shape: ArrayShape, padding: int) -> Memory:
    order = instruction.integers_attribute("dimensions")
    if order is None:
        raise NotCovered("a transpose whose dimensions cannot be read")
    dtype, dims, dynamic = _logical(source.shape)
    if sorted(order) != list(range(len(dims))):
        raise ValueChanged(f"dimensions={{{','.join(map(str, order))}}} of {source.shape}")
    moved = (dtype, tuple(dims[n] for n in order), tuple(dynamic[n] for n in order))
    if _logical(shape) != moved:
        raise ValueChanged(f"transpose from {source.shape} to {shape}")
    elements = source.elements()
    words = elements.shape[1]
    cube = elements.reshape(*dims, words).transpose(*order, len(dims))
    return Memory.holding(shape, cube.reshape(shape.elements, words), padding)


def _bitcast(_: Instruction, source: Memory, shape: ArrayShape, padding: int) -> Memory:
    if _memory_space(source.shape) != _memory_space(shape):
        raise ValueChanged(f"bitcast from {source.shape} to {shape}, in another memory space")
    if len(source.data) != _size(shape):
        raise ValueChanged(
            f"bitcast from {source.shape} ({len(source.data)} bytes)"
            f" to {shape} ({_size(shape)} bytes)"
        )
    return Memory(shape, source.data)


_EXECUTE: dict[str, Callable[[Instruction, Memory, ArrayShape, int], Memory]] = {
    "reshape": _reshape,
    "copy": _copy,
    "transpose": _transpose,
    "bitcast": _bitcast,
}


def _logical(shape: ArrayShape) -> tuple[str, tuple[int, ...], tuple[bool, ...]]:
    return shape.dtype, shape.dims, tuple(shape.is_dynamic(n) for n in range(shape.rank))


def _memory_space(shape: ArrayShape) -> int:
    return 0 if shape.layout is None else shape.layout.memory_space


def _array(read: Instruction | Operand) -> ArrayShape:
    """The shape of an instruction or of what is read, if this interpreter can hold it."""
    try:
        shape = read.shape
        if not isinstance(shape, ArrayShape):
            raise NotCovered(f"{shape or 'what is read'} is not an array", read.name)
        _size(shape)
    except ShapeSyntaxError as error:
        raise NotCovered(f"its shape cannot be read: {error}", read.name) from None
    except NotCovered as error:
        raise NotCovered(error.reason, read.name) from None
    return shape


# Regions --------------------------------------------------------------------------------------

Reference = tuple[str, tuple[int, ...]]
"""The value that an operand refers to: a name, and an index in its tuple."""


def compare(before: Module, after: Module, *, seed: int = 0) -> tuple[InstructionComparison, ...]:
    """True if what the fix touched holds the same values; empty if no instruction differs.

    Header and tables are not looked at, nor are attributes that bear on no value: metadata,
    sharding. Both sides run on the same bytes. What an instruction leaves unwritten is zeros on
    one side and ones on the other, so a value that takes in padding is not an equal one.

    Raises:
        NotCovered: with the first touched instruction that cannot be executed.
    """
    try:
        return tuple(_compare_modules(before, after, seed))
    finally:
        _placed.cache_clear()


def _compare_modules(before: Module, after: Module, seed: int) -> Iterator[InstructionComparison]:
    if _unread(before) != _unread(after):
        raise NotCovered("text between the computations that could not be read")
    old = {computation.name: computation for computation in before.computations}
    new = {computation.name: computation for computation in after.computations}
    if len(old) != len(before.computations) or len(new) != len(after.computations):
        raise NotCovered("two computations of one name")
    yield from (
        InstructionComparison(name, "", 0, False, "is gone") for name in old if name not in new
    )
    yield from (
        InstructionComparison(name, "", 0, False, "is new") for name in new if name not in old
    )
    common = [name for name in old if name in new]
    if common != [name for name in new if name in old]:
        yield InstructionComparison("", "", 0, False, "the computations stand in another order")
    for name in common:
        if old[name].text != new[name].text:
            yield from _compare_computations(old[name], new[name], seed)


def _unread(module: Module) -> list[str]:
    return [module.text[trouble.start : trouble.end] for trouble in module.parse_errors]


def _compare_computations(
    before: Computation, after: Computation, seed: int
) -> Iterator[InstructionComparison]:
    def differs(instruction: str, detail: str) -> InstructionComparison:
        return InstructionComparison(after.name, instruction, 0, False, detail)

    old, new = _by_name(before), _by_name(after)
    common = [name for name in old if name in new]
    changed = {name for name in common if old[name].row != new[name].row}
    if before.is_entry != after.is_entry:
        yield differs("", "it is the entry on one side only")
    if before.signature != after.signature or before.tail != after.tail:
        yield differs("", "its head or what follows its brace differs")
    if _root(before) != _root(after):
        yield differs("", f"the root was %{_root(before)} and is %{_root(after)}")
    if common != [name for name in new if name in old]:
        yield differs("", "the instructions stand in another order")
    yield from (differs(name, "is gone") for name in old if name not in new)
    for name in common:
        if name in changed and _control(old[name]) != _control(new[name]):
            yield differs(name, "its control predecessors differ")

    gone_or_changed = {name: old[name] for name in old if name not in new or name in changed}
    new_or_changed = {name: new[name] for name in new if name not in old or name in changed}
    for names in _connected(gone_or_changed, new_or_changed):
        yield from _compare_region(
            after.name,
            {name: one for name, one in gone_or_changed.items() if name in names},
            {name: one for name, one in new_or_changed.items() if name in names},
            seed,
        )


def _by_name(computation: Computation) -> dict[str, Instruction]:
    if computation.parse_errors:
        raise NotCovered(f"text in %{computation.name} that could not be read")
    named = {instruction.name: instruction for instruction in computation.instructions}
    if len(named) != len(computation.rows):
        raise NotCovered(f"two instructions of one name in %{computation.name}")
    return named


def _root(computation: Computation) -> str:
    return "" if computation.root is None else computation.root.name


def _control(instruction: Instruction) -> frozenset[str]:
    text = instruction.attributes.get("control-predecessors", "").strip("{}")
    return frozenset(name.strip(" %") for name in text.split(",") if name.strip())


def _connected(*sides: dict[str, Instruction]) -> list[set[str]]:
    """The touched names in groups that read each other on either side, in the order of the text."""
    group: dict[str, set[str]] = {}
    for side in sides:
        for name, instruction in side.items():
            own = group.setdefault(name, {name})
            for operand in instruction.operands:
                other = group.get(operand.name)
                if other is None or other is own:
                    continue
                own, other = (own, other) if len(own) >= len(other) else (other, own)
                own |= other
                group.update(dict.fromkeys(other, own))
    return list({id(names): names for names in group.values()}.values())


Region = dict[str, "Instruction"]
"""Touched instructions of one side by name, in the order of the text."""


def _compare_region(
    computation: str, before: Region, after: Region, seed: int
) -> Iterator[InstructionComparison]:
    outputs = [name for name in after if name in before]
    before = _reached(before, outputs)
    inputs: dict[Reference, ArrayShape] = {}
    results: list[ArrayShape] = []
    for side in (before, after):
        for name, instruction in side.items():
            if instruction.opcode not in _EXECUTE:
                raise NotCovered(instruction.opcode, name)
            results.append(_array(instruction))
            for operand in instruction.operands:
                if operand.name not in side and operand.instruction is not None:
                    inputs[operand.name, operand.index] = _array(operand)

    wrong: dict[str, str] = {}
    differing: dict[str, NDArray[np.bool_]] = {}
    for memories in _filled(inputs, results, seed):
        old = _run(before, memories, padding=0x00)
        new = _run(after, memories, padding=0xFF)
        for name, value in old.items():
            if isinstance(value, ValueChanged):
                raise NotCovered(f"wrong before the fix: {value}", name)
        wrong = {name: str(value) for name, value in new.items() if isinstance(value, ValueChanged)}
        for name in outputs:
            was, now = old[name], new[name]
            if isinstance(was, ValueChanged) or isinstance(now, ValueChanged):
                continue
            if was.shape != now.shape:
                wrong[name] = f"{was.shape} became {now.shape}"
                continue
            other = np.any(was.elements() != now.elements(), axis=1)
            differing[name] = differing[name] | other if name in differing else other

    for name in after:
        if name in wrong:
            yield InstructionComparison(computation, name, 0, False, wrong[name])
        elif name in outputs:
            yield _judged(computation, name, _array(after[name]), differing[name])
    if not outputs and not wrong and after:
        yield InstructionComparison(
            computation, next(iter(after)), 0, True, "is new, and nothing reads it"
        )


def _judged(
    computation: str, name: str, shape: ArrayShape, differing: NDArray[np.bool_]
) -> InstructionComparison:
    count = int(np.count_nonzero(differing))
    if count == 0:
        detail = f"all {shape.elements} elements are the same"
        return InstructionComparison(computation, name, shape.elements, True, detail)
    first = tuple(int(n) for n in np.unravel_index(int(np.argmax(differing)), shape.dims))
    detail = f"{count} of {shape.elements} elements differ, the first at {list(first)}"
    return InstructionComparison(computation, name, shape.elements, False, detail)


def _reached(side: Region, outputs: Iterable[str]) -> Region:
    """The outputs, and the instructions that they read."""
    needed: set[str] = set()
    pending = list(outputs)
    while pending:
        name = pending.pop()
        if name in side and name not in needed:
            needed.add(name)
            pending += [operand.name for operand in side[name].operands]
    return {name: instruction for name, instruction in side.items() if name in needed}


def _run(
    side: Region, inputs: dict[Reference, Memory], padding: int
) -> dict[str, Memory | ValueChanged]:
    values: dict[str, Memory | ValueChanged] = {}
    for name, instruction in side.items():
        try:
            read = [
                _read(instruction, operand, side, values, inputs)
                for operand in instruction.operands
            ]
            values[name] = execute(instruction, read, padding=padding)
        except ValueChanged as error:
            values[name] = error
    return values


def _read(
    reader: Instruction,
    operand: Operand,
    side: Region,
    values: dict[str, Memory | ValueChanged],
    inputs: dict[Reference, Memory],
) -> Memory:
    defined = operand.instruction
    if defined is None or defined.number >= reader.number:
        raise ValueChanged(f"reads %{operand.name}, which is not defined before it")
    if operand.name not in side:
        return inputs[operand.name, operand.index]
    if operand.index:
        raise ValueChanged(f"reads an element of %{operand.name}, which is not a tuple")
    value = values[operand.name]
    if isinstance(value, ValueChanged):
        raise ValueChanged(f"reads %{operand.name}, which is wrong")
    return value


# Tags -----------------------------------------------------------------------------------------


def _filled(
    inputs: dict[Reference, ArrayShape], results: list[ArrayShape], seed: int
) -> Iterator[dict[Reference, Memory]]:
    """Fills of the inputs that, taken together, give every unit of every input a tag of its own.

    A unit is as wide as the narrowest element that occurs, so a bitcast to a narrower type still
    reads whole tags. Where it is too narrow to tell all units apart at once, each fill holds
    the next bits of the tags. Only data moves, so what is the same under all fills is the same
    for all values: this is not a sample.
    """
    unit = min((_value_bits(shape) for shape in (*inputs.values(), *results)), default=8)
    unit = min(unit, 64)
    total = sum(slots(shape) * _value_bits(shape) // unit for shape in inputs.values())
    rounds = max(1, -(-max(total - 1, 1).bit_length() // unit))
    random = np.random.default_rng(seed)
    # An odd factor permutes the numbers below any power of two.
    factor = np.uint64(2 * int(random.integers(1 << 62)) + 1)
    offset = np.uint64(int(random.integers(1 << 62)))
    mask = np.uint64((1 << unit) - 1)
    for number in range(rounds):
        shift = np.uint64(number * unit)
        first = 0
        memories: dict[Reference, Memory] = {}
        for reference, shape in inputs.items():
            value_bits, slot_bits = _value_bits(shape), _slot_bits(shape)
            words, units = max(1, value_bits // 64), min(value_bits, 64) // unit
            count = slots(shape) * words
            numbers = np.arange(count, dtype=np.uint64) * np.uint64(units) + np.uint64(first)
            patterns = np.zeros(count, np.uint64)
            for place in range(units):
                tags = ((numbers + np.uint64(place)) * factor + offset) >> shift
                patterns |= (tags & mask) << np.uint64(place * unit)
            memories[reference] = _tagged(shape, slot_bits, patterns.reshape(-1, words))
            first += count * units
        yield memories


def _tagged(shape: ArrayShape, slot_bits: int, patterns: NDArray[np.uint64]) -> Memory:
    data = np.zeros(_size(shape), np.uint8)
    width = np.dtype(f"<u{max(8, min(slot_bits, 64)) // 8}")
    return Memory(shape, _pack(patterns.astype(width), slot_bits, data))
