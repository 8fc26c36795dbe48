"""Canonical values of attributes, shapes, literals: equal if their meanings are equal."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Final

from hlo_lint.hlo.ir import CALLING_ATTRIBUTES, Instruction
from hlo_lint.hlo.shape import ArrayShape, BufferShape, Layout, Shape, TupleShape, shape_or_none

PROVENANCE: Final = frozenset(
    "metadata original_value origin statistics debug_attributes origin_recovery_table".split()
)
"""Attributes about the origin of an instruction, without effect on its result."""

_EMPTY_BY_DEFAULT = frozenset("dimensions control-predecessors frontend_attributes window".split())
_MAX_LISTED = 1 << 16
"""Up to this many devices, groups are compared device by device; else by their spelling."""
_MARKS_OF_A_RUN = frozenset({"fingerprint_before_lhs"})
"""Frontend attributes of a module that change with anything else, names included."""

_word = re.compile(r"\b(?:true|false)\b")
_fraction = re.compile(r"(?<![\w.])-?\d+(?:\.\d*(?:[eE][-+]?\d+)?|[eE][-+]?\d+)(?![\w.])")
_comment_or_blank = re.compile(r'("(?:[^"\\]|\\.)*")|/\*.*?\*/|\s+', re.S)


@lru_cache(maxsize=1 << 16)
def meaning(name: str, text: str) -> Hashable:
    """The value of the attribute `name`; None if its absence would mean the same.

    >>> meaning("replica_groups", "{{0,1},{2,3}}") == meaning("replica_groups", "[2,2]<=[4]")
    True
    >>> meaning("left_side", "false") is None, meaning("largest", "false") is None
    (True, False)
    """
    from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
    from hlo_lint.hlo.attributes.plain import READERS
    from hlo_lint.hlo.attributes.reading import read_attribute

    if name == "channel_id":
        return "some channel"  # the number only tells channels apart
    try:
        value = read_attribute(name, text)
    except AttributeSyntaxError:
        return squeezed(text)
    # XLA's parser reads a boolean that is left out as false, except topk's `largest`.
    if value is False and name in READERS and name != "largest":
        return None
    if name in _EMPTY_BY_DEFAULT and squeezed(text) == "{}":
        return None
    if name == "operand_precision" and isinstance(value, tuple) and set(value) <= {"default"}:
        return None
    if name == "frontend_attributes" and isinstance(value, Mapping):
        value = {key: item for key, item in value.items() if key not in _MARKS_OF_A_RUN}
        if not value:
            return None
    return _frozen(value)


def _frozen(value: object) -> Hashable:
    """The value in a canonical, hashable form."""
    from hlo_lint.hlo.attributes.devices import (
        Iota,
        IotaReplicaGroups,
        Mesh,
        MeshReplicaGroups,
        ReplicaGroupList,
        device_numbers,
    )
    from hlo_lint.hlo.attributes.shapes import ProgramShape
    from hlo_lint.hlo.attributes.sharding import NamedSharding, TiledSharding, TupleSharding
    from hlo_lint.hlo.parser.mlir_dictionary import Dictionary

    match value:
        case bool():
            return ("true",) if value else ("false",)  # not the numbers 1 and 0
        case ReplicaGroupList():
            return value.groups
        case IotaReplicaGroups(order=Iota(dims)):
            return value.groups if prod(dims) <= _MAX_LISTED else value
        case MeshReplicaGroups(mesh=Mesh(axes)):
            sizes = [axis.size for axis in axes]
            return value.groups if 0 < prod(sizes) <= _MAX_LISTED else value
        case TiledSharding(devices=Iota(dims)) if prod(dims) <= _MAX_LISTED:
            return replace(value, devices=device_numbers(value.devices), metadata=())
        case TiledSharding() | NamedSharding():
            return replace(value, metadata=())
        case TupleSharding():
            return ("shardings", *map(_frozen, value.elements))
        case ProgramShape():
            return (tuple(map(with_layout, value.parameters)), with_layout(value.result))
        case ArrayShape() | TupleShape() | BufferShape():
            return with_layout(value)
        case Dictionary():
            return _frozen(value.values)
        case Mapping():
            return frozenset((str(key), _frozen(item)) for key, item in value.items())
        case list() | tuple() if type(value) in (list, tuple):
            return tuple(map(_frozen, value))
        case _:
            return value


@lru_cache(maxsize=1 << 16)
def attributes(tail: str) -> tuple[tuple[str, Hashable], ...]:
    """The name and meaning of each attribute, sorted by name.

    Provenance and control predecessors are left out; of called computations only the number counts.
    """
    from hlo_lint.hlo.attributes.splitting import split_attributes

    meanings: list[tuple[str, Hashable]] = []
    for name, (start, end) in split_attributes(tail).items():
        if name in PROVENANCE or name == "control-predecessors":
            continue
        text = tail[start:end]
        value = text.count(",") if name in CALLING_ATTRIBUTES else meaning(name, text)
        if value is not None:
            meanings.append((name, value))
    return tuple(sorted(meanings, key=lambda entry: entry[0]))


@lru_cache(maxsize=1 << 16)
def shape_meaning(text: str) -> Hashable:
    """The shape with default layouts filled in; the text if it is not a shape.

    >>> shape_meaning("f32[8,4]") == shape_meaning("f32[8,4]{1,0}")
    True
    """
    shape = shape_or_none(text)
    return squeezed(text) if shape is None else with_layout(shape)


def with_layout(shape: Shape) -> Shape:
    """The shape, with XLA's default layout where a layout is missing."""
    match shape:
        case ArrayShape(layout=None):
            return shape.with_layout(Layout(shape.minor_to_major))
        case TupleShape(elements):
            return TupleShape(tuple(map(with_layout, elements)))
        case _:
            return shape


@lru_cache(maxsize=1 << 14)
def squeezed(text: str) -> str:
    """The text without blanks and comments; strings are kept.

    >>> squeezed('{ /*i0=0*/ 1, 2 }')
    '{1,2}'
    """
    return _comment_or_blank.sub(lambda token: token[1] or "", text)


@lru_cache(maxsize=1 << 14)
def literal_meaning(text: str) -> str:
    """The value of a constant or the number of a parameter, with canonical numbers.

    >>> literal_meaning("{ 1e3, 0.50, -inf }"), literal_meaning("{true, false}")
    ('{1000,0.5,-inf}', '{1,0}')
    """
    text = _fraction.sub(_plainest, squeezed(text))
    return _word.sub(lambda word: "1" if word[0] == "true" else "0", text)


def _plainest(token: re.Match[str]) -> str:
    number = float(token[0])
    # -0 keeps its sign, and from 2**53 on a float stands for several integers.
    if number.is_integer() and 0 < abs(number) < 1 << 53:
        return str(int(number))
    return repr(number)


def without_origin(instruction: Instruction) -> str:
    """The text of an instruction without its metadata."""
    text, tail = instruction.text, instruction.attributes_text
    if not tail or not text.endswith(tail):
        return text
    return text.removesuffix(tail) + without_metadata(tail)


_METADATA = re.compile(r', metadata=\{(?:[^{}"]++|"(?:[^"\\]++|\\.)*+")*+\}', re.S).match


def without_metadata(tail: str) -> str:
    """The attributes without their metadata, in which most lines differ.

    >>> without_metadata(', dimensions={0}, metadata={op_name="a, b={"}, sharding={replicated}')
    ', dimensions={0}, sharding={replicated}'
    """
    start = tail.find(", metadata={")
    if start < 0:
        return tail
    head = tail[:start]
    is_plain = head.count("{") == head.count("}") and head.count('"') % 2 == 0
    metadata = _METADATA(tail, start) if is_plain else None
    # An odd spelling is kept: `attributes` parses it in full.
    return tail if metadata is None else head + tail[metadata.end() :]
