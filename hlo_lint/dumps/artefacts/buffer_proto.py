"""The buffer assignment in an HloProto, converted to the text that XLA writes beside the HLO.

    HloProto              { hlo_module = 1; buffer_assignment = 3; }
    BufferAssignmentProto { logical_buffers = 1; buffer_allocations = 3; … }
    LogicalBufferProto    { id = 1; size = 2; defined_at = 3; … }
    BufferAllocationProto { index = 1; size = 2; is_thread_local = 3; … assigned = 9; }

Positions of values and live ranges are not in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.shape import Index, Shape, TupleShape, part
from hlo_lint.hlo.wire import MAX_FIELDS_OF_FILE, Field, Reader, int_of, text_of

_ASSIGNMENT, _BUFFERS, _ALLOCATIONS = 3, 1, 3


class _Buffer(NamedTuple):
    """A value with its name in the text, `<17 x.1>`, and its shape."""

    name: str
    shape: str


def buffer_assignment_text(data: bytes, module: Module) -> str | None:
    """The text of the buffer assignment in an HloProto, or None.

    Args:
        data: the HloProto.
        module: the module in it, whose instructions have the shapes of the values.

    Raises:
        PayloadError: the bytes are not an HloProto.
    """
    reader = Reader(data, MAX_FIELDS_OF_FILE)
    parts = {field.number: field for field in reader.iterate()}
    if _ASSIGNMENT not in parts or 1 not in parts:
        return None
    names = dict(_instructions(reader, parts[1]))
    shapes = {
        instruction.name: instruction.shape_or_none
        for computation in module.computations
        for instruction in computation
    }
    buffers: dict[int, _Buffer] = {}
    lines = ["BufferAssignment:"]
    for field in reader.iterate(parts[_ASSIGNMENT]):
        if field.number == _BUFFERS:
            number, buffer = _buffer(reader, field, names, shapes)
            buffers[number] = buffer
        elif field.number == _ALLOCATIONS:
            lines += _allocation(reader, field, buffers)
    return "\n".join(lines) + "\n"


def _instructions(reader: Reader, module: Field) -> Iterator[tuple[int, str]]:
    """The name of each instruction by its id."""
    for computation in reader.iterate(module):
        if computation.number != 3:
            continue
        for instruction in reader.iterate(computation):
            if instruction.number == 2:
                fields = list(reader.iterate(instruction))
                names = [text_of(field) for field in fields if field.number == 1]
                ids = [int_of(field) for field in fields if field.number == 35]
                yield next(iter(ids), 0), next(iter(names), "")


def _buffer(
    reader: Reader, message: Field, names: dict[int, str], shapes: dict[str, Shape | None]
) -> tuple[int, _Buffer]:
    numbers = _numbers(reader, message)
    name, index = "", Index()
    for field in reader.iterate(message):
        if field.number == 3:
            place = list(reader.iterate(field))
            name = next((text_of(inner) for inner in place if inner.number == 2), "")
            ids = [int_of(inner) for inner in place if inner.number == 4]
            name = name or names.get(next(iter(ids), 0), "")
            index = tuple(n for inner in place if inner.number == 3 for n in reader.numbers(inner))
    whole = shapes.get(name)
    part_of = f"{{{','.join(map(str, index))}}}" if isinstance(whole, TupleShape) else ""
    number = numbers.get(1, 0)
    return number, _Buffer(f"<{number} {name}{part_of}>", str(part(whole, index) or "?"))


def _allocation(reader: Reader, message: Field, buffers: dict[int, _Buffer]) -> Iterator[str]:
    numbers = _numbers(reader, message)
    flags = {12: "constant", 3: "thread-local", 7: "maybe-live-out"}
    named = [word for number, word in flags.items() if numbers.get(number)]
    head = f"allocation {numbers.get(1, 0)}: size {numbers.get(2, 0)}"
    if numbers.get(8):
        head += f", color {numbers[8]}"
    if numbers.get(5):
        head += f", parameter {numbers.get(6, 0)}, shape |?| at ShapeIndex {{}}"  # not needed
    elif not named:
        named = ["preallocated-temp"]
    yield ", ".join([head, *named]) + ":"
    for field in reader.iterate(message):
        if field.number == 9:
            assigned = _numbers(reader, field)
            buffer = buffers[assigned.get(1, 0)]
            place = f"size={assigned.get(3, 0)},offset={assigned.get(2, 0)}"
            yield f" value: {buffer.name} ({place}): {buffer.shape}"


def _numbers(reader: Reader, message: Field) -> dict[int, int]:
    """The numbers of a message, by field."""
    return {f.number: f.varint for f in reader.iterate(message) if f.wire_type == 0}
