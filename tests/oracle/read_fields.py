"""Says every field of the graph that the jaxlib at hand reads out of each HLO text.

    python -m tests.oracle.read_fields < texts.json    a JSON list in, a JSON line for each text out

Where `read_hlo` picks fields, this takes the serialized `HloModuleProto` as it is. Numbers that
stand for instructions and computations become names; a get-tuple-element is called after its tuple
(`call#1`), since releases name the ones that they make differently; and a repeated name is a name.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from tests.oracle.schema import Message, integer, integers, read, text

try:
    from jaxlib import _hlo  # type: ignore[attr-defined]
except ImportError:  # before jax 0.10
    try:
        from jaxlib import _jax as _hlo
    except ImportError:  # before jax 0.6
        from jaxlib import xla_extension as _hlo  # type: ignore[attr-defined]

SHAPE = 4
"""Of a computation; field 3 in it repeats the names of parameters."""
NAME, OPCODE, LITERAL, INDEX, ID, OPERANDS, CONTROL, CALLED = 1, 2, 8, 13, 35, 36, 37, 38
_REFERENCES = {ID, OPERANDS, CONTROL, CALLED}
_MODULE_REFERENCES = {3, 4, 5, 7}
"""Of a module: computations, the entry's number, the module's own, the schedule."""


def module_fields(hlo: str) -> dict[str, Any]:
    """All of a module: its own fields, and those of its computations and instructions."""
    # What stands in place of `constant({...})` is nobody's.
    unsaid = {LITERAL} if "{...}" in hlo else set()
    proto = read(_hlo.hlo_module_from_text(hlo).as_serialized_hlo_module_proto())
    computations = [read(data) for data in proto.get(3, ())]
    computation_names = {integer(each, 5): text(each, 1) for each in computations}
    names: dict[int, str] = {}
    found = {}
    for computation in computations:
        instructions = [read(data) for data in computation.get(2, ())]
        root = integer(computation, 6)
        for each in instructions:
            names[integer(each, ID)] = _name(each, names, root)
        found[text(computation, 1)] = {
            "root": names[root],
            "fields": _fields(computation, {1, 2, SHAPE, 5, 6}),
            "shape": [_fields(read(data), {3}) for data in computation.get(SHAPE, ())],
            "instructions": {
                names[integer(each, ID)]: {
                    **_fields(each, {NAME, *_REFERENCES, *unsaid}),
                    "operands": [names[number] for number in integers(each, OPERANDS)],
                    "waits for": sorted({names[number] for number in integers(each, CONTROL)}),
                    "calls": [computation_names[number] for number in integers(each, CALLED)],
                }
                for each in instructions
            },
        }
    return {
        "fields": _fields(proto, _MODULE_REFERENCES),
        "computations": found,
        "schedule": _schedule(proto, names, computation_names),
    }


def _name(instruction: Message, names: dict[int, str], root: int) -> str:
    own: str = text(instruction, NAME)
    if text(instruction, OPCODE) != "get-tuple-element" or integer(instruction, ID) == root:
        return own
    return f"{names[integers(instruction, OPERANDS)[0]]}#{integer(instruction, INDEX)}"


def _fields(message: Message, without: set[int]) -> dict[str, list[Any]]:
    return {
        str(number): [value if isinstance(value, int) else value.hex() for value in values]
        for number, values in sorted(message.items())
        if number not in without and values != [b""]
    }


def _schedule(
    proto: Message, names: dict[int, str], computation_names: dict[int, str]
) -> dict[str, list[str]]:
    """The order of execution of each computation, where the module has one."""
    order = {}
    for schedule in map(read, proto.get(7, ())):
        for entry in map(read, schedule.get(1, ())):
            for sequence in map(read, entry.get(2, ())):
                computation = computation_names[integer(entry, 1)]
                order[computation] = [names[number] for number in integers(sequence, 1)]
    return order


def answers(texts: list[str]) -> Iterator[dict[str, Any]]:
    """The fields, or XLA's first complaint, for each text."""
    for hlo in texts:
        try:
            yield module_fields(hlo)
        except (RuntimeError, ValueError) as refusal:
            yield {"error": str(refusal)[:500]}


if __name__ == "__main__":
    for answer in answers(json.load(sys.stdin)):
        print(json.dumps(answer), flush=True)
