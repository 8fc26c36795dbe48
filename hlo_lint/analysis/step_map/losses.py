"""Properties that a pass lost of instructions that it kept, moved, converted or replaced."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from hlo_lint.analysis.device_groups import binds_shardings
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.side_effects import MARKERS, SHARDY
from hlo_lint.analysis.step_map.conserved import (
    HANDS_ON,
    PLACES,
    PROPERTIES,
    RUNS,
    Property,
    is_same_operation,
)
from hlo_lint.analysis.step_map.links import Link, LinkKind
from hlo_lint.dumps.transitions import may
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.opcodes import COMMUNICATES, EXTERNAL
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_before_metadata,
    attributes_of,
    opcode_of,
    type_of,
)

_WORDS: Final = tuple(dict.fromkeys(row.word for row in PROPERTIES))
"""Words in every instruction with any of the properties; a search for them is cheap."""
_OWN: Final = EXTERNAL | {"rng"}
"""Opcodes of which no two instructions are alike, whatever their attributes."""
_UNREPLACED: Final = HANDS_ON | {"call"}
"""Opcodes that are replaced for no loss: calls are inlined, with or without marks."""


class Loss(NamedTuple):
    """An instruction before and after a pass, and its lost properties."""

    old: Instruction
    new: Instruction
    """Of a replacement, the instruction of the same opcode, if it has one."""
    things: tuple[str, ...]
    """`the frontend attribute NAME`, `sharding`; empty for the metadata."""


def losses(pair: PassPair) -> Iterator[Loss]:
    """The instructions that lost properties, each with all lost properties."""
    annotates, is_free = may(pair.pass_name, "annotations"), may(pair.pass_name, "shardings")
    binds = binds_shardings(pair.before) and not is_free
    result = _result_without_sharding(pair) if binds else None
    for link in pair.map.links(may_lose):
        if link.kind == LinkKind.REPLACED:
            # The replacement may be above the new value: behind a convert, or in a tuple.
            parts = tuple(part for part in link.parts if part.opcode not in HANDS_ON)
            runs = any(part.opcode in RUNS - {link.old.opcode} for part in parts)
            is_call = link.old.opcode == "call" and not annotates
            if is_call and (lost := _lost_as_inlined(link, pair)):
                yield Loss(link.old, link.new, lost)
            if runs or not parts or link.old.opcode in _UNREPLACED:
                continue
            link = link._replace(parts=(link.new, *parts))
        # Another kind of fusion, or another target, is a kernel with a configuration of its own.
        elif link.kind != LinkKind.CONVERTED and _kind(link.old) != _kind(link.new):
            continue
        rows = [row for row in PROPERTIES if not _is_excused(row, link, pair, annotates, is_free)]
        things = [thing for row in rows for thing in row.lost(link)]
        if not binds:
            # Shardy's attributes are shardings: nothing reads them where there is no partitioner.
            things = [
                thing for thing in things if thing != "sharding's value" and SHARDY not in thing
            ]
        if link.kind == LinkKind.REPLACED:
            things = [thing for thing in things if _is_replaced(thing, link, binds)]
        if result == (link.old, link.new) and "sharding" in things:
            result = None
        if things or (not (annotates or is_free) and _is_untraced(link)):
            same = (part for part in link.parts if part.opcode == link.old.opcode)
            new = next(same, link.new) if link.kind == LinkKind.REPLACED else link.new
            yield Loss(link.old, new, tuple(things))
    if result and not annotates:
        yield Loss(*result, ("the sharding of the result",))


def _is_excused(row: Property, link: Link, pair: PassPair, annotates: bool, is_free: bool) -> bool:
    """True if the pass may drop a property."""
    if row.thing != "annotations":
        return may(pair.pass_name, row.thing)
    if not annotates and not (is_free and row.is_of_name):
        return False
    # A call of a library keeps its interface, whatever becomes of its annotations.
    is_call = link.old.opcode == "custom-call" and link.old.custom_call_target not in MARKERS
    return not (row.is_of_call and is_call and is_same_operation(link))


def _is_replaced(thing: str, link: Link, is_inner: bool) -> bool:
    """True if a replacement must have a property: users' attributes belong to the operation that
    they wrote."""
    if thing.startswith("sharding"):
        return is_inner
    rewritten = [part for part in link.parts if part.opcode == link.old.opcode]
    is_same = link.new.opcode == link.old.opcode or len(rewritten) == 1
    return is_same or not thing.startswith("the frontend attribute ") or " _" in thing


def _is_untraced(link: Link) -> bool:
    """True if an instruction has lost its only reference to the program."""
    is_here = link.kind in (LinkKind.KEPT, LinkKind.RENAMED, LinkKind.CLONED)
    is_told = link.old.opcode in (EXTERNAL if is_here else COMMUNICATES)
    if not is_told or link.kind in (LinkKind.MOVED, LinkKind.MERGED):
        return False
    metadata = link.old.attribute_text("metadata") or ""
    return "op_name=" in metadata and not any("metadata" in part.attributes for part in link.parts)


def _lost_as_inlined(link: Link, pair: PassPair) -> tuple[str, ...]:
    """Attributes of a call that forbid inlining, or that its instructions inherit."""
    held = link.old.frontend_attributes()
    lost = [name for name in PLACES if name in held and name not in link.new.frontend_attributes()]
    # The inlined instructions inherit it, but only a call has it. XLA:TPU inlines all.
    forbids = not (pair.after.has_tiles or may(pair.pass_name, "calls"))
    if forbids and held.get("inlineable") == "false":
        lost.insert(0, "inlineable")
    return tuple(f"the frontend attribute {name}" for name in lost[:1])


def _result_without_sharding(pair: PassPair) -> tuple[Instruction, Instruction] | None:
    """The old and the new root of the entry, if the result lost its sharding."""
    entries = pair.before.entry, pair.after.entry
    old, new = (None if entry is None else entry.root for entry in entries)
    if old is None or new is None or "sharding=" not in old.attributes_text:
        return None
    is_lost = "sharding" in old.attributes and "sharding" not in new.attributes
    return (old, new) if is_lost else None


def may_lose(record: InstructionRecord) -> bool:
    """True if an instruction may have properties to lose: few do."""
    if opcode_of(record) in _OWN or ":S(" in type_of(record):
        return True
    return _may_lose_any(attributes_of(record))


@lru_cache(maxsize=1 << 13)
def _may_lose_any(attributes: str) -> bool:
    """True if a line has properties to lose: few lines do."""
    if "backend_config=" in attributes:
        return True
    head = attributes_before_metadata(attributes)
    return bool(head) and any(map(head.__contains__, _WORDS))


def _kind(instruction: Instruction) -> str | None:
    """The kind of a fusion, whose emitter the configuration is for; the target of a custom call."""
    if instruction.opcode == "fusion":
        return instruction.attributes.get("kind")
    return instruction.custom_call_target if instruction.opcode == "custom-call" else None
