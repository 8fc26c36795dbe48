"""Shardings that fit what they are said of (`xla/hlo/ir/hlo_sharding.cc`)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod

from hlo_lint.analysis.verifier.scope import (
    Checks,
    RowChecks,
    Scope,
    Violation,
    contradiction,
    text_of,
    value_or_none,
)
from hlo_lint.hlo.attributes import (
    NamedSharding,
    TiledSharding,
    TupleSharding,
    device_numbers,
)
from hlo_lint.hlo.records import attributes_of, type_of
from hlo_lint.hlo.shape import ArrayShape, ShapeSyntaxError, leaves, parse_shape


def _sharding(scope: Scope, number: int) -> Iterator[Violation]:
    row = scope.computation.rows[number]
    if "sharding=" in attributes_of(row):
        instruction = scope.computation.at(number)
        text = text_of(instruction, "sharding")
        trouble = "" if text is None else _trouble(text, type_of(row), scope.header.partitions)
        if trouble:
            yield Violation("I-02", instruction, trouble)


@lru_cache(maxsize=1 << 12)
def _trouble(text: str, spelled: str, devices: int) -> str:
    if wrong := contradiction("sharding", text):
        return wrong
    sharding = value_or_none("sharding", text)
    try:
        shape = parse_shape(spelled)
    except ShapeSyntaxError:
        return ""
    parts = [each for _, each in leaves(shape)]
    if isinstance(sharding, TupleSharding):
        if len(sharding.elements) == 1 and not parts:
            return ""
        if len(sharding.elements) != len(parts):
            return f"{len(sharding.elements)} shardings for {len(parts)} arrays"
        pairs = zip(sharding.elements, parts, strict=True)
        troubles = (_of_array(each, part, devices) for each, part in pairs)
        return next(filter(None, troubles), "")
    if isinstance(sharding, TiledSharding | NamedSharding) and len(parts) == 1:
        return _of_array(sharding, parts[0], devices)
    return ""


def _of_array(sharding: TiledSharding | NamedSharding, shape: object, devices: int) -> str:
    if not isinstance(shape, ArrayShape):
        return ""
    if isinstance(sharding, NamedSharding):
        rank = len(sharding.dimensions)
        if rank and rank != shape.rank:
            return f"the sharding names {rank} dimensions of {shape}"
        count = prod(axis.size for axis in sharding.mesh.axes)
        if devices != 1 and count > devices:
            return f"the mesh has {count} devices, and the module {devices}"
        return ""
    try:
        numbers = device_numbers(sharding.devices)
    except OverflowError:
        return ""
    if sharding.kind == "tiled":
        rank = len(sharding.tiles) - len(sharding.subgroups)
        if rank != shape.rank:
            return f"the sharding cuts {rank} dimensions of {shape}"
        if len(numbers) != prod(sharding.tiles):
            return f"{prod(sharding.tiles)} tiles for {len(numbers)} devices"
    if len(set(numbers)) != len(numbers):
        return "the sharding names a device twice"
    for number in numbers:
        if devices != 1 and not 0 <= number < devices:
            return f"the sharding names device {number} of {devices}"
    return ""


CHECKS: Checks = {}
OF_ROWS: RowChecks = {_sharding: ("sharding=",)}
OF_COMPUTATIONS = ()
OF_MODULES = ()
