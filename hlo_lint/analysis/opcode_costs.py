"""The cost of an instruction by its kind: flops, transcendental operations, bytes.

Counted as `HloCostAnalysis` counts (`xla/service/hlo_cost_analysis.cc`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Final, TypeVar

from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
from hlo_lint.hlo.attributes.windows import (
    ConvolutionDimensionNumbers,
    WindowDimension,
    read_dim_labels,
    read_window,
)
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.opcodes import ELEMENTWISE, NO_KERNEL, RUNS_SCHEDULE
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape, arrays, byte_sizes, shape_or_none
from hlo_lint.text.patterns import late
from hlo_lint.text.source import whole_number

T = TypeVar("T")

TRANSCENDENTAL: Final = frozenset(
    "acos acosh asin asinh atan2 atanh cbrt cosh cosine erf exp2 exponential exponential-minus-one "
    "log log2 log-plus-one logistic power rsqrt sine sinh sqrt tan tanh".split()
)
"""Elementwise opcodes that count as one transcendental operation for each element, not as flops."""
_ELEMENTWISE: Final = ELEMENTWISE - TRANSCENDENTAL
_MATRIX: Final = ("dot", "ragged-dot", "scaled-dot", "convolution")
SLICES: Final = ("slice", "dynamic-slice", "gather")
FREE: Final = NO_KERNEL | RUNS_SCHEDULE | {"async-update"}
"""Opcodes without memory traffic of their own."""
_RESULT_OF_START: Final = {"copy-start": 0, "all-gather-start": 1, "collective-permute-start": 1}
"""The element of the tuple that is the result; the others are operands and contexts."""


MAX_PAIRS: Final = 1 << 20
"""The most pairs of an output position and a window element, in a dimension of a convolution, for
which products with padding are left out; above, they count."""
MOST: Final = 1 << 256
"""The largest cost, so that each fits a float, even for huge trip counts of nested loops."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The work of an instruction, or of several."""

    flops: int = 0
    """Operations on floats and integers; a multiply-add is two."""
    transcendentals: int = 0
    """Operations such as exponential and sine, which do not count as flops."""
    bytes: int = 0
    """Bytes read from memory and written to it."""
    matrix_flops: Mapping[str, int] = field(default_factory=dict)
    """The flops of dots and convolutions among them, by the element type of the operands."""

    def __add__(self, other: Cost) -> Cost:
        if not (self.flops or self.transcendentals or self.bytes):
            return other
        matrix = self.matrix_flops
        if other.matrix_flops:
            matrix = Counter(self.matrix_flops) + Counter(other.matrix_flops)
        return Cost(
            self.flops + other.flops,
            self.transcendentals + other.transcendentals,
            self.bytes + other.bytes,
            matrix,
        )

    def times(self, number: int) -> Cost:
        """The cost of `number` repetitions."""
        matrix = {dtype: min(MOST, number * flops) for dtype, flops in self.matrix_flops.items()}
        work = self.flops, self.transcendentals, self.bytes
        flops, transcendentals, size = (min(MOST, number * part) for part in work)
        return Cost(flops, transcendentals, size, matrix)

    def inside(self) -> Cost:
        """The cost inside a kernel, without memory traffic."""
        return Cost(self.flops, self.transcendentals, 0, self.matrix_flops)


NOTHING: Final = Cost()


@lru_cache(maxsize=1 << 14)
def cost_of_kind(
    opcode: str, result: str, attributes: str, operands: tuple[str | None, ...]
) -> Cost:
    """The cost of an instruction without its callees, from the fields of its `RowKind`."""
    # The start counts for its done.
    if opcode in FREE or opcode.endswith(("-done", "-update")):
        return NOTHING
    shape = shape_or_none(result)
    types = [shape_or_none(text) if text else None for text in operands]
    # A library's workspace is not a result: its bytes do not count.
    if isinstance(shape, TupleShape) and opcode == "custom-call" and _has_workspace(attributes):
        last = shape.elements[-1] if len(shape.elements) > 1 else None
        if isinstance(last, ArrayShape) and last.dtype in ("s8", "u8") and last.rank == 1:
            shape = TupleShape(shape.elements[:-1])
    moved = _bytes_moved(opcode, shape, types)
    elements = _elements(shape)
    if opcode in TRANSCENDENTAL or opcode in ("rng", "rng-bit-generator"):
        return Cost(0, elements, moved)
    if opcode in _ELEMENTWISE:
        return Cost(elements, 0, moved)
    if opcode in _MATRIX:
        flops = _matrix_flops(opcode, shape, attributes, types)
        dtype = next((array.dtype for array in arrays(types[0] if types else None)), "")
        return Cost(flops, 0, moved, {dtype: flops})
    return Cost(_other_flops(opcode, attributes, types), 0, moved)


_has_workspace = late(r'custom_call_target="__cu(?:blas|dnn)\$').search
"""cuBLAS and cuDNN calls have their workspace as the last element of the result."""


def _other_flops(opcode: str, attributes: str, types: Sequence[Shape | None]) -> int:
    first = types[0] if types else None
    size, side = _elements(first), 0
    if isinstance(first, ArrayShape) and first.dims:
        side = first.dims[-1]
    match opcode:
        case "sort":
            return size * max(0, size - 1).bit_length()
        case "cholesky":
            return size * side // 3
        case "triangular-solve" if len(types) > 1:
            return _elements(types[1]) * side
        case "fft":
            lengths = _listed(attributes, "fft_length")
            return 8 * size * prod(max(0, length.bit_length() - 1) for length in lengths)
        case _:
            return 0


def _bytes_moved(opcode: str, result: Shape | None, types: Sequence[Shape | None]) -> int:
    written = byte_count(result)
    first = types[0] if types else None
    if opcode in SLICES:
        return 2 * written + sum(map(byte_count, types[1:]))
    # XLA updates in place: the rest of the array does not move.
    if opcode == "dynamic-update-slice" and len(types) > 1:
        return 2 * byte_count(types[1]) + sum(map(byte_count, types[2:]))
    # As in HloCostAnalysis, an update is read, and its element is read and written.
    if opcode == "scatter" and len(types) == 3:
        return 3 * byte_count(types[2]) + byte_count(types[1])
    if opcode in _RESULT_OF_START and isinstance(result, TupleShape):
        number = _RESULT_OF_START[opcode]
        written = byte_count(result.elements[number]) if number < len(result.elements) else 0
    if opcode == "send":
        return byte_count(first)
    if opcode == "recv":
        return byte_count(result.elements[0]) if isinstance(result, TupleShape) else written
    return written + sum(map(byte_count, types))


def applications(
    opcode: str, result: str, attributes: str, operands: tuple[str | None, ...]
) -> int:
    """The number of elements to which an instruction of some `RowKind` applies its computation."""
    types = [shape_or_none(text) if text else None for text in operands]
    size = _elements(next(iter(arrays(shape_or_none(result))), None))
    if opcode == "reduce":
        return max(0, _elements(types[0] if types else None) - size)
    if opcode == "reduce-window":
        return size * max(0, prod(d.size for d in _window(attributes)) - 1)
    if opcode == "scatter":
        return _elements(types[-1] if types else None)
    if opcode == "select-and-scatter":
        return _elements(types[1] if len(types) > 1 else None)
    return size


# Dots and convolutions


def _matrix_flops(
    opcode: str, result: Shape | None, attributes: str, types: Sequence[Shape | None]
) -> int:
    if len(types) < 2 or not isinstance(result, ArrayShape):
        return 0
    left, right = types[0], types[1]
    if not isinstance(left, ArrayShape) or not isinstance(right, ArrayShape):
        return 0
    if opcode == "convolution":
        return _convolution_flops(result, left, right, attributes)
    contracted = _listed(attributes, "lhs_contracting_dims")
    if any(number >= left.rank for number in contracted):
        return 0
    return 2 * result.elements * prod(left.dims[number] for number in contracted)


def _convolution_flops(
    result: ArrayShape, image: ArrayShape, kernel: ArrayShape, attributes: str
) -> int:
    """Two flops for each product with an element of the image; padding does not count."""
    labels = _labels(attributes)
    if labels is None:
        return 0
    windows = _window(attributes)
    try:
        spatial = zip(labels.input_spatial, labels.output_spatial, windows, strict=True)
        valid = prod(
            _valid_positions(image.dims[i], result.dims[o], window) for i, o, window in spatial
        )
        channels = kernel.dims[labels.kernel_input_feature]  # of a group, if there are several
        features, batch = result.dims[labels.output_feature], result.dims[labels.output_batch]
    # Labels of absent dimensions; a window of another rank, or with a step of 0.
    except (IndexError, ValueError, ZeroDivisionError):
        return 0
    return 2 * valid * channels * features * batch


def _valid_positions(size: int, positions: int, window: WindowDimension) -> int:
    """The number of pairs of an output position and a window element that meet the input.

    Above `MAX_PAIRS`, pairs that meet padding count, too.
    """
    if positions * window.size > MAX_PAIRS:
        return max(0, positions) * max(0, window.size)
    count = 0
    dilated = (size - 1) * window.base_dilation + 1
    for element in range(window.size):
        offset = element * window.window_dilation - window.padding_low
        if window.base_dilation == 1:
            # The first position is rounded up, the last down.
            first = max(0, -(offset // window.stride)) if offset < 0 else 0
            last = min(positions - 1, (dilated - 1 - offset) // window.stride)
            count += max(0, last - first + 1)
        else:
            places = (offset + window.stride * index for index in range(positions))
            count += sum(
                0 <= place < dilated and place % window.base_dilation == 0 for place in places
            )
    return count


def _labels(attributes: str) -> ConvolutionDimensionNumbers | None:
    return _read(read_dim_labels, _attribute(attributes, "dim_labels"))


def _window(attributes: str) -> Sequence[WindowDimension]:
    return _read(read_window, _attribute(attributes, "window")) or ()


def _read(reader: Callable[[str], T], text: str) -> T | None:
    try:
        return reader(text) if text else None
    except AttributeSyntaxError:
        return None


def _listed(attributes: str, name: str) -> list[int]:
    return _numbers(_attribute(attributes, name).strip("{}").split(","))


def _numbers(words: Iterable[object]) -> list[int]:
    numbers = (whole_number(str(word).strip()) for word in words)
    return [number for number in numbers if number is not None and number >= 0]


def _attribute(attributes: str, name: str) -> str:
    if f"{name}=" not in attributes:
        return ""
    from hlo_lint.hlo.attributes.splitting import attribute_span

    span = attribute_span(attributes, name)
    return "" if span is None else attributes[span[0] : span[1]]


def library_cost(call: Instruction) -> Cost:
    """The flops of a GEMM or a convolution that a library computes; padding counts, too."""
    target, results = call.custom_call_target, list(arrays(call.shape_or_none))
    left, right = call.operand_shape(0), call.operand_shape(1)
    if not results or not isinstance(left, ArrayShape) or not isinstance(right, ArrayShape):
        return NOTHING
    flops = 0
    if target.startswith("__cublas$"):
        config = call.backend_config()
        gemm = config.get("gemm_backend_config", config)
        dims = gemm.get("dot_dimension_numbers") if isinstance(gemm, Mapping) else None
        listed = dims.get("lhs_contracting_dimensions") if isinstance(dims, Mapping) else None
        contracted = _numbers(listed if isinstance(listed, list) else ())  # JSON has int64 as text
        if contracted and max(contracted) < left.rank:
            flops = 2 * results[0].elements * prod(left.dims[number] for number in contracted)
    elif target.startswith("__cudnn$conv"):
        labels = _labels(call.attributes_text)
        # A call that computes a gradient has the output of the forward convolution as an operand.
        output, kernel = results[0], right
        if "BackwardFilter" in target:
            output, kernel = right, results[0]
        elif "BackwardInput" in target:
            output = left
        if labels is not None and labels.kernel_output_feature < kernel.rank:
            # Each element of the output is a sum over the kernel's elements of its feature.
            features = kernel.dims[labels.kernel_output_feature] or 1
            flops = 2 * output.elements * kernel.elements // features
    return Cost(flops, 0, 0, {left.dtype: flops}) if flops else NOTHING


def byte_count(shape: Shape | None) -> int:
    """The bytes of all arrays in a shape; arrays of unknown size count as 0."""
    return sum(size or 0 for size in byte_sizes(shape))


def _elements(shape: Shape | None) -> int:
    return sum(max(0, array.elements) for array in arrays(shape))
