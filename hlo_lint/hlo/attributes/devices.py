"""Lists of devices: explicit lists, transposed arrays of all devices, named meshes.

`groups` and `devices` raise OverflowError for more than `MAX_DEVICES`, and KeyError for an axis
that the mesh lacks; readers raise AttributeSyntaxError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Final, NamedTuple, TypeAlias

from hlo_lint.hlo.attributes.cursor import Cursor, reads

MAX_DEVICES: Final = 1 << 22
"""The largest number of devices that are listed: a hostile text may name any number."""


@dataclass(frozen=True, slots=True)
class Iota:
    """All devices in order, as an array of `dims`, transposed: `[4,2]T(1,0)`.

    >>> Iota((2, 3), (1, 0)).devices
    (0, 3, 1, 4, 2, 5)
    """

    dims: tuple[int, ...]
    permutation: tuple[int, ...]

    @property
    def devices(self) -> tuple[int, ...]:
        """The numbers of the devices in this order."""
        return transposed(self.dims, self.permutation)


DeviceOrder: TypeAlias = Iota | tuple[int, ...]
"""Devices in order: listed, or as a transposed array of all of them."""


def device_numbers(order: DeviceOrder) -> tuple[int, ...]:
    """The numbers of the devices in an order."""
    return order.devices if isinstance(order, Iota) else order


def transposed(dims: Sequence[int], permutation: Sequence[int]) -> tuple[int, ...]:
    """The numbers 0, 1, … as an array of `dims`, transposed, row by row.

    Raises:
        OverflowError: for more than `MAX_DEVICES`.
    """
    if prod(dims) > MAX_DEVICES:
        raise OverflowError(f"{prod(dims)} devices are too many to list")
    strides = [prod(dims[number + 1 :]) for number in range(len(dims))]
    ids = [0]
    for number in permutation:
        steps = range(0, dims[number] * strides[number], strides[number])
        ids = [start + step for start in ids for step in steps]
    return tuple(ids)


class MeshAxis(NamedTuple):
    """An axis of a mesh: `'x'=2`."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Mesh:
    """Devices as an array whose dimensions have names: `mesh['x'=2,'y'=4]`."""

    axes: tuple[MeshAxis, ...]
    order: DeviceOrder | None = None
    """None if the devices are in the order of their numbers."""

    @property
    def devices(self) -> tuple[int, ...]:
        """The numbers of the devices, with the last axis varying fastest."""
        if self.order is not None:
            return device_numbers(self.order)
        sizes = [axis.size for axis in self.axes]
        return transposed(sizes, range(len(sizes)))

    def size(self, axis: AxisRef) -> int:
        """Number of devices along an axis, or along the named part of it."""
        return axis.part[1] if axis.part else dict(self.axes)[axis.name]


class AxisRef(NamedTuple):
    """An axis of a mesh, or a part of an axis: `'x'`, `'y':(2)4`."""

    name: str
    part: tuple[int, int] | None = None
    """The number of steps of the axis before the part, and its size; None for all of the axis."""


@dataclass(frozen=True, slots=True)
class ReplicaGroupList:
    """A list of groups: `{{0,1},{2,3}}`."""

    groups: tuple[tuple[int, ...], ...]
    """Empty if all replicas are one group."""


@dataclass(frozen=True, slots=True)
class IotaReplicaGroups:
    """Groups of equal size, cut from an array of all devices: `[2,4]<=[4,2]T(1,0)`.

    >>> IotaReplicaGroups(2, 3, Iota((3, 2), (1, 0))).groups
    ((0, 2, 4), (1, 3, 5))
    """

    count: int
    size: int
    """Number of devices in a group."""
    order: Iota

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of the devices in each group."""
        return _cut(self.order.devices, self.size)


@dataclass(frozen=True, slots=True)
class MeshReplicaGroups:
    """A group for each place along the axes that are not named: `mesh['x'=2,'y'=2] {'y'}`.

    >>> MeshReplicaGroups(Mesh((MeshAxis("x", 2), MeshAxis("y", 2))), (AxisRef("x"),)).groups
    ((0, 2), (1, 3))
    """

    mesh: Mesh
    axes: tuple[AxisRef, ...]

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of the devices in each group."""
        if not all(size for _, size in self.mesh.axes):
            return ()
        places: dict[tuple[str, int], int] = {}  # of each part of an axis, by where it begins
        sizes: list[int] = []
        for name, size in self.mesh.axes:
            cuts = {1, size}
            for axis in self.axes:
                if axis.name == name and axis.part:
                    cuts |= {axis.part[0], axis.part[0] * axis.part[1]}
            for before, after in pairwise(sorted(cuts)):
                places[name, before] = len(sizes)
                sizes.append(after // before)
        grouped: list[int] = []
        for axis in self.axes:
            before, size = axis.part or (1, self.mesh.size(axis))
            end = before * size
            while before < end:
                grouped.append(places[axis.name, before])
                before *= sizes[grouped[-1]]
        rest = [place for place in range(len(sizes)) if place not in grouped]
        devices = self.mesh.devices
        order = transposed(sizes, rest + grouped)
        return _cut(tuple(devices[place] for place in order), prod(sizes[n] for n in grouped))


ReplicaGroups: TypeAlias = ReplicaGroupList | IotaReplicaGroups | MeshReplicaGroups
"""The device groups of a collective; `groups` lists them, in any spelling."""


def _cut(devices: tuple[int, ...], size: int) -> tuple[tuple[int, ...], ...]:
    return tuple(devices[start : start + size] for start in range(0, len(devices), max(size, 1)))


# ---- reading

_SIZES = "expected the sizes of all devices, like <=[8]"
NOT_A_PERMUTATION: Final = "a transposition names each dimension once"
"""The error of an order that XLA's parser accepts although it is not a permutation."""


@reads("expected groups of devices, like {{0,1},{2,3}}, [2,4]<=[8] or mesh['x'=2] {'x'}")
def read_replica_groups(cursor: Cursor) -> ReplicaGroups:
    """The value of `replica_groups=…`.

    >>> read_replica_groups("[2,4]<=[8]").groups
    ((0, 1, 2, 3), (4, 5, 6, 7))
    """
    if cursor.next == "mesh":
        mesh = mesh_at(cursor)
        axes = axes_at(cursor, mesh, "expected the axes of the groups, like {'x'}")
        return MeshReplicaGroups(mesh, axes)
    if cursor.next == "[":
        begin = cursor.at
        sizes = cursor.listed(cursor.count, "expected a size", "[]")
        cursor.demand("<=", message=_SIZES)
        if len(sizes) != 2:
            cursor.refuse("expected how many groups, and how large: [2,4]", begin)
        return IotaReplicaGroups(*sizes, iota_at(cursor, prod(sizes)))

    def device(_: str) -> int:
        return cursor.integer("expected the number of a device")

    message = "expected a group in braces"
    return ReplicaGroupList(cursor.listed(lambda _: cursor.listed(device, message)))


def iota_at(cursor: Cursor, count: int) -> Iota:
    """Read an array of `count` devices: `[2,4]T(1,0)`; a single dimension needs no `T`."""
    begin = cursor.at
    dims = cursor.listed(cursor.count, _SIZES, "[]")
    turn = cursor.at
    permutation: tuple[int, ...] = (0,)
    if cursor.take("T"):
        message = "expected the order of the dimensions, like T(1,0)"
        permutation = cursor.listed(cursor.count, message, "()")
    elif len(dims) > 1:
        message = "an array of several dimensions needs their order, like T(1,0)"
        cursor.refuse(message, begin)
    if prod(dims) != count:
        cursor.refuse(f"{prod(dims)} devices for {count} places", begin)
    if sorted(permutation) != list(range(len(dims))):
        cursor.refuse(NOT_A_PERMUTATION, turn)
    return Iota(dims, permutation)


def device_list_at(cursor: Cursor, count: int) -> tuple[int, ...]:
    """Read `count` numbers: `0,1,2,3`."""
    begin = cursor.at
    message = "expected devices, like 0,1,2,3 or <=[4]"
    devices = [cursor.integer(message)]
    while cursor.take(","):
        devices.append(cursor.integer(message))
    if len(devices) != count:
        cursor.refuse(f"{len(devices)} devices for {count} places", begin)
    return tuple(devices)


def mesh_at(cursor: Cursor) -> Mesh:
    """Read a mesh with its `device_ids`."""

    def axis(message: str) -> MeshAxis:
        name = cursor.string(message)
        cursor.demand("=", message=message)
        return MeshAxis(name, cursor.count(message))

    cursor.demand("mesh")
    axes = cursor.listed(axis, "expected an axis and its size, like 'x'=2", "[]")
    if not cursor.take(",", "device_ids"):
        return Mesh(axes)
    cursor.demand("=", "(")
    count = prod(axis.size for axis in axes)
    read = iota_at if cursor.next == "[" else device_list_at
    order = read(cursor, count)
    cursor.demand(")")
    return Mesh(axes, order)


def axes_at(cursor: Cursor, mesh: Mesh, message: str = "") -> tuple[AxisRef, ...]:
    """Read axes of the mesh in braces."""
    if cursor.next != "{":
        cursor.refuse(message)
    return cursor.listed(lambda _: axis_at(cursor, mesh))


def axis_at(cursor: Cursor, mesh: Mesh) -> AxisRef:
    """Read an axis of the mesh, or a part of an axis."""
    begin = cursor.at
    name = cursor.string("expected an axis in single quotes")
    sizes = dict(mesh.axes)
    if name not in sizes:
        cursor.refuse(f"the mesh has no axis {name}", begin)
    if not cursor.take(":"):
        return AxisRef(name)
    cursor.demand("(")
    before = cursor.count()
    cursor.demand(")")
    size = cursor.count()
    if before < 1 or size < 1 or sizes[name] % (before * size):
        cursor.refuse(f"axis {name} has no such part", begin + 1)
    return AxisRef(name, (before, size))
