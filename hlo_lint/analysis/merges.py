"""Instructions that a pass took for one, and that are not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hlo_lint.analysis.device_groups import count_of, device_groups
from hlo_lint.analysis.lost_attributes import PLACES
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.side_effects import MARKERS
from hlo_lint.dumps.transitions import may
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.opcodes import COMMUNICATES
from hlo_lint.hlo.records import references_of

_ASKED: Final = ("algorithm", "operand_precision", "result_accuracy")
"""Attributes that ask for more precision than the default."""


def merges(change: PassPair) -> Iterator[tuple[Instruction, Instruction, Instruction, str]]:
    """Each reader of an instruction that is gone and that got another one, those two, and the
    difference between them: `results, those of another sharding`."""
    is_sharded = count_of(change.before, "num_partitions") > 1
    compares_shardings = is_sharded and not may(change.pass_name, "shardings")
    for computation in change.changed:
        before, after = computation.before, computation.after
        for number, position in computation.kept:
            if references_of(before.rows[number]) == references_of(after.rows[position]):
                continue
            old, new = before.at(number), after.at(position)
            for ours, theirs in zip(old.operands, new.operands, strict=False):
                one, other = ours.instruction, theirs.instruction
                if one is None or other is None or one.name in after.index:
                    continue
                was = before.instruction(other.name) if one.opcode == other.opcode else None
                if was and (what := _difference(one, was, change.before, compares_shardings)):
                    yield new, one, other, what


def _difference(
    one: Instruction, other: Instruction, module: Module, compares_shardings: bool
) -> str:
    """The difference between two that are written alike, or two that give random numbers."""
    if one.opcode == "rng":
        return "random numbers"
    alike = one.operand_names == other.operand_names and one.type_text == other.type_text
    if not alike or one.opcode == "parameter":
        return ""
    if one.opcode == "custom-call":
        if one.custom_call_target in MARKERS and one.custom_call_target != "Sharding":
            return ""
        if one.custom_call_target != other.custom_call_target:
            return f"results, those of {one.custom_call_target}"
        if one.attributes.get("backend_config") != other.attributes.get("backend_config"):
            return "results, by another backend_config"
    if any(name in one.attributes and name not in other.attributes for name in _ASKED):
        return "results, those of another precision"
    if one.opcode in COMMUNICATES:
        ours, theirs = (list(device_groups(collective, module)) for collective in (one, other))
        if ours != theirs:
            return "results, those of other devices"
    marked = [name for name in PLACES if name in one.attributes_text + other.attributes_text]
    for name in marked:
        if one.frontend_attributes().get(name) != other.frontend_attributes().get(name):
            return f"results, those with another frontend attribute {name}"
    shardings = (one.attributes.get("sharding"), other.attributes.get("sharding"))
    if compares_shardings and None not in shardings and shardings[0] != shardings[1]:
        return "results, those with another sharding"
    return ""
