"""Shardings of an array over devices: by tiles, or by the axes of a named mesh."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal, NamedTuple, TypeAlias, cast

from hlo_lint.hlo.attributes.cursor import Cursor, reads
from hlo_lint.hlo.attributes.devices import (
    AxisRef,
    DeviceOrder,
    Mesh,
    axes_at,
    axis_at,
    device_list_at,
    iota_at,
    mesh_at,
)
from hlo_lint.hlo.attributes.metadata import OpMetadata, metadata_at

ShardingType: TypeAlias = Literal[
    "replicated", "maximal", "manual", "unknown", "unreduced", "tiled"
]


class ShardGroup(NamedTuple):
    """A group of values with equal shardings: `shard_as 3`."""

    relation: str
    """`shard_as` or `shard_like`."""
    number: int


@dataclass(frozen=True, slots=True)
class TiledSharding:
    """An array in tiles, or whole on some devices: `{devices=[2,4]<=[8]}`, `{replicated}`.

    >>> read_sharding("{devices=[2,2]<=[4] last_tile_dim_replicate}").subgroups
    ('replicated',)
    """

    type: ShardingType
    tiles: tuple[int, ...] = ()
    """Tiles along each dimension of the array, then the sizes of the subgroups."""
    devices: DeviceOrder = ()
    """The single device of `maximal`; empty if all devices do the same."""
    subgroups: tuple[str, ...] = ()
    """The types of the last `tiles`, the subgroups: `replicated`, `manual`, `unreduced` …"""
    group: ShardGroup | None = None
    metadata: tuple[OpMetadata, ...] = ()


class DimensionSharding(NamedTuple):
    """The axes of a mesh that shard a dimension: `{'x', ?}`."""

    axes: tuple[AxisRef, ...]
    is_closed: bool = True
    """True if sharding propagation may not add axes: there is no `?`."""


@dataclass(frozen=True, slots=True)
class NamedSharding:
    """An array on a mesh: `{mesh['x'=2,'y'=4], [{'x'}, {}], unreduced={'y'}}`.

    >>> read_sharding("{mesh['x'=2], [{'x'}, {}]}").dimensions[0].axes
    (AxisRef(name='x', part=None),)
    """

    mesh: Mesh
    """A mesh without axes and with a single device for an array on that device."""
    dimensions: tuple[DimensionSharding, ...] = ()
    """One for each dimension of the array; empty if it is replicated, manual or unreduced."""
    replicated: tuple[AxisRef, ...] = ()
    unreduced: tuple[AxisRef, ...] = ()
    manual: tuple[AxisRef, ...] = ()
    reduction: str = "sum"
    """The reduction of the unreduced parts: `sum`, `max` or `min`."""
    metadata: tuple[OpMetadata, ...] = ()


@dataclass(frozen=True, slots=True)
class TupleSharding:
    """A sharding for each array in a nested tuple."""

    elements: tuple[TiledSharding | NamedSharding, ...]


Sharding: TypeAlias = TiledSharding | NamedSharding | TupleSharding


class Domain(NamedTuple):
    """A border between two shardings: `{kind="sharding", entry={…}, exit={…}}`."""

    kind: str
    entry: Sharding
    exit: Sharding


_PART = "expected devices=[…], replicated, manual, maximal device=0 or mesh[…]"
_DIMENSIONS = "expected the axes of each dimension, like [{'x'}, {}]"
_KINDS = frozenset(("replicated", "maximal", "manual", "unknown", "unreduced"))


@reads('expected kind="sharding", entry={…}, exit={…}')
def read_domain(cursor: Cursor) -> Domain:
    """The value of `domain={…}`."""
    cursor.demand("{", "kind", "=")
    kind = cursor.string()
    cursor.take(",")
    cursor.demand("entry", "=")
    entry = _sharding_at(cursor)
    cursor.take(",")
    cursor.demand("exit", "=")
    leave = _sharding_at(cursor)
    cursor.demand("}")
    return Domain(kind, entry, leave)


def _sharding_at(cursor: Cursor) -> Sharding:
    if cursor.follows("{", "{") or cursor.follows("{", "}"):
        return TupleSharding(cursor.listed(lambda _: _single_at(cursor)))
    return _single_at(cursor)


read_sharding = reads("expected a sharding")(_sharding_at)
"""The value of `sharding={…}`."""


def _single_at(cursor: Cursor) -> TiledSharding | NamedSharding:
    begin = cursor.at
    cursor.demand("{", message="expected a sharding in braces")
    sharding: TiledSharding | NamedSharding
    if cursor.next == "mesh":
        sharding = _named_at(cursor)
    elif cursor.next in ("maximal_mesh", "single_device"):
        cursor.at += 1
        cursor.demand("[", "device_id", "=")
        mesh = Mesh((), (cursor.count(),))
        cursor.demand("]")
        sharding = NamedSharding(mesh, metadata=_metadata_at(cursor) if cursor.take(",") else ())
    else:
        sharding = _tiled_at(cursor, begin)
    cursor.demand("}")
    return sharding


def _metadata_at(cursor: Cursor) -> tuple[OpMetadata, ...]:
    cursor.demand("metadata", "=")
    if cursor.follows("{", "{"):
        return cursor.listed(lambda _: metadata_at(cursor))
    return (metadata_at(cursor),)


def _named_at(cursor: Cursor) -> NamedSharding:
    mesh = mesh_at(cursor)
    cursor.demand(",")
    axes: dict[str, tuple[AxisRef, ...]] = {"replicated": (), "unreduced": (), "manual": ()}
    dimensions: tuple[DimensionSharding, ...] = ()
    metadata: tuple[OpMetadata, ...] = ()
    reduction = "sum"
    if cursor.next == "[":
        dimensions = cursor.listed(lambda _: _dimension_at(cursor, mesh), brackets="[]")
    else:
        kind = cursor.read(axes.__contains__, _DIMENSIONS)
        if kind != "replicated":
            axes[kind] = tuple(AxisRef(axis.name) for axis in mesh.axes)
        if kind == "unreduced" and cursor.take("="):
            reduction = cursor.read(_REDUCTIONS.__contains__)
    while cursor.take(","):
        if cursor.next == "metadata":
            metadata += _metadata_at(cursor)
            continue
        kind = cursor.read(axes.__contains__, "expected replicated, unreduced, manual or metadata")
        cursor.demand("=")
        if kind == "unreduced" and cursor.next in _REDUCTIONS:
            reduction = cursor.read(_REDUCTIONS.__contains__)
        axes[kind] = axes_at(cursor, mesh)
    return NamedSharding(mesh, dimensions, **axes, reduction=reduction, metadata=metadata)


_REDUCTIONS = frozenset(("sum", "max", "min"))


def _dimension_at(cursor: Cursor, mesh: Mesh) -> DimensionSharding:
    begin = cursor.at
    if cursor.next != "{":
        cursor.refuse(_DIMENSIONS)
    axes = cursor.listed(lambda _: None if cursor.take("?") else axis_at(cursor, mesh))
    if None in axes[:-1]:
        cursor.refuse("`?` may occur once, after the axes", begin)
    return DimensionSharding(tuple(filter(None, axes)), None not in axes)


def _tiled_at(cursor: Cursor, begin: int) -> TiledSharding:
    types: list[str] = []
    tiles: tuple[int, ...] = ()
    devices: DeviceOrder = ()
    subgroups: tuple[str, ...] = ()
    group = None
    metadata: tuple[OpMetadata, ...] = ()
    while cursor.next != "}":
        if cursor.next in _KINDS:
            types.append(cursor.word())
        elif cursor.next in ("shard_as", "shard_like"):
            group = ShardGroup(cursor.word(), cursor.count("expected the number of a group"))
        elif cursor.next == "metadata":
            metadata += _metadata_at(cursor)
        elif cursor.take("last_tile_dim_replicate"):
            subgroups = ("replicated",)
        elif cursor.take("last_tile_dims", "="):
            message = "expected the kinds of subgroups, like {manual}"
            subgroups = cursor.listed(lambda m: cursor.read(_KINDS.__contains__, m), message)
        elif cursor.take("device", "="):
            devices = (cursor.integer(),)
        else:
            cursor.demand("devices", "=", message=_PART)
            tiles = cursor.listed(cursor.count, "expected a size", "[]")
            read = iota_at if cursor.take("<=") else device_list_at
            devices = read(cursor, prod(tiles))
    if len(types) + bool(tiles) != 1:
        cursor.refuse("expected one of devices=[…], replicated, manual, maximal …", begin)
    if types == ["maximal"] and not devices:
        cursor.refuse("maximal needs one device", begin + 1)
    sharding_type = cast("ShardingType", types[0] if types else "tiled")
    return TiledSharding(sharding_type, tiles, devices, subgroups, group, metadata)
