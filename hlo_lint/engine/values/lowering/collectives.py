"""The devices of a mesh, simulated: each has its own copy of every value in one program.

A collective reads the values of the other devices of its group. Partitions and replicas are
numbered alike; a module that has several of both is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from hlo_lint.engine.values.lowering.graph import (
    Graph,
    LoweredValue,
    Node,
    NotLowered,
    assembled,
    leaf_nodes,
)
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.opcodes import BINARY
from hlo_lint.hlo.shape import ArrayShape, TupleShape

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.lower import Lowering, Values

_STARTS: Final = frozenset({"all-gather-start", "all-reduce-start", "collective-permute-start"})
_DONES: Final = frozenset({"all-gather-done", "all-reduce-done", "collective-permute-done"})
LOWERED: Final = (
    frozenset(
        "all-gather all-reduce all-to-all collective-broadcast collective-permute "
        "partition-id reduce-scatter replica-id".split()
    )
    | _STARTS
    | _DONES
)
"""Opcodes that read which device they run on, or the values of other devices."""


def device_count(module: Module) -> int:
    """The number of devices that a module runs on, after it was partitioned for them.

    Before, it is one program over whole arrays: only what communicates tells.
    """
    counts = []
    for name in ("replica_count", "num_partitions"):
        count = module.attribute_or_none(name)
        counts.append(count if isinstance(count, int) else 1)
    if not any(LOWERED & computation.opcodes for computation in module.computations):
        return 1
    if counts == [1, 1]:
        return max(_joined(module), default=0) + 1
    replicas, partitions = counts
    if replicas > 1 and partitions > 1:
        raise NotLowered(f"it has {replicas} replicas of {partitions} partitions")
    return max(counts)


def _joined(module: Module) -> Iterator[int]:
    """The devices that each collective of a module names, where the header gives no number."""
    for computation in module.computations:
        for opcode in LOWERED & computation.opcodes:
            for instruction in computation.with_opcode(opcode):
                yield from chain.from_iterable(listed_groups(instruction))
                pairs = instruction.attribute_or_none("source_target_pairs")
                for pair in pairs if isinstance(pairs, tuple) else ():
                    yield from pair if isinstance(pair, tuple) else ()


def lowered(lowering: Lowering, instruction: Instruction, operands: list[Values]) -> Values:
    """The results of a collective on each device."""
    devices = range(lowering.devices)
    opcode = instruction.opcode
    if opcode in _DONES:
        is_pair = opcode != "all-reduce-done"
        return [_second(value) if is_pair else value for value in operands[0]]
    shape = lowering.shape(instruction)
    if opcode in ("partition-id", "replica-id"):
        of_partitions = isinstance(lowering.module.attribute_or_none("num_partitions"), int)
        counts = (opcode == "partition-id") == (of_partitions or lowering.devices == 1)
        return [lowering.nodes.scalar(device if counts else 0, "u32") for device in devices]
    base = opcode.removesuffix("-start")
    rows = [[node for values in operands for node in leaf_nodes(values[at])] for at in devices]
    if base == "collective-permute":
        results = _permuted(lowering, instruction, rows)
    else:
        results = [[] for _ in devices]
        for group in _groups(instruction, lowering.devices):
            parts = _exchanged(lowering, instruction, base, [rows[member] for member in group])
            for member, part in zip(group, parts, strict=True):
                results[member] = part
    if opcode in ("all-gather-start", "collective-permute-start"):
        if not isinstance(shape, TupleShape) or len(shape.elements) < 2:
            raise NotLowered(f"the type of {opcode} is a pair")
        contexts = lowering.contexts(shape.elements)
        sources = operands[0] if len(operands) == 1 else list(zip(*operands, strict=True))
        return [
            (sources[at], assembled(shape.elements[1], iter(results[at])), *contexts)
            for at in devices
        ]
    return [assembled(shape, iter(results[at])) for at in devices]


def _second(value: LoweredValue) -> LoweredValue:
    return value[1] if isinstance(value, tuple) else value


def _groups(instruction: Instruction, devices: int) -> list[tuple[int, ...]]:
    """The devices that exchange values, group by group; all of them where none are named."""
    listed = listed_groups(instruction)
    # With a channel and without global ids the groups are of replicas, and all partitions of them
    # take part (`GetCollectiveOpGroupMode`, kCrossReplicaAndPartition).
    has_channel = "channel_id" in instruction.attributes
    is_global = instruction.attribute("use_global_device_ids") is True
    if not listed or (
        [tuple(group) for group in listed] == [(0,)] and has_channel and not is_global
    ):
        return [tuple(range(devices))]
    members = sorted(member for group in listed for member in group)
    if members != list(range(devices)):
        raise NotLowered(f"the groups of %{instruction.name} are not the {devices} devices")
    return [tuple(group) for group in listed]


def listed_groups(instruction: Instruction) -> Sequence[Sequence[int]]:
    """The groups that a collective names; none for all devices."""
    from hlo_lint.hlo.attributes import IotaReplicaGroups, MeshReplicaGroups, ReplicaGroupList

    groups = instruction.attribute("replica_groups")
    if isinstance(groups, ReplicaGroupList | IotaReplicaGroups | MeshReplicaGroups):
        return groups.groups
    return ()


def _exchanged(
    lowering: Lowering, instruction: Instruction, opcode: str, rows: list[list[Node]]
) -> list[list[Node]]:
    """The results of each member of a group; `rows` are the operands of each member."""
    nodes, count = lowering.nodes, len(rows)
    columns = list(zip(*rows, strict=True))
    axis = instruction.attribute("dimensions")
    axis = axis[0] if isinstance(axis, tuple) and axis else 0
    axis = axis if isinstance(axis, int) else 0
    match opcode:
        case "all-reduce":
            sums = [_reduced(lowering, instruction, column) for column in columns]
            return [sums for _ in rows]
        case "reduce-scatter":
            sums = [_reduced(lowering, instruction, column) for column in columns]
            return [
                [_shard(lowering, total, axis, count, at) for total in sums] for at in range(count)
            ]
        case "all-gather":
            whole = [nodes.concatenate(column, axis) for column in columns]
            return [whole for _ in rows]
        case "collective-broadcast":
            return [rows[0] for _ in rows]
        case "all-to-all" if "dimensions" in instruction.attributes:
            return [
                [
                    nodes.concatenate(
                        [_shard(lowering, node, axis, count, at) for node in column], axis
                    )
                    for column in columns
                ]
                for at in range(count)
            ]
        case "all-to-all" if len(columns) == count:
            return [[rows[source][at] for source in range(count)] for at in range(count)]
    raise NotLowered(f"%{instruction.name} exchanges values in a way that is not simulated")


def _shard(lowering: Lowering, node: Node, axis: int, count: int, at: int) -> Node:
    size, rest = divmod(node.shape.dims[axis], count)
    if rest:
        raise NotLowered(f"{node.shape} is not divisible among {count} devices")
    starts, limits = [0] * node.shape.rank, list(node.shape.dims)
    starts[axis], limits[axis] = at * size, (at + 1) * size
    return lowering.nodes.slice(node, starts, limits)


def _reduced(lowering: Lowering, instruction: Instruction, column: Sequence[Node]) -> Node:
    """The sum of what the devices have, or what else the computation says."""
    graph = lowering.function(lowering.called(instruction, "to_apply"))
    opcode = _operation(graph)
    if opcode is None:
        raise NotLowered(f"%{instruction.name} reduces by more than one operation")
    total = column[0]
    for node in column[1:]:
        total = lowering.nodes.binary(opcode, total, node)
    return total


def _operation(graph: Graph) -> str | None:
    """The operation of a reducer: `add`, also where it is done in a wider type."""
    root = graph.roots[0]
    while root.opcode == "convert":
        root = root.operands[0]
    sources = list(root.operands)
    for at, source in enumerate(sources):
        while source.opcode == "convert":
            source = source.operands[0]
        sources[at] = source
    is_plain = root.opcode in BINARY and {source.opcode for source in sources} == {"parameter"}
    return root.opcode if is_plain and sources[0] is not sources[1] else None


def _permuted(
    lowering: Lowering, instruction: Instruction, rows: list[list[Node]]
) -> list[list[Node]]:
    """The values that each device receives; one that nobody sends to has zeros."""
    pairs = instruction.attribute("source_target_pairs")
    if not isinstance(pairs, tuple) or "slice_sizes" in instruction.attributes:
        raise NotLowered(f"%{instruction.name} permutes parts of arrays")
    shapes: list[ArrayShape] = [node.shape for node in rows[0]]
    received = [[lowering.nodes.filled(0, shape) for shape in shapes] for _ in rows]
    for pair in pairs:
        if isinstance(pair, tuple) and len(pair) == 2:
            source, target = pair
            if isinstance(source, int) and isinstance(target, int) and max(pair) < len(rows):
                received[target] = rows[source]
    return received
