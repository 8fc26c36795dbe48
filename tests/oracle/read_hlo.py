"""Reads HLO texts with the parser of the jaxlib at hand and says what graph each one spells.

    python read_hlo.py < texts.json       a JSON list of texts in, a JSON line for each one out

It needs only jaxlib, so that the interpreter of any environment can run it. A text can end the
process (XLA checks, and its parser recurses): each line is out before the next text is read.

The bindings show names, and instructions in the order of the text. Shapes, roots, called
computations and the entry are in the serialized `HloModuleProto` only, whose instructions stand
operands first; field numbers are those of `xla/service/hlo.proto` and `xla/xla_data.proto`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

from jaxlib import _hlo  # type: ignore[attr-defined]

_complaint = re.compile(r"was parsing (\d+:\d+): error: (.*)").search

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIGN = 1 << 63
_UNSET = -_SIGN
"""What the protos hold for an unbounded size, and for `*` in a tile."""

Message = dict[int, list[Any]]
"""Fields by number; an integer for a varint, bytes for everything with a length."""


def read(data: bytes) -> Message:
    """A serialized message, one level of it."""
    fields: Message = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        value: int | bytes
        if kind == _VARINT:
            value, at = _varint(data, at)
        else:
            size = 8 if kind == _FIXED64 else 4
            if kind == _BYTES:
                size, at = _varint(data, at)
            elif kind not in (_FIXED64, _FIXED32):
                raise ValueError(f"wire type {kind} at byte {at}")
            value, at = data[at : at + size], at + size
        fields.setdefault(key >> 3, []).append(value)
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def integers(message: Message, number: int) -> list[int]:
    """A repeated int64, packed or not."""
    values: list[int] = []
    for value in message.get(number, ()):
        if isinstance(value, int):
            values.append(value)
            continue
        at = 0
        while at < len(value):
            integer, at = _varint(value, at)
            values.append(integer)
    return [value - 2 * _SIGN if value >= _SIGN else value for value in values]


def integer(message: Message, number: int) -> int:
    """An int64; what is not there is 0."""
    return (integers(message, number) or [0])[-1]


def text(message: Message, number: int) -> str:
    """A string; what is not there is empty."""
    return bytes(message.get(number, [b""])[-1]).decode("utf-8", "surrogateescape")


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
_element_types.update({27: "u2", 34: "buffer"})  # missing in the bindings of 0.10.2 and 0.11.2


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


# ---- graphs


def graph(hlo: str) -> dict[str, Any]:
    """The graph of a text, computations and instructions in the order of the text."""
    module = _hlo.hlo_module_from_text(hlo)
    proto = read(module.as_serialized_hlo_module_proto())
    computations = [read(data) for data in proto.get(3, ())]
    computation_names = {integer(each, 5): text(each, 1) for each in computations}
    by_name = {text(each, 1): each for each in computations}
    shapes: dict[bytes, str] = {}
    found = []
    for computation in module.computations():
        message = by_name[computation.name]
        instructions = [read(data) for data in message.get(2, ())]
        names = {integer(each, 35): text(each, 1) for each in instructions}
        fields = {text(each, 1): each for each in instructions}
        entries = []
        for instruction in computation.instructions():
            each = fields[instruction.name]
            shape = bytes(each.get(3, [b""])[-1])
            if shape not in shapes:
                shapes[shape] = _spelled(instruction)
            entries.append(
                {
                    "name": text(each, 1),
                    "opcode": text(each, 2),
                    "shape": shapes[shape],
                    "operands": [names[number] for number in integers(each, 36)],
                    "users": [user.name for user in instruction.users()],
                    "called": [computation_names[number] for number in integers(each, 38)],
                    "parameter": integer(each, 9),
                    "index": integer(each, 13),
                }
            )
        root = names[integer(message, 6)]
        found.append({"name": text(message, 1), "root": root, "instructions": entries})
    return {
        "name": text(proto, 1),
        "entry": text(proto, 2),
        "is_scheduled": 7 in proto,
        "computations": found,
        "shapes": {spelled: numbers(data) for data, spelled in shapes.items()},
    }


def answers(texts: list[str]) -> Iterator[dict[str, Any]]:
    """A graph, or XLA's first complaint, for each text."""
    for hlo in texts:
        try:
            yield graph(hlo)
        except (RuntimeError, ValueError) as refusal:
            where = _complaint(str(refusal))
            message = f"{where[1]}: {where[2]}" if where else str(refusal).partition("\n")[0]
            yield {"error": message}


if __name__ == "__main__":
    for answer in answers(json.load(sys.stdin)):
        print(json.dumps(answer), flush=True)
