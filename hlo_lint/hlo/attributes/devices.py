"""Lists of devices: explicit lists, transposed arrays of all devices, named meshes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from hlo_lint.hlo.attributes.errors import AttributeSyntaxError
from hlo_lint.hlo.attributes.exact import Language, integer, parse_text, refuse
from hlo_lint.hlo.attributes.strings import unescape
from hlo_lint.hlo.grammar import tokens, trees
from hlo_lint.hlo.shape import read_index
from hlo_lint.text.patterns import late

if TYPE_CHECKING:
    from lark import Token, Tree

MAX_DEVICES: Final = 1 << 22
"""More than this are not listed: no machine has them, and a hostile text may name any number."""


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
        """The numbers of the devices in this order.

        Raises:
            OverflowError: where there are more than `MAX_DEVICES`.
        """
        return transposed(self.dims, self.permutation)


DeviceOrder: TypeAlias = Iota | tuple[int, ...]
"""Devices in order: listed, or as a transposed array of all of them."""


def device_numbers(order: DeviceOrder) -> tuple[int, ...]:
    """The numbers of the devices in that order.

    Raises:
        OverflowError: where there are more than `MAX_DEVICES`.
    """
    return order.devices if isinstance(order, Iota) else order


def transposed(dims: Sequence[int], permutation: Sequence[int]) -> tuple[int, ...]:
    """The numbers 0, 1, … as an array of `dims`, transposed, row by row.

    Raises:
        OverflowError: where there are more than `MAX_DEVICES`.
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
    """None where the devices are in the order of their numbers."""

    @property
    def devices(self) -> tuple[int, ...]:
        """The numbers of the devices, the last axis varying fastest.

        Raises:
            OverflowError: where there are more than `MAX_DEVICES`.
        """
        if self.order is not None:
            return device_numbers(self.order)
        sizes = [axis.size for axis in self.axes]
        return transposed(sizes, range(len(sizes)))

    def size(self, axis: AxisRef) -> int:
        """Number of devices along an axis, or along the named part of it.

        Raises:
            KeyError: where the mesh has no such axis.
        """
        return axis.part[1] if axis.part else dict(self.axes)[axis.name]


class AxisRef(NamedTuple):
    """An axis of a mesh, or a part of one: `'x'`, `'y':(2)4`."""

    name: str
    part: tuple[int, int] | None = None
    """The number of steps of the axis before the part, and its size; None for all of the axis."""


@dataclass(frozen=True, slots=True)
class ReplicaGroupList:
    """Groups one by one: `{{0,1},{2,3}}`."""

    groups: tuple[tuple[int, ...], ...]
    """Empty where all replicas are one group."""


@dataclass(frozen=True, slots=True)
class IotaReplicaGroups:
    """So many groups of a size, cut from one array: `[2,4]<=[4,2]T(1,0)`.

    >>> IotaReplicaGroups(2, 3, Iota((3, 2), (1, 0))).groups
    ((0, 2, 4), (1, 3, 5))
    """

    count: int
    size: int
    """Number of devices in one group."""
    order: Iota

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of the devices in each group.

        Raises:
            OverflowError: where there are more than `MAX_DEVICES`.
        """
        return _cut(self.order.devices, self.size)


@dataclass(frozen=True, slots=True)
class MeshReplicaGroups:
    """One group for each place along the axes that are not named: `mesh['x'=2,'y'=2] {'y'}`.

    >>> MeshReplicaGroups(Mesh((MeshAxis("x", 2), MeshAxis("y", 2))), (AxisRef("x"),)).groups
    ((0, 2), (1, 3))
    """

    mesh: Mesh
    axes: tuple[AxisRef, ...]

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of the devices in each group.

        Raises:
            OverflowError: where there are more than `MAX_DEVICES`.
            KeyError: where the mesh has no axis of a name.
        """
        if not all(size for _, size in self.mesh.axes):
            return ()
        places: dict[tuple[str, int], int] = {}  # of each part of an axis, by where it begins
        sizes: list[int] = []
        for name, size in self.mesh.axes:
            cuts = {1, size}
            for axis in self.axes:
                if axis.name == name and axis.part:
                    cuts |= {axis.part[0], axis.part[0] * axis.part[1]}
            steps = sorted(cuts)
            for before, after in pairwise(steps):
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
"""The device groups of a collective; `groups` lists them, whatever the spelling."""


def _cut(devices: tuple[int, ...], size: int) -> tuple[tuple[int, ...], ...]:
    return tuple(devices[at : at + size] for at in range(0, len(devices), max(size, 1)))


# ---- reading

_is_lists = late(r"\{(?:\{(?:\d{1,18}(?:,\d{1,18})*+)?\}(?:,(?=\{)|(?=\})))*+\}").fullmatch
_find_lists = late(r"\{([\d,]*)\}").findall
_COUNTS = r"(\d{1,18}(?:,\d{1,18})*+)"
_is_iota = late(rf"\[(\d{{1,18}}),(\d{{1,18}})\]<=\[{_COUNTS}\](?:T\({_COUNTS}\))?").fullmatch
_AXIS = r"'[^'\\]*'"
MESH: Final = rf"mesh\[((?:{_AXIS}=\d{{1,18}}(?:,{_AXIS}=\d{{1,18}})*+)?)\]"
"""A mesh as it is usually printed, its axes a group."""
_AXIS_REF = rf"{_AXIS}(?::\(\d{{1,18}}\)\d{{1,18}})?"
AXES: Final = rf"\{{((?:{_AXIS_REF}(?:, ?{_AXIS_REF})*+)?)\}}"
"""References to axes as they are usually printed, all of them a group."""
_DEVICE_IDS = rf", device_ids=\(\[{_COUNTS}\]T\({_COUNTS}\)\)"
_is_by_mesh = late(rf"{MESH}(?:{_DEVICE_IDS})? {AXES}").fullmatch
_find_mesh_axes = late(r"'([^'\\]*)'=(\d+)").findall
_find_axis_refs = late(r"'([^'\\]*)'(?::\((\d+)\)(\d+))?").findall

_GROUPS = Language(
    "replica_groups",
    "expected groups of devices, like {{0,1},{2,3}}, [2,4]<=[8] or mesh['x'=2] {'x'}",
    {
        "expected the axes of the groups, like {'x'}": ["mesh['x'=2]]", "mesh['x'=2] x"],
        "expected an axis and its size, like 'x'=2": ["mesh[x", "mesh['x'=x", "mesh['x'=2,x"],
        "expected an axis in single quotes": ["mesh['x'=2] {x", "mesh['x'=2] {'x',x"],
        "expected a group in braces": ["{0", "{{0},0", "{x"],
        "expected the number of a device": ["{{x", "{{0,x", "{{0,}"],
        "expected the sizes of all devices, like <=[8]": ["[2,4]x", "[2,4]<=x", "[2]]"],
        "expected the order of the dimensions, like T(1,0)": ["[2]<=[2]T[", "[2]<=[2]T(x"],
    },
)


def read_replica_groups(text: str) -> ReplicaGroups:
    """The value of `replica_groups=…`.

    >>> read_replica_groups("[2,4]<=[8]").groups
    ((0, 1, 2, 3), (4, 5, 6, 7))

    Raises:
        AttributeSyntaxError: where it is not a list of groups.
    """
    if _is_lists(text):
        return ReplicaGroupList(tuple(map(read_index, _find_lists(text[1:-1]))))
    if match := _is_iota(text):
        count, size, dims, permutation = match.groups()
        order = iota(read_index(dims), read_index(permutation) if permutation else None, text)
        return _checked_groups(IotaReplicaGroups(int(count), int(size), order), text)
    if match := _is_by_mesh(text):
        axes, dims, permutation, references = match.groups()
        mesh = Mesh(mesh_axes(axes))
        if dims:
            order = iota(read_index(dims), read_index(permutation), text)
            check_iota(order, prod(axis.size for axis in mesh.axes), text)
            mesh = Mesh(mesh.axes, order)
        return _checked_groups(MeshReplicaGroups(mesh, axis_refs(references)), text)
    return replica_groups_by_grammar(text)


def replica_groups_by_grammar(text: str) -> ReplicaGroups:
    """The same value, read by `replica_groups.lark`.

    Raises:
        AttributeSyntaxError: where it is not a list of groups.
    """
    (tree,) = trees(parse_text(_GROUPS, text))
    match str(tree.data):
        case "lists":
            return ReplicaGroupList(tuple(numbers(group, text) for group in trees(tree)))
        case "iota":
            shape, dims, *permutation = trees(tree)
            sizes = numbers(shape, text)
            if len(sizes) != 2:
                refuse("expected how many groups, and how large: [2,4]", text, shape)
            turned = numbers(permutation[0], text) if permutation else None
            order = iota(numbers(dims, text), turned, text)
            return _checked_groups(IotaReplicaGroups(*sizes, order), text)
        case _:
            mesh = mesh_of(tree, text)
            groups = MeshReplicaGroups(mesh, axes_of(trees(tree)[-1], text))
            return _checked_groups(groups, text)


def iota(dims: tuple[int, ...], permutation: tuple[int, ...] | None, text: str) -> Iota:
    """All devices as an array; of one dimension, its order is left out.

    Raises:
        AttributeSyntaxError: where several dimensions have no order.
    """
    if permutation is None and len(dims) > 1:
        message = "an array of several dimensions needs their order, like T(1,0)"
        raise AttributeSyntaxError(message, text, text.find("<=") + 2)
    return Iota(dims, (0,) if permutation is None else permutation)


def _checked_groups(groups: ReplicaGroups, text: str) -> ReplicaGroups:
    match groups:
        case IotaReplicaGroups(count, size, order):
            check_iota(order, count * size, text)
        case MeshReplicaGroups(mesh, axes):
            check_axes(mesh, axes, text)
    return groups


NOT_A_PERMUTATION: Final = "a transposition names each dimension once"
"""The error of an order that XLA's parser reads, although no device has a place in it."""


def check_iota(order: Iota, count: int, text: str) -> None:
    """True if an array of devices can be one of `count` devices.

    Raises:
        AttributeSyntaxError: where it cannot.
    """
    if prod(order.dims) != count:
        message = f"{prod(order.dims)} devices for {count} places"
        raise AttributeSyntaxError(message, text, text.find("<=") + 2)
    if sorted(order.permutation) != list(range(len(order.dims))):
        raise AttributeSyntaxError(NOT_A_PERMUTATION, text, text.find("T("))


def check_axes(mesh: Mesh, axes: Sequence[AxisRef], text: str) -> None:
    """True if the mesh has these axes, and the parts that are meant.

    Raises:
        AttributeSyntaxError: where it has not.
    """
    sizes = dict(mesh.axes)
    for axis in axes:
        if axis.name not in sizes:
            offset = max(text.rfind(axis.name), 0)
            raise AttributeSyntaxError(f"the mesh has no axis {axis.name}", text, offset)
        before, size = axis.part or (1, 1)
        if before < 1 or size < 1 or sizes[axis.name] % (before * size):
            offset = max(text.rfind(f":({before})"), 0)
            raise AttributeSyntaxError(f"axis {axis.name} has no such part", text, offset)


def mesh_axes(text: str) -> tuple[MeshAxis, ...]:
    """The axes of a mesh as `MESH` finds them."""
    return tuple(MeshAxis(name, int(size)) for name, size in _find_mesh_axes(text))


def axis_refs(text: str) -> tuple[AxisRef, ...]:
    """References to axes as `AXES` finds them."""
    return tuple(
        AxisRef(name, (int(before), int(size)) if before else None)
        for name, before, size in _find_axis_refs(text)
    )


# ---- trees of `sharding.lark`, which `replica_groups.lark` imports


def numbers(tree: Tree[Token], text: str) -> tuple[int, ...]:
    """The numbers in a tree."""
    return tuple(integer(token, text) for token in tokens(tree))


def order_of(tree: Tree[Token], text: str) -> DeviceOrder:
    """The order in `device_ids=…` or after the sizes of `devices=…`."""
    first, *rest = trees(tree)
    if str(first.data) == "ids":
        return numbers(first, text)
    return iota(numbers(first, text), numbers(rest[0], text) if rest else None, text)


def mesh_of(tree: Tree[Token], text: str) -> Mesh:
    """The mesh in front of a sharding or of groups, with its `device_ids`."""
    mesh, *rest = trees(tree)
    axes = []
    for axis in trees(mesh):
        name, size = tokens(axis)
        axes.append(MeshAxis(unescape(name[1:-1]), integer(size, text)))
    if not rest or str(rest[0].data) != "device_ids":
        return Mesh(tuple(axes))
    order = order_of(rest[0], text)
    count = prod(axis.size for axis in axes)
    if isinstance(order, Iota):
        check_iota(order, count, text)
    elif len(order) != count:
        refuse(f"{len(order)} devices for {count} places", text, rest[0])
    return Mesh(tuple(axes), order)


def axes_of(tree: Tree[Token], text: str) -> tuple[AxisRef, ...]:
    """References to axes."""
    references = []
    for axis in trees(tree):
        name, *part = tokens(axis)
        sizes = tuple(integer(token, text) for token in part)
        references.append(AxisRef(unescape(name[1:-1]), (sizes[0], sizes[1]) if sizes else None))
    return tuple(references)
