"""Errors that a partitioner could make in one instruction, and rewrites that preserve every value.

Each is a function of an instruction that gives its new line, or None where it has none of the kind.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from benchmarks.plants import (
    Edit,
    Edits,
    cut_further,
    head,
    instead,
    other_constant,
    other_operation,
    with_operands,
)
from hlo_lint.analysis.walks import reached
from hlo_lint.engine.values.lowering.collectives import listed_groups
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import ArrayShape


def _array(instruction: Instruction | None) -> ArrayShape | None:
    """The shape, if it is that of one array with dimensions."""
    shape = instruction.shape_or_none if instruction is not None else None
    return shape if isinstance(shape, ArrayShape) and shape.dims else None


def _operand(instruction: Instruction) -> ArrayShape | None:
    """The shape of the only operand."""
    one = instruction.operands[0].instruction if len(instruction.operands) == 1 else None
    return _array(one)


def _spelled(shape: ArrayShape, dims: Sequence[int]) -> str:
    return f"{shape.dtype}[{','.join(map(str, dims))}]"


def _tail(instruction: Instruction, *dropped: str) -> str:
    """The attributes, but for some."""
    kept = (f", {key}={text}" for key, text in instruction.attributes.items() if key not in dropped)
    return "".join(kept)


def _with_attribute(instruction: Instruction, name: str, text: str) -> str:
    old = instruction.attributes[name]
    return instruction.text.replace(f"{name}={old}", f"{name}={text}", 1)


def _replaced(instruction: Instruction, operation: str) -> str:
    root, name = head(instruction)
    return f"{root}{name} = {instruction.type_text} {operation}"


def _of_device(instruction: Instruction | None) -> bool:
    """True for what is computed from the number of the device."""
    walk = reached(
        [instruction] if instruction is not None else [],
        lambda one: (
            [each.instruction for each in one.operands if each.instruction]
            if one.opcode in _COMPUTING
            else []
        ),
    )
    return any(one.opcode == "partition-id" for one in walk)


_COMPUTING = frozenset(
    "add and broadcast compare convert divide dynamic-slice multiply or remainder reshape select "
    "slice subtract".split()
)


def _groups(instruction: Instruction) -> list[list[int]]:
    if "replica_groups" not in instruction.attributes:
        return []
    return [list(group) for group in listed_groups(instruction)]


def _with_groups(instruction: Instruction, groups: Sequence[Sequence[int]]) -> str:
    text = ",".join("{" + ",".join(map(str, group)) + "}" for group in groups)
    return _with_attribute(instruction, "replica_groups", "{" + text + "}")


# ---- the errors


def _other_groups(instruction: Instruction, choice: random.Random) -> str | None:
    """Two devices in each other's group; of one group of a reduction its halves."""
    groups = _groups(instruction)
    if len(groups) > 1:
        one, other = choice.sample(groups, 2)
        at, to = choice.randrange(len(one)), choice.randrange(len(other))
        one[at], other[to] = other[to], one[at]
    elif len(groups) == 1 and len(groups[0]) > 2 and instruction.opcode == "all-reduce":
        half = len(groups[0]) // 2
        groups = [groups[0][:half], groups[0][half:]]
    else:
        return None
    return _with_groups(instruction, groups)


def _other_order(instruction: Instruction, choice: random.Random) -> str | None:
    """The devices of one group in another order."""
    groups = [group for group in _groups(instruction) if len(group) > 1]
    if instruction.opcode not in ("all-gather", "reduce-scatter", "all-to-all") or not groups:
        return None
    choice.choice(groups).reverse()
    return _with_groups(instruction, groups)


def _missing_sum(instruction: Instruction, choice: random.Random) -> str | None:
    if instruction.opcode != "all-reduce" or _operand(instruction) is None:
        return None
    return _replaced(instruction, f"copy({instruction.operands_text})")


def _sum_twice(instruction: Instruction, choice: random.Random) -> str | None:
    if instruction.opcode != "all-reduce" or _array(instruction) is None:
        return None
    tail = _tail(instruction)
    first = f"all-reduce({instruction.operands_text}){tail}"
    return instead(instruction, instruction.type_text, first, f"all-reduce(OWN){tail}")


def _reducer(instruction: Instruction, choice: random.Random) -> str | None:
    """Another operation as the root of what joins two numbers: of devices, or on one of them."""
    computation = instruction.computation
    if computation.is_entry or len(computation.parameters) != 2 or not instruction.is_root:
        return None
    if instruction.opcode in ("and", "or"):  # the first value is not neutral for the other one
        return None
    return other_operation(instruction, choice) if len(computation) == 3 else None


def _table(instruction: Instruction, choice: random.Random) -> str | None:
    """A table of the devices' offsets, each at the place of the next one."""
    shape = _array(instruction)
    users = [user for user in instruction.users if user.opcode in ("dynamic-slice", "gather")]
    if instruction.opcode != "constant" or shape is None or shape.rank != 1:
        return None
    if shape.dtype not in ("s32", "u32") or not any(map(_of_device, users)):
        return None
    numbers = [each.strip() for each in instruction.operands_text.strip("{} ").split(",")]
    return with_operands(instruction, "{" + ", ".join([*numbers[1:], numbers[0]]) + "}")


def _offset(instruction: Instruction, choice: random.Random) -> str | None:
    """A number that an offset of the device is multiplied with, or added to, that is one more."""
    opcodes = ("add", "divide", "multiply", "remainder", "subtract")
    return _one_more(instruction, opcodes, instruction.users)


def _bound(instruction: Instruction, choice: random.Random) -> str | None:
    """A mask of what is padding that ends one element later, or begins there."""
    spread = [user for user in instruction.users if user.opcode == "broadcast"]
    return _one_more(instruction, ("compare",), [one for user in spread for one in user.users])


def _one_more(
    instruction: Instruction, opcodes: Sequence[str], users: Sequence[Instruction]
) -> str | None:
    shape = instruction.shape_or_none
    if instruction.opcode != "constant" or str(shape) not in ("s32[]", "u32[]"):
        return None
    if not any(user.opcode in opcodes and _of_device(user) for user in users):
        return None
    return with_operands(instruction, str(int(instruction.operands_text) + 1))


def _indices(instruction: Instruction) -> list[str]:
    """The operands of a slice that starts where the device says, or of its update."""
    if instruction.opcode not in ("dynamic-slice", "dynamic-update-slice"):
        return []
    starts = instruction.operands[1 + (instruction.opcode != "dynamic-slice") :]
    if not any(_of_device(each.instruction) for each in starts):
        return []
    return instruction.operands_text.split(", ")


def _no_offset(instruction: Instruction, choice: random.Random) -> str | None:
    """Every device has the first part."""
    operands = _indices(instruction)
    first = 1 + (instruction.opcode != "dynamic-slice")
    fixed = [
        at
        for at in range(first, len(operands))
        if not _of_device(instruction.operands[at].instruction)
    ]
    if not fixed:
        return None
    changed = [operands[fixed[0]] if at >= first else each for at, each in enumerate(operands)]
    return with_operands(instruction, ", ".join(changed))


def _part_elsewhere(instruction: Instruction, choice: random.Random) -> str | None:
    """The part of another dimension."""
    operands = _indices(instruction)
    shape = _array(instruction)
    source = _array(instruction.operands[0].instruction) if operands else None
    if instruction.opcode != "dynamic-slice" or shape is None or source is None:
        return None
    (axis, *more) = [at for at in range(shape.rank) if shape.dims[at] != source.dims[at]] or [-1]
    if more or axis < 0:
        return None
    count = source.dims[axis] // shape.dims[axis]
    others = [at for at in range(shape.rank) if at != axis and source.dims[at] % count == 0]
    if not others:
        return None
    to = choice.choice(others)
    dims = list(source.dims)
    dims[to] //= count
    operands[1 + axis], operands[1 + to] = operands[1 + to], operands[1 + axis]
    sizes = ",".join(map(str, dims))
    part = f"dynamic-slice({', '.join(operands)}), dynamic_slice_sizes={{{sizes}}}"
    return instead(instruction, _spelled(shape, dims), part, "reshape(OWN)")


def _unmasked(instruction: Instruction, choice: random.Random) -> str | None:
    """A part with its padding as it is."""
    predicate = instruction.operands[0].instruction if instruction.operands else None
    if instruction.opcode != "select" or not _of_device(predicate):
        return None
    return _replaced(instruction, f"copy({instruction.operands_text.split(', ')[1]})")


def _filler(instruction: Instruction, choice: random.Random) -> str | None:
    """Another number in place of what is masked, or around a part."""
    if instruction.opcode != "constant" or not any(
        user.opcode == "pad"
        or (
            user.opcode == "broadcast"
            and any(one.opcode == "select" and _of_device(one) for one in user.users)
        )
        for user in instruction.users
    ):
        return None
    return other_constant(instruction)


def _halo(instruction: Instruction, choice: random.Random) -> str | None:
    """The elements next to those at the border."""
    if not any(user.opcode == "collective-permute" for user in instruction.users):
        return None
    return cut_further(instruction, choice)


def _halo_side(instruction: Instruction, choice: random.Random) -> str | None:
    """The elements of the neighbour, on the other side."""
    producers = [each.instruction for each in instruction.operands]
    if instruction.opcode != "concatenate" or not any(
        one is not None and one.opcode == "collective-permute" for one in producers
    ):
        return None
    first, *rest = instruction.operands_text.split(", ")
    return with_operands(instruction, ", ".join([*rest, first]))


def _uncut(instruction: Instruction, choice: random.Random) -> str | None:
    """A whole array with what pads its last part."""
    producer = instruction.operands[0].instruction if instruction.operands else None
    if producer is None or producer.opcode != "all-gather":
        return None
    return cut_further(instruction, choice)


def _pairs(instruction: Instruction) -> list[list[int]]:
    if instruction.opcode != "collective-permute":
        return []
    text = instruction.attributes.get("source_target_pairs", "")
    return [[int(one), int(other)] for one, other in re.findall(r"\{(\d+),(\d+)\}", text)]


def _with_pairs(instruction: Instruction, pairs: Sequence[Sequence[int]]) -> str:
    text = ",".join(f"{{{source},{target}}}" for source, target in pairs)
    return _with_attribute(instruction, "source_target_pairs", "{" + text + "}")


def _other_pair(instruction: Instruction, choice: random.Random) -> str | None:
    """Two devices receive what is for the other one."""
    pairs = _pairs(instruction)
    if len(pairs) < 2:
        return None
    one, other = choice.sample(pairs, 2)
    one[1], other[1] = other[1], one[1]
    return _with_pairs(instruction, pairs)


def _lost_pair(instruction: Instruction, choice: random.Random) -> str | None:
    """One device receives nothing."""
    pairs = _pairs(instruction)
    if len(pairs) < 2:
        return None
    pairs.pop(choice.randrange(len(pairs)))
    return _with_pairs(instruction, pairs)


def _backwards(instruction: Instruction, choice: random.Random) -> str | None:
    """Each device sends to that from which it should receive."""
    pairs = _pairs(instruction)
    return _with_pairs(instruction, [pair[::-1] for pair in pairs]) if pairs else None


def _replica(instruction: Instruction, choice: random.Random) -> str | None:
    """The number of the replica in place of that of the partition."""
    return _replaced(instruction, "replica-id()") if instruction.opcode == "partition-id" else None


def _of_replicas(instruction: Instruction, choice: random.Random) -> str | None:
    """Without a channel replicas exchange, of which there is one."""
    if instruction.opcode != "all-reduce" or _array(instruction) is None:
        return None
    dropped = "channel_id", "replica_groups", "use_global_device_ids"
    call = f"all-reduce({instruction.operands_text}){_tail(instruction, *dropped)}"
    return _replaced(instruction, f"{call}, replica_groups={{}}")


def _elsewhere(opcode: str) -> Edit:
    """The parts of another dimension."""

    def edit(instruction: Instruction, choice: random.Random) -> str | None:
        source, shape, groups = _operand(instruction), _array(instruction), _groups(instruction)
        axes = instruction.integers_attribute("dimensions")
        if instruction.opcode != opcode or source is None or shape is None or not (axes and groups):
            return None
        others = [
            at
            for at, size in enumerate(source.dims)
            if at != axes[0] and (opcode == "all-gather" or size % len(groups[0]) == 0)
        ]
        if not others:
            return None
        to = choice.choice(others)
        dims = list(source.dims)
        dims[to] = dims[to] * shape.dims[axes[0]] // source.dims[axes[0]]
        tail = f"{_tail(instruction, 'dimensions')}, dimensions={{{to}}}"
        exchange = f"{opcode}({instruction.operands_text}){tail}"
        return instead(instruction, _spelled(shape, dims), exchange, "reshape(OWN)")

    return edit


def _first_sum(instruction: Instruction, choice: random.Random) -> str | None:
    """Every device has the sum of the first parts."""
    source, shape = _operand(instruction), _array(instruction)
    if instruction.opcode != "reduce-scatter" or source is None or shape is None:
        return None
    parts = ", ".join(f"[0:{size}]" for size in shape.dims)
    whole = f"all-reduce({instruction.operands_text}){_tail(instruction, 'dimensions')}"
    return instead(
        instruction, _spelled(shape, source.dims), whole, f"slice(OWN), slice={{{parts}}}"
    )


def _not_sent(instruction: Instruction, choice: random.Random) -> str | None:
    """Each device keeps what it should exchange."""
    source, shape = _operand(instruction), _array(instruction)
    if instruction.opcode not in ("all-to-all", "collective-permute") or source is None:
        return None
    if shape is None or source.dims != shape.dims:
        return None
    return _replaced(instruction, f"copy({instruction.operands_text})")


ERRORS: Edits = {
    "other groups": _other_groups,
    "a group in another order": _other_order,
    "a missing all-reduce": _missing_sum,
    "an all-reduce too many": _sum_twice,
    "another reducer": _reducer,
    "another device's offset": _table,
    "an offset by one more": _offset,
    "no offset": _no_offset,
    "a part of another dimension": _part_elsewhere,
    "padding that is not masked": _unmasked,
    "a mask off by one": _bound,
    "another number as padding": _filler,
    "padding that is not cut off": _uncut,
    "a halo off by one": _halo,
    "a halo on the other side": _halo_side,
    "another source-target pair": _other_pair,
    "a lost source-target pair": _lost_pair,
    "pairs the other way round": _backwards,
    "replica for partition": _replica,
    "a sum of replicas for one of partitions": _of_replicas,
    "a gather along another dimension": _elsewhere("all-gather"),
    "a reduce-scatter of another dimension": _elsewhere("reduce-scatter"),
    "a reduce-scatter without its offset": _first_sum,
    "an exchange of another dimension": _elsewhere("all-to-all"),
    "an exchange that is lost": _not_sent,
}


# ---- the rewrites


def _two_steps(instruction: Instruction, choice: random.Random) -> str | None:
    """An all-reduce as a reduce-scatter and an all-gather."""
    shape, groups = _array(instruction), _groups(instruction)
    if instruction.opcode != "all-reduce" or shape is None or not groups:
        return None
    axes = [at for at, size in enumerate(shape.dims) if size % len(groups[0]) == 0]
    if not axes or len({len(group) for group in groups}) > 1:
        return None
    axis = choice.choice(axes)
    dims = list(shape.dims)
    dims[axis] //= len(groups[0])
    tail = f"{_tail(instruction)}, dimensions={{{axis}}}"
    gather = f"{_tail(instruction, 'to_apply')}, dimensions={{{axis}}}"
    first = f"reduce-scatter({instruction.operands_text}){tail}"
    return instead(instruction, _spelled(shape, dims), first, f"all-gather(OWN){gather}")


def _summed_in_order(instruction: Instruction, choice: random.Random) -> str | None:
    """The devices of each group of a reduction, and the groups, in another order."""
    groups = _groups(instruction)
    if instruction.opcode != "all-reduce" or max(map(len, groups), default=0) < 3:
        return None
    return _with_groups(instruction, [group[::-1] for group in groups[::-1]])


def _around(operation: str) -> Edit:
    """An operation on what devices exchange, and the same one back on what they receive."""

    def edit(instruction: Instruction, choice: random.Random) -> str | None:
        source, shape = _operand(instruction), _array(instruction)
        if instruction.opcode not in ("all-gather", "all-to-all", "collective-permute"):
            return None
        if source is None or shape is None or shape.dtype not in ("f32", "bf16", "s32"):
            return None
        free = [
            at
            for at in range(shape.rank)
            if at not in (instruction.integers_attribute("dimensions") or ()) and shape.dims[at] > 1
        ]
        if operation == "reverse" and not free:
            return None
        tail = f", dimensions={{{choice.choice(free)}}}" if operation == "reverse" else ""
        root, name = head(instruction)
        call = f"{instruction.opcode}({name}.own){_tail(instruction)}"
        return (
            f"{name}.own = {_spelled(source, source.dims)} "
            f"{operation}({instruction.operands_text}){tail}\n"
            f"  {name}.sent = {instruction.type_text} {call}\n"
            f"  {root}{name} = {instruction.type_text} {operation}({name}.sent){tail}"
        )

    return edit


def _by_complement(instruction: Instruction, choice: random.Random) -> str | None:
    """A mask of what is padding, as one of what is none."""
    predicate = instruction.operands[0].instruction if instruction.operands else None
    if instruction.opcode != "select" or predicate is None or not _of_device(predicate):
        return None
    mask, one, other = instruction.operands_text.split(", ")
    return instead(instruction, predicate.type_text, f"not({mask})", f"select(OWN, {other}, {one})")


def _renumbered(instruction: Instruction, choice: random.Random) -> str | None:
    """The number of the device by way of a larger one."""
    if instruction.opcode != "partition-id":
        return None
    root, name = head(instruction)
    return (
        f"{name}.own = u32[] partition-id()\n"
        f"  {name}.extra = u32[] constant(7)\n"
        f"  {name}.sum = u32[] add({name}.own, {name}.extra)\n"
        f"  {root}{name} = u32[] subtract({name}.sum, {name}.extra)"
    )


REWRITES: Edits = {
    "a sum in two steps": _two_steps,
    "a sum in another order": _summed_in_order,
    "sent with the other sign": _around("negate"),
    "sent in another order": _around("reverse"),
    "a mask as its complement": _by_complement,
    "another number of the device": _renumbered,
}
