"""Protocol buffers of XLA as tables, and what a serialized message of one says.

Numbers and names are those of `xla/service/hlo.proto` and `xla/xla_data.proto`. It needs nothing
but Python: `read_hlo.py` uses it beside the jaxlib of any environment.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIGN = 1 << 63

Message = dict[int, list[Any]]
"""Fields by number; an integer for a varint, bytes for everything with a length."""
Decoder = Callable[[list[Any]], Any]
"""From what stands under one number, in order, to a value as JSON has it."""


def read(data: bytes) -> Message:
    """A serialized message, one level of it."""
    fields: Message = {}
    at, end = 0, len(data)
    while at < end:
        key = data[at]
        at += 1
        if key >= 0x80:
            key, at = _varint(data, at - 1)
        kind = key & 7
        value: int | bytes
        if kind == _VARINT:
            value = data[at]
            at += 1
            if value >= 0x80:
                value, at = _varint(data, at - 1)
        else:
            size = 8 if kind == _FIXED64 else 4
            if kind == _BYTES:
                size = data[at]
                at += 1
                if size >= 0x80:
                    size, at = _varint(data, at - 1)
            elif kind not in (_FIXED64, _FIXED32):
                raise ValueError(f"wire type {kind} at byte {at}")
            value, at = data[at : at + size], at + size
        fields.setdefault(key >> 3, []).append(value)
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def integers(message: Message, number: int) -> list[int]:
    """A repeated int64, packed or not."""
    return ints(message.get(number, []))


def integer(message: Message, number: int) -> int:
    """An int64; what is not there is 0."""
    return (integers(message, number) or [0])[-1]


def text(message: Message, number: int) -> str:
    """A string; what is not there is empty."""
    return string(message.get(number, [b""]))


# ---- decoders


def ints(values: list[Any]) -> list[int]:
    """A repeated int64, packed or not."""
    found: list[int] = []
    for value in values:
        if isinstance(value, int):
            found.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            found.append(number)
    return [value - 2 * _SIGN if value >= _SIGN else value for value in found]


def one(values: list[Any]) -> int:
    """An int64."""
    return ints(values)[-1]


def present(values: list[Any]) -> list[int]:
    """An int64 of which it counts that it is there, were it 0."""
    return [ints(values)[-1]]


def string(values: list[Any]) -> str:
    """A string, or bytes that look like one."""
    return bytes(values[-1]).decode("utf-8", "surrogateescape")


def flag(values: list[Any]) -> bool:
    """A bool."""
    return bool(values[-1])


def flags(values: list[Any]) -> list[bool]:
    """A repeated bool."""
    return [value != 0 for value in ints(values)]


def float32(values: list[Any]) -> float:
    """A float."""
    return float(struct.unpack("<f", values[-1])[0])


def float64(values: list[Any]) -> float:
    """A double."""
    return float(struct.unpack("<d", values[-1])[0])


def word(*names: str) -> Decoder:
    """An enum whose numbers are 0, 1, …"""
    return lambda values: names[values[-1]]


def words(*names: str) -> Decoder:
    """A repeated enum whose numbers are 0, 1, …"""
    return lambda values: [names[number] for number in ints(values)]


def message(table: dict[int, tuple[str, Decoder]]) -> Decoder:
    """A message; what is not in it is not in the result, nor what is 0, false or empty."""
    return lambda values: decode(table, values[-1])


def messages(table: dict[int, tuple[str, Decoder]]) -> Decoder:
    """A repeated message."""
    return lambda values: [decode(table, value) for value in values]


def decode(table: dict[int, tuple[str, Decoder]], data: bytes) -> dict[str, Any]:
    """The fields of a message, by name; a number that the table lacks has a name of its own."""
    found = {}
    for number, values in read(data).items():
        name, decoder = table.get(number, (f"field {number}", str))
        value = decoder(values)
        if value:
            found[name] = value
    return found


Table = dict[int, tuple[str, Decoder]]


def numbered(names: str, decoder: Decoder) -> Table:
    """Fields of one type, whose numbers are 1, 2, …"""
    return {number: (name, decoder) for number, name in enumerate(names.split(), 1)}


INDEX = numbered("start limit stride", one)
WINDOW_DIMENSION: Table = {
    **numbered("size stride padding_low padding_high window_dilation base_dilation", one),
    7: ("window_reversal", flag),
}
CONVOLUTION: Table = {
    7: ("input_batch_dimension", one), 8: ("input_feature_dimension", one),
    11: ("input_spatial_dimensions", ints), 3: ("kernel_input_feature_dimension", one),
    4: ("kernel_output_feature_dimension", one), 6: ("kernel_spatial_dimensions", ints),
    9: ("output_batch_dimension", one), 10: ("output_feature_dimension", one),
    12: ("output_spatial_dimensions", ints),
}  # fmt: skip
PADDING = numbered("edge_padding_low edge_padding_high interior_padding", one)
CONTRACTING = "lhs_contracting_dimensions rhs_contracting_dimensions"
DOT = numbered(f"{CONTRACTING} lhs_batch_dimensions rhs_batch_dimensions", ints)
RAGGED_DOT: Table = {
    1: ("dot_dimension_numbers", message(DOT)),
    2: ("lhs_ragged_dimensions", ints),
    3: ("rhs_group_dimensions", ints),
}
GATHER: Table = {
    **numbered("offset_dims collapsed_slice_dims start_index_map", ints),
    4: ("index_vector_dim", one), 5: ("operand_batching_dims", ints),
    6: ("start_indices_batching_dims", ints),
}  # fmt: skip
SCATTER: Table = {
    **numbered("update_window_dims inserted_window_dims scatter_dims_to_operand_dims", ints),
    4: ("index_vector_dim", one),
    5: ("input_batching_dims", ints),
    6: ("scatter_indices_batching_dims", ints),
}
METADATA: Table = {
    1: ("op_type", string), 2: ("op_name", string), 3: ("source_file", string),
    4: ("source_line", one), 17: ("source_end_line", one), 18: ("source_column", one),
    19: ("source_end_column", one), 5: ("profile_type", ints), 12: ("deduplicated_name", string),
    15: ("stack_frame_id", one), 16: ("scheduling_name", string),
    20: ("metadata_payload", message({1: ("value", string), 2: ("id", one)})),
}  # fmt: skip
MESH: Table = {
    1: ("axes", messages({1: ("name", string), 2: ("size", one)})),
    2: ("device_ids", ints),
    3: ("iota", message({1: ("reshape_dims", ints), 2: ("transpose_perm", ints)})),
}
AXIS: Table = {
    1: ("mesh_axis_index", one),
    2: ("sub_axis", message({1: ("pre_size", one), 2: ("size", one)})),
}
NAMED_SHARDING: Table = {
    2: ("mesh", message(MESH)),
    3: ("dim_shardings", messages({1: ("axes", messages(AXIS)), 2: ("is_closed", flag)})),
    4: ("replicated_axes", messages(AXIS)), 5: ("unreduced_axes", messages(AXIS)),
    7: ("manual_axes", messages(AXIS)), 8: ("reduction_op", word("", "max", "min")),
    6: ("metadata", messages(METADATA)),
}  # fmt: skip
SHARDING_TYPES = ("replicated", "maximal", "tuple", "tiled", "manual", "unknown", "unreduced")
SHARDING: Table = {
    1: ("type", word(*SHARDING_TYPES)), 3: ("tile_assignment_dimensions", ints),
    4: ("tile_assignment_devices", ints), 6: ("replicate_on_last_tile_dim", flag),
    7: ("metadata", messages(METADATA)), 8: ("last_tile_dims", words(*SHARDING_TYPES)),
    9: ("iota_reshape_dims", ints), 10: ("iota_transpose_perm", ints), 11: ("is_shard_group", flag),
    12: ("shard_group_id", one), 13: ("shard_group_type", word("", "shard_like")),
    14: ("named_sharding", message(NAMED_SHARDING)),
}  # fmt: skip


def sharding(values: list[Any]) -> dict[str, Any]:
    """A sharding, its type always said."""
    return {"type": "replicated", **decode(SHARDING, values[-1])}


def shardings(values: list[Any]) -> list[dict[str, Any]]:
    """A repeated sharding."""
    return [sharding([value]) for value in values]


SHARDING[5] = ("tuple_shardings", shardings)

ALIASING: Table = {
    1: ("output_shape_index", ints),
    2: ("operand_index", one),
    3: ("operand_shape_index", ints),
}
ORIGINAL_ARRAY: Table = {1: ("instruction_name", string), 2: ("shape_index", ints)}
ORIGIN: Table = {
    1: (
        "elements",
        messages({1: ("shape_index", ints), 2: ("original_array", message(ORIGINAL_ARRAY))}),
    ),
    2: ("is_synthetic_call", flag),
    3: ("call_hierarchy", lambda values: [string(values)]),
}
FRONTEND: Table = {1: ("map", messages({1: ("key", string), 2: ("value", string)}))}
GROUPS: Table = {1: ("replica_ids", ints)}
ALGORITHMS = (
    *("", "dot_any_f8_any_f8_f32", "dot_any_f8_any_f8_f32_fast_accum", "dot_f16_f16_f16"),
    *("dot_f16_f16_f32", "dot_bf16_bf16_bf16", "dot_bf16_bf16_f32", "dot_bf16_bf16_f32_x3"),
    *("dot_bf16_bf16_f32_x6", "dot_tf32_tf32_f32", "dot_tf32_tf32_f32_x3", "dot_f32_f32_f32"),
    *("dot_f64_f64_f64", "dot_bf16_bf16_f32_x9"),
)

INSTRUCTION: Table = {
    11: ("fusion_kind", string),
    14: ("dimensions", ints),
    15: ("window", message({1: ("dimensions", messages(WINDOW_DIMENSION))})),
    16: ("convolution_dimension_numbers", message(CONVOLUTION)),
    17: ("slice_dimensions", messages(INDEX)),
    18: ("exponent_bits", one),
    19: ("mantissa_bits", one),
    20: ("dynamic_slice_sizes", ints),
    21: ("padding_config", message({1: ("dimensions", messages(PADDING))})),
    22: ("outfeed_config", string),
    23: ("distribution", word("", "rng_uniform", "rng_normal")),
    24: ("epsilon", float32),
    25: ("feature_index", one),
    26: ("channel_id", one),
    27: ("infeed_config", string),
    28: ("custom_call_target", string),
    30: ("dot_dimension_numbers", message(DOT)),
    31: ("fft_type", word("", "IFFT", "RFFT", "IRFFT")),
    32: ("fft_length", ints),
    33: ("gather_dimension_numbers", message(GATHER)),
    34: ("gather_slice_sizes", ints),
    40: ("sharding", sharding),
    43: ("backend_config", string),
    47: ("is_host_transfer", flag),
    48: ("scatter_dimension_numbers", message(SCATTER)),
    49: ("replica_groups", messages(GROUPS)),
    50: ("feature_group_count", one),
    51: (
        "precision_config",
        message(
            {
                1: ("operand_precision", words("default", "high", "highest")),
                2: ("algorithm", word(*ALGORITHMS)),
            }
        ),
    ),
    52: ("source_target_pairs", messages({1: ("source", one), 2: ("target", one)})),
    54: ("domain_entry_sharding", sharding),
    55: ("domain_exit_sharding", sharding),
    56: ("constrain_layout", flag),
    58: ("batch_group_count", one),
    59: (
        "triangular_solve_options",
        message(
            {
                1: ("left_side", flag), 2: ("lower", flag), 3: ("unit_diagonal", flag),
                4: ("transpose_a", word("", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")),
            }
        ),
    ),
    60: ("is_stable", flag),
    61: ("parameter_replication", message({1: ("replicated_at_leaf_buffers", flags)})),
    62: ("cholesky_options", message({1: ("lower", flag)})),
    63: ("comparison_direction", string),
    65: ("custom_call_has_side_effect", flag),
    66: ("delta", one),
    67: ("indices_are_sorted", flag),
    68: ("frontend_attributes", message(FRONTEND)),
    69: ("unique_indices", flag),
    70: ("rng_algorithm", word("rng_default", "rng_three_fry", "rng_philox")),
    71: ("use_global_device_ids", flag),
    72: ("comparison_type", string),
    74: ("output_operand_aliasing", messages(ALIASING)),
    75: ("padding_type", word("", "PADDING_VALID", "PADDING_SAME")),
    76: ("custom_call_schedule", word("", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST")),
    77: (
        "custom_call_api_version",
        word(
            *("", "API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING"),
            *("API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI"),
        ),
    ),
    79: ("async_execution_thread", string),
    80: ("cross_program_prefetch_index", present),
    81: ("k", one),
    82: (
        "statistics_viz",
        message(
            {
                1: ("stat_index_to_visualize", one),
                2: ("statistics", messages({1: ("stat_name", string), 2: ("stat_val", float64)})),
            }
        ),
    ),
    85: ("largest", flag),
    87: ("collective_device_list", message({1: ("replica_groups", messages(GROUPS))})),
    88: ("original_value", message(ORIGIN)),
    89: ("is_composite", flag),
    90: ("ragged_dot_dimension_numbers", message(RAGGED_DOT)),
    91: (
        "result_accuracy",
        message(
            {
                1: ("mode", word("", "highest")),
                2: (
                    "tolerance",
                    message({1: ("atol", float64), 2: ("rtol", float64), 3: ("ulps", one)}),
                ),
            }
        ),
    ),
    92: (
        "iota_collective_device_list",
        message(
            {
                **numbered("num_replica_groups num_devices_per_group", one),
                3: ("iota_reshape_dims", ints),
                4: ("iota_transpose_perm", ints),
            }
        ),
    ),
    93: (
        "mesh_axes_replica_group_list",
        message({1: ("mesh", message(MESH)), 2: ("axes", messages(AXIS))}),
    ),
    94: ("is_reverse", flag),
    95: ("num_carries", one),
    96: ("is_associative", word("", "true", "false")),
    97: ("conv_kind", word("", "fprop", "dgrad", "wgrad")),
    100: ("has_dynamic_root", flag),
    102: ("comparison_order", string),
}  # fmt: skip
"""The fields of an `HloInstructionProto` less the graph, name, shape, ids and metadata."""
GRAPH = frozenset({1, 2, 3, 7, 9, 13, 35, 36, 37, 38, 98, 101})
"""Fields of an `HloInstructionProto` that are the graph itself, metadata, and configurations of
operands, which are kept as text."""

ALIAS_ENTRY: Table = {
    1: ("output_shape_index", ints), 2: ("parameter_number", one),
    3: ("parameter_shape_index", ints), 4: ("kind", word("", "may-alias", "must-alias")),
}  # fmt: skip
DONOR_ENTRY: Table = {1: ("parameter_number", one), 2: ("parameter_shape_index", ints)}
MODULE: Table = {
    8: ("input_output_alias", message({1: ("entries", messages(ALIAS_ENTRY))})),
    18: ("buffer_donor", message({1: ("entries", messages(DONOR_ENTRY))})),
    19: ("frontend_attributes", message(FRONTEND)),
}
"""The fields of the header of an `HloModuleProto`, shapes left out."""

LITERAL = {4: "i", 5: "q", 6: "I", 7: "Q", 2: "?"}
"""Fields of a `LiteralProto` that hold varints, and the code of their elements in `struct`."""
LITERAL_BYTES = frozenset(
    {3, 8, 9, 11, 12, 13, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32}
    | {33, 35, 36}
)
"""Fields of a `LiteralProto` that hold the bytes of the elements, the lowest first."""


def literal_bytes(data: bytes) -> bytes:
    """The bytes of all elements of a `LiteralProto` that is not a tuple."""
    for number, values in read(data).items():
        if number in LITERAL_BYTES:
            return b"".join(values)
        if number in LITERAL:
            code = LITERAL[number]
            found = ints(values)
            if code in "IQ":
                found = [value + 2 * _SIGN if value < 0 else value for value in found]
            return struct.pack(f"<{len(found)}{code}", *found)
    return b""
