"""Distinct instructions that a pass merged."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis.calls import positions_with
from hlo_lint.analysis.device_groups import binds_shardings, device_groups
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.side_effects import MARKERS
from hlo_lint.analysis.step_map.conserved import PLACES
from hlo_lint.analysis.step_map.links import LinkKind
from hlo_lint.analysis.step_map.losses import may_lose
from hlo_lint.dumps.transitions import may
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.opcodes import COMMUNICATES


def merges(pair: PassPair) -> Iterator[tuple[Instruction, Instruction, str]]:
    """Removed instructions, each with the old instruction that its readers read now.

    The difference of the two is a noun phrase about the second: `a different sharding`.
    """
    compares_shardings = binds_shardings(pair.before) and not may(pair.pass_name, "shardings")
    has_places = any(
        True for part in pair.removed for name in PLACES for _ in positions_with(part, name)
    )
    for link in pair.map.links((lambda _: True) if has_places else may_lose):
        gone, kept = link.old, link.old.computation.instruction(link.new.name)
        if link.kind != LinkKind.MERGED or kept is None or gone.opcode != kept.opcode:
            continue
        if difference := _difference(gone, kept, pair.before, compares_shardings):
            yield gone, link.new, difference


def _difference(
    gone: Instruction, kept: Instruction, module: Module, compares_shardings: bool
) -> str:
    """The difference between instructions of equal opcode, operands and type, or ""."""
    if gone.opcode == "rng":
        return "different random numbers"
    alike = gone.operand_names == kept.operand_names and gone.type_text == kept.type_text
    if not alike or gone.opcode == "parameter":
        return ""
    if gone.opcode == "custom-call":
        if gone.custom_call_target in MARKERS and gone.custom_call_target != "Sharding":
            return ""
        if gone.custom_call_target != kept.custom_call_target:
            return f"the target {kept.custom_call_target}"
        if gone.attributes.get("backend_config") != kept.attributes.get("backend_config"):
            return "a different backend_config"
    if gone.opcode in COMMUNICATES:
        ours, theirs = (list(device_groups(collective, module)) for collective in (gone, kept))
        if ours != theirs:
            return "different devices"
    marked = [name for name in PLACES if name in gone.attributes_text + kept.attributes_text]
    for name in marked:
        if gone.frontend_attributes().get(name) != kept.frontend_attributes().get(name):
            return f"a different frontend attribute {name}"
    shardings = (gone.attributes.get("sharding"), kept.attributes.get("sharding"))
    # Only a partitioner that is still to come reads shardings.
    if compares_shardings and None not in shardings and shardings[0] != shardings[1]:
        return "a different sharding"
    return ""
