"""Predict the reshapes left of a Triton GEMM fusion if the autotuner picks cuBLASLt or hipBLASLt.

The fission backend (`fission_backend.cc`) takes the fused computation out, runs GemmRewriter on it
and puts what comes of it in the fusion's place, among the instructions of the computation around.
GemmRewriter has a canonical form for a dot with exactly two batch dimensions
(`NormalizeBatchDimensions`, `gemm_rewriter.cc:569-614`): each operand is brought to one batch
dimension by a `reshape`, after a `transpose` if the two are not adjacent; the new dot
has the descending layout; another `reshape` leads back to the shape and layout of the old one.
SplitK makes such dots, `gemm-fusion-swap-operands` gives them layouts that are not descending, and
so does layout assignment where a type wants its contracting dimension to be the fastest (s8, f8).

In jax 0.10.0 the autotuner runs before the last LayoutNormalization, with no ReshapeDecomposer in
between: a reshape that moves bytes ends the compilation. Since 0.10.2 it runs after all of them:
PriorityFusion takes in what stands beside other work, and what stands alone becomes a kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod

from hlo_lint.analysis.buffers import source_of
from hlo_lint.analysis.calls import holders
from hlo_lint.hlo.ir import Computation, Instruction, Module, Operand, cached_analysis
from hlo_lint.hlo.layouts import permute, reshape_is_bitcast
from hlo_lint.hlo.records import attributes_of
from hlo_lint.hlo.shape import UNBOUNDED, ArrayShape, Layout

_is_triton_gemm = re.compile(r'"kind":\s*"__triton_gemm"').search

MAX_BATCHES = 65535
"""A GEMM call takes no more: fission was refused for 65536 (jax 0.10.0), hence no switch."""

_FLOATS = frozenset("f16 bf16 f32 f64 c64 c128".split())
"""Element types of cuBLASLt without scales."""
_SPLIT_ALGORITHM = re.compile(r"dot_(\w+?)_.*_x[369]$")
"""DotAlgorithmRewriter makes several dots of one, and computes what each of them reads."""


class SwitchOutcome(Enum):
    """The reshapes that the switch leaves outside fusions."""

    BREAKS = "breaks"
    """A reshape that moves bytes: jax 0.10.0 stops, later releases transpose."""
    SLOWS = "slows"
    """Reshapes that move nothing, or a transpose of whole operands: kernels since jax 0.10.2."""


@dataclass(frozen=True, slots=True)
class InsertedReshape:
    """A reshape that fission leaves."""

    what: str
    """The owner of the layout: `the first operand of`, `the second operand of`, `the result of`."""
    operand: ArrayShape
    result: ArrayShape
    is_bitcast: bool
    transposed: bool = False
    """True if a transpose comes before it, to bring the two batch dimensions side by side."""
    alone: bool = True
    """True if there is no neighbouring work that PriorityFusion would fuse it into."""

    @property
    def is_kernel(self) -> bool:
        """True if it is launched as a kernel that Triton's choice does not need."""
        return self.alone or self.transposed


@dataclass(frozen=True, slots=True)
class BackendSwitch:
    """A fusion that another winner of the autotuner would break or slow down."""

    fusion: Instruction
    dot: str
    """The name of the dot in the fused computation."""
    outcome: SwitchOutcome
    operand: ArrayShape
    """The instruction that the first offending reshape reads."""
    result: ArrayShape
    explanation: str
    reshapes: tuple[InsertedReshape, ...]
    """All that would be left, the offending one too."""


@cached_analysis
def predict(module: Module) -> tuple[BackendSwitch, ...]:
    """The fusions that a switch would break or slow down, in the order of the text.

    Triton GEMM fusions are judged whether or not the autotuner has been there already: one that
    runs as Triton today may be fissioned in the next run. What cannot be read is passed over.
    """
    return tuple(_backend_switches(module))


def _triton_gemms(module: Module) -> Iterator[Instruction]:
    for computation in holders(module).get("fusion", ()):
        for number in computation.positions("fusion"):
            attributes = attributes_of(computation.rows[number])
            if "__triton_gemm" in attributes and _is_triton_gemm(attributes):
                yield computation.at(number)


def _backend_switches(module: Module) -> Iterator[BackendSwitch]:
    for fusion in _triton_gemms(module):
        body = module.callee(fusion)
        if body is None:
            continue
        try:
            switch = _backend_switch(fusion, body)
        except (ValueError, LookupError):
            continue  # an unreadable shape or attribute: other rules report it
        if switch is not None:
            yield switch


def _backend_switch(fusion: Instruction, body: Computation) -> BackendSwitch | None:
    dots = body.with_opcode("dot")
    if "reshape" not in body.opcodes and not any(_two_batches(dot.attributes_text) for dot in dots):
        return None  # most fusions: no reshape would be left
    if not dots or not all(_is_gemm_rewriter_candidate(dot) for dot in dots):
        return None
    left = [(dot, reshaped) for dot in dots for reshaped in _normalized(dot)]
    # A reshape inside the fusion is outside of it now.
    left += [(dots[0], reshaped) for reshaped in _exposed_reshapes(body)]
    moving = [(dot, reshaped) for dot, reshaped in left if not reshaped.is_bitcast]
    offending = moving or [(dot, reshaped) for dot, reshaped in left if reshaped.is_kernel]
    if not offending:
        return None
    # The result's comes first: it is the one of the bug report, and whole layouts depend on it.
    dot, first = min(offending, key=lambda pair: pair[1].what != RESULT)
    outcome = SwitchOutcome.BREAKS if moving else SwitchOutcome.SLOWS
    reshapes = tuple(reshaped for _, reshaped in left)
    return BackendSwitch(
        fusion,
        dot.name,
        outcome,
        first.operand,
        first.result,
        _explanation(dot, first, reshapes),
        reshapes,
    )


_two_batches = re.compile(r"lhs_batch_dims=\{ *\d+ *,").search

OPERANDS = ("the first operand of", "the second operand of")
RESULT = "the result of"
INSIDE = "the fusion around"


def _explanation(
    dot: Instruction, first: InsertedReshape, reshapes: tuple[InsertedReshape, ...]
) -> str:
    reason = (
        "the fusion holds a reshape"
        if first.what == INSIDE
        else "a GEMM call wants one batch dimension and this dot has two"
    )
    if not first.is_bitcast:
        does = "moves bytes"
    elif first.alone:
        does = "moves none and is a kernel all the same"
    else:
        does = "follows a transpose of the whole operand"
    others = len(reshapes) - 1
    more = f"; {others} more {'reshape' if others == 1 else 'reshapes'} with it" if others else ""
    return (
        f"{reason}: for {first.what} %{dot.name} fission leaves a reshape from {first.operand} "
        f"to {first.result}, which {does}{more}"
    )


# ---- what GemmRewriter does


def _is_gemm_rewriter_candidate(dot: Instruction) -> bool:
    """True if GemmRewriter turns the dot into a GEMM call; if not, the backend has no candidate.

    `IsCublasSupportedMatMul` (`ir_emission_utils.cc:89-148`) and `MatrixLayout::For`
    (`matmul_utils.cc:121-197`): one contracting dimension and at most one other on each side, a
    type it knows, a batch dimension that is not the fastest.
    """
    lhs, rhs = (_array(operand) for operand in dot.operands)
    shape = dot.shape
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
        # Two batch dimensions are merged first. If the merged one is the fastest in memory, cuBLAS
        # has no leading dimension to go by, and MatrixLayout::For refuses the shape.
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
    """The reshapes that `NormalizeBatchDimensions` puts around a dot with two batch dimensions."""
    if len(dot.integers_attribute("lhs_batch_dims") or ()) != 2:
        return
    split = _SPLIT_ALGORITHM.search(dot.attributes.get("algorithm", ""))
    for number, side in enumerate(("lhs", "rhs")):
        operand = dot.operands[number]
        shape = _array(operand)
        batch = _dimensions(dot, f"{side}_batch_dims", shape)
        first = min(batch)
        transposed = not _adjacent(batch)
        # NormalizeBatchDimensions transposes batch dimensions that are not neighbours, then merges.
        if transposed:
            order = [d for d in range(shape.rank) if d != max(batch)]
            order.insert(first + 1, max(batch))
            shape = _descending(shape, permute(shape.dims, order))
        if split is not None and split[1] != "tf32":
            shape = shape._replace(dtype=split[1])
        computed = _is_computed(operand) or split is not None
        collapsed = _collapse(shape, first)
        yield InsertedReshape(
            OPERANDS[number],
            shape,
            collapsed,
            reshape_is_bitcast(shape, collapsed),
            transposed=transposed and not computed,
            alone=not transposed and not computed and not _is_padded(collapsed, first),
        )
    result = _array(Operand(dot.name, (), dot))
    first, second, *others = result.dims
    merged = _descending(result, (first * second, *others))
    is_sliced = _array(dot.operands[0]).dtype.startswith("f8") and _is_uneven(others)
    yield InsertedReshape(
        RESULT,
        merged,
        result,
        reshape_is_bitcast(merged, result),
        alone=split is None and not is_sliced and _only_renamed(dot),
    )


def _is_padded(operand: ArrayShape, batch: int) -> bool:
    """True if GemmRewriter pads the operand: an f8 one with a size that is not a multiple of 16."""
    others = [size for d, size in enumerate(operand.dims) if d != batch]
    return operand.dtype.startswith("f8") and _is_uneven(others)


def _is_uneven(sizes: Sequence[int]) -> bool:
    return any(size % 16 for size in sizes)


def _exposed_reshapes(body: Computation) -> Iterator[InsertedReshape]:
    for reshape in body.with_opcode("reshape"):
        (operand,) = (_array(operand) for operand in reshape.operands)
        result = _array(Operand(reshape.name, (), reshape))
        is_bitcast = reshape_is_bitcast(operand, result)
        alone = not _is_computed(reshape.operands[0]) and _only_renamed(reshape)
        yield InsertedReshape(INSIDE, operand, result, is_bitcast, alone=alone)


def _collapse(shape: ArrayShape, first: int) -> ArrayShape:
    """The shape with dimension `first` and the next one as one, the others in the same order.

    The slot of the first of the two in the layout is kept, that of the second is dropped.

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


# ---- what PriorityFusion finds beside a reshape


def _is_computed(operand: Operand) -> bool:
    """True if the fusion computes something, not only renames, before it reaches this operand."""
    source = source_of(operand, ("bitcast",))
    return source is not None and source.opcode != "parameter"


def _only_renamed(instruction: Instruction) -> bool:
    """True if the value reaches a dot or the fusion's root through bitcasts alone."""
    value = instruction
    # A reshape that stands alone is wrapped into a fusion of its own: one kernel for no work.
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
    if not isinstance(shape, ArrayShape) or UNBOUNDED in shape.dims or not shape.has_valid_layout:
        raise ValueError(f"%{operand.name} is not an array with a static layout")
    return shape


def _dimensions(dot: Instruction, name: str, operand: ArrayShape) -> tuple[int, ...]:
    if dot.attribute_text(name) is None:
        return ()
    dimensions = dot.dimensions_attribute(name, operand.rank)
    if dimensions is None:
        raise ValueError(f"{name} does not name dimensions of {operand}")
    return dimensions
