"""Arrays in parts on the devices of a mesh, as `sharding=` says: cut, and put together again.

A module before the partitioner computes with whole arrays, one after it with the part of each
device. Both become programs of whole arrays, and can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, NamedTuple

from hlo_lint.engine.values.lowering.graph import Node, Nodes, NotLowered, bare
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
from hlo_lint.hlo.shape import ArrayShape, Shape

PADDING: Final = 3
"""The value behind the end of an array that its parts do not fill: nothing may read it."""
MAX_COPIED_BYTES: Final = 1 << 22
"""Of the copies of one result: those of a larger one that are not at its ends are not compared."""


class Sharded(NamedTuple):
    """An array in parts."""

    shape: ArrayShape
    """The whole array."""
    places: tuple[tuple[int, ...], ...]
    """The number of the part in each dimension that each device has."""
    addends: tuple[int, ...] = ()
    """The number of the addend that each device has of its part; none where it has all of it."""

    @property
    def counts(self) -> list[int]:
        """The number of parts in each dimension."""
        return [1 + max(numbers) for numbers in zip(*self.places, strict=True)]

    @property
    def part(self) -> ArrayShape:
        """The array of one device."""
        sizes = zip(self.shape.dims, self.counts, strict=True)
        return ArrayShape(self.shape.dtype, tuple(-(-size // count) for size, count in sizes))

    def cut(self, nodes: Nodes, whole: Node, device: int) -> Node:
        """The part of a device."""
        part, place = self.part.dims, self.places[device]
        filled = tuple(size * count for size, count in zip(part, self.counts, strict=True))
        padded = nodes.padded(whole, filled, PADDING)
        starts = [size * at for size, at in zip(part, place, strict=True)]
        limits = [start + size for start, size in zip(starts, part, strict=True)]
        if self.addends and self.addends[device] != max(self.addends):
            return nodes.filled(0, self.part)  # the last addend is the sum
        return nodes.slice(padded, starts, limits)

    @property
    def copies(self) -> int:
        """The number of copies of the array that are compared: of a large one the ends."""
        shares = len(set(zip(self.places, self.addends or self.places, strict=True)))
        held = len(self.places) // shares
        size = prod(self.shape.dims) * BITS.get(self.shape.dtype, 8) // 8
        return held if size * held <= MAX_COPIED_BYTES else min(held, 2)

    def joined(self, nodes: Nodes, parts: Sequence[Node], copy: int = 0) -> Node:
        """The whole array from the parts of all devices; of equal parts those of one copy."""
        if parts[0].shape != self.part:
            raise NotLowered(f"a device has {parts[0].shape} of {self.shape}, not {self.part}")
        holders: dict[tuple[tuple[int, ...], int], list[Node]] = {}
        for at, part in enumerate(parts):
            share = self.places[at], self.addends[at] if self.addends else 0
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
            row = [join((*place, at)) for at in range(self.counts[axis])]
            return nodes.concatenate(row, axis)

        return nodes.slice(join(()), [0] * self.shape.rank, self.shape.dims)


@dataclass(frozen=True)
class ProgramShardings:
    """The shardings of the arrays that a program takes and gives."""

    devices: int
    parameters: tuple[Sharded, ...]
    results: tuple[Sharded, ...]

    def joined(self, nodes: Nodes, parts: Sequence[Sequence[Node]]) -> list[Node]:
        """The whole results, and the copies of them, from those of each device."""
        columns = list(zip(self.results, zip(*parts, strict=True), strict=True))
        return [
            sharded.joined(nodes, column, copy)
            for copy in range(self._copies)
            for sharded, column in columns
            if copy < sharded.copies
        ]

    def repeated(self, wholes: Sequence[Node]) -> list[Node]:
        """The whole results, as often as there are copies of them in parts."""
        pairs = list(zip(self.results, wholes, strict=True))
        return [
            whole
            for copy in range(self._copies)
            for sharded, whole in pairs
            if copy < sharded.copies
        ]

    @property
    def _copies(self) -> int:
        return max((sharded.copies for sharded in self.results), default=1)


def layout_of(module: Module) -> ProgramShardings | None:
    """The shardings of a module before it is partitioned; None for one device."""
    entry, replicas = module.entry, module.attribute_or_none("replica_count")
    if entry is None or entry.root is None or replicas not in (None, 1):
        return None
    devices = module.attribute_or_none("num_partitions")
    if devices is None:  # a protocol buffer has no counts
        devices = max(map(_mesh_size, (*entry.parameters, entry.root)))
    if not isinstance(devices, int) or devices < 2:
        return None
    parameters = [
        sharded for parameter in entry.parameters for sharded in _shardeds(parameter, devices)
    ]
    return ProgramShardings(devices, tuple(parameters), tuple(_shardeds(entry.root, devices)))


def _mesh_size(instruction: Instruction) -> int:
    """The number of devices that the sharding of an instruction names."""
    sharding = instruction.attribute_or_none("sharding")
    sizes = [0]
    for one in sharding.elements if isinstance(sharding, TupleSharding) else (sharding,):
        if isinstance(one, TiledSharding):
            sizes.append(len(device_numbers(one.devices)))
        elif isinstance(one, NamedSharding):
            sizes.append(prod(axis.size for axis in one.mesh.axes))
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
    for leaf, one in zip(leaves, shardings, strict=True):
        places, addends = _places(one, leaf.rank, devices)
        shared = addends if any(addends) else []
        yield Sharded(leaf, tuple(map(tuple, places)), tuple(shared))


def _places(
    sharding: TiledSharding | NamedSharding | None, rank: int, devices: int
) -> tuple[list[list[int]], list[int]]:
    """The number of the part in each dimension, and that of the addend, for each device."""
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
                for at, device in enumerate(order):
                    for axis in reversed(range(len(tiles))):
                        at, number = divmod(at, tiles[axis])
                        if axis < rank:
                            places[device][axis] = number
                        elif sharding.subgroups[axis - rank :][:1] == ("unreduced",):
                            addends[device] = number
                return places, addends
        case TiledSharding(type="unreduced"):
            return places, list(range(devices))
        case None | TiledSharding(type="replicated"):
            return places, addends
    raise NotLowered(f"arrays are spread over {devices} devices in a way that is not simulated")


# ---- manual regions: what is whole outside is in parts inside

INTO: Final = frozenset({"SPMDFullToShardShape", "xla.sdy.GlobalToLocalShape"})
OUT_OF: Final = frozenset({"SPMDShardToFullShape", "xla.sdy.LocalToGlobalShape"})
_find_shardy: Final = re.compile(r"<@(\w+), (\[[^<>]*)>").findall


def border(call: Instruction, target: str, module: Module, devices: int) -> list[Sharded]:
    """The shardings of the arrays that go into a manual region or come out of it."""
    goes_in = target in INTO
    facts, meshes = (
        value if isinstance(value := owner.attribute_or_none("frontend_attributes"), dict) else {}
        for owner in (call, module)
    )
    text = facts.get(f"xla.sdy.{'in' if goes_in else 'out'}_shardings")
    if text is None:
        outer = [operand.instruction for operand in call.operands] if goes_in else [call]
        return [sharded for one in outer if one for sharded in _shardeds(one, devices)]
    shapes = [
        leaf
        for shape in ([operand.shape for operand in call.operands] if goes_in else [call.shape])
        for leaf in bare(shape)  # type: ignore[arg-type]
    ]
    shardings = _find_shardy(text)
    if len(shardings) != len(shapes):
        raise NotLowered(f"%{call.name} has {len(shardings)} shardings of {len(shapes)} arrays")
    spread: list[Sharded] = []
    for shape, (name, axes) in zip(shapes, shardings, strict=True):
        mesh = re.search(rf"\b{name} = #sdy.mesh<(\[[^\]]*\])>", meshes.get("xla.sdy.meshes", ""))
        if mesh is None:
            raise NotLowered(f"%{call.name} names the mesh @{name}")
        spelled = f"{{mesh{mesh[1]}, {axes}}}".replace('\\"', "'").replace('"', "'")
        try:
            spread += _spread(shape, read_sharding(spelled), devices)
        except AttributeSyntaxError as error:
            raise NotLowered(f"%{call.name}: {error}") from error
    return spread
