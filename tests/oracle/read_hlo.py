"""Reads HLO texts with the parser of the jaxlib at hand and says what each one spells.

    python -m tests.oracle.read_hlo < texts.json     a JSON list of texts in, a JSON line each out

It needs only jaxlib, so that the interpreter of any environment can run it. A text can end the
process (XLA checks, and its parser recurses): each line is out before the next text is read.

The bindings show names, and instructions in the order of the text. Shapes, roots, called
computations, attributes and the entry are in the serialized `HloModuleProto` only, whose
instructions stand operands first.

Dumps repeat themselves, so that each thing is told once: a module holds numbers of computations, an
instruction numbers of rows of `fields` and `metadata`, which are JSON texts. What is new since the
line before stands in a line.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from jaxlib import _hlo  # type: ignore[attr-defined]

from tests.oracle import schema
from tests.oracle.schema import GRAPH, METADATA, Message, decode, integer, integers, read, text

_complaint = re.compile(r"was parsing (\d+:\d+): error: (.*)").search

_UNSET = -(1 << 63)
"""The number in the protos for an unbounded size, and for `*` in a tile."""


# ---- shapes: a `ShapeProto` as lists of numbers, which nobody has to parse


def numbers(data: bytes) -> dict[str, Any]:
    """A `ShapeProto`: kind, dims, dynamic, order, tiles, bits, space; or kind and elements."""
    message = read(data)
    kind = _element_type(integer(message, 2))
    elements = [numbers(element) for element in message.get(4, ())]
    if elements or kind in ("tuple", "token", "opaque_type", "buffer"):
        return {"kind": kind, "elements": elements}
    dims = [-1 if size == _UNSET else size for size in integers(message, 3)]
    shape: dict[str, Any] = {
        "kind": kind,
        "dims": dims,
        "dynamic": [n != 0 for n in integers(message, 6)],
    }
    for layout in map(read, message.get(5, ())):
        tiles = [integers(read(tile), 1) for tile in layout.get(6, ())]
        shape["order"] = integers(layout, 1)
        shape["tiles"] = [[None if n == _UNSET else n for n in tile] for tile in tiles]
        shape["bits"] = integer(layout, 7)
        shape["space"] = integer(layout, 8)
    return shape


_element_types = {int(kind): name.lower() for name, kind in _hlo.PrimitiveType.__members__.items()}
# Missing in the bindings of 0.10.2 and 0.11.2.
_element_types.update(
    {26: "s2", 27: "u2", 30: "s1", 31: "u1", 34: "buffer", 35: "f6e3m2fn", 36: "f6e2m3fn"}
)


def _element_type(number: int) -> str:
    return str(_element_types.get(number, f"type {number}"))


def _spelled(instruction: Any) -> str:
    """The shape as XLA prints it: what stands between ` = ` and the opcode."""
    line = instruction.to_string()
    start = line.index(" = ") + 3
    depth = 0
    for at in range(start, len(line)):
        depth += (line[at] in "({[") - (line[at] in ")}]")
        if line[at] == " " and not depth:
            return str(line[start:at])
    raise ValueError(line)


# ---- attributes


class _Rows:
    """Different values, each with a number."""

    def __init__(self) -> None:
        self.numbers: dict[object, int] = {}
        self.rows: list[str] = []

    def number(self, key: object, value: Any) -> int:
        """The number of a value that `value` makes of the key."""
        found = self.numbers.get(key)
        if found is None:
            row = json.dumps(value(key), sort_keys=True)
            found = self.numbers[key] = self.numbers.setdefault(row, len(self.rows))
            if found == len(self.rows):
                self.rows.append(row)
        return found


def _fields(key: tuple[tuple[int, tuple[Any, ...]], ...]) -> dict[str, Any]:
    """The fields of an instruction beside the graph; 0, false and empty ones are left out."""
    found: dict[str, Any] = {}
    for field, values in key:
        if field == 8:
            found["literal"] = literal(values[-1])
        elif field == 29:
            found["outfeed_shape"] = numbers(values[-1])
        elif field == 57:
            found["operand_shapes_with_layout"] = [numbers(value) for value in values]
        else:
            name, decoder = schema.INSTRUCTION.get(field, (f"field {field}", str))
            value = decoder(list(values))
            if value:
                found[name] = value
    return found


def literal(data: bytes) -> dict[str, Any]:
    """A `LiteralProto`: its elements' bytes in hexadecimal, or its parts."""
    message = read(data)
    shape = numbers(message.get(1, [b""])[-1])
    if shape["kind"] == "tuple":
        return {"parts": [literal(part) for part in message.get(10, ())]}
    if "dims" not in shape:
        return {"kind": shape["kind"]}
    return {"kind": shape["kind"], "dims": shape["dims"], "bytes": schema.literal_bytes(data).hex()}


def _stacks(proto: Message) -> Any:
    """A function from a `stack_frame_id` to the frames from the innermost outwards."""
    tables = read(proto[17][-1]) if 17 in proto else {}
    names = [text({1: [name]}, 1) for name in tables.get(1, ())]
    functions = [text({1: [name]}, 1) for name in tables.get(2, ())]
    locations = [read(each) for each in tables.get(3, ())]
    frames = [read(each) for each in tables.get(4, ())]

    def stack(number: int) -> list[list[Any]]:
        found: list[list[Any]] = []
        while 0 < number <= len(frames) and len(found) < len(frames):
            frame = frames[number - 1]
            place = locations[integer(frame, 1) - 1]
            file, function = integer(place, 1), integer(place, 2)
            found.append([names[file - 1], integer(place, 3), functions[function - 1]])
            number = integer(frame, 2)
        return found

    return stack


# ---- graphs


class _Known(NamedTuple):
    """A computation that has been told."""

    number: int
    called: dict[int, str]
    """Names of the computations it calls, by the ids that it has for them."""
    frames: frozenset[int]
    """Ids of its stack frames."""
    shapes: frozenset[str]


class _Told:
    """The output of this process, and the part of it that is not written yet."""

    def __init__(self) -> None:
        self.fields = _Rows()
        self.metadata = _Rows()
        self.frames: dict[int, int] = {}
        """The id of the stack frame in each row of metadata."""
        self.spelled: dict[bytes, str] = {}
        self.shapes: dict[str, Any] = {}
        self.known: dict[tuple[bytes, tuple[int, ...]], list[_Known]] = {}
        self.count = 0
        self.new: list[dict[str, Any]] = []
        self.out = (0, 0)

    def news(self) -> dict[str, Any]:
        """Rows and computations since the last call."""
        fields, metadata = self.out
        self.out = len(self.fields.rows), len(self.metadata.rows)
        new, self.new = self.new, []
        return {
            "fields": self.fields.rows[fields:],
            "metadata": self.metadata.rows[metadata:],
            "new": new,
        }

    def computation(
        self,
        computation: Any,
        data: bytes,
        computation_names: dict[int, str],
        sequence: tuple[int, ...],
    ) -> _Known:
        """A computation, told now or before; `sequence` is its schedule."""
        known = self.known.setdefault((data, sequence), [])
        for found in known:
            if all(computation_names[number] == name for number, name in found.called.items()):
                return found
        message = read(data)
        instructions = [read(each) for each in message.get(2, ())]
        names = {integer(each, 35): text(each, 1) for each in instructions}
        by_text = {text(each, 1): each for each in instructions}
        called: dict[int, str] = {}
        frames: set[int] = set()
        shapes: set[str] = set()
        entries = []
        for instruction in computation.instructions():
            each = by_text[instruction.name]
            shape = bytes(each.get(3, [b""])[-1])
            if shape not in self.spelled:
                self.spelled[shape] = _spelled(instruction)
                self.shapes[self.spelled[shape]] = numbers(shape)
            shapes.add(self.spelled[shape])
            calls = integers(each, 38)
            called.update((number, computation_names[number]) for number in calls)
            rest = tuple((field, tuple(each[field])) for field in each if field not in GRAPH)
            metadata = self.metadata.number(bytes(each.get(7, [b""])[-1]), _metadata)
            if metadata not in self.frames:
                row = json.loads(self.metadata.rows[metadata])
                self.frames[metadata] = row.get("stack_frame_id", 0)
            frames.add(self.frames[metadata])
            entries.append(
                {
                    "name": text(each, 1),
                    "opcode": text(each, 2),
                    "shape": self.spelled[shape],
                    "operands": [names[number] for number in integers(each, 36)],
                    "users": [user.name for user in instruction.users()],
                    "called": [computation_names[number] for number in calls],
                    "control": [names[number] for number in integers(each, 37)],
                    "parameter": integer(each, 9),
                    "index": integer(each, 13),
                    "fields": self.fields.number(rest, _fields),
                    "metadata": metadata,
                }
            )
        self.new.append(
            {
                "name": text(message, 1),
                "root": names[integer(message, 6)],
                "thread": text(message, 8),
                "instructions": entries,
                "schedule": [names[number] for number in sequence],
            }
        )
        found = _Known(self.count, called, frozenset(frames), frozenset(shapes))
        self.count += 1
        known.append(found)
        return found


def _metadata(data: object) -> dict[str, Any]:
    assert isinstance(data, bytes)
    return decode(METADATA, data)


def graph(hlo: str, told: _Told) -> dict[str, Any]:
    """The content of a text, computations and instructions in the order of the text."""
    module = _hlo.hlo_module_from_text(hlo)
    proto = read(module.as_serialized_hlo_module_proto())
    computations = [(read(data), data) for data in proto.get(3, ())]
    computation_names = {integer(each, 5): text(each, 1) for each, _ in computations}
    by_name = {text(each, 1): (integer(each, 5), data) for each, data in computations}
    stack = _stacks(proto)
    sequences = [read(each) for each in read(proto[7][-1]).get(1, ())] if 7 in proto else []
    schedule = {integer(each, 1): integers(read(each[2][-1]), 1) for each in sequences}
    found = []
    for computation in module.computations():
        number, data = by_name[computation.name]
        sequence = tuple(schedule.get(number, ()))
        found.append(told.computation(computation, data, computation_names, sequence))
    program = read(proto[4][-1])
    return {
        "name": text(proto, 1),
        "entry": text(proto, 2),
        "is_scheduled": 7 in proto,
        "computations": [known.number for known in found],
        **told.news(),
        "shapes": {spelled: told.shapes[spelled] for known in found for spelled in known.shapes},
        "stacks": {frame: stack(frame) for frame in {f for known in found for f in known.frames}},
        "header": {
            **{
                name: decoder(proto[field])
                for field, (name, decoder) in schema.MODULE.items()
                if field in proto
            },
            "parameters": [numbers(data) for data in program.get(1, ())],
            "result": numbers(program[2][-1]),
        },
        "printed_header": module.to_string().partition("\n\n")[0],
    }


def answers(texts: list[str]) -> Iterator[dict[str, Any]]:
    """A graph, or XLA's first complaint, for each text."""
    told = _Told()
    for hlo in texts:
        try:
            yield graph(hlo, told)
        except (RuntimeError, ValueError, MemoryError) as refusal:
            where = _complaint(str(refusal))
            message = f"{where[1]}: {where[2]}" if where else str(refusal).partition("\n")[0]
            yield {"error": message}


if __name__ == "__main__":
    for answer in answers(json.load(sys.stdin)):
        print(json.dumps(answer), flush=True)
