"""What XLA's parser demands of each opcode: how many operands, and which attributes.

The facts are those of `ParseInstructionRhs` and `CreateInstruction` in
`xla/hlo/parser/hlo_parser.cc`, as jaxlib 0.11.2 answers when it is asked opcode by opcode.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Opcode(NamedTuple):
    """One opcode of the closed set."""

    operands: tuple[int, int | None]
    """At least and at most so many operands; None where there is no upper bound."""
    required: tuple[str, ...]
    """Attributes that must be there."""
    allowed: frozenset[str]
    """Attributes that may be there, the required ones and those of every opcode among them."""
    has_free_type: bool
    """Whether nothing but the text says the type of the result, so that it must be there."""


COMMON: Final = frozenset(
    "backend_config control-predecessors frontend_attributes metadata origin "
    "parameter_replication sharding statistics".split()
)
"""Attributes that every opcode may have."""

# Operands (`2+` for two or more), `!` where the type must be printed, the opcodes, a colon, the
# attributes; `?` marks those that may be left out.
_TABLE = """
0   replica-id partition-id
0!  iota: iota_dimension
0!  rng-get-and-update-state: delta
0+! parameter constant
0+  tuple after-all
1   abs ceil floor sign not negate popcnt count-leading-zeros is-finite real imag copy
1   round-nearest-afz round-nearest-even opt-barrier
1!  bitcast bitcast-convert convert all-gather-done all-reduce-done collective-permute-done
1!  copy-done
1   acos acosh asin asinh atanh cbrt cosine cosh erf exponential: ?result_accuracy
1   exponential-minus-one log log-plus-one logistic rsqrt sine sinh sqrt: ?result_accuracy
1   tan tanh: ?result_accuracy
1   broadcast: ?dimensions
1   transpose reverse get-dimension-size: dimensions
1   cholesky: ?lower
1!  copy-start: ?cross_program_prefetch_index
1   domain: domain
1   fft: fft_type fft_length
1   get-tuple-element: index
1!  infeed: ?infeed_config
1!  recv recv-done send-done: ?channel_id ?is_host_transfer
1!  reduce-precision: exponent_bits mantissa_bits
1!  reshape: ?inferred_dimension
1!  rng-bit-generator: algorithm
1!  slice: slice
1   topk: k ?largest ?is_stable
1   while: condition body
2   add subtract multiply divide remainder maximum minimum power atan2 complex and or xor mulhi
2   shift-left shift-right-arithmetic shift-right-logical add-dependency
2!  stochastic-convert
2   compare: direction ?type ?order
2   gather: offset_dims collapsed_slice_dims start_index_map index_vector_dim slice_sizes \
?indices_are_sorted ?operand_batching_dims ?start_indices_batching_dims
2!  outfeed: ?outfeed_config ?outfeed_shape
2   pad: padding
2!  send: ?channel_id ?is_host_transfer
2   set-dimension-size: dimensions
2   triangular-solve: ?left_side ?lower ?transpose_a ?unit_diagonal
3   select clamp
3   batch-norm-training: epsilon feature_index
3   ragged-dot: ?lhs_batch_dims ?lhs_contracting_dims ?lhs_ragged_dims ?operand_precision \
?rhs_batch_dims ?rhs_contracting_dims ?rhs_group_dims
3   select-and-scatter: select scatter ?window
4   scaled-dot: ?algorithm ?lhs_batch_dims ?lhs_contracting_dims ?operand_precision \
?rhs_batch_dims ?rhs_contracting_dims
5   batch-norm-inference batch-norm-grad: epsilon feature_index
0+! all-gather all-gather-start: dimensions ?channel_id ?constrain_layout ?replica_groups \
?use_global_device_ids
0+! all-reduce all-reduce-start: to_apply ?channel_id ?constrain_layout ?mode ?replica_groups \
?use_global_device_ids
0+! reduce-scatter: dimensions to_apply ?channel_id ?constrain_layout ?mode ?replica_groups \
?use_global_device_ids
0+! all-to-all: ?channel_id ?constrain_layout ?dimensions ?replica_groups
0+! ragged-all-to-all: ?channel_id ?dimensions ?replica_groups
0+! collective-broadcast: ?channel_id ?has_dynamic_root ?replica_groups
0+! collective-reduce: to_apply ?channel_id ?constrain_layout ?has_dynamic_root ?replica_groups \
?use_global_device_ids
0+! collective-permute collective-permute-start: source_target_pairs ?channel_id ?slice_sizes
1+! async-start: calls ?async_execution_thread ?output_to_operand_aliasing
1+! async-update: ?calls ?async_execution_thread ?output_to_operand_aliasing
1+! async-done: ?calls ?async_execution_thread
0+  call: to_apply ?is_composite
1+  concatenate: dimensions
1+  conditional: ?true_computation ?false_computation ?branch_computations
2+  convolution: dim_labels ?algorithm ?batch_group_count ?block_scaling_config \
?convolution_kind ?feature_group_count ?operand_precision ?sparsity_config ?window
0+! custom-call: custom_call_target ?api_version ?batch_group_count ?called_computations \
?custom_call_has_side_effect ?dim_labels ?feature_group_count ?literal \
?operand_layout_constraints ?operand_precision ?output_to_operand_aliasing ?padding_type \
?schedule ?to_apply ?window
2+  dot: ?algorithm ?lhs_batch_dims ?lhs_contracting_dims ?operand_precision ?rhs_batch_dims \
?rhs_contracting_dims
1+! dynamic-reshape
1+! dynamic-slice: dynamic_slice_sizes
2+! dynamic-update-slice
0+! fusion: kind calls ?output_to_operand_aliasing
0+  map: to_apply ?dimensions
2+  reduce: dimensions to_apply
2+  reduce-window: to_apply ?window
0+! rng: distribution
0+  scan: dimensions to_apply num_carries ?is_associative ?is_reverse
3+  scatter: update_window_dims inserted_window_dims scatter_dims_to_operand_dims \
index_vector_dim to_apply ?indices_are_sorted ?input_batching_dims \
?scatter_indices_batching_dims ?unique_indices
1+  sort: dimensions to_apply ?is_stable
"""


def _read_table() -> dict[str, Opcode]:
    table = {}
    for line in _TABLE.replace("\\\n", "").strip().splitlines():
        count, _, rest = line.partition(" ")
        names, _, spelled = rest.partition(":")
        least = int(count.rstrip("+!"))
        required = tuple(name for name in spelled.split() if not name.startswith("?"))
        allowed = COMMON | {name.lstrip("?") for name in spelled.split()}
        found = Opcode((least, None if "+" in count else least), required, allowed, "!" in count)
        table.update(dict.fromkeys(names.split(), found))
    return table


OPCODES: Final = _read_table()
"""Every opcode that jaxlib 0.11.2 knows."""

_SUGAR = ("-start", "-update", "-done")


def wrapped_opcode(opcode: str) -> str | None:
    """What `negate-start`, `negate-update` and `negate-done` start, carry on and end: `negate`.

    None for an opcode of the table, and for what is no opcode at all.
    """
    if opcode in OPCODES:
        return None
    base, dash, suffix = opcode.rpartition("-")
    is_sugar = dash + suffix in _SUGAR and base in OPCODES
    return base if is_sugar and base + "-start" not in OPCODES else None


def demands_on(opcode: str) -> Opcode | None:
    """What is demanded of an opcode, asynchronous sugar included; None for an unknown one."""
    known = OPCODES.get(opcode)
    if known is not None:
        return known
    base = wrapped_opcode(opcode)
    if base is None:
        return None
    wrapped = OPCODES[base]
    if opcode.endswith("-start"):
        allowed = wrapped.allowed | {"async_execution_thread", "output_to_operand_aliasing"}
        return wrapped._replace(allowed=allowed, has_free_type=True)
    carried = OPCODES["async-update" if opcode.endswith("-update") else "async-done"]
    return carried._replace(allowed=carried.allowed - {"calls"})
