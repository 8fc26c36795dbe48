"""Predict the reshapes left by a Triton GEMM fusion if the autotuner picks cuBLASLt or hipBLASLt.

The fission backend (`fission_backend.cc`) extracts the fused computation, runs GemmRewriter on it
and inlines the result in place of the fusion. GemmRewriter normalizes a dot with exactly two batch
dimensions (`NormalizeBatchDimensions`, `gemm_rewriter.cc:569-614`): a `reshape` merges the batch
dimensions of each operand, after a `transpose` if they are not adjacent; the new dot has the
descending layout; another `reshape` restores the old shape and layout. SplitK makes such dots.
`gemm-fusion-swap-operands` gives them layouts that are not descending, and so does layout
assignment for types whose contracting dimension must be most minor (s8, f8).

In jax 0.10.0 the autotuner runs before the last LayoutNormalization, with no ReshapeDecomposer in
between: a reshape that moves bytes ends the compilation. Since 0.10.2 it runs after all of these:
PriorityFusion fuses reshapes next to other work, and each remaining reshape becomes a kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from math import prod

from hlo_lint.analysis.buffers import source_of
from hlo_lint.analysis.calls import holders
from hlo_lint.hlo.ir import Computation, Instruction, Module, Operand, cached_analysis
from hlo_lint.hlo.layouts import permute, reshape_is_bitcast
from hlo_lint.hlo.records import attributes_of
from hlo_lint.hlo.shape import ArrayShape, Layout
from hlo_lint.text.phrases import counted

_is_triton_gemm = re.compile(r'"kind":\s*"__triton_gemm"').search

MAX_BATCHES = 65535
"""The largest batch of a GEMM call: fission fails for 65536 (jax 0.10.0), so nothing changes."""

_FLOATS = frozenset("f16 bf16 f32 f64 c64 c128".split())
_SPLIT_ALGORITHM = re.compile(r"dot_(\w+?)_.*_x[369]$")
"""Algorithms for which DotAlgorithmRewriter splits a dot into several, with computed operands."""


class SwitchOutcome(Enum):
    """The reshapes that the switch leaves outside fusions."""

    BREAKS = "breaks"
    """A reshape that moves bytes: jax 0.10.0 fails, later releases transpose."""
    SLOWS = "slows"
    """Reshapes without data movement, or transposes of operands: kernels since jax 0.10.2."""


@dataclass(frozen=True, slots=True)
class InsertedReshape:
    """A reshape that fission leaves."""

    what: str
    """The owner of the layout: `the first operand of`, `the second operand of`, `the result of`."""
    operand: ArrayShape
    result: ArrayShape
    transposed: bool = False
    """True if a transpose precedes it, to make the two batch dimensions adjacent."""
    alone: bool = True
    """True if there is no adjacent work into which PriorityFusion would fuse it."""

    @property
    def is_bitcast(self) -> bool:
        """True if it moves no byte."""
        return reshape_is_bitcast(self.operand, self.result)

    @property
    def is_kernel(self) -> bool:
        """True if it becomes a kernel that the Triton backend does not need."""
        return self.alone or self.transposed


@dataclass(frozen=True, slots=True)
class BackendSwitch:
    """A fusion that a different choice of the autotuner would break or slow down."""

    fusion: Instruction
    dot: str
    """The name of the dot in the fused computation."""
    outcome: SwitchOutcome
    first: InsertedReshape
    """The first offending reshape."""
    explanation: str
    reshapes: tuple[InsertedReshape, ...]
    """All reshapes that would be left, including the offending one."""


@cached_analysis
def predict(module: Module) -> tuple[BackendSwitch, ...]:
    """The fusions that a switch would break or slow down, in text order.

    Triton GEMM fusions count whether or not the autotuner has already run: the next run may choose
    differently. Unreadable fusions are skipped.
    """
    switches = []
    for fusion in _triton_gemms(module):
        body = module.callee(fusion)
        # An unreadable shape or attribute: other rules report it.
        with suppress(ValueError, LookupError):
            if body is not None and (switch := _backend_switch(fusion, body)):
                switches.append(switch)
    return tuple(switches)


def _triton_gemms(module: Module) -> Iterator[Instruction]:
    for computation in holders(module).get("fusion", ()):
        for number in computation.positions("fusion"):
            attributes = attributes_of(computation.rows[number])
            if "__triton_gemm" in attributes and _is_triton_gemm(attributes):
                yield computation.at(number)


def _backend_switch(fusion: Instruction, body: Computation) -> BackendSwitch | None:
    dots = body.with_opcode("dot")
    if "reshape" not in body.opcodes and not any(_two_batches(dot.attributes_text) for dot in dots):
        return None  # most fusions would leave no reshape
    if not dots or not all(_is_gemm_rewriter_candidate(dot) for dot in dots):
        return None
    left = [(dot, reshaped) for dot in dots for reshaped in _normalized(dot)]
    # Fission moves a reshape inside the fusion out of it.
    left += [(dots[0], reshaped) for reshaped in _exposed_reshapes(body)]
    moving = [(dot, reshaped) for dot, reshaped in left if not reshaped.is_bitcast]
    offending = moving or [(dot, reshaped) for dot, reshaped in left if reshaped.is_kernel]
    if not offending:
        return None
    # Report the result's reshape first: it is that of the bug report.
    dot, first = min(offending, key=lambda pair: pair[1].what != RESULT)
    outcome = SwitchOutcome.BREAKS if moving else SwitchOutcome.SLOWS
    reshapes = tuple(reshaped for _, reshaped in left)
    explanation = _explanation(dot, first, reshapes)
    return BackendSwitch(fusion, dot.name, outcome, first, explanation, reshapes)


_two_batches = re.compile(r"lhs_batch_dims=\{ *\d+ *,").search

OPERANDS = ("the first operand of", "the second operand of")
RESULT = "the result of"
INSIDE = "the fusion around"


def _explanation(
    dot: Instruction, first: InsertedReshape, reshapes: tuple[InsertedReshape, ...]
) -> str:
    reason = (
        "the fusion contains a reshape"
        if first.what == INSIDE
        else "a GEMM call needs a single batch dimension, but this dot has two"
    )
    if not first.is_bitcast:
        does = "moves bytes"
    elif first.alone:
        does = "moves no bytes but is still a kernel"
    else:
        does = "follows a transpose of the whole operand"
    more = f", and {counted(others, 'more reshape')}" if (others := len(reshapes) - 1) else ""
    return (
        f"{reason}: for {first.what} %{dot.name} fission leaves a reshape from {first.operand} "
        f"to {first.result}, which {does}{more}"
    )


# ---- GemmRewriter


def _is_gemm_rewriter_candidate(dot: Instruction) -> bool:
    """True if GemmRewriter turns the dot into a GEMM call; otherwise the backend has no candidate.

    Mirrors `IsCublasSupportedMatMul` (`ir_emission_utils.cc:89-148`) and `MatrixLayout::For`
    (`matmul_utils.cc:121-197`): a single contracting dimension and at most one free dimension per
    side, a supported type, and a batch dimension that is not most minor.
    """
    lhs, rhs = (_array(operand) for operand in dot.operands)
    shape = dot.shape_or_none
    if not isinstance(shape, ArrayShape):
        return False
    if not _types_are_known(lhs.dtype, rhs.dtype, shape.dtype):
        return False
    for side, operand in (("lhs", lhs), ("rhs", rhs)):
        batch = _dimensions(dot, f"{side}_batch_dims", operand)
        if len(_dimensions(dot, f"{side}_contracting_dims", operand)) != 1:
            return False
        if operand.rank > len(batch) + 2 or prod(operand.dims[d] for d in batch) > MAX_BATCHES:
            return False
        # Two batch dimensions are merged first. If the result is most minor, cuBLAS has no leading
        # dimension, and MatrixLayout::For rejects the shape.
        if len(batch) == 2 and operand.rank > 2:
            collapsed = _collapse(operand, min(batch)) if _adjacent(batch) else None
            if collapsed is not None and collapsed.minor_to_major[0] == min(batch):
                return False
    return True


def _types_are_known(lhs: str, rhs: str, result: str) -> bool:
    if lhs.startswith("f8") and rhs.startswith("f8"):
        return result in _FLOATS or result.startswith("f8")
    if (lhs, rhs) == ("s8", "s8"):
        return result in ("s32", "f32")
    return lhs == rhs and lhs in _FLOATS and result in _FLOATS


def _normalized(dot: Instruction) -> Iterator[InsertedReshape]:
    """The reshapes that `NormalizeBatchDimensions` adds around a dot with two batch dimensions."""
    if len(dot.integers_attribute("lhs_batch_dims") or ()) != 2:
        return
    split = _SPLIT_ALGORITHM.search(dot.attributes.get("algorithm", ""))
    for number, side in enumerate(("lhs", "rhs")):
        operand = dot.operands[number]
        shape = _array(operand)
        batch = _dimensions(dot, f"{side}_batch_dims", shape)
        first = min(batch)
        transposed = not _adjacent(batch)
        # NormalizeBatchDimensions transposes batch dimensions that are not adjacent, then merges.
        if transposed:
            order = [d for d in range(shape.rank) if d != max(batch)]
            order.insert(first + 1, max(batch))
            shape = _descending(shape, permute(shape.dims, order))
        if split is not None and split[1] != "tf32":
            shape = shape._replace(dtype=split[1])
        computed = _is_computed(operand) or split is not None
        collapsed = _collapse(shape, first)
        alone = not transposed and not computed and not _is_padded(collapsed, first)
        transposed = transposed and not computed
        yield InsertedReshape(OPERANDS[number], shape, collapsed, transposed, alone)
    result = _array(Operand(dot.name, (), dot))
    first, second, *others = result.dims
    merged = _descending(result, (first * second, *others))
    is_sliced = _array(dot.operands[0]).dtype.startswith("f8") and _is_uneven(others)
    alone = split is None and not is_sliced and _only_renamed(dot)
    yield InsertedReshape(RESULT, merged, result, alone=alone)


def _is_padded(operand: ArrayShape, batch: int) -> bool:
    """True if GemmRewriter pads the operand: it is f8 with a size that is not a multiple of 16."""
    others = [size for d, size in enumerate(operand.dims) if d != batch]
    return operand.dtype.startswith("f8") and _is_uneven(others)


def _is_uneven(sizes: Sequence[int]) -> bool:
    return any(size % 16 for size in sizes)


def _exposed_reshapes(body: Computation) -> Iterator[InsertedReshape]:
    for reshape in body.with_opcode("reshape"):
        (operand,) = (_array(operand) for operand in reshape.operands)
        result = _array(Operand(reshape.name, (), reshape))
        alone = not _is_computed(reshape.operands[0]) and _only_renamed(reshape)
        yield InsertedReshape(INSIDE, operand, result, alone=alone)


def _collapse(shape: ArrayShape, first: int) -> ArrayShape:
    """Merge dimension `first` with the next dimension; the others keep their order.

    The merged dimension takes the place of the first in the layout.

    >>> from hlo_lint.hlo.shape import parse_array
    >>> str(_collapse(parse_array("s8[24,4,4096,768]{2,1,3,0}"), 0))
    's8[96,4096,768]{1,2,0}'
    """
    before, (size, next_size), after = shape.dims[:first], shape.dims[first : first + 2], shape.dims
    dims = (*before, size * next_size, *after[first + 2 :])
    order = tuple(d - (d > first) for d in shape.minor_to_major if d != first + 1)
    return ArrayShape(shape.dtype, dims, Layout(order))


def _descending(shape: ArrayShape, dims: tuple[int, ...]) -> ArrayShape:
    return ArrayShape(shape.dtype, dims, Layout(tuple(range(len(dims) - 1, -1, -1))))


def _adjacent(batch: tuple[int, ...]) -> bool:
    return abs(batch[0] - batch[1]) == 1


# ---- work next to a reshape, for PriorityFusion


def _is_computed(operand: Operand) -> bool:
    """True if the fusion computes this operand, instead of passing on a parameter."""
    source = source_of(operand, ("bitcast",))
    return source is not None and source.opcode != "parameter"


def _only_renamed(instruction: Instruction) -> bool:
    """True if the value reaches a dot or the fusion's root only through bitcasts."""
    value = instruction
    # A reshape without adjacent work becomes a fusion, and a kernel, by itself.
    while value.users:
        value, *others = value.users
        if others or value.opcode not in ("bitcast", "dot"):
            return False
        if value.opcode == "dot":
            return True
    return True


# ---- reading


def _array(operand: Operand) -> ArrayShape:
    shape = operand.shape
    if not isinstance(shape, ArrayShape) or not shape.has_places:
        raise ValueError(f"%{operand.name} is not an array with a static layout")
    return shape


def _dimensions(dot: Instruction, name: str, operand: ArrayShape) -> tuple[int, ...]:
    if dot.attribute_text(name) is None:
        return ()
    dimensions = dot.dimensions_attribute(name, operand.rank)
    if dimensions is None:
        raise ValueError(f"{name} does not name dimensions of {operand}")
    return dimensions
