"""The attributes after an instruction's operands, split and read on demand.

`split_attributes` says where each value stands; `read_attribute` says what it means. The usual
spellings are read by regular expressions; the others, and what is malformed, go through the
grammars, which specify them all. Metadata never does: of all that is printed it repeats the least.

| | |
|---|---|
| `splitting` | where each value stands |
| `reading` | which reader a name has |
| `plain` | numbers, words, names, ranges, paddings, aliases |
| `devices`, `sharding` | meshes, groups of replicas, shardings |
| `windows` | windows, dimensions of convolutions, sparsity, scales |
| `shapes`, `origin`, `metadata`, `configuration` | layouts of an entry, sources, JSON |
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlo_lint.hlo.attributes.configuration import Json
    from hlo_lint.hlo.attributes.devices import (
        AxisRef,
        DeviceOrder,
        Iota,
        IotaReplicaGroups,
        Mesh,
        MeshAxis,
        MeshReplicaGroups,
        ReplicaGroupList,
        ReplicaGroups,
        device_numbers,
    )
    from hlo_lint.hlo.attributes.errors import AttributeSyntaxError
    from hlo_lint.hlo.attributes.metadata import (
        OpMetadata,
        read_frontend_attributes,
        read_metadata,
    )
    from hlo_lint.hlo.attributes.origin import (
        DebugEntry,
        Origin,
        OriginalArray,
        OriginTree,
        Recovery,
    )
    from hlo_lint.hlo.attributes.plain import Alias, Donor, Padding, Slice, Statistics, Tolerance
    from hlo_lint.hlo.attributes.reading import (
        KEPT_AS_TEXT,
        AttributeValue,
        read_attribute,
        read_by_grammar,
    )
    from hlo_lint.hlo.attributes.shapes import ProgramShape, TypedLiteral
    from hlo_lint.hlo.attributes.sharding import (
        DimensionSharding,
        Domain,
        NamedSharding,
        ShardGroup,
        Sharding,
        TiledSharding,
        TupleSharding,
    )
    from hlo_lint.hlo.attributes.splitting import (
        attribute_span,
        split_attributes,
        split_attributes_strictly,
        split_by_scanning,
    )
    from hlo_lint.hlo.attributes.strings import unescape
    from hlo_lint.hlo.attributes.windows import (
        BlockScalingConfig,
        ConvolutionDimensionNumbers,
        OperandScaling,
        OperandSparsity,
        SparsityConfig,
        Window,
        WindowDimension,
    )

__all__ = [
    "KEPT_AS_TEXT",
    "Alias",
    "AttributeSyntaxError",
    "AttributeValue",
    "AxisRef",
    "BlockScalingConfig",
    "ConvolutionDimensionNumbers",
    "DebugEntry",
    "DeviceOrder",
    "DimensionSharding",
    "Domain",
    "Donor",
    "Iota",
    "IotaReplicaGroups",
    "Json",
    "Mesh",
    "MeshAxis",
    "MeshReplicaGroups",
    "NamedSharding",
    "OpMetadata",
    "OperandScaling",
    "OperandSparsity",
    "Origin",
    "OriginTree",
    "OriginalArray",
    "Padding",
    "ProgramShape",
    "Recovery",
    "ReplicaGroupList",
    "ReplicaGroups",
    "ShardGroup",
    "Sharding",
    "Slice",
    "SparsityConfig",
    "Statistics",
    "TiledSharding",
    "Tolerance",
    "TupleSharding",
    "TypedLiteral",
    "Window",
    "WindowDimension",
    "attribute_span",
    "device_numbers",
    "read_attribute",
    "read_by_grammar",
    "read_frontend_attributes",
    "read_metadata",
    "split_attributes",
    "split_attributes_strictly",
    "split_by_scanning",
    "unescape",
]

_HOMES = {
    "configuration": "Json",
    "devices": (
        "AxisRef DeviceOrder Iota IotaReplicaGroups Mesh MeshAxis MeshReplicaGroups "
        "ReplicaGroupList ReplicaGroups device_numbers"
    ),
    "errors": "AttributeSyntaxError",
    "metadata": "OpMetadata read_frontend_attributes read_metadata",
    "origin": "DebugEntry Origin OriginalArray OriginTree Recovery",
    "plain": "Alias Donor Padding Slice Statistics Tolerance",
    "reading": "KEPT_AS_TEXT AttributeValue read_attribute read_by_grammar",
    "shapes": "ProgramShape TypedLiteral",
    "sharding": (
        "DimensionSharding Domain NamedSharding ShardGroup Sharding TiledSharding TupleSharding"
    ),
    "splitting": "attribute_span split_attributes split_attributes_strictly split_by_scanning",
    "strings": "unescape",
    "windows": (
        "BlockScalingConfig ConvolutionDimensionNumbers OperandScaling OperandSparsity "
        "SparsityConfig Window WindowDimension"
    ),
}
"""The module of each public name."""


def __getattr__(name: str) -> object:
    """A public name, from the module that has it: patterns are compiled for who asks only."""
    for home, names in _HOMES.items():
        if name in names.split():
            value: object = getattr(import_module(f"{__name__}.{home}"), name)
            globals()[name] = value  # who asks again is not asked to come here
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
