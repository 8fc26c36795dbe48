"""What several attributes of an instruction say together, as one value.

Each function takes an instruction and fills in what XLA's printer leaves out. What has the wrong
opcode is refused with a `ValueError` that says so; an attribute that cannot be read raises its own
`AttributeSyntaxError`, which is one, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import ArrayShape

if TYPE_CHECKING:
    from hlo_lint.hlo.attributes import (
        ConvolutionDimensionNumbers,
        ReplicaGroups,
        Tolerance,
        Window,
    )

_T = TypeVar("_T")


class DotDimensionNumbers(NamedTuple):
    """Which dimensions a `dot` sums over, and which both operands go through together."""

    lhs_contracting: tuple[int, ...]
    rhs_contracting: tuple[int, ...]
    lhs_batch: tuple[int, ...] = ()
    rhs_batch: tuple[int, ...] = ()


class RaggedDotDimensionNumbers(NamedTuple):
    """A dot in groups of rows of different lengths."""

    dot: DotDimensionNumbers
    lhs_ragged: tuple[int, ...]
    rhs_group: tuple[int, ...]


class Convolution(NamedTuple):
    """All that a `convolution` says of its dimensions."""

    window: Window
    dimensions: ConvolutionDimensionNumbers
    feature_group_count: int = 1
    batch_group_count: int = 1


class GatherDimensionNumbers(NamedTuple):
    """Where a `gather` takes its slices from, and where it puts them."""

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    index_vector_dim: int
    slice_sizes: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()
    indices_are_sorted: bool = False


class ScatterDimensionNumbers(NamedTuple):
    """Where a `scatter` puts its updates."""

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    index_vector_dim: int
    input_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()
    indices_are_sorted: bool = False
    unique_indices: bool = False


class Comparison(NamedTuple):
    """How a `compare` compares."""

    direction: str
    """EQ, NE, GE, GT, LE or LT."""
    type: str
    """FLOAT, TOTALORDER, SIGNED or UNSIGNED; what is not printed follows from the operands."""
    is_total_order: bool
    """Whether -NaN < -inf and -0 < 0; integers have no other order."""


class Precision(NamedTuple):
    """How exact a dot, a convolution or a function like `exponential` has to be."""

    operands: tuple[str, ...]
    """`default`, `high` or `highest` for each operand."""
    algorithm: str = "unset"
    """`dot_bf16_bf16_f32_x3` …, or `unset`."""
    result: str | Tolerance = "default"
    """`default`, `highest` or a tolerance."""


class TriangularSolve(NamedTuple):
    """Which system a `triangular-solve` solves."""

    left_side: bool = False
    lower: bool = False
    unit_diagonal: bool = False
    transpose_a: str = "NO_TRANSPOSE"


class Collective(NamedTuple):
    """Which devices a collective joins, and how they are numbered."""

    groups: ReplicaGroups | None
    """None where it has pairs of devices, or one group of all replicas."""
    source_target_pairs: tuple[tuple[int, int], ...] = ()
    channel_id: int | None = None
    """None where it joins replicas only."""
    use_global_device_ids: bool = False
    constrain_layout: bool = False


def dot_dimension_numbers(instruction: Instruction) -> DotDimensionNumbers:
    """Which dimensions a dot, a ragged-dot or a scaled-dot contracts.

    >>> from hlo_lint import parse
    >>> text = '''HloModule m
    ... ENTRY e {
    ...   a = f32[2,3] parameter(0)
    ...   ROOT d = f32[2,2] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={1}
    ... }'''
    >>> dot_dimension_numbers(parse(text).entry.root)
    DotDimensionNumbers(lhs_contracting=(1,), rhs_contracting=(1,), lhs_batch=(), rhs_batch=())

    Raises:
        ValueError: it is no dot, or an attribute cannot be read.
    """
    _check(instruction, "dot", "ragged-dot", "scaled-dot")
    return DotDimensionNumbers(
        _numbers(instruction, "lhs_contracting_dims"),
        _numbers(instruction, "rhs_contracting_dims"),
        _numbers(instruction, "lhs_batch_dims"),
        _numbers(instruction, "rhs_batch_dims"),
    )


def ragged_dot_dimension_numbers(instruction: Instruction) -> RaggedDotDimensionNumbers:
    """Which dimensions a ragged-dot contracts, and which are in groups.

    Raises:
        ValueError: it is no ragged-dot, or an attribute cannot be read.
    """
    _check(instruction, "ragged-dot")
    return RaggedDotDimensionNumbers(
        dot_dimension_numbers(instruction),
        _numbers(instruction, "lhs_ragged_dims"),
        _numbers(instruction, "rhs_group_dims"),
    )


def convolution(instruction: Instruction) -> Convolution:
    """What a convolution says of its dimensions, or a custom call that stands for one.

    Raises:
        ValueError: it has no `dim_labels`, or an attribute cannot be read.
    """
    from hlo_lint.hlo.attributes import ConvolutionDimensionNumbers

    labels = instruction.attribute("dim_labels")
    if not isinstance(labels, ConvolutionDimensionNumbers):
        raise ValueError(f"%{instruction.name} has no dim_labels")
    window: Window = _or(instruction, "window", ())
    return Convolution(
        window,
        labels,
        _or(instruction, "feature_group_count", 1),
        _or(instruction, "batch_group_count", 1),
    )


def gather_dimension_numbers(instruction: Instruction) -> GatherDimensionNumbers:
    """What a gather says of its dimensions.

    Raises:
        ValueError: it is no gather, or an attribute cannot be read.
    """
    _check(instruction, "gather")
    return GatherDimensionNumbers(
        _numbers(instruction, "offset_dims"),
        _numbers(instruction, "collapsed_slice_dims"),
        _numbers(instruction, "start_index_map"),
        _or(instruction, "index_vector_dim", 0),
        _numbers(instruction, "slice_sizes"),
        _numbers(instruction, "operand_batching_dims"),
        _numbers(instruction, "start_indices_batching_dims"),
        _or(instruction, "indices_are_sorted", False),
    )


def scatter_dimension_numbers(instruction: Instruction) -> ScatterDimensionNumbers:
    """What a scatter says of its dimensions.

    Raises:
        ValueError: it is no scatter, or an attribute cannot be read.
    """
    _check(instruction, "scatter")
    return ScatterDimensionNumbers(
        _numbers(instruction, "update_window_dims"),
        _numbers(instruction, "inserted_window_dims"),
        _numbers(instruction, "scatter_dims_to_operand_dims"),
        _or(instruction, "index_vector_dim", 0),
        _numbers(instruction, "input_batching_dims"),
        _numbers(instruction, "scatter_indices_batching_dims"),
        _or(instruction, "indices_are_sorted", False),
        _or(instruction, "unique_indices", False),
    )


def comparison(instruction: Instruction) -> Comparison:
    """How a compare compares; newer releases print `order=TOTAL`, older `type=TOTALORDER`.

    Raises:
        ValueError: it is no compare, or an attribute cannot be read.
    """
    _check(instruction, "compare")
    dtype = ""
    if instruction.operands:
        shape = instruction.operands[0].shape
        dtype = shape.dtype if isinstance(shape, ArrayShape) else ""
    kind = "FLOAT" if dtype[:1] in "fbc" else "SIGNED" if dtype[:1] == "s" else "UNSIGNED"
    if kind == "FLOAT" and _or(instruction, "order", "PARTIAL") == "TOTAL":
        kind = "TOTALORDER"
    kind = _or(instruction, "type", kind)
    return Comparison(_or(instruction, "direction", ""), kind, kind != "FLOAT")


def precision(instruction: Instruction) -> Precision:
    """How exact an instruction has to be.

    Raises:
        ValueError: an attribute cannot be read.
    """
    default = ("default",) * len(instruction.operands)
    algorithm = "unset"
    if instruction.opcode in ("dot", "scaled-dot", "convolution"):
        algorithm = _or(instruction, "algorithm", algorithm)
    result: str | Tolerance = _or(instruction, "result_accuracy", "default")
    return Precision(_or(instruction, "operand_precision", default), algorithm, result)


def triangular_solve(instruction: Instruction) -> TriangularSolve:
    """Which system a triangular-solve solves.

    Raises:
        ValueError: it is no triangular-solve, or an attribute cannot be read.
    """
    _check(instruction, "triangular-solve")
    return TriangularSolve(
        _or(instruction, "left_side", False),
        _or(instruction, "lower", False),
        _or(instruction, "unit_diagonal", False),
        _or(instruction, "transpose_a", "NO_TRANSPOSE"),
    )


def collective(instruction: Instruction) -> Collective:
    """Which devices a collective joins, whatever its opcode.

    Raises:
        ValueError: it has neither groups nor pairs, or an attribute cannot be read.
    """
    groups: ReplicaGroups | None = _or(instruction, "replica_groups", None)
    pairs: tuple[tuple[int, int], ...] = _or(instruction, "source_target_pairs", ())
    if groups is None and not pairs and not instruction.opcode.startswith(_COLLECTIVES):
        raise ValueError(f"%{instruction.name} is no collective, but {instruction.opcode}")
    return Collective(
        groups,
        pairs,
        _or(instruction, "channel_id", None),
        _or(instruction, "use_global_device_ids", False),
        _or(instruction, "constrain_layout", False),
    )


_COLLECTIVES = ("all-", "reduce-scatter", "collective-", "ragged-all-to-all")


def _check(instruction: Instruction, *opcodes: str) -> None:
    if instruction.opcode not in opcodes:
        raise ValueError(f"%{instruction.name} is no {opcodes[0]}, but {instruction.opcode}")


def _numbers(instruction: Instruction, name: str) -> tuple[int, ...]:
    return _or(instruction, name, ())


def _or(instruction: Instruction, name: str, default: _T) -> _T:
    """An attribute whose type follows from its name, or what it is where it is left out."""
    found = instruction.attribute(name)
    return default if found is None else found  # type: ignore[return-value]
