"""The parts of arrays that `sharding=` gives to devices.

Before the partitioner a module computes with whole arrays, after it with the part of each device.
Both become programs over whole arrays, and can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, NamedTuple

from hlo_lint.analysis.walks import reached
from hlo_lint.engine.values.lowering.graph import Node, Nodes, NotLowered, T, bare
from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
from hlo_lint.hlo.attributes.devices import MeshReplicaGroups, device_numbers
from hlo_lint.hlo.attributes.sharding import (
    NamedSharding,
    Sharding,
    TiledSharding,
    TupleSharding,
    read_sharding,
)
from hlo_lint.hlo.dtypes import BITS
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.opcodes import COLLECTIVES
from hlo_lint.hlo.shape import ArrayShape, Shape

PADDING: Final = 3
"""The filler of parts that reach beyond the end of an array: it must not be read."""
MAX_COPIED_BYTES: Final = 1 << 22
"""The bytes of a result's copies that are all compared; of more, the first and last copy are."""


class Sharded(NamedTuple):
    """An array with its parts on devices."""

    shape: ArrayShape
    """The whole array."""
    places: tuple[tuple[int, ...], ...]
    """For each device, the index of its part in each dimension."""
    addends: tuple[int, ...] = ()
    """For each device, the number of its addend of an unreduced array; empty for other arrays."""

    @property
    def counts(self) -> list[int]:
        """The number of parts in each dimension."""
        return [1 + max(numbers) for numbers in zip(*self.places, strict=True)]

    @property
    def part(self) -> ArrayShape:
        """The shape of a device's part."""
        sizes = zip(self.shape.dims, self.counts, strict=True)
        return ArrayShape(self.shape.dtype, tuple(-(-size // count) for size, count in sizes))

    def cut(self, nodes: Nodes, whole: Node, device: int) -> Node:
        """The part of a device, cut out of the whole array."""
        part, place = self.part.dims, self.places[device]
        filled = tuple(size * count for size, count in zip(part, self.counts, strict=True))
        padded = nodes.padded(whole, filled, PADDING)
        starts = [size * index for size, index in zip(part, place, strict=True)]
        limits = [start + size for start, size in zip(starts, part, strict=True)]
        if self.addends and self.addends[device] != max(self.addends):
            return nodes.filled(0, self.part)  # the last addend holds the sum
        return nodes.slice(padded, starts, limits)

    @property
    def copies(self) -> int:
        """The number of replicas of the array to compare; 2 if they are large."""
        shares = len(set(zip(self.places, self.addends or self.places, strict=True)))
        held = len(self.places) // shares
        size = prod(self.shape.dims) * BITS.get(self.shape.dtype, 8) // 8
        return held if size * held <= MAX_COPIED_BYTES else min(held, 2)

    def joined(self, nodes: Nodes, parts: Sequence[Node], copy: int = 0) -> Node:
        """The whole array from the parts of all devices, with replica `copy` of equal parts."""
        if parts[0].shape != self.part:
            raise NotLowered(f"a device has {parts[0].shape} of {self.shape}, not {self.part}")
        holders: dict[tuple[tuple[int, ...], int], list[Node]] = {}
        for device, part in enumerate(parts):
            share = self.places[device], self.addends[device] if self.addends else 0
            holders.setdefault(share, []).append(part)
        by_share = {
            share: held[copy * (len(held) - 1) // max(self.copies - 1, 1)]
            for share, held in holders.items()
        }
        by_place: dict[tuple[int, ...], Node] = {}
        for (place, _), node in sorted(by_share.items(), key=lambda item: item[0]):
            held = by_place.get(place)
            by_place[place] = node if held is None else nodes.binary("add", held, node)

        def join(place: tuple[int, ...]) -> Node:
            axis = len(place)
            if axis == self.shape.rank:
                return by_place[place]
            row = [join((*place, index)) for index in range(self.counts[axis])]
            return nodes.concatenate(row, axis)

        return nodes.slice(join(()), [0] * self.shape.rank, self.shape.dims)


@dataclass(frozen=True)
class ProgramShardings:
    """The shardings of a program's parameters and results."""

    devices: int
    parameters: tuple[Sharded, ...]
    results: tuple[Sharded, ...]

    def joined(self, nodes: Nodes, parts: Sequence[Sequence[Node]]) -> list[Node]:
        """The whole results, for each of their copies, from the parts of the devices."""
        columns = self._copies(zip(*parts, strict=True))
        return [sharded.joined(nodes, column, copy) for copy, sharded, column in columns]

    def repeated(self, wholes: Sequence[Node]) -> list[Node]:
        """The whole results, repeated to match the number of copies that `joined` gives."""
        return [whole for _, _, whole in self._copies(wholes)]

    def _copies(self, values: Iterable[T]) -> Iterator[tuple[int, Sharded, T]]:
        """The values of the results, once for each copy that is compared."""
        pairs = list(zip(self.results, values, strict=True))
        for copy in range(max((sharded.copies for sharded in self.results), default=1)):
            yield from ((copy, *pair) for pair in pairs if copy < pair[0].copies)


def layout_of(module: Module) -> ProgramShardings | None:
    """The shardings of an unpartitioned module; None for a single device."""
    entry, replicas = module.entry, module.attribute_or_none("replica_count")
    if entry is None or entry.root is None or replicas not in (None, 1):
        return None
    devices = module.attribute_or_none("num_partitions")
    if devices is None:  # a protocol buffer has no counts
        devices = max(map(_mesh_size, (*entry.parameters, entry.root)))
    if not isinstance(devices, int) or devices < 2:
        return None
    opcodes = frozenset().union(*(body.opcodes for body in module.computations))
    is_manual = any(target in module.text for target in INTO)
    if not (is_manual or COLLECTIVES.isdisjoint(opcodes)):
        raise NotLowered("its collectives are those of each device, outside of a manual region")
    if reader := _reader_of_addends(module):
        raise NotLowered(f"%{reader.name} reads an unreduced array, but is not unreduced")
    parameters = [
        sharded for parameter in entry.parameters for sharded in _shardeds(parameter, devices)
    ]
    return ProgramShardings(devices, tuple(parameters), tuple(_shardeds(entry.root, devices)))


def _reader_of_addends(module: Module) -> Instruction | None:
    """An instruction that takes the addend of a device for an array; None if there is none.

    XLA's partitioners sum nothing there (GPU 0.10.0 and 0.11.2, TPU 0.10.2); Shardy calls it an
    "invalid transition from unreduced to reduced".
    """

    def is_unreduced(row: Instruction) -> bool | None:
        sharding = row.attributes.get("sharding")
        return None if sharding is None else "unreduced" in sharding

    rows = [row for body in module.computations for row in body.instructions]
    addends = [row for row in rows if "unreduced" in row.attributes_text and is_unreduced(row)]
    readers = reached(addends, lambda row: () if is_unreduced(row) is False else row.users)
    others = (row for row in readers if is_unreduced(row) is False)
    # An element of a tuple has a sharding of its own.
    return next((row for row in others if row.opcode != "get-tuple-element"), None)


def _mesh_size(instruction: Instruction) -> int:
    """The number of devices that the sharding of an instruction names."""
    sharding = instruction.attribute_or_none("sharding")
    sizes = [0]
    for part in sharding.elements if isinstance(sharding, TupleSharding) else (sharding,):
        if isinstance(part, TiledSharding):
            sizes.append(len(device_numbers(part.devices)))
        elif isinstance(part, NamedSharding):
            sizes.append(prod(axis.size for axis in part.mesh.axes))
    return max(sizes)


def _shardeds(instruction: Instruction, devices: int) -> Iterator[Sharded]:
    sharding = instruction.attribute_or_none("sharding")
    yield from _spread(instruction.shape, sharding, devices)  # type: ignore[arg-type]


def _spread(shape: Shape, sharding: Sharding | None, devices: int) -> Iterator[Sharded]:
    leaves = list(bare(shape))
    shardings = (
        sharding.elements if isinstance(sharding, TupleSharding) else [sharding] * len(leaves)
    )
    if len(shardings) != len(leaves):
        raise NotLowered(f"{len(shardings)} shardings of {len(leaves)} arrays")
    for leaf, leaf_sharding in zip(leaves, shardings, strict=True):
        places, addends = _places(leaf_sharding, leaf.rank, devices)
        shared = addends if any(addends) else []
        yield Sharded(leaf, tuple(map(tuple, places)), tuple(shared))


def _places(
    sharding: TiledSharding | NamedSharding | None, rank: int, devices: int
) -> tuple[list[list[int]], list[int]]:
    """For each device, the index of its part in each dimension, and the number of its addend."""
    places, addends = [[0] * rank for _ in range(devices)], [0] * devices
    match sharding:
        case NamedSharding(dimensions=dimensions, reduction="sum"):
            spreads = [dimension.axes for dimension in dimensions]
            if not (any(spreads) or sharding.unreduced or sharding.mesh.order):
                return places, addends
            if prod(axis.size for axis in sharding.mesh.axes) == devices:
                for axis, axes in enumerate(spreads):
                    for group in MeshReplicaGroups(sharding.mesh, axes).groups:
                        for number, device in enumerate(group):
                            places[device][axis] = number
                for group in MeshReplicaGroups(sharding.mesh, sharding.unreduced).groups:
                    for number, device in enumerate(group):
                        addends[device] = number
                return places, addends
        case TiledSharding(type="tiled", tiles=tiles):
            order = device_numbers(sharding.devices)
            if len(order) == devices == prod(tiles):
                for rest, device in enumerate(order):
                    for axis in reversed(range(len(tiles))):
                        rest, number = divmod(rest, tiles[axis])
                        if axis < rank:
                            places[device][axis] = number
                        elif sharding.subgroups[axis - rank :][:1] == ("unreduced",):
                            addends[device] = number
                return places, addends
        case TiledSharding(type="unreduced"):
            return places, list(range(devices))
        case None | TiledSharding(type="replicated"):
            return places, addends
    raise NotLowered(f"the sharding of an array over {devices} devices is not simulated")


# ---- manual regions: an array that is whole outside is in parts inside

INTO: Final = frozenset({"SPMDFullToShardShape", "xla.sdy.GlobalToLocalShape"})
OUT_OF: Final = frozenset({"SPMDShardToFullShape", "xla.sdy.LocalToGlobalShape"})
_find_shardy: Final = re.compile(r"<@(\w+), (\[[^<>]*)>").findall


def border(call: Instruction, target: str, module: Module, devices: int) -> list[Sharded]:
    """The shardings of the arrays that enter or leave a manual region."""
    goes_in = target in INTO
    facts, meshes = (
        value if isinstance(value := owner.attribute_or_none("frontend_attributes"), dict) else {}
        for owner in (call, module)
    )
    text = facts.get(f"xla.sdy.{'in' if goes_in else 'out'}_shardings")
    if text is None:
        outer = [operand.instruction for operand in call.operands] if goes_in else [call]
        return [sharded for array in outer if array for sharded in _shardeds(array, devices)]
    types = [operand.shape for operand in call.operands] if goes_in else [call.shape]
    shapes = [leaf for shape in types for leaf in bare(shape)]  # type: ignore[arg-type]
    shardings = _find_shardy(text)
    if len(shardings) != len(shapes):
        raise NotLowered(f"%{call.name} has {len(shardings)} shardings of {len(shapes)} arrays")
    spread: list[Sharded] = []
    for shape, (name, axes) in zip(shapes, shardings, strict=True):
        mesh = re.search(rf"\b{name} = #sdy.mesh<(\[[^\]]*\])>", meshes.get("xla.sdy.meshes", ""))
        if mesh is None:
            raise NotLowered(f"%{call.name} names the mesh @{name}, which is not defined")
        spelled = f"{{mesh{mesh[1]}, {axes}}}".replace('\\"', "'").replace('"', "'")
        try:
            spread += _spread(shape, read_sharding(spelled), devices)
        except AttributeSyntaxError as error:
            raise NotLowered(f"%{call.name}: {error}") from error
    return spread
