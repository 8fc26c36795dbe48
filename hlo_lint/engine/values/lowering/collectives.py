"""Simulate the devices of a mesh: a program has a copy of every value for each device.

A collective reads the values of the other devices of its group. Devices are numbered replica by
replica, and by partition within a replica, as `DeviceAssignment` flattens them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, product
from math import prod
from typing import TYPE_CHECKING, Final

from hlo_lint.analysis.calls import instructions_of, opcodes_of
from hlo_lint.analysis.device_groups import Mode, count_of, mode_of, participants, transfer_pairs
from hlo_lint.analysis.walks import reached
from hlo_lint.engine.values.lowering.graph import (
    Graph,
    Node,
    Nodes,
    NotLowered,
    assembled,
    bare,
    leaf_nodes,
)
from hlo_lint.engine.values.lowering.shards import INTO, OUT_OF, border
from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
from hlo_lint.hlo.attributes.devices import IotaReplicaGroups, MeshReplicaGroups, ReplicaGroupList
from hlo_lint.hlo.ir import Computation, Instruction, Module, Operand
from hlo_lint.hlo.opcodes import BINARY, COLLECTIVES, DONE_OF
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape, spelled_index

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.lower import Lowering, Values


_DONES: Final = frozenset(DONE_OF[start] for start in DONE_OF.keys() & COLLECTIVES)
_MAX_PARTS: Final = 1 << 10
"""The largest number of parts that a device has in a ragged exchange."""
LOWERED: Final = COLLECTIVES | _DONES | {"partition-id", "replica-id"}
"""Opcodes that read the number of their device, or the values of other devices."""


def device_count(module: Module) -> int:
    """The number of devices that a module runs on, after it was partitioned for them.

    Before, it is a program over whole arrays. Only instructions that communicate tell the two
    apart.
    """
    communicating = LOWERED | {"recv"}
    if communicating.isdisjoint(opcodes_of(module)):
        return 1
    if (count := header_devices(module)) > 1:
        return count
    instructions = chain.from_iterable(instructions_of(module, name) for name in communicating)
    named = ((*listed_groups(i), *transfer_pairs(i)) for i in instructions)
    return max(chain.from_iterable(chain.from_iterable(named)), default=0) + 1


def header_devices(module: Module) -> int:
    """The number of devices that the header gives."""
    return prod(_counts(module))


def _counts(module: Module) -> tuple[int, int]:
    """The numbers of replicas and of partitions that the header gives."""
    return count_of(module, "replica_count"), count_of(module, "num_partitions")


def has_regions(module: Module) -> bool:
    """True if an unpartitioned module has manual regions, which run on each device."""
    calls = instructions_of(module, "custom-call")
    return any(call.custom_call_target in INTO | OUT_OF for call in calls)


def crossed(lowering: Lowering, call: Instruction, operands: list[Values]) -> Values | None:
    """The parts of arrays that enter a manual region, or the whole arrays that leave it.

    None for any other custom call.
    """
    target = call.custom_call_target
    if target not in INTO | OUT_OF:
        return None
    devices, nodes = range(lowering.devices), lowering.nodes
    spread = border(call, target, lowering.module, lowering.devices)
    rows = [
        [node for values in operands for node in leaf_nodes(values[device])] for device in devices
    ]
    if target in INTO:
        results = [
            [sharded.cut(nodes, node, device) for sharded, node in zip(spread, row, strict=True)]
            for device, row in enumerate(rows)
        ]
    else:
        columns = zip(spread, zip(*rows, strict=True), strict=True)
        results = [[sharded.joined(nodes, parts) for sharded, parts in columns]] * len(devices)
    shape = lowering.shape(call)
    if [node.shape for node in results[0]] != list(bare(shape)):
        raise NotLowered(f"%{call.name} has parts whose shapes do not match its sharding")
    return [assembled(shape, iter(row)) for row in results]


def lowered(
    lowering: Lowering, instruction: Instruction, operands: list[Values], opcode: str, shape: Shape
) -> Values:
    """The results of a collective on each device."""
    devices = range(lowering.devices)
    if opcode in _DONES:
        is_pair = opcode != "all-reduce-done"
        values = operands[0]
        return [value[1] if is_pair and isinstance(value, tuple) else value for value in values]
    if opcode in ("partition-id", "replica-id"):
        partitions = _shape_of_mesh(lowering)[1]
        numbers = [divmod(device, partitions)[opcode == "partition-id"] for device in devices]
        return [lowering.nodes.scalar(number, "u32") for number in numbers]
    base = opcode.removesuffix("-start")
    rows = [
        [node for values in operands for node in leaf_nodes(values[device])] for device in devices
    ]
    if base == "collective-permute":
        if "slice_sizes" in instruction.attributes:
            raise NotLowered(f"%{instruction.name} permutes parts of arrays")
        results = permuted(lowering, instruction, rows, transfer_pairs(instruction))
    else:
        results = [[] for _ in devices]
        for group in _groups(lowering, instruction):
            parts = _exchanged(lowering, instruction, base, [rows[member] for member in group])
            for member, part in zip(group, parts, strict=True):
                results[member] = part
    if opcode in ("all-gather-start", "collective-permute-start"):
        if not isinstance(shape, TupleShape) or len(shape.elements) < 2:
            raise NotLowered(f"the type of {opcode} is a pair")
        contexts = lowering.contexts(shape.elements)
        sources = operands[0] if len(operands) == 1 else list(zip(*operands, strict=True))
        return [
            (sources[device], assembled(shape.elements[1], iter(results[device])), *contexts)
            for device in devices
        ]
    return [assembled(shape, iter(results[device])) for device in devices]


def _shape_of_mesh(lowering: Lowering) -> tuple[int, int]:
    """The numbers of replicas and of partitions; all devices are replicas without a header."""
    counts = _counts(lowering.module)
    return counts if prod(counts) == lowering.devices else (lowering.devices, 1)


def _groups(lowering: Lowering, instruction: Instruction) -> Iterator[tuple[int, ...]]:
    """The devices that exchange values, group by group."""
    replicas, partitions = _shape_of_mesh(lowering)
    listed: Sequence[Sequence[int]] = [group for group in listed_groups(instruction) if group]
    mode = mode_of(instruction)
    count = {Mode.DEVICES: lowering.devices, Mode.PARTITIONS: partitions}.get(mode, replicas)
    members = sorted(chain.from_iterable(listed))
    is_headless = prod(_counts(lowering.module)) != lowering.devices
    if mode is not Mode.REPLICAS and members == [0] and is_headless:
        mode, count, listed = Mode.DEVICES, lowering.devices, []  # replica 0 with all partitions
    if listed and members != list(range(count)):
        if members != list(range(lowering.devices)):
            groups = f"the groups of %{instruction.name}"
            raise NotLowered(f"{groups} are not the {count} {mode.value}")
        mode = Mode.DEVICES  # a text without its header, or without channels
    return participants(listed or [range(count)], mode, replicas, partitions)


def listed_groups(instruction: Instruction) -> Sequence[Sequence[int]]:
    """The groups that a collective names; empty for all devices."""
    try:
        groups = instruction.attribute("replica_groups")
    except AttributeSyntaxError as error:
        raise NotLowered(f"it is malformed: {error}", instruction.name) from error
    if isinstance(groups, ReplicaGroupList | IotaReplicaGroups | MeshReplicaGroups):
        return groups.groups
    return ()


def _exchanged(
    lowering: Lowering, instruction: Instruction, opcode: str, rows: list[list[Node]]
) -> list[list[Node]]:
    """The results of each member of a group; `rows` are the operands of each member."""
    nodes, count = lowering.nodes, len(rows)
    columns = list(zip(*rows, strict=True))
    axis, *_ = instruction.integers_attribute("dimensions") or (0,)

    def shards(wholes: Sequence[Node], index: int) -> list[Node]:
        return [_shard(nodes, whole, axis, count, index) for whole in wholes]

    match opcode:
        case "all-reduce":
            sums = [_reduced(lowering, instruction, column) for column in columns]
            return [sums for _ in rows]
        case "reduce-scatter":
            sums = [_reduced(lowering, instruction, column) for column in columns]
            return [shards(sums, index) for index in range(count)]
        case "all-gather":
            whole = [nodes.concatenate(column, axis) for column in columns]
            return [whole for _ in rows]
        case "collective-broadcast":
            return [rows[0] for _ in rows]
        case "all-to-all" if "dimensions" in instruction.attributes:
            return [
                [nodes.concatenate(shards(column, index), axis) for column in columns]
                for index in range(count)
            ]
        case "ragged-all-to-all" if len(columns) == 6:
            return [[_ragged(nodes, rows, index)] for index in range(count)]
        case "all-to-all" if len(columns) == count:
            return [[rows[source][index] for source in range(count)] for index in range(count)]
    raise NotLowered(f"%{instruction.name} is an exchange that is not simulated")


def _shard(nodes: Nodes, node: Node, axis: int, count: int, index: int) -> Node:
    size, rest = divmod(node.shape.dims[axis], count)
    if rest:
        raise NotLowered(f"{node.shape} is not divisible among {count} devices")
    starts, limits = [0] * node.shape.rank, list(node.shape.dims)
    starts[axis], limits[axis] = index * size, (index + 1) * size
    return nodes.slice(node, starts, limits)


def _reduced(lowering: Lowering, instruction: Instruction, column: Sequence[Node]) -> Node:
    """The values of all devices, reduced by the computation of an instruction."""
    graph = lowering.function(lowering.called(instruction, "to_apply"))
    opcode = _operation(graph)
    total = column[0]
    for node in column[1:]:
        if opcode is not None:
            total = lowering.nodes.binary(opcode, total, node)
            continue
        axes = (("dimensions", spelled_index(range(total.shape.rank))),)
        called = (("to_apply", graph),)
        total = lowering.nodes.make("map", total.shape, (total, node), axes, called)
    return total


def _operation(graph: Graph) -> str | None:
    """The opcode of a simple reducer, such as `add`; None for any other reducer.

    Conversions to a wider type are skipped.
    """

    def converted(node: Node) -> Node:
        while node.opcode == "convert":
            node = node.operands[0]
        return node

    root = converted(graph.roots[0])
    sources = list(map(converted, root.operands))
    is_plain = root.opcode in BINARY and {source.opcode for source in sources} == {"parameter"}
    return root.opcode if is_plain and sources[0] is not sources[1] else None


def permuted(
    lowering: Lowering,
    instruction: Instruction,
    rows: list[list[Node]],
    pairs: tuple[tuple[int, int], ...],
) -> list[list[Node]]:
    """The values that each device receives; zeros for a device without a sender."""
    shapes: list[ArrayShape] = [node.shape for node in rows[0]]
    received = [[lowering.nodes.filled(0, shape) for shape in shapes] for _ in rows]
    replicas, partitions = _shape_of_mesh(lowering)
    # With a channel the pairs are of partitions, without one of replicas.
    is_of_partitions = "channel_id" in instruction.attributes or replicas == 1
    mode, count = (Mode.PARTITIONS, partitions) if is_of_partitions else (Mode.REPLICAS, replicas)
    if replicas == lowering.devices:
        mode, count = Mode.DEVICES, replicas
    valid = [pair for pair in pairs if max(pair) < count]
    for source, target in participants(valid, mode, replicas, partitions):
        received[target] = rows[source]
    return received


def _ragged(nodes: Nodes, rows: list[list[Node]], receiver: int) -> Node:
    """The output of a ragged exchange on a device: rows of each sender by offsets and sizes."""
    result = rows[receiver][1]
    length = result.shape.dims[0]
    if rows[0][2].shape.dims[0] > _MAX_PARTS:
        raise NotLowered(f"a ragged exchange of more than {_MAX_PARTS} parts")
    for sender in rows:
        source, _, *numbers = sender
        edge = ArrayShape(source.shape.dtype, (length, *source.shape.dims[1:]))
        zeros = nodes.filled(0, edge)
        wide = nodes.concatenate([zeros, source, zeros], 0)
        count = numbers[0].shape.dims[0] // len(rows)
        for part in range(receiver * count, (receiver + 1) * count):
            begin, size, target = (
                nodes.convert(nodes.reshape(nodes.slice(array, [part], [part + 1]), ()), "s64")
                for array in numbers[:3]
            )
            shift = nodes.binary("subtract", begin, target)
            first = nodes.binary("add", shift, nodes.scalar(length, "s64"))
            zero = nodes.scalar(0, "s64")
            moved = nodes.dynamic_slice(wide, (first, *[zero] * (edge.rank - 1)), edge.dims)
            offset = nodes.binary("subtract", nodes.iota("s64", edge.dims, 0), target)
            above, below = nodes.compare(offset, zero, "GE"), nodes.compare(offset, size, "LT")
            result = nodes.select(nodes.binary("and", above, below), moved, result)
    return result


def given_inputs(entry: Computation, devices: int) -> dict[tuple[int, int], tuple[int, ...]]:
    """Consistent sizes and offsets for ragged exchanges, by parameter number and device.

    The rows of sender `i` for receiver `j` begin at row `j * step` and arrive at row `i * step`.
    """
    given: dict[tuple[int, int], tuple[int, ...]] = {}
    for exchange in entry.with_opcode("ragged-all-to-all"):
        groups = listed_groups(exchange) or [range(devices)]
        shapes = [exchange.operand_shape(number) for number in range(2)]
        sizes = [array.dims[0] for array in shapes if isinstance(array, ArrayShape) and array.dims]
        if len(sizes) != len(shapes):
            continue
        for role, (_, _, operand) in enumerate(exchange.operands[2:]):
            if operand is None or operand.opcode != "parameter":
                continue
            shape = operand.shape_or_none
            if not isinstance(shape, ArrayShape) or shape.rank != 1:
                continue
            count = shape.dims[0]
            if not 0 < count <= min(*sizes, _MAX_PARTS):
                continue
            for group in filter(None, groups):
                each, step = count // len(group), min(sizes) // count
                others = list(product(range(len(group)), range(each)))
                for sender, device in enumerate(group):
                    numbers = {
                        0: [(place * each + part) * step for place, part in others],
                        2: [(sender * each + part) * step for _, part in others],
                    }
                    several = [1 + (place + sender + part) % max(step, 1) for place, part in others]
                    number = operand.parameter_number or 0
                    given[number, device] = tuple(numbers.get(role, several))
    return given


_OPCODES: Final = frozenset({"recv", "recv-done", "send", "send-done"})


def operands_of(instruction: Instruction) -> Sequence[Operand]:
    """The operands of an instruction, and the received operand of a `recv` where it is known."""
    sent = _received(instruction) if instruction.opcode == "recv" else None
    return instruction.operands if sent is None else (*instruction.operands, sent)


def _received(recv: Instruction) -> Operand | None:
    """The operand of the only send in the computation with the channel and pairs of a `recv`.

    None for a transfer with the host, and where the send depends on the receive.
    """
    pairs = transfer_pairs(recv)
    if not pairs:
        return None
    sends = [
        send
        for send in recv.computation.with_opcode("send")
        if send.attributes.get("channel_id") == recv.attributes.get("channel_id")
        and transfer_pairs(send) == pairs
    ]
    if len(sends) != 1 or not sends[0].operands:
        return None
    operand = sends[0].operands[0]
    source = operand.instruction
    if source is None or recv in reached([source], lambda instruction: instruction.producers):
        return None
    return operand


def is_transfer(instruction: Instruction, operands: list[Values]) -> bool:
    """True for part of a transfer between devices; for a `recv` only with a known sender."""
    if instruction.opcode not in _OPCODES or "is_host_transfer=true" in instruction.attributes_text:
        return False
    return instruction.opcode != "recv" or len(operands) == 2


def transferred(
    lowering: Lowering, instruction: Instruction, operands: list[Values], shape: Shape
) -> Values:
    """The results of a send, a receive, or their done operations, on each device."""
    values = operands[0]
    if instruction.opcode == "send-done":
        return [None] * lowering.devices
    if instruction.opcode == "recv-done":
        return [(value[0] if isinstance(value, tuple) else value, None) for value in values]
    if not isinstance(shape, TupleShape) or len(shape.elements) != 3:
        raise NotLowered(f"%{instruction.name} is not a tuple of data, context and token")
    if instruction.opcode == "recv":
        rows = [list(leaf_nodes(value)) for value in operands[1]]
        if [node.shape for node in rows[0]] != list(bare(shape.elements[0])):
            raise NotLowered(f"%{instruction.name} and its send differ in their shapes")
        results = permuted(lowering, instruction, rows, transfer_pairs(instruction))
        values = [assembled(shape.elements[0], iter(row)) for row in results]
    contexts = lowering.contexts((shape, *shape.elements))
    return [(value, *contexts) for value in values]
