"""Our typed values, spelled as `schema.py` spells XLA's protocol buffers.

Both sides leave out what is 0, false or empty, and what XLA fills in by itself is filled in here:
the type of a comparison, one group of features, a default precision.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

from hlo_lint.hlo.attributes import devices as device_lists
from hlo_lint.hlo.attributes import sharding as shardings
from hlo_lint.hlo.attributes.cursor import unescape
from hlo_lint.hlo.attributes.metadata import OpMetadata
from hlo_lint.hlo.attributes.origin import Origin, OriginalArray, OriginTree
from hlo_lint.hlo.attributes.plain import Alias, Donor, Tolerance
from hlo_lint.hlo.attributes.reading import read_attribute
from hlo_lint.hlo.attributes.shapes import ProgramShape, TypedLiteral
from hlo_lint.hlo.attributes.windows import ConvolutionDimensionNumbers, Window
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.parser.literals import Elided, LiteralValue, numpy_dtype
from hlo_lint.hlo.shape import ArrayShape, BufferShape, Layout, OpaqueShape, Shape, TupleShape
from tests.oracle.schema import SHARDING_TYPES

Fields = dict[str, Any]

IN_THE_GRAPH = frozenset(
    {"index", "calls", "to_apply", "body", "condition", "select", "scatter", "comparator"}
    | {"branch_computations", "called_computations", "true_computation", "false_computation"}
    | {"async_computation", "control-predecessors", "metadata"}
)
"""Attributes of instructions that are compared elsewhere: as edges, and `metadata` by itself."""

NOT_COMPARED = {
    "sparsity": "an older release's spelling, which neither jaxlib reads",
    "sparsity_config": "kept as text",
    "block_scaling_config": "kept as text",
    "mode": "a collective's mode is read by 0.11.2 and in no proto",
    "split_dimension": "all-to-all's old name for `dimensions`, in no proto",
    "concat_dimension": "all-to-all's old name for `dimensions`, in no proto",
}
"""Attributes that are not compared with XLA's protos, and why."""


def plain(name: str) -> Callable[[Any], Fields]:
    """An attribute that is a field of its own."""
    return lambda value: {name: value}


def inside(message: str, name: str) -> Callable[[Any], Fields]:
    """An attribute that is a field of a message."""
    return lambda value: {message: {name: value}}


def numbers(shape: Shape) -> dict[str, Any]:
    """A shape as `read_hlo.numbers` shows a `ShapeProto`."""
    match shape:
        case TupleShape(elements=elements):
            return {"kind": "tuple", "elements": [numbers(element) for element in elements]}
        case BufferShape(element=element):
            return {"kind": "buffer", "elements": [numbers(element)]}
        case OpaqueShape(kind=kind):
            return {"kind": {"opaque": "opaque_type"}.get(kind, kind), "elements": []}
        case ArrayShape():
            layout = shape.layout or Layout(shape.minor_to_major)
            return {
                "kind": shape.dtype,
                "dims": list(shape.dims),
                "dynamic": list(shape.dynamic or (False,) * shape.rank),
                "order": list(layout.minor_to_major),
                "tiles": [list(tile) for tile in layout.tiles],
                "bits": layout.element_size_in_bits,
                "space": layout.memory_space,
            }


# ---- one kind of value each


def _window(value: Window) -> Fields:
    names = "size stride padding_low padding_high window_dilation base_dilation".split()
    dimensions = [
        {**{name: getattr(each, name) for name in names}, "window_reversal": each.is_reversed}
        for each in value
    ]
    return {"window": {"dimensions": dimensions}}


def _dim_labels(value: ConvolutionDimensionNumbers) -> Fields:
    found = {
        f"{name}_dimension{'s' if name.endswith('spatial') else ''}": getattr(value, name)
        for name in ConvolutionDimensionNumbers._fields
    }
    return {"convolution_dimension_numbers": found}


def _iota(order: device_lists.Iota) -> Fields:
    return {"reshape_dims": order.dims, "transpose_perm": order.permutation}


def _mesh(mesh: device_lists.Mesh) -> Fields:
    found: Fields = {"axes": [{"name": axis.name, "size": axis.size} for axis in mesh.axes]}
    if isinstance(mesh.order, device_lists.Iota):
        found["iota"] = _iota(mesh.order)
    elif mesh.order is not None:
        found["device_ids"] = mesh.order
    return found


def _axes(mesh: device_lists.Mesh, axes: tuple[device_lists.AxisRef, ...]) -> list[Fields]:
    names = [axis.name for axis in mesh.axes]
    found = []
    for axis in axes:
        each: Fields = {"mesh_axis_index": names.index(axis.name)}
        if axis.part:
            each["sub_axis"] = {"pre_size": axis.part[0], "size": axis.part[1]}
        found.append(each)
    return found


def _replica_groups(value: device_lists.ReplicaGroups) -> Fields:
    match value:
        case device_lists.ReplicaGroupList(groups):
            found = [{"replica_ids": group} for group in groups]
            return {"collective_device_list": {"replica_groups": found}}
        case device_lists.IotaReplicaGroups(count, size, order):
            return {
                "iota_collective_device_list": {
                    "num_replica_groups": count,
                    "num_devices_per_group": size,
                    "iota_reshape_dims": order.dims,
                    "iota_transpose_perm": order.permutation,
                }
            }
        case device_lists.MeshReplicaGroups(mesh, axes):
            axis_fields = _axes(mesh, axes)
            return {"mesh_axes_replica_group_list": {"mesh": _mesh(mesh), "axes": axis_fields}}


def sharding(value: shardings.Sharding) -> Fields:
    """A sharding as an `OpSharding`."""
    match value:
        case shardings.TupleSharding(elements):
            return {"type": "tuple", "tuple_shardings": [sharding(each) for each in elements]}
        case shardings.NamedSharding(mesh=mesh):
            return {
                "type": "replicated",
                "named_sharding": {
                    "mesh": _mesh(mesh),
                    "dim_shardings": [
                        {"axes": _axes(mesh, each.axes), "is_closed": each.is_closed}
                        for each in value.dimensions
                    ],
                    "replicated_axes": _axes(mesh, value.replicated),
                    "unreduced_axes": _axes(mesh, value.unreduced),
                    "manual_axes": _axes(mesh, value.manual),
                    "reduction_op": value.reduction if value.reduction != "sum" else "",
                    "metadata": [metadata(each) for each in value.metadata],
                },
            }
        case shardings.TiledSharding():
            return _tiled(value)


def _tiled(value: shardings.TiledSharding) -> Fields:
    assert value.type in SHARDING_TYPES
    found: Fields = {
        "type": value.type,
        "tile_assignment_dimensions": value.tiles,
        **_tile_devices(value.devices),
        "metadata": [metadata(each) for each in value.metadata],
    }
    if value.subgroups == ("replicated",):
        found["replicate_on_last_tile_dim"] = True
    else:
        found["last_tile_dims"] = list(value.subgroups)
    if value.group:
        found["is_shard_group"] = True
        found["shard_group_id"] = value.group.number
        found["shard_group_type"] = "shard_like" if value.group.relation == "shard_like" else ""
    return found


def _tile_devices(order: device_lists.DeviceOrder) -> Fields:
    if isinstance(order, device_lists.Iota):
        return {"iota_reshape_dims": order.dims, "iota_transpose_perm": order.permutation}
    return {"tile_assignment_devices": order}


def _domain(value: shardings.Domain) -> Fields:
    # HloDomainInstruction writes its exit as the entry, and the reverse.
    return {
        "domain_entry_sharding": sharding(value.exit),
        "domain_exit_sharding": sharding(value.entry),
    }


def _aliasing(value: tuple[Alias, ...]) -> Fields:
    return {
        "output_operand_aliasing": [
            {
                "output_shape_index": each.output_index,
                "operand_index": each.operand,
                "operand_shape_index": each.operand_index,
            }
            for each in value
        ]
    }


def _frontend(value: Mapping[str, str]) -> Fields:
    return {"frontend_attributes": {"map": [{"key": k, "value": v} for k, v in value.items()]}}


def _origin(value: Origin) -> Fields:
    found: Fields = {"elements": _leaves(value.tree, ())}
    if value.is_synthetic_call:
        found["is_synthetic_call"] = True
    if value.call_hierarchy is not None:
        found["call_hierarchy"] = [value.call_hierarchy]
    return {"original_value": found}


def _leaves(tree: OriginTree, place: tuple[int, ...]) -> list[Fields]:
    match tree:
        case None:
            return [{"shape_index": place}]
        case OriginalArray(name, index):
            array = {"instruction_name": name, "shape_index": index}
            return [{"shape_index": place, "original_array": array}]
        case _:
            return [
                leaf for number, part in enumerate(tree) for leaf in _leaves(part, (*place, number))
            ]


def _accuracy(value: str | Tolerance) -> Fields:
    if isinstance(value, Tolerance):
        tolerance = {"atol": value.absolute, "rtol": value.relative, "ulps": value.ulps}
        return {"result_accuracy": {"tolerance": tolerance}}
    return {"result_accuracy": {"mode": value if value != "default" else ""}}


def _statistics(value: tuple[tuple[str, float], ...]) -> Fields:
    figures = dict(value)
    shown = figures.pop("visualizing_index", 0)
    statistics = [{"stat_name": name, "stat_val": figure} for name, figure in figures.items()]
    return {"statistics_viz": {"stat_index_to_visualize": max(shown, 0), "statistics": statistics}}


def _operand_layouts(value: tuple[Shape, ...]) -> Fields:
    return {
        "operand_shapes_with_layout": [numbers(shape) for shape in value],
        "constrain_layout": True,
    }


def literal(shape: Shape, value: LiteralValue) -> Fields:
    """A value as `read_hlo.literal` shows a `LiteralProto`; what was left out is said to be."""
    if isinstance(value, Elided):
        return {"elided": True}
    match shape:
        case TupleShape(elements=elements):
            assert isinstance(value, tuple)
            parts = zip(elements, value, strict=True)
            return {"parts": [literal(element, part) for element, part in parts]}
        case ArrayShape(dtype=dtype):
            assert value is not None
            assert not isinstance(value, tuple | Elided)
            in_memory = value.transpose(shape.minor_to_major[::-1])
            return {"kind": dtype, "dims": list(shape.dims), "bytes": in_memory.tobytes().hex()}
        case _:
            return {"kind": shape.kind} if isinstance(shape, OpaqueShape) else {}


def metadata(value: OpMetadata) -> Fields:
    """Metadata as an `OpMetadata` of XLA; what no release reads any more is left out."""
    found = {name: getattr(value, name) for name in OpMetadata.__slots__}
    del found["preserve_layout"]
    return found


_slice_names = ("start", "limit", "stride")
_pad_names = ("edge_padding_low", "edge_padding_high", "interior_padding")
_READERS: dict[str, Callable[[Any], Fields]] = {
    **{
        name: plain(name)
        for name in (
            "feature_group_count batch_group_count exponent_bits mantissa_bits feature_index "
            "channel_id use_global_device_ids is_host_transfer is_stable constrain_layout "
            "custom_call_has_side_effect delta indices_are_sorted unique_indices k largest "
            "is_composite is_reverse num_carries has_dynamic_root custom_call_target "
            "dynamic_slice_sizes dimensions fft_length async_execution_thread infeed_config "
            "outfeed_config distribution padding_type"
        ).split()
    },
    **{
        name: inside("triangular_solve_options", name)
        for name in ("left_side", "unit_diagonal", "transpose_a")
    },
    "iota_dimension": lambda value: {"dimensions": [value]},
    "inferred_dimension": lambda value: {"dimensions": [value]},
    "kind": plain("fusion_kind"),
    "direction": plain("comparison_direction"),
    "type": plain("comparison_type"),
    "order": plain("comparison_order"),
    "schedule": lambda value: {"custom_call_schedule": value if value != "SCHEDULE_NONE" else ""},
    "api_version": plain("custom_call_api_version"),
    "convolution_kind": plain("conv_kind"),
    "cross_program_prefetch_index": lambda value: {"cross_program_prefetch_index": [value]},
    "fft_type": lambda value: {"fft_type": value if value != "FFT" else ""},
    "is_associative": lambda value: {"is_associative": "true" if value else "false"},
    "epsilon": lambda value: {"epsilon": struct.unpack("<f", struct.pack("<f", value))[0]},
    "slice": lambda value: {
        "slice_dimensions": [dict(zip(_slice_names, each, strict=True)) for each in value]
    },
    "padding": lambda value: {
        "padding_config": {
            "dimensions": [dict(zip(_pad_names, each, strict=True)) for each in value]
        }
    },
    "source_target_pairs": lambda value: {
        "source_target_pairs": [{"source": pair[0], "target": pair[1]} for pair in value]
    },
    "parameter_replication": inside("parameter_replication", "replicated_at_leaf_buffers"),
    "operand_precision": inside("precision_config", "operand_precision"),
    "window": _window,
    "dim_labels": _dim_labels,
    "replica_groups": _replica_groups,
    "sharding": lambda value: {"sharding": sharding(value)},
    "domain": _domain,
    "output_to_operand_aliasing": _aliasing,
    "frontend_attributes": _frontend,
    "origin": _origin,
    "original_value": _origin,
    "result_accuracy": _accuracy,
    "statistics": _statistics,
    "operand_layout_constraints": _operand_layouts,
    "outfeed_shape": lambda value: {"outfeed_shape": numbers(value)},
}
_DOT = {
    "lhs_contracting_dims": "lhs_contracting_dimensions",
    "rhs_contracting_dims": "rhs_contracting_dimensions",
    "lhs_batch_dims": "lhs_batch_dimensions",
    "rhs_batch_dims": "rhs_batch_dimensions",
}
_RAGGED = {"lhs_ragged_dims": "lhs_ragged_dimensions", "rhs_group_dims": "rhs_group_dimensions"}
_GATHER = "offset_dims collapsed_slice_dims start_index_map operand_batching_dims"
_GATHER += " start_indices_batching_dims"
_SCATTER = "update_window_dims inserted_window_dims scatter_dims_to_operand_dims"
_SCATTER += " input_batching_dims scatter_indices_batching_dims"
_READERS |= {name: inside("gather_dimension_numbers", name) for name in _GATHER.split()}
_READERS |= {name: inside("scatter_dimension_numbers", name) for name in _SCATTER.split()}


def _of_opcode(name: str, opcode: str, value: Any) -> Fields | None:
    """An attribute whose field depends on the opcode."""
    match name:
        case "algorithm" if opcode.startswith("rng"):
            return {"rng_algorithm": value if value != "rng_default" else ""}
        case "algorithm":
            return {"precision_config": {"algorithm": value if value != "unset" else ""}}
        case "lower" if opcode == "cholesky":
            return {"cholesky_options": {"lower": value}}
        case "lower":
            return {"triangular_solve_options": {"lower": value}}
        case "index_vector_dim":
            return {f"{opcode}_dimension_numbers": {"index_vector_dim": value}}
        case "slice_sizes" if opcode == "gather":
            return {"gather_slice_sizes": value}
        case "slice_sizes":
            return {"dynamic_slice_sizes": [size for sizes in value for size in sizes]}
        case _ if name in _DOT or name in _RAGGED:
            numbers_of = {_DOT.get(name) or _RAGGED[name]: value}
            if opcode != "ragged-dot":
                return {"dot_dimension_numbers": numbers_of}
            if name in _DOT:
                numbers_of = {"dot_dimension_numbers": numbers_of}
            return {"ragged_dot_dimension_numbers": numbers_of}
    return None


# ---- an instruction


def fields(instruction: Instruction, opcode: str) -> Fields:
    """All that an instruction says beside the graph and metadata, XLA's defaults included."""
    found = dict(_DEFAULTS.get(opcode, {}))
    for name, text in instruction.attributes.items():
        if name in IN_THE_GRAPH or name in NOT_COMPARED:
            continue
        _merge(found, _attribute(name, text, opcode))
    if opcode == "constant":
        found["literal"] = literal(instruction.shape, instruction.literal)
    _infer(found, instruction, opcode)
    kept: Fields = cleaned(without_defaults(found))
    return kept


_IOTA = ("iota_reshape_dims", "iota_transpose_perm")
_NO_QUEUES = '"wait_on_operation_queues":[],'
"""Fields that XLA 0.11 takes out of a configuration while it reads it."""


def _canonical_sharding(found: Fields) -> Fields:
    """A sharding with its devices listed and its subgroups in one order.

    XLA drops subgroups of one device, joins those of one kind, orders the kinds, and sorts the
    devices that hold the same: the meaning stays.
    """
    if "tuple_shardings" in found:
        parts = [_canonical_sharding(part) for part in found["tuple_shardings"]]
        return {**found, "tuple_shardings": parts}
    kept_metadata = [each for each in found.get("metadata", ()) if each != _SUM]
    found = {**found, "metadata": kept_metadata}
    if "named_sharding" in found:
        named = found["named_sharding"]
        return {**found, "named_sharding": {**named, "mesh": _listed_mesh(named.get("mesh", {}))}}
    sizes = tuple(found.get("tile_assignment_dimensions", ()))
    if not sizes:
        return found
    kinds = found.get("last_tile_dims", [])
    if found.get("replicate_on_last_tile_dim"):
        kinds = ["replicated"]
    if "iota_reshape_dims" in found:
        listed = _listed(found["iota_reshape_dims"], found["iota_transpose_perm"])
        devices = numpy.array(listed).reshape(sizes)
    else:
        devices = numpy.array(found["tile_assignment_devices"]).reshape(sizes)
    rank = len(sizes) - len(kinds)
    order = sorted(range(len(kinds)), key=lambda number: str(kinds[number]))
    devices = devices.transpose([*range(rank), *(rank + number for number in order)])
    joined: dict[str, int] = {}
    for number in order:
        joined[kinds[number]] = joined.get(kinds[number], 1) * sizes[rank + number]
    devices = devices.reshape([*sizes[:rank], *joined.values()])
    if "replicated" in joined:
        devices = numpy.sort(devices, axis=rank + list(joined).index("replicated"))
    subgroups = {kind: size for kind, size in joined.items() if size > 1}
    kept = {key: value for key, value in found.items() if key not in _TILES}
    left = subgroups or joined
    if math.prod(sizes[:rank]) == 1 and len(left) == 1:
        return {**kept, "type": next(iter(left))}
    return {
        **kept,
        "tiles": list(sizes[:rank]),
        "subgroups": subgroups,
        "devices": devices.ravel().tolist(),
    }


_SUM = {"op_type": "sdy::reduction_op", "op_name": "SUM"}
"""The text that 0.11 writes beside a sharding that is unreduced."""


def _listed(dims: Sequence[int], permutation: Sequence[int]) -> list[int]:
    """The devices of an array that is transposed: XLA spells the same order in several ways."""
    numbered = numpy.arange(math.prod(dims)).reshape(dims).transpose(permutation)
    found: list[int] = numbered.ravel().tolist()
    return found


def _listed_mesh(mesh: Fields) -> Fields:
    """A mesh with its devices listed where they are not in order."""
    if "iota" not in mesh:
        return mesh
    devices = _listed(mesh["iota"]["reshape_dims"], mesh["iota"]["transpose_perm"])
    if devices == list(range(len(devices))):
        devices = []
    return {"axes": mesh["axes"], "device_ids": devices}


_TILES = frozenset(
    {"tile_assignment_dimensions", "tile_assignment_devices", "replicate_on_last_tile_dim"}
    | {"last_tile_dims", "iota_reshape_dims", "iota_transpose_perm"}
)


def without_defaults(found: Fields) -> Fields:
    """The same fields of either side, less what XLA writes down, or not, at its own liking."""
    for name in ("sharding", "domain_entry_sharding", "domain_exit_sharding"):
        if name in found:
            found = {**found, name: _canonical_sharding(found[name])}
    groups = found.get("iota_collective_device_list")
    if groups:
        listed = _listed(groups["iota_reshape_dims"], groups["iota_transpose_perm"])
        found = {**found, "iota_collective_device_list": {**groups, **dict.fromkeys(_IOTA)}}
        found["iota_collective_device_list"]["devices"] = listed
    groups = found.get("mesh_axes_replica_group_list")
    if groups:
        listed_groups = {**groups, "mesh": _listed_mesh(groups.get("mesh", {}))}
        found = {**found, "mesh_axes_replica_group_list": listed_groups}
    precision = found.get("precision_config", {})
    if set(precision.get("operand_precision", ())) == {"default"}:
        found = {**found, "precision_config": {**precision, "operand_precision": []}}
    origin = found.get("original_value", {})
    if origin.get("call_hierarchy") == [""]:
        kept = {key: value for key, value in origin.items() if key != "call_hierarchy"}
        found = {**found, "original_value": kept}
    config = found.get("backend_config", "")
    if _NO_QUEUES in config:
        found = {**found, "backend_config": config.replace(_NO_QUEUES, "")}
    return found


def alike(ours: Fields, theirs: Fields) -> bool:
    """True if two literals are the same, or differ only in what XLA's parser loses.

    It reads `-0` as a whole number, which has no sign, and adds up the parts of complex numbers,
    of which one NaN makes two. What was left out of the text XLA makes up.
    """
    if ours == theirs or "elided" in ours:
        return True
    if "parts" in ours and len(ours["parts"]) == len(theirs.get("parts", ())):
        return all(map(alike, ours["parts"], theirs["parts"]))
    if ours.get("dims") != theirs.get("dims") or ours.get("kind") != theirs.get("kind"):
        return False
    kind = numpy_dtype(ours["kind"])
    if kind.kind not in "fcV":
        return False
    pairs = [
        numpy.frombuffer(bytes.fromhex(side.get("bytes", "")), kind) for side in (ours, theirs)
    ]
    mine, other = pairs
    if kind.kind == "c":
        same = (mine == other) | (numpy.isnan(mine) & numpy.isnan(other))
    else:
        bits = f"u{kind.itemsize}"
        same = (mine.view(bits) == other.view(bits)) | ((mine == 0) & (other == 0))
    return bool(same.all())


def _attribute(name: str, text: str, opcode: str) -> Fields:
    if name == "backend_config":
        return {name: unescape(text[1:-1]) if text.startswith('"') else text}
    value = read_attribute(name, text)
    if isinstance(value, TypedLiteral):
        return {"literal": literal(value.shape, value.value)}
    found = _of_opcode(name, opcode, value)
    if found is None:
        reader = _READERS.get(name)
        found = {f"attribute {name}": text} if reader is None else reader(value)
    return found


def _merge(into: Fields, found: Fields) -> None:
    for key, value in found.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            into[key] = dict(into[key])
            _merge(into[key], value)
        else:
            into[key] = value


_DEFAULTS: dict[str, Fields] = {
    "custom-call": {
        "feature_group_count": 1,
        "batch_group_count": 1,
        "custom_call_api_version": "API_VERSION_ORIGINAL",
    },
    "convolution": {"feature_group_count": 1, "batch_group_count": 1},
}
"""Defaults that XLA fills in where the text says nothing."""


def _infer(found: Fields, instruction: Instruction, opcode: str) -> None:
    """Fields that XLA concludes from others."""
    if opcode == "compare":
        shape = instruction.operands[0].shape
        dtype = shape.dtype if isinstance(shape, ArrayShape) else ""
        order = found.get("comparison_order", "")
        kind = "FLOAT" if dtype[:1] in "fbc" else "SIGNED" if dtype[:1] == "s" else "UNSIGNED"
        if order == "TOTAL" and kind == "FLOAT":
            kind = "TOTALORDER"
        found.setdefault("comparison_type", kind)
        total = found["comparison_type"] != "FLOAT"
        found["comparison_order"] = "TOTAL" if total else "PARTIAL"


def cleaned(value: Any) -> Any:
    """A value as JSON has it, without what is 0, false or empty in a message."""
    if isinstance(value, dict):
        kept = {key: cleaned(each) for key, each in value.items()}
        return {key: each for key, each in kept.items() if each not in (0, "", [], {}, None)}
    if isinstance(value, tuple | list):
        return [cleaned(each) for each in value]
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return value


# ---- a header


def header(attributes: Mapping[str, Any]) -> Fields:
    """The fields of a module's header, as its `HloModuleProto` has them."""
    found: Fields = {}
    aliases: tuple[Alias, ...] = attributes.get("input_output_alias", ())
    donors: tuple[Donor, ...] = attributes.get("buffer_donor", ())
    found["input_output_alias"] = {
        "entries": [
            {
                "output_shape_index": each.output_index,
                "parameter_number": each.operand,
                "parameter_shape_index": each.operand_index,
                "kind": each.kind or "may-alias",
            }
            for each in aliases
        ]
    }
    found["buffer_donor"] = {
        "entries": [
            {"parameter_number": each.parameter, "parameter_shape_index": each.shape_index}
            for each in donors
        ]
    }
    found |= _frontend(attributes.get("frontend_attributes", {}))
    layout = attributes.get("entry_computation_layout")
    if isinstance(layout, ProgramShape):
        found["parameters"] = [numbers(shape) for shape in layout.parameters]
        found["result"] = numbers(layout.result)
    return found
