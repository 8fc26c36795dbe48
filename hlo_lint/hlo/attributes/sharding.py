"""Shardings of an array over devices: by tiles, or by the axes of a named mesh."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast

from hlo_lint.hlo.attributes.devices import (
    AXES,
    MESH,
    AxisRef,
    DeviceOrder,
    Iota,
    Mesh,
    axes_of,
    axis_refs,
    check_axes,
    check_iota,
    iota,
    mesh_axes,
    mesh_of,
    numbers,
)
from hlo_lint.hlo.attributes.errors import AttributeSyntaxError
from hlo_lint.hlo.attributes.exact import Language, integer, parse_text, refuse
from hlo_lint.hlo.attributes.metadata import OpMetadata, read_metadata
from hlo_lint.hlo.attributes.strings import unescape
from hlo_lint.hlo.grammar import tokens, trees
from hlo_lint.hlo.shape import read_index
from hlo_lint.text.patterns import late

if TYPE_CHECKING:
    from lark import Token, Tree

ShardingKind: TypeAlias = Literal[
    "replicated", "maximal", "manual", "unknown", "unreduced", "tiled"
]


class ShardGroup(NamedTuple):
    """Values that are sharded alike: `shard_as 3`."""

    relation: str
    """`shard_as` or `shard_like`."""
    number: int


@dataclass(frozen=True, slots=True)
class TiledSharding:
    """An array in tiles, or whole on some devices: `{devices=[2,4]<=[8]}`, `{replicated}`.

    >>> read_sharding("{devices=[2,2]<=[4] last_tile_dim_replicate}").subgroups
    ('replicated',)
    """

    kind: ShardingKind
    tiles: tuple[int, ...] = ()
    """Tiles along each dimension of the array, then the sizes of the subgroups."""
    devices: DeviceOrder = ()
    """Of `maximal` the one device; empty where all devices do the same."""
    subgroups: tuple[str, ...] = ()
    """The kinds of the last of `tiles`: devices that are `replicated`, `manual`, `unreduced` …"""
    group: ShardGroup | None = None
    metadata: tuple[OpMetadata, ...] = ()


class DimensionSharding(NamedTuple):
    """The axes of a mesh over which one dimension is spread: `{'x', ?}`."""

    axes: tuple[AxisRef, ...]
    is_closed: bool = True
    """True if the propagation of shardings may add no axis: there is no `?`."""


@dataclass(frozen=True, slots=True)
class NamedSharding:
    """An array on a mesh: `{mesh['x'=2,'y'=4], [{'x'}, {}], unreduced={'y'}}`.

    >>> read_sharding("{mesh['x'=2], [{'x'}, {}]}").dimensions[0].axes
    (AxisRef(name='x', part=None),)
    """

    mesh: Mesh
    """Without axes, and with one device, where the array lies on that device."""
    dimensions: tuple[DimensionSharding, ...] = ()
    """One for each dimension of the array; none where it is replicated, manual or unreduced."""
    replicated: tuple[AxisRef, ...] = ()
    unreduced: tuple[AxisRef, ...] = ()
    manual: tuple[AxisRef, ...] = ()
    reduction: str = "sum"
    """The reduction that joins the unreduced parts: `sum`, `max` or `min`."""
    metadata: tuple[OpMetadata, ...] = ()


@dataclass(frozen=True, slots=True)
class TupleSharding:
    """One sharding for each array in a tuple, however the tuple is nested."""

    elements: tuple[TiledSharding | NamedSharding, ...]


Sharding: TypeAlias = TiledSharding | NamedSharding | TupleSharding


class Domain(NamedTuple):
    """A border between two shardings: `{kind="sharding", entry={…}, exit={…}}`."""

    kind: str
    entry: Sharding
    exit: Sharding


_WHOLE = {f"{{{kind}}}": TiledSharding(kind) for kind in ("replicated", "manual", "unknown")}
_COUNTS = r"(\d{1,18}(?:,\d{1,18})*+)"
_is_tiled = late(
    rf"\{{devices=\[{_COUNTS}\](?:<=\[{_COUNTS}\](?:T\({_COUNTS}\))?|{_COUNTS})"
    r"( last_tile_dim_replicate)?\}"
).fullmatch
_DIMENSION = r"\{[^{}?]*(?:\?(?=\}))?\}"
_is_named = late(
    rf"\{{{MESH}, (?:\[((?:{_DIMENSION}(?:, {_DIMENSION})*+)?)\]|(replicated|manual))\}}"
).fullmatch
_is_maximal = late(r"\{maximal device=(\d{1,18})\}").fullmatch
_is_single_device = late(r"\{single_device\[device_id=(\d{1,18})\]\}").fullmatch
_SINGLE = r"(?:/\*index=\d+\*/)?(\{(?:[^{}]|\{[^{}]*\})*+\})"
_is_tuple = late(rf"\{{{_SINGLE}(?:, {_SINGLE})*+\}}").fullmatch
_find_singles = late(_SINGLE).findall
_is_axes = late(AXES).fullmatch
_find_dimensions = late(r"\{[^{}]*\}").findall

_EXAMPLES = {
    "expected a sharding in braces": ["replicated", "[", "mesh['x'=2]"],
    "expected devices=[…], replicated, manual, maximal device=0 or mesh[…]": [
        "{x",
        "{0",
        "{[",
        "{(",
    ],
    "expected a size": ["{devices=[x", "{devices=[2,x", "{devices=[]", "{devices=[2]<=[x"],
    "expected devices, like 0,1,2,3 or <=[4]": ["{devices=[2]x", "{devices=[2]}", "{devices=[2]["],
    "expected the order of the dimensions, like T(1,0)": [
        "{devices=[2]<=[2]T[",
        "{devices=[2]<=[2]T(x",
    ],
    "expected the kinds of subgroups, like {manual}": [
        "{last_tile_dims=x",
        "{last_tile_dims=[",
        "{last_tile_dims={x",
    ],
    "expected the number of a group": ["{shard_as x", "{shard_like }", "{shard_as {"],
    "expected an axis and its size, like 'x'=2": ["{mesh[x", "{mesh['x'=x", "{mesh['x'=2,x"],
    "expected an axis in single quotes": [
        "{mesh['x'=2], [{x",
        "{mesh['x'=2], [{'x',x",
        "{mesh['x'=2], [{}], manual={x",
    ],
    "expected the axes of each dimension, like [{'x'}, {}]": [
        "{mesh['x'=2], x",
        "{mesh['x'=2], [x",
        "{mesh['x'=2], [{},x",
        "{mesh['x'=2], {",
    ],
    "expected replicated, unreduced, manual or metadata": [
        "{mesh['x'=2], [{}], x",
        "{mesh['x'=2], [{}], [",
    ],
}
_SHARDING = Language("sharding", "expected a sharding", _EXAMPLES)


def read_sharding(text: str) -> Sharding:
    """The value of `sharding={…}`.

    Raises:
        AttributeSyntaxError: where it is not a sharding.
    """
    if not text.startswith("{{"):
        return _read_printed(text) or sharding_by_grammar(text)
    if _is_tuple(text):
        with suppress(AttributeSyntaxError):  # the grammar says at which character
            elements = tuple(map(_read_printed, _find_singles(text[1:-1])))
            if None not in elements:
                return TupleSharding(tuple(filter(None, elements)))
    return sharding_by_grammar(text)


def _read_printed(text: str) -> TiledSharding | NamedSharding | None:
    """One sharding as XLA prints most of them; None where the grammar has to say what it is."""
    whole = _WHOLE.get(text)
    if whole is not None:
        return whole
    if match := _is_tiled(text):
        tiles, dims, permutation, ids, replicated = match.groups()
        subgroups = ("replicated",) if replicated else ()
        order: DeviceOrder = read_index(ids) if ids else _iota(dims, permutation, text)
        return _checked(TiledSharding("tiled", read_index(tiles), order, subgroups), text)
    if match := _is_named(text):
        named = _named(*match.groups())
        if named is not None:
            return _checked(named, text)
    if match := _is_maximal(text):
        return TiledSharding("maximal", devices=(int(match[1]),))
    if match := _is_single_device(text):
        return NamedSharding(Mesh((), (int(match[1]),)))
    return None


def _iota(dims: str, permutation: str | None, text: str) -> Iota:
    return iota(read_index(dims), read_index(permutation) if permutation else None, text)


def _named(mesh_text: str, dimensions: str | None, kind: str | None) -> NamedSharding | None:
    mesh = Mesh(mesh_axes(mesh_text))
    if kind is not None:
        every = tuple(AxisRef(axis.name) for axis in mesh.axes)
        return NamedSharding(mesh, manual=every if kind == "manual" else ())
    parts = []
    for spelled in _find_dimensions(dimensions or ""):
        is_closed = not spelled.endswith("?}")
        axes = _is_axes(spelled if is_closed else f"{spelled[:-2].rstrip(', ')}}}")
        if axes is None:
            return None
        parts.append(DimensionSharding(axis_refs(axes[1]), is_closed))
    return NamedSharding(mesh, tuple(parts))


def read_domain(text: str) -> Domain:
    """The value of `domain={…}`.

    Raises:
        AttributeSyntaxError: where it is not a border between shardings.
    """
    (tree,) = trees(parse_text(_SHARDING, text))
    if str(tree.data) != "domain":
        raise AttributeSyntaxError('expected kind="sharding", entry={…}, exit={…}', text, 1)
    entry, exit_ = (_built(side, text) for side in trees(tree))
    return Domain(unescape(tokens(tree)[0][1:-1]), entry, exit_)


def sharding_by_grammar(text: str) -> Sharding:
    """The same value, read by `sharding.lark`.

    Raises:
        AttributeSyntaxError: where it is not a sharding.
    """
    (tree,) = trees(parse_text(_SHARDING, text))
    if str(tree.data) == "domain":
        raise AttributeSyntaxError("expected a sharding", text, 1)
    return _built(tree, text)


def _built(tree: Tree[Token], text: str) -> Sharding:
    if str(tree.data) == "tuple":
        return TupleSharding(tuple(_built_single(element, text) for element in trees(tree)))
    return _built_single(tree, text)


def _built_single(tree: Tree[Token], text: str) -> TiledSharding | NamedSharding:
    match str(tree.data):
        case "maximal_mesh":
            mesh = Mesh((), (integer(tokens(tree)[0], text),))
            return NamedSharding(mesh, metadata=_metadata(tree, text))
        case "named":
            return _checked(_built_named(tree, text), text)
        case _:
            return _checked(_built_tiled(tree, text), text)


def _built_named(tree: Tree[Token], text: str) -> NamedSharding:
    mesh = mesh_of(tree, text)
    every = tuple(AxisRef(axis.name) for axis in mesh.axes)
    parts: dict[str, tuple[AxisRef, ...]] = {}
    dimensions: tuple[DimensionSharding, ...] = ()
    reduction = "sum"
    for part in trees(tree)[1:]:
        match str(part.data):
            case "whole":
                kind, *how = map(str, tokens(part))
                if kind not in ("replicated", "manual", "unreduced"):
                    refuse("expected replicated, manual or unreduced", text, part)
                parts[kind] = () if kind == "replicated" else every
                reduction = how[0] if how else reduction
            case "dimensions":
                dimensions = tuple(_dimension(dimension, text) for dimension in trees(part))
            case "replicated" | "unreduced" | "manual" as kind:
                parts[kind] = axes_of(trees(part)[0], text)
                how = [str(token) for token in tokens(part) if token.type == "REDUCTION"]
                reduction = how[0] if how else reduction
    return NamedSharding(
        mesh,
        dimensions,
        parts.get("replicated", ()),
        parts.get("unreduced", ()),
        parts.get("manual", ()),
        reduction,
        _metadata(tree, text),
    )


def _dimension(tree: Tree[Token], text: str) -> DimensionSharding:
    is_closed = not tokens(tree)
    if not is_closed and (len(tokens(tree)) > 1 or tree.children[-1] is not tokens(tree)[0]):
        refuse("`?` stands once, after the axes", text, tree)
    return DimensionSharding(axes_of(tree, text), is_closed)


def _built_tiled(tree: Tree[Token], text: str) -> TiledSharding:
    kinds: list[str] = []
    tiles: tuple[int, ...] = ()
    devices: DeviceOrder = ()
    subgroups: tuple[str, ...] = ()
    group = None
    for part in trees(tree):
        match str(part.data):
            case "kind":
                kinds.append(str(tokens(part)[0]))
            case "device":
                devices = numbers(part, text)
            case "devices":
                sizes, *order = trees(part)
                tiles = numbers(sizes, text)
                dims = numbers(order[0], text)
                devices = dims
                if str(order[0].data) == "dims":
                    permutation = (numbers(axes, text) for axes in order[1:])
                    devices = iota(dims, next(permutation, None), text)
            case "last_tile_dim_replicate":
                subgroups = ("replicated",)
            case "last_tile_dims":
                subgroups = tuple(str(tokens(kind)[0]) for kind in trees(part))
            case "group":
                relation, number = tokens(part)
                group = ShardGroup(str(relation), integer(number, text))
    if len(kinds) + bool(tiles) != 1:
        refuse("expected one of devices=[…], replicated, manual, maximal …", text, tree)
    kind = cast("ShardingKind", kinds[0] if kinds else "tiled")
    return TiledSharding(kind, tiles, devices, subgroups, group, _metadata(tree, text))


def _metadata(tree: Tree[Token], text: str) -> tuple[OpMetadata, ...]:
    return tuple(
        read_metadata(text[fields.meta.start_pos : fields.meta.end_pos])
        for part in trees(tree)
        if str(part.data) == "metadata"
        for fields in trees(part)
    )


def _checked(sharding: TiledSharding | NamedSharding, text: str) -> TiledSharding | NamedSharding:
    match sharding:
        case NamedSharding():
            axes = [axis for dimension in sharding.dimensions for axis in dimension.axes]
            axes += (*sharding.replicated, *sharding.unreduced, *sharding.manual)
            check_axes(sharding.mesh, axes, text)
        case TiledSharding(kind="tiled"):
            count = prod(sharding.tiles)
            if isinstance(sharding.devices, Iota):
                check_iota(sharding.devices, count, text)
            elif len(sharding.devices) != count:
                message = f"{len(sharding.devices)} devices for {count} places"
                raise AttributeSyntaxError(message, text, text.find("]") + 1)
        case TiledSharding(kind="maximal", devices=devices) if devices == ():
            raise AttributeSyntaxError("maximal needs one device", text, text.find("maximal"))
    return sharding
