"""The table of opcodes, with their operands, attributes, families.

Operands and attributes are from `ParseInstructionRhs` and `CreateInstruction` in
`xla/hlo/parser/hlo_parser.cc`, as jaxlib 0.12.0 accepts them for each opcode. A new opcode is one
line.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple


class Opcode(NamedTuple):
    """An opcode of the closed set."""

    operands: tuple[int, int | None]
    """The least and the greatest number of operands; None for no upper bound."""
    required: tuple[str, ...]
    allowed: frozenset[str]
    """Allowed attributes, including required attributes and attributes of every opcode."""
    has_free_type: bool
    """True if the result's type cannot be inferred, so it must be printed."""
    families: frozenset[str]
    """Its families, listed below."""


COMMON: Final = frozenset(
    "backend_config control-predecessors frontend_attributes metadata origin "
    "parameter_replication sharding statistics".split()
)
"""Attributes that every opcode may have."""
EXECUTION: Final = frozenset(
    "channel_id kind operand_layout_constraints output_to_operand_aliasing".split()
)
"""Attributes that say how an instruction runs; its value is the same to the bit."""
VALUELESS: Final = EXECUTION | frozenset(
    "algorithm api_version async_execution_thread constrain_layout custom_call_has_side_effect "
    "indices_are_sorted infeed_config is_composite is_host_transfer is_stable mode "
    "operand_precision outfeed_config padding_type result_accuracy schedule unique_indices "
    "use_global_device_ids".split()
)
"""Attributes that do not choose the value: also precision, promises about operands, and effects."""

# One opcode a line: its name, the number of operands (`2+` for two or more, `!` where the type must
# be printed), its families, a colon, its attributes (`?` marks those that may be left out).
_TABLE = """
abs                         1   unary
acos                        1   unary: ?result_accuracy
acosh                       1   unary: ?result_accuracy
add                         2   binary commutes
add-dependency              2   no-kernel forwards
after-all                   0+  no-kernel
all-gather                  0+! keeps-layout mixed-precision communicates: dimensions ?channel_id \
    ?constrain_layout ?replica_groups ?use_global_device_ids
all-gather-done             1!  mixed-precision
all-gather-start            0+! mixed-precision communicates: dimensions ?channel_id \
    ?constrain_layout ?replica_groups ?use_global_device_ids
all-reduce                  0+! keeps-layout mixed-precision communicates calls: to_apply \
    ?channel_id ?constrain_layout ?mode ?replica_groups ?use_global_device_ids
all-reduce-done             1!  mixed-precision
all-reduce-start            0+! mixed-precision communicates calls: to_apply ?channel_id \
    ?constrain_layout ?mode ?replica_groups ?use_global_device_ids
all-to-all                  0+! keeps-layout communicates: ?channel_id ?constrain_layout \
    ?dimensions ?replica_groups
and                         2   binary commutes
asin                        1   unary: ?result_accuracy
asinh                       1   unary: ?result_accuracy
async-done                  1+! mixed-precision calls: ?async_execution_thread ?calls
async-start                 0+! mixed-precision calls: calls ?async_execution_thread \
    ?output_to_operand_aliasing
async-update                1+! mixed-precision calls: ?async_execution_thread ?calls \
    ?output_to_operand_aliasing
atan2                       2   binary
atanh                       1   unary: ?result_accuracy
batch-norm-grad             5: epsilon feature_index
batch-norm-inference        5: epsilon feature_index
batch-norm-training         3: epsilon feature_index
bitcast                     1!  no-kernel forwards
bitcast-convert             1!  unary changes-type
broadcast                   1: ?dimensions
call                        0+  mixed-precision calls control passes-state: to_apply ?is_composite
cbrt                        1   unary: ?result_accuracy
ceil                        1   unary
cholesky                    1   keeps-layout: ?lower
clamp                       3   keeps-layout
collective-broadcast        0+! keeps-layout communicates: ?channel_id ?has_dynamic_root \
    ?replica_groups
collective-permute          0+! keeps-layout mixed-precision communicates: source_target_pairs \
    ?channel_id ?slice_sizes
collective-permute-done     1!  mixed-precision
collective-permute-start    0+! mixed-precision communicates: source_target_pairs ?channel_id \
    ?slice_sizes
collective-reduce           0+!: to_apply ?channel_id ?constrain_layout ?has_dynamic_root \
    ?replica_groups ?use_global_device_ids
compare                     2   binary changes-type: direction ?order ?type
complex                     2   binary changes-type
concatenate                 0+  keeps-layout: dimensions
conditional                 1+  mixed-precision calls control passes-state: ?branch_computations \
    ?false_computation ?true_computation
constant                    0+! mixed-precision no-kernel literal
convert                     1!  unary changes-type
convolution                 2+  mixed-precision: dim_labels ?algorithm ?batch_group_count \
    ?block_scaling_config ?convolution_kind ?feature_group_count ?operand_precision \
    ?sparsity_config ?window
copy                        1   forwards passes-state
copy-done                   1!  mixed-precision
copy-start                  1!  mixed-precision: ?cross_program_prefetch_index
cosh                        1   unary: ?result_accuracy
cosine                      1   unary: ?result_accuracy
count-leading-zeros         1   unary
custom-call                 0+! mixed-precision calls: custom_call_target ?api_version \
    ?batch_group_count ?called_computations ?custom_call_has_side_effect ?dim_labels \
    ?feature_group_count ?literal ?operand_layout_constraints ?operand_precision \
    ?output_to_operand_aliasing ?padding_type ?schedule ?to_apply ?window
divide                      2   binary
domain                      1   mixed-precision no-kernel forwards: domain
dot                         2+  mixed-precision: ?algorithm ?block_scaling_config ?lhs_batch_dims \
    ?lhs_contracting_dims ?operand_precision ?rhs_batch_dims ?rhs_contracting_dims \
    ?sparsity_config
dynamic-reshape             1+!
dynamic-slice               1+! keeps-layout: dynamic_slice_sizes
dynamic-update-slice        2+! keeps-layout
erf                         1   unary: ?result_accuracy
exp2                        1   unary: ?result_accuracy
exponential                 1   unary: ?result_accuracy
exponential-minus-one       1   unary: ?result_accuracy
fft                         1   keeps-layout: fft_type fft_length
floor                       1   unary
fusion                      0+! mixed-precision calls: kind calls ?output_to_operand_aliasing
gather                      2: offset_dims collapsed_slice_dims start_index_map index_vector_dim \
    slice_sizes ?indices_are_sorted ?operand_batching_dims ?start_indices_batching_dims
get-dimension-size          1: dimensions
get-tuple-element           1   mixed-precision no-kernel passes-state: index
imag                        1   unary changes-type
infeed                      1!  mixed-precision: ?infeed_config
iota                        0!: iota_dimension
is-finite                   1   unary changes-type
log                         1   unary: ?result_accuracy
log2                        1   unary: ?result_accuracy
log-plus-one                1   unary: ?result_accuracy
logistic                    1   unary: ?result_accuracy
map                         0+  keeps-layout calls: to_apply ?dimensions
maximum                     2   binary commutes
minimum                     2   binary commutes
mulhi                       2   binary
multiply                    2   binary commutes
negate                      1   unary
not                         1   unary
opt-barrier                 1   keeps-layout mixed-precision no-kernel forwards passes-state
or                          2   binary commutes
outfeed                     2!  mixed-precision: ?outfeed_config ?outfeed_shape
pad                         2   keeps-layout: padding
parameter                   0+! mixed-precision no-kernel passes-state literal
partition-id                0
popcnt                      1   unary
power                       2   binary
ragged-all-to-all           0+! keeps-layout communicates: ?channel_id ?dimensions ?replica_groups
ragged-dot                  3   mixed-precision: ?lhs_batch_dims ?lhs_contracting_dims \
    ?lhs_ragged_dims ?operand_precision ?rhs_batch_dims ?rhs_contracting_dims ?rhs_group_dims
real                        1   unary changes-type
recv                        1!  mixed-precision communicates: ?channel_id ?is_host_transfer
recv-done                   1!  mixed-precision communicates: ?channel_id ?is_host_transfer
reduce                      0+  calls: dimensions to_apply
reduce-precision            1!  unary changes-type mixed-precision: exponent_bits mantissa_bits
reduce-scatter              0+! keeps-layout communicates calls: dimensions to_apply ?channel_id \
    ?constrain_layout ?mode ?replica_groups ?use_global_device_ids
reduce-window               2+  keeps-layout mixed-precision calls: to_apply ?window
remainder                   2   binary
replica-id                  0
reshape                     1!: ?inferred_dimension
reverse                     1   keeps-layout: dimensions
rng                         0+!: distribution
rng-bit-generator           1!: algorithm
rng-get-and-update-state    0!: delta
round-nearest-afz           1   unary
round-nearest-even          1   unary
rsqrt                       1   unary: ?result_accuracy
scaled-dot                  4   mixed-precision: ?algorithm ?lhs_batch_dims ?lhs_contracting_dims \
    ?operand_precision ?rhs_batch_dims ?rhs_contracting_dims
scan                        0+  calls: dimensions to_apply num_carries ?is_associative ?is_reverse
scatter                     1+  keeps-layout calls: update_window_dims inserted_window_dims \
    scatter_dims_to_operand_dims index_vector_dim to_apply ?indices_are_sorted \
    ?input_batching_dims ?scatter_indices_batching_dims ?unique_indices
select                      3   keeps-layout
select-and-scatter          3   keeps-layout calls: select scatter ?window
send                        2!  mixed-precision communicates: ?channel_id ?is_host_transfer
send-done                   1!  mixed-precision communicates: ?channel_id ?is_host_transfer
set-dimension-size          2   keeps-layout: dimensions
shift-left                  2   binary
shift-right-arithmetic      2   binary
shift-right-logical         2   binary
shuffle                     1: dimensions mode ?shifts
sign                        1   unary
sine                        1   unary: ?result_accuracy
sinh                        1   unary: ?result_accuracy
slice                       1!  keeps-layout: slice
sort                        0+  keeps-layout mixed-precision calls: dimensions to_apply ?is_stable
sqrt                        1   unary: ?result_accuracy
stochastic-convert          2!  binary changes-type
subtract                    2   binary
tan                         1   unary: ?result_accuracy
tanh                        1   unary: ?result_accuracy
topk                        1   calls: k ?is_stable ?largest
transpose                   1: dimensions
triangular-solve            2   keeps-layout: ?left_side ?lower ?transpose_a ?unit_diagonal
tuple                       0+  mixed-precision no-kernel passes-state
while                       1   mixed-precision calls control passes-state: condition body
xor                         2   binary commutes
"""


def _read_table() -> dict[str, Opcode]:
    table = {}
    for line in _TABLE.replace("\\\n", "").strip().splitlines():
        facts, _, attributes = line.partition(":")
        name, count, *families = facts.split()
        least = int(count.rstrip("+!"))
        table[name] = Opcode(
            operands=(least, None if "+" in count else least),
            required=tuple(name for name in attributes.split() if not name.startswith("?")),
            allowed=COMMON | {name.lstrip("?") for name in attributes.split()},
            has_free_type="!" in count,
            families=frozenset(families),
        )
    return table


OPCODES: Final = _read_table()
"""Every opcode that jaxlib 0.12.0 knows."""


def _family(name: str) -> frozenset[str]:
    members = frozenset(opcode for opcode, facts in OPCODES.items() if name in facts.families)
    assert members, name
    return members


UNARY: Final = _family("unary")
"""Elementwise opcodes of one operand."""
BINARY: Final = _family("binary")
"""Elementwise opcodes of two operands."""
COMMUTATIVE: Final = _family("commutes")
"""Binary opcodes whose operands may be swapped, and that combine the elements of a reduction."""
SYMMETRIC: Final = frozenset({"EQ", "NE"})
"""Directions of a compare whose operands may be swapped."""
ELEMENTWISE: Final = UNARY | BINARY | {"clamp", "select"}
"""Opcodes that compute each element of the result from the elements at its position."""
KEEPS_TYPE: Final = (UNARY | BINARY) - _family("changes-type")
"""Elementwise opcodes whose result has the type of their operands."""
KEEPS_LAYOUT: Final = UNARY | BINARY | _family("keeps-layout")
"""Opcodes that may not change a layout (`InstructionCanChangeLayout`, `layout_assignment.cc`)."""
MIXED_PRECISION: Final = _family("mixed-precision")
"""Opcodes that may mix floating-point types at every stage (`ShapeVerifier::CheckShape`)."""
COMMUNICATES: Final = _family("communicates")
"""Opcodes that exchange data with other devices or the host."""
TRANSFERS: Final = frozenset({"send", "recv"})
"""Opcodes that start a transfer between two devices, or between a device and the host."""
COLLECTIVES: Final = COMMUNICATES - TRANSFERS - {"send-done", "recv-done"}
"""Opcodes that exchange data within groups of devices; dones are left out."""
HAS_GROUPS: Final = frozenset(
    opcode for opcode in COLLECTIVES if "replica_groups" in OPCODES[opcode].allowed
)
"""Collectives of groups; `collective-permute` and its start have pairs of devices instead."""
HAS_GLOBAL_IDS: Final = frozenset(
    opcode for opcode in COLLECTIVES if "use_global_device_ids" in OPCODES[opcode].allowed
)
"""Collectives with `use_global_device_ids`; a text leaves it out if it is false."""
EXTERNAL: Final = frozenset({"custom-call", "infeed", "outfeed", "recv", "send"})
"""Opcodes that may exchange data with a library, the host or another device at any time."""
CALLERS: Final = _family("calls")
"""Opcodes that may call a computation."""
CONTROL_FLOW: Final = _family("control")
"""Opcodes whose computations run as part of the program."""
RUNS_SCHEDULE: Final = CONTROL_FLOW | {"async-start"}
"""Opcodes whose computations run instruction by instruction, in a schedule of their own."""
NO_KERNEL: Final = _family("no-kernel")
"""Opcodes that never become kernels."""
NO_BUFFER: Final = (NO_KERNEL | CONTROL_FLOW) - {"constant"}
"""Opcodes whose result is in an operand's buffer, or in the caller's."""
FORWARDS: Final = _family("forwards")
"""Opcodes whose result is the value of operand 0, in the same memory or in a copy."""
SAME_MEMORY: Final = FORWARDS - {"copy"}
"""Opcodes whose result is the value of operand 0, in the same memory."""
SAME_ELEMENTS: Final = FORWARDS | {"copy-done", "reshape"}
"""Opcodes whose result has the elements of operand 0; their dimensions and memory may differ."""
SAME_NUMBERS: Final = SAME_ELEMENTS | {"convert"}
"""Opcodes whose result has the numbers of operand 0, rounded to another type at most."""
TUPLES: Final = frozenset({"get-tuple-element", "tuple"})
"""Opcodes that only take elements of tuples, or form tuples."""
PASSES_STATE: Final = _family("passes-state")
"""Opcodes that may occur between the start and the done of an asynchronous operation."""
LITERAL_OPERANDS: Final = _family("literal")
"""Opcodes whose parentheses hold a value or a number instead of operands."""
FIRST_INDEX: Final = {"dynamic-slice": 1, "dynamic-update-slice": 2}
"""The number of the first operand that is a start index."""

SUGAR: Final = ("-start", "-update", "-done")
"""Suffixes of asynchronous sugar."""
DONE_OF: Final = {
    opcode: done
    for opcode in OPCODES
    if (opcode.endswith("-start") and opcode != "async-start") or opcode in TRANSFERS
    if (done := opcode.removesuffix("-start") + "-done") in OPCODES
}
"""The done of each asynchronous opcode of the table that calls no computation to run."""


@lru_cache(maxsize=1 << 10)
def without_sugar(opcode: str) -> str:
    """The operation that a start, an update or a done is part of.

    >>> [without_sugar(name) for name in ("all-gather-done", "async-update", "send", "add-start")]
    ['all-gather', 'async', 'send', 'add']
    """
    for ending in SUGAR:
        opcode = opcode.removesuffix(ending)
    return opcode


def wrapped_opcode(opcode: str) -> str | None:
    """The opcode that asynchronous sugar wraps: `negate` of `negate-start`, `-update` and `-done`.

    None for an opcode of the table, and for an unknown one.
    """
    if opcode in OPCODES:
        return None
    base, dash, suffix = opcode.rpartition("-")
    is_sugar = dash + suffix in SUGAR and base in OPCODES
    return base if is_sugar and base + "-done" not in OPCODES else None


def demands_on(opcode: str) -> Opcode | None:
    """The table entry of an opcode, asynchronous sugar included; None if unknown."""
    facts = OPCODES.get(opcode)
    if facts is not None:
        return facts
    base = wrapped_opcode(opcode)
    if base is None:
        return None
    wrapped = OPCODES[base]
    if opcode.endswith("-start"):
        allowed = wrapped.allowed | {"async_execution_thread", "output_to_operand_aliasing"}
        return wrapped._replace(allowed=allowed, has_free_type=True)
    carried = OPCODES["async-update" if opcode.endswith("-update") else "async-done"]
    return carried._replace(allowed=carried.allowed - {"calls"})
