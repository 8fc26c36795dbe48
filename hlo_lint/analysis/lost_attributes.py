"""Attributes that a pass lost of instructions that it kept, moved or replaced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from hlo_lint.analysis.device_groups import count_of
from hlo_lint.analysis.pass_pairs import PassPair, is_clone
from hlo_lint.analysis.side_effects import MARKERS
from hlo_lint.dumps.transitions import may
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.opcodes import COMMUNICATES, EXTERNAL, RUNS_SCHEDULE, TUPLES
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_before_metadata,
    attributes_of,
    opcode_of,
)
from hlo_lint.text.patterns import late

PLACES: Final = ("_xla_compute_type", "_xla_stream_annotation")
"""Frontend attributes that say where an instruction runs."""
_KEPT: Final = (
    "api_version",
    "async_execution_thread",
    "backend_config",
    "channel_id",
    "constrain_layout",
    "custom_call_has_side_effect",
    "infeed_config",
    "is_composite",
    "is_host_transfer",
    "is_stable",
    "operand_layout_constraints",
    "origin",
    "outfeed_config",
    "padding_type",
    "parameter_replication",
    "result_accuracy",
    "schedule",
    "sharding",
    "statistics",
    "use_global_device_ids",
)
_SAME: Final = (
    "api_version",
    "async_execution_thread",
    "frontend_attributes",
    "infeed_config",
    "origin",
    "outfeed_config",
    "schedule",
)
"""Attributes whose value must not change if an instruction keeps its name, operands and type."""
_find_fields = late(
    r'"(force_earliest_schedule|operation_queue_id|wait_on_operation_queues)":\s*'
    r'(?:true|"?[1-9]|\["?[0-9])|"kind":\s*"__triton".*"(block_level_fusion_config)"'
).findall
"""Fields of XLA:GPU's configurations that say where and when an instruction runs, and how Triton
tiles a fusion."""
_MANUAL: Final = "manual}"
"""The mark of a sharding with manual devices: the program itself handles them."""
_RESHARDED: Final = "the sharding's value"
_OF_A_NAME: Final = frozenset(
    {*_KEPT, _RESHARDED, "the manual devices of the sharding"} - {"origin"}
)
"""Attributes that a clone under a new name may lack: it may be of a different kind."""
OF_A_CALL: Final = frozenset(
    {"api_version", "backend_config", "channel_id", "custom_call_has_side_effect"}
)
"""Attributes that a custom call keeps even if its annotations change."""
_HANDED_ON: Final = ("backend_config", "channel_id", "use_global_device_ids")
"""Attributes that an operation keeps when it becomes asynchronous."""
_HANDS_ON: Final = TUPLES | {"bitcast", "copy", "reshape"}
"""Opcodes whose operand may have the mark instead."""
_RUNS: Final = RUNS_SCHEDULE | {"fusion"}
"""Opcodes whose computations may have the mark instead."""
_WORDS: Final = (*(f"{name}=" for name in _KEPT), "frontend_attributes=")
"""Words in every instruction with any of the attributes; a search for them is cheap."""
_SAYS_WHO_MADE: Final = frozenset({"is_spmd_generated"})
"""Frontend attributes that name the pass that made an instruction; other passes may drop them."""
_KEEPS_CALL: Final = ('inlineable="false"', *(f"{name}=" for name in PLACES))
"""Frontend attributes of a call that forbid inlining, or that its instructions inherit."""


class Loss(NamedTuple):
    """An instruction before and after a pass, and its lost attributes."""

    old: Instruction
    new: Instruction
    things: tuple[str, ...]
    """`the frontend attribute NAME`, `sharding`; empty for the metadata."""


def losses(change: PassPair) -> Iterator[Loss]:
    """The instructions that lost attributes, each with all lost attributes."""
    is_free = may(change.pass_name, "shardings")
    is_parted = count_of(change.before, "num_partitions") > 1
    handled = set[str]()
    roots = _roots_without_sharding(change) if is_parted and not is_free else None
    for loss in _lost_as_kept(change, is_free=is_free, is_parted=is_parted):
        handled.add(loss.old.name)
        if roots and (loss.old.name, loss.new.name) == (roots[0].name, roots[1].name):
            roots = None
        yield loss
    if roots:
        yield Loss(*roots, ("the sharding of the result",))
    for old, new, name in _inlined(change):
        yield Loss(old, new, (f"the frontend attribute {name}",))
    for old, new in _unstable_sorts(change):
        yield Loss(old, new, ("is_stable",))
    for old, new, parts in change.succeeded(_may_start):
        handled.add(old.name)
        things = _lost_when_started(old, new, parts)
        if things or _is_untraced(old, parts):
            yield Loss(old, new, things)
    for computation in change.changed:
        for old, new in computation.replaced(_has_place):
            if old.name in handled:
                continue
            # The replacement may be above the new value: behind a convert, or in a tuple.
            replacements = [
                part for part in computation.made_for(new) if part.opcode not in _HANDS_ON
            ]
            # After the partitioner, only the root has a sharding.
            is_inner = is_parted and not (is_free or old.is_root or new.opcode in _HANDS_ON)
            things = _lost_when_replaced(old, new, replacements, is_inner=is_inner)
            if things or _is_untraced(old, replacements):
                yield Loss(old, new, things)
        for old, new in computation.replaced(_has_origin):
            is_same = new.opcode == old.opcode and old.name not in handled
            if is_same and "origin" not in new.attributes:
                yield Loss(old, new, ("origin",))


def _lost_as_kept(change: PassPair, *, is_free: bool, is_parted: bool) -> Iterator[Loss]:
    """The losses of instructions that the pass kept, or moved unchanged."""
    for old, new, is_renamed in _kept(change):
        if not _may_have_lost(old, new) or _kind(old) != _kind(new):
            continue
        things = _lost(old, new)
        if not is_parted and _RESHARDED in things:
            things.remove(_RESHARDED)
        if things and is_renamed and old.computation.name != new.computation.name:
            held = _names_on(change.runners(new.computation))
            things = [thing for thing in things if thing.rpartition(" ")[2] not in held]
        excused = _OF_A_NAME if is_free or is_renamed else frozenset[str]()
        is_call = old.opcode == "custom-call" and old.custom_call_target not in MARKERS
        if is_call and _is_same(old, new):
            excused -= OF_A_CALL
        things = [thing for thing in things if thing not in excused]
        if things or not (is_renamed or is_free or not _loses_metadata(old, new)):
            yield Loss(old, new, tuple(things))


def _lost_when_started(
    old: Instruction, new: Instruction, parts: Sequence[Instruction]
) -> tuple[str, ...]:
    """The losses of an operation that became asynchronous, synchronous or combined."""
    things = [f"the frontend attribute {name}" for name in _names_on([old]) - _names_on(parts)]
    if len(old.operand_names) == len(new.operand_names):
        held = {name for part in parts for name in part.attributes}
        things += [
            name
            for name in _HANDED_ON
            if name in {*old.attributes} - held
            # The attribute of a start is about the start; that of its operation is not printed.
            and not (
                name == "backend_config"
                and (old.opcode.endswith("-start") or old.opcode not in COMMUNICATES)
            )
        ]
    return tuple(sorted(things))


def _lost_when_replaced(
    old: Instruction, new: Instruction, replacements: Sequence[Instruction], *, is_inner: bool
) -> tuple[str, ...]:
    """The losses of an operation that a pass replaced by `replacements`, with the value `new`."""
    if not replacements or any(part.opcode in _RUNS - {old.opcode} for part in replacements):
        return ()
    # Attributes of users belong to the operation that they wrote.
    rewritten = [part for part in replacements if part.opcode == old.opcode]
    is_same = new.opcode == old.opcode or len(rewritten) == 1
    names = {name for name in _names_on([old]) if is_same or name.startswith("_")}
    lost = sorted(names - _names_on([new, *replacements]))
    things = [f"the frontend attribute {name}" for name in lost]
    exchanges = [part for part in replacements if part.opcode in COMMUNICATES]
    has_channel = any("channel_id" in part.attributes for part in exchanges)
    if exchanges and "channel_id" in old.attributes and not has_channel:
        things.append("channel_id")
    has_accuracy = any("result_accuracy" in part.attributes for part in replacements)
    if rewritten and "result_accuracy" in old.attributes and not has_accuracy:
        things.append("result_accuracy")
    if is_inner and "sharding" in {*old.attributes} - {*new.attributes}:
        things.append("sharding")
    return tuple(things)


def _names_on(instructions: Iterable[Instruction]) -> set[str]:
    """The names of the frontend attributes of some instructions."""
    names = {name for instruction in instructions for name in instruction.frontend_attributes()}
    return names - _SAYS_WHO_MADE


def _has_place(record: InstructionRecord) -> bool:
    attributes = attributes_of(record)
    names = ("channel_id=", "frontend_attributes=", "result_accuracy=", "sharding=")
    is_marked = any(map(attributes.__contains__, names))
    # Calls are inlined, with or without marks.
    return is_marked and opcode_of(record) not in _HANDS_ON | {"call"}


def _has_origin(record: InstructionRecord) -> bool:
    return "origin=" in attributes_of(record)


def _kept(change: PassPair) -> Iterator[tuple[Instruction, Instruction, bool]]:
    """The instructions that the pass kept, with True if it renamed or moved them."""
    for computation in change.changed:
        for old, new in computation.with_other_attributes(_may_lose):
            yield old, new, False
        for old, new, _ in computation.copies(_may_lose):
            yield old, new, False
    for old, new in change.renamed("while", _is_marked):
        yield old, new, True
    for old, new in change.moved(_may_lose):
        yield old, new, True


def _inlined(change: PassPair) -> Iterator[tuple[Instruction, Instruction, str]]:
    """Calls that a pass inlined despite an attribute: the call, its inlined root, the attribute."""
    for computation in change.changed:
        before, after = computation.before, computation.after
        for call in before.with_opcode("call"):
            text = call.attributes_text
            marks = [mark.partition("=")[0] for mark in _KEEPS_CALL if mark in text]
            if call.name in after.index or not marks:
                continue
            body = change.before.callee(call)
            root = None if body is None else body.root
            for new in map(after.at, computation.added) if root else ():
                if new.name not in before.index and root and is_clone(root.row, new.row):
                    held = _names_on([new])
                    # Inlined instructions inherit the call's attributes. XLA:TPU inlines all.
                    if not change.after.has_tiles:
                        held.discard("inlineable")
                    lost = [mark for mark in marks if mark not in held]
                    yield from ((call, new, mark) for mark in lost[:1])


def _unstable_sorts(change: PassPair) -> Iterator[tuple[Instruction, Instruction]]:
    """Removed stable sorts, each with a new unstable sort of fewer of the same arrays."""
    for computation in change.changed:
        before, after = computation.before, computation.after
        for old in before.with_opcode("sort"):
            if old.name in after.index or old.attributes.get("is_stable") != "true":
                continue
            for new in after.with_opcode("sort"):
                # In a sort of a single array, equal elements are indistinguishable.
                is_part = 1 < len(new.operand_names) < len(old.operand_names)
                if (
                    is_part
                    and new.name not in before.index
                    and new.attributes.get("is_stable") != "true"
                    and {*new.operand_names} <= {*old.operand_names}
                ):
                    yield old, new


def _roots_without_sharding(change: PassPair) -> tuple[Instruction, Instruction] | None:
    """The old and the new root of the entry, if the result lost its sharding."""
    before, after = change.before.entry, change.after.entry
    if before is None or after is None:
        return None
    old, new = before.root, after.root
    if old is None or new is None or "sharding=" not in old.attributes_text:
        return None
    if "sharding" not in old.attributes or "sharding" in new.attributes:
        return None
    return old, new


def _is_marked(record: InstructionRecord) -> bool:
    attributes = attributes_of(record)
    return "frontend_attributes=" in attributes or "origin=" in attributes


def _may_start(record: InstructionRecord) -> bool:
    attributes = attributes_of(record)
    is_collective = opcode_of(record) in COMMUNICATES and "channel_id=" in attributes
    is_marked = opcode_of(record) not in TUPLES and "frontend_attributes=" in attributes
    return is_collective or is_marked


def _may_lose(record: InstructionRecord) -> bool:
    return opcode_of(record) in EXTERNAL or _may_lose_any(attributes_of(record))


@lru_cache(maxsize=1 << 13)
def _may_lose_any(attributes: str) -> bool:
    """True if a line has attributes to lose: few lines do."""
    if "backend_config=" in attributes:
        return True
    head = attributes_before_metadata(attributes)
    return bool(head) and any(map(head.__contains__, _WORDS))


def _may_have_lost(old: Instruction, new: Instruction) -> bool:
    """True if an attribute's text is gone or different: most changed lines keep them all."""
    ours, theirs = old.attributes_text, new.attributes_text
    if any(f", {name}=" in ours and f", {name}=" not in theirs for name in (*_KEPT, "metadata")):
        return True
    if _MANUAL in ours and _MANUAL not in theirs:
        return True
    if _fields(old) != _fields(new):
        return True
    return any(
        f", {name}=" in ours and old.attribute_text(name) != new.attribute_text(name)
        for name in ("sharding", *_SAME)
    )


def _fields(instruction: Instruction) -> list[str]:
    """The fields of the configuration that must be kept."""
    names = _find_fields(instruction.attributes_text)
    return [place or tiles for place, tiles in names]


def _kind(instruction: Instruction) -> str | None:
    """The kind of a fusion, whose emitter the configuration is for; the target of a custom call."""
    match instruction.opcode:
        case "fusion":
            return instruction.attributes.get("kind")
        case "custom-call":
            return instruction.custom_call_target
        case _:
            return None


def _lost(old: Instruction, new: Instruction) -> list[str]:
    ours, theirs = old.attributes, new.attributes
    lost: list[str] = [name for name in _KEPT if name in ours and name not in theirs]
    if old.opcode in ("bitcast", "fusion") and "sharding" in lost:
        lost.remove("sharding")  # created after the partitioner, which consumed the sharding
    if _MANUAL in ours.get("sharding", "") and _MANUAL not in theirs.get("sharding", _MANUAL):
        lost.append("the manual devices of the sharding")
    elif (
        (old.name, old.type_text) == (new.name, new.type_text)
        and "sharding" in ours
        and ours["sharding"] != theirs.get("sharding", ours["sharding"])
    ):
        lost.append(_RESHARDED)
    if old.name == new.name and "backend_config" in theirs:
        there, fields = _fields(new), _fields(old)
        if '"__triton"' not in theirs["backend_config"]:
            fields = [field for field in fields if field != "block_level_fusion_config"]
        lost += [f"{field} of the backend_config" for field in fields if field not in there]
    held = {} if old.opcode in TUPLES else old.frontend_attributes()
    left = new.frontend_attributes()
    gone = held.keys() - left - _SAYS_WHO_MADE
    lost += [f"the frontend attribute {name}" for name in sorted(gone)]
    if _is_same(old, new):
        others = [name for name in held if left.get(name, held[name]) != held[name]]
        lost += [f"the frontend attribute {name}'s value" for name in sorted(others)]
        lost += [
            f"{name}'s value"
            for name in _SAME
            if name != "frontend_attributes" and ours.get(name) != theirs.get(name, ours.get(name))
        ]
    return lost


def _is_same(old: Instruction, new: Instruction) -> bool:
    return (old.name, old.type_text, old.operand_names) == (
        new.name,
        new.type_text,
        new.operand_names,
    )


def _is_untraced(old: Instruction, replacements: Iterable[Instruction]) -> bool:
    """True if a collective has lost its only reference to the program."""
    return (
        old.opcode in COMMUNICATES
        and "op_name=" in old.attributes.get("metadata", "")
        and not any("metadata" in part.attributes for part in replacements)
    )


def _loses_metadata(old: Instruction, new: Instruction) -> bool:
    return (
        old.opcode in EXTERNAL
        and "op_name=" in old.attributes.get("metadata", "")
        and "metadata" not in new.attributes
    )
