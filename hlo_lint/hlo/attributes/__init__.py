"""The attributes after an instruction's operands, split and read on demand.

`split_attributes` says where each value stands; `read_attribute` says what it means, by one
recursive descent over the tokens of the value. The grammars specify the syntax, and tests hold the
readers to them.

| | |
|---|---|
| `splitting` | where each value stands |
| `cursor` | the tokens of a value |
| `reading` | which reader a name has |
| `plain` | numbers, words, names, ranges, paddings, aliases |
| `devices`, `sharding` | meshes, groups of replicas, shardings |
| `windows` | windows, dimensions of convolutions, sparsity, scales |
| `shapes`, `origin`, `metadata`, `configuration` | layouts of an entry, sources, JSON |
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlo_lint.hlo.attributes.configuration import Json as Json
    from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError as AttributeSyntaxError
    from hlo_lint.hlo.attributes.cursor import unescape as unescape
    from hlo_lint.hlo.attributes.devices import AxisRef as AxisRef
    from hlo_lint.hlo.attributes.devices import DeviceOrder as DeviceOrder
    from hlo_lint.hlo.attributes.devices import Iota as Iota
    from hlo_lint.hlo.attributes.devices import IotaReplicaGroups as IotaReplicaGroups
    from hlo_lint.hlo.attributes.devices import Mesh as Mesh
    from hlo_lint.hlo.attributes.devices import MeshAxis as MeshAxis
    from hlo_lint.hlo.attributes.devices import MeshReplicaGroups as MeshReplicaGroups
    from hlo_lint.hlo.attributes.devices import ReplicaGroupList as ReplicaGroupList
    from hlo_lint.hlo.attributes.devices import ReplicaGroups as ReplicaGroups
    from hlo_lint.hlo.attributes.devices import device_numbers as device_numbers
    from hlo_lint.hlo.attributes.metadata import OpMetadata as OpMetadata
    from hlo_lint.hlo.attributes.metadata import (
        read_frontend_attributes as read_frontend_attributes,
    )
    from hlo_lint.hlo.attributes.metadata import read_metadata as read_metadata
    from hlo_lint.hlo.attributes.origin import DebugEntry as DebugEntry
    from hlo_lint.hlo.attributes.origin import Origin as Origin
    from hlo_lint.hlo.attributes.origin import OriginalArray as OriginalArray
    from hlo_lint.hlo.attributes.origin import OriginTree as OriginTree
    from hlo_lint.hlo.attributes.origin import Recovery as Recovery
    from hlo_lint.hlo.attributes.plain import Alias as Alias
    from hlo_lint.hlo.attributes.plain import Donor as Donor
    from hlo_lint.hlo.attributes.plain import Padding as Padding
    from hlo_lint.hlo.attributes.plain import Slice as Slice
    from hlo_lint.hlo.attributes.plain import Statistics as Statistics
    from hlo_lint.hlo.attributes.plain import Tolerance as Tolerance
    from hlo_lint.hlo.attributes.reading import KEPT_AS_TEXT as KEPT_AS_TEXT
    from hlo_lint.hlo.attributes.reading import AttributeValue as AttributeValue
    from hlo_lint.hlo.attributes.reading import read_attribute as read_attribute
    from hlo_lint.hlo.attributes.shapes import ProgramShape as ProgramShape
    from hlo_lint.hlo.attributes.shapes import TypedLiteral as TypedLiteral
    from hlo_lint.hlo.attributes.sharding import DimensionSharding as DimensionSharding
    from hlo_lint.hlo.attributes.sharding import Domain as Domain
    from hlo_lint.hlo.attributes.sharding import NamedSharding as NamedSharding
    from hlo_lint.hlo.attributes.sharding import ShardGroup as ShardGroup
    from hlo_lint.hlo.attributes.sharding import Sharding as Sharding
    from hlo_lint.hlo.attributes.sharding import TiledSharding as TiledSharding
    from hlo_lint.hlo.attributes.sharding import TupleSharding as TupleSharding
    from hlo_lint.hlo.attributes.splitting import attribute_span as attribute_span
    from hlo_lint.hlo.attributes.splitting import split_attributes as split_attributes
    from hlo_lint.hlo.attributes.splitting import (
        split_attributes_strictly as split_attributes_strictly,
    )
    from hlo_lint.hlo.attributes.windows import BlockScalingConfig as BlockScalingConfig
    from hlo_lint.hlo.attributes.windows import (
        ConvolutionDimensionNumbers as ConvolutionDimensionNumbers,
    )
    from hlo_lint.hlo.attributes.windows import OperandScaling as OperandScaling
    from hlo_lint.hlo.attributes.windows import OperandSparsity as OperandSparsity
    from hlo_lint.hlo.attributes.windows import SparsityConfig as SparsityConfig
    from hlo_lint.hlo.attributes.windows import Window as Window
    from hlo_lint.hlo.attributes.windows import WindowDimension as WindowDimension

_HOMES = {
    "configuration": "Json",
    "cursor": "AttributeSyntaxError unescape",
    "devices": (
        "AxisRef DeviceOrder Iota IotaReplicaGroups Mesh MeshAxis MeshReplicaGroups "
        "ReplicaGroupList ReplicaGroups device_numbers"
    ),
    "metadata": "OpMetadata read_frontend_attributes read_metadata",
    "origin": "DebugEntry Origin OriginalArray OriginTree Recovery",
    "plain": "Alias Donor Padding Slice Statistics Tolerance",
    "reading": "KEPT_AS_TEXT AttributeValue read_attribute",
    "shapes": "ProgramShape TypedLiteral",
    "sharding": (
        "DimensionSharding Domain NamedSharding ShardGroup Sharding TiledSharding TupleSharding"
    ),
    "splitting": "attribute_span split_attributes split_attributes_strictly",
    "windows": (
        "BlockScalingConfig ConvolutionDimensionNumbers OperandScaling OperandSparsity "
        "SparsityConfig Window WindowDimension"
    ),
}
"""The module of each public name."""

__all__ = [name for names in _HOMES.values() for name in names.split()]


def __getattr__(name: str) -> object:
    """A public name, from the module that has it: most runs need few of the readers."""
    for home, names in _HOMES.items():
        if name in names.split():
            value: object = getattr(import_module(f"{__name__}.{home}"), name)
            globals()[name] = value  # the next access does not come here
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
