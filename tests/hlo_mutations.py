"""Seeded damage to programs: texts that can still be read, and mostly mean something impossible."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import hlo_lint
from hlo_lint.hlo.ir import Instruction, Module


class Mutant(NamedTuple):
    """A text with one change."""

    kind: str
    """The thing that was changed: `a dimension`."""
    opcode: str
    """Of the instruction that was changed; `header` where it was none."""
    before: str
    after: str
    """The changed stretch."""
    text: str
    """The whole text."""


Mutation = Callable[[Instruction, Module, random.Random], str | None]
"""The changed text of an instruction; None where it has nothing of the kind."""

_type = re.compile(r"= (\(?[a-z][a-z0-9]*\[.*?) [a-z][a-z0-9\-]*\(").search
_arrays = re.compile(r"\b([a-z][a-z0-9]*)\[([\d,]+)\](\{[\d,]+(?::[^}]*)?\})?").finditer
_OTHER_TYPES = {"f32": "s32", "bf16": "s16", "s32": "f32", "pred": "s8", "u32": "f32"}


def _array(text: str, chance: random.Random, wanted: str = "") -> re.Match[str] | None:
    """One of the arrays in the type of an instruction."""
    found = _type(text)
    arrays = list(_arrays(text, found.start(1), found.end(1))) if found else []
    arrays = [each for each in arrays if not wanted or (each[3] and wanted in each[3])]
    return chance.choice(arrays) if arrays else None


def _dimension(instruction: Instruction, module: Module, chance: random.Random) -> str | None:
    text = instruction.text
    spot = _array(text, chance)
    if spot is None:
        return None
    sizes = spot[2].split(",")
    at = chance.randrange(len(sizes))
    sizes[at] = str(int(sizes[at]) + chance.choice((1, 2, 7)))
    return text[: spot.start(2)] + ",".join(sizes) + text[spot.end(2) :]


def _element_type(instruction: Instruction, module: Module, chance: random.Random) -> str | None:
    text = instruction.text
    spot = _array(text, chance)
    if spot is None:
        return None
    return text[: spot.start(1)] + _OTHER_TYPES.get(spot[1], "pred") + text[spot.end(1) :]


def _layout(instruction: Instruction, module: Module, chance: random.Random) -> str | None:
    text = instruction.text
    spot = _array(text, chance, wanted=",")
    if spot is None:
        return None
    order, colon, rest = spot[3][1:-1].partition(":")
    numbers = order.split(",")
    first, second = chance.sample(range(len(numbers)), 2)
    numbers[first], numbers[second] = numbers[second], numbers[first]
    layout = "{" + ",".join(numbers) + colon + rest + "}"
    return text[: spot.start(3)] + layout + text[spot.end(3) :]


def _in(pattern: str, change: Callable[[str], str]) -> Mutation:
    """Changes one number after a pattern that ends where an attribute begins."""
    find = re.compile(pattern).finditer

    def mutation(instruction: Instruction, module: Module, chance: random.Random) -> str | None:
        text = instruction.text
        spots = [
            (found.start() + number.start(), found.start() + number.end())
            for found in find(text)
            for number in re.finditer(r"\d+", found[0])
        ]
        if not spots:
            return None
        start, end = chance.choice(spots)
        return text[:start] + change(text[start:end]) + text[end:]

    return mutation


def _of_operands(change: Callable[[list[str], Instruction, random.Random], bool]) -> Mutation:
    """A mutation of the operands of one instruction."""

    def mutation(instruction: Instruction, module: Module, chance: random.Random) -> str | None:
        if not instruction.operands or "(" in instruction.row[4]:
            return None
        text = instruction.text
        begin = text.index(f" {instruction.opcode}(") + len(instruction.opcode) + 2
        end = text.index(")", begin)
        operands = text[begin:end].split(", ")
        if len(operands) != len(instruction.operands):
            return None
        if not change(operands, instruction, chance):
            return None
        return text[:begin] + ", ".join(operands) + text[end:]

    return mutation


def _drop(operands: list[str], instruction: Instruction, chance: random.Random) -> bool:
    del operands[chance.randrange(len(operands))]
    return True


def _exchange(operands: list[str], instruction: Instruction, chance: random.Random) -> bool:
    """Reads something of another type instead."""
    at = chance.randrange(len(operands))
    read = instruction.operands[at].instruction
    earlier = instruction.computation.instructions[: instruction.number]
    others = [each for each in earlier if read is not None and each.type_text != read.type_text]
    if not others:
        return False
    sign = "%" if operands[at].startswith("%") else ""
    operands[at] = sign + chance.choice(others).name
    return True


_calls = re.compile(r"\b(?:calls|to_apply|body|condition)=(%?)([\w.\-]+)").finditer


def _callee(instruction: Instruction, module: Module, chance: random.Random) -> str | None:
    text = instruction.text
    found = list(_calls(text))
    if not found or len(module.computations) < 3:
        return None
    spot = chance.choice(found)
    others = [each.name for each in module.computations if each.name != spot[2]]
    return text[: spot.start(2)] + chance.choice(others) + text[spot.end(2) :]


def _lost_done(instruction: Instruction, module: Module, chance: random.Random) -> str | None:
    """A done becomes another instruction that reads its start."""
    text = instruction.text
    found = re.search(r"\b(?:async|copy|all-gather|all-reduce|collective-permute)-done\(", text)
    return None if found is None else text.replace(found[0], "opt-barrier(", 1)


def _next(number: str) -> str:
    return str(int(number) + 1)


_KINDS: dict[str, Mutation] = {
    "a dimension": _dimension,
    "an element type": _element_type,
    "a layout": _layout,
    "an operand of another type": _of_operands(_exchange),
    "an operand dropped": _of_operands(_drop),
    "a dimension number out of range": _in(
        r"(?<!/\*)\b(?:dimensions|iota_dimension|lhs_contracting_dims|rhs_contracting_dims|index"
        r"|offset_dims|start_index_map|scatter_dims_to_operand_dims)=\{?[\d,]+\}?",
        lambda number: str(int(number) + 97),
    ),
    "a range": _in(r"\b(?:slice|padding|window|dynamic_slice_sizes)=\{?[^ ]*\d[^ ]*", _next),
    "a replica group": _in(r"\breplica_groups=\S*", _next),
    "a source or target": _in(r"\bsource_target_pairs=\{[^ ]*\}", _next),
    "a called computation": _callee,
    "a parameter's number": _in(r"\bparameter\(\d+\)", _next),
    "an index of an aliasing": _in(r"\boutput_to_operand_aliasing=\{[^=]*\}", _next),
    "a start without its done": _lost_done,
}


def _of_instruction(kind: str, module: Module, chance: random.Random) -> Mutant | None:
    change = _KINDS[kind]
    mark = MARKS.get(kind, "")
    instructions = [each for each in module.instructions() if mark in each.text]
    if not instructions:
        return None
    for _ in range(60):
        instruction = chance.choice(instructions)
        after = change(instruction, module, chance)
        if after is None or after == instruction.text:
            continue
        start, end = module.span(instruction)
        text = module.file.text
        return Mutant(
            kind, instruction.opcode, instruction.text, after, text[:start] + after + text[end:]
        )
    return None


def _swapped(module: Module, chance: random.Random) -> Mutant | None:
    """An instruction below one that reads it."""
    for _ in range(60):
        reader = chance.choice(chance.choice(module.computations).instructions)
        if reader.operands and (read := reader.operands[0].instruction) is not None:
            text = module.file.text
            (first, end), (begin, last) = module.span(read), module.span(reader)
            after = f"{text[:first]}{reader.text}{text[end:begin]}{read.text}{text[last:]}"
            return Mutant("an order", reader.opcode, read.text, reader.text, after)
    return None


def _header(module: Module, chance: random.Random) -> Mutant | None:
    """A number in the aliases or the types of the header."""
    spots = [
        (found.start() + number.start(), found.start() + number.end())
        for pattern in (r"input_output_alias=\{ .*? \}, ", r"entry_computation_layout=\{.*?->")
        for found in re.finditer(pattern, module.header)
        for number in re.finditer(r"(?<=[\[({,])\d+(?=[\]),}])", found[0])
    ]
    if not spots:
        return None
    start, end = chance.choice(spots)
    header = module.header[:start] + _next(module.header[start:end]) + module.header[end:]
    text = module.file.text.replace(module.header, header, 1)
    around = slice(max(start - 40, 0), end + 40)
    return Mutant("a number of the header", "header", module.header[around], header[around], text)


MARKS: dict[str, str] = {
    "a range": "slice=",
    "a replica group": "replica_groups=",
    "a source or target": "source_target_pairs=",
    "an index of an aliasing": "output_to_operand_aliasing=",
    "a start without its done": "-done(",
}
"""A pattern that a text must match, for a kind that few texts have."""
KINDS: Sequence[str] = (*_KINDS, "an order", "a number of the header")
"""The thing that is changed."""


def mutant(kind: str, text: str, chance: random.Random) -> Mutant | None:
    """One change of a kind, chosen by `chance`; None where a text has nothing of the kind."""
    module = hlo_lint.parse(text)
    if not module.computations or any(not each.rows for each in module.computations):
        return None
    if kind == "an order":
        return _swapped(module, chance)
    if kind == "a number of the header":
        return _header(module, chance)
    return _of_instruction(kind, module, chance)
