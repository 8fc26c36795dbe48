"""Conditions on TMA descriptors, by the component that checks them.

The driver returns CUDA_ERROR_INVALID_VALUE for any violation, without stating which. Its conditions
are in the manual of `cuTensorMapEncodeTiled`. They include dimensions of size 1, although the
stride of such a dimension is never used and may be any number that the framework left there. XLA,
jaxlib and Mosaic GPU check before they call the driver, as of jaxlib 0.11.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Final, NamedTuple

from hlo_lint.kernels.tma.descriptor import (
    INTERLEAVES,
    L2_PROMOTIONS,
    OOB_FILLS,
    SWIZZLES,
    TENSOR_MAP_TYPES,
    Consumer,
    Descriptor,
    swizzle_span,
)

MAX_RANK = 5
MAX_DIM = 1 << 32
STRIDE_LIMIT = 1 << 40
MAX_BOX = 256
MAX_ELEMENT_STRIDE = 8
PACKED_BOX = 128
MAX_BOX_BYTES = 228 << 10
"""The shared memory of an SM of an H100 or H200; the manual states no limit."""

_COMPONENTS = {
    "manual": (Consumer.CUDA, "cuTensorMapEncodeTiled, CUDA driver API manual"),
    "driver": (
        Consumer.CUDA,
        "cuTensorMapEncodeTiled, as driver 580.159 answers: CUDA_ERROR_INVALID_VALUE",
    ),
    "xla": (Consumer.XLA, "xla/stream_executor/gpu/tma_metadata.cc"),
    "jaxlib": (Consumer.JAXLIB, "jaxlib/gpu/triton_kernels.cc"),
    "mosaic": (Consumer.MOSAIC, "jaxlib/mosaic/gpu/runtime.cc"),
}
_TABLE = """
data-type: manual jaxlib
jaxlib-data-type: jaxlib
rank: manual xla jaxlib mosaic
rank-interleaved: manual xla
entries: manual xla jaxlib
descriptor-address: manual jaxlib mosaic
address: manual jaxlib
dims: manual xla jaxlib mosaic
dims-packed: manual
stride-alignment: manual xla jaxlib mosaic
stride-range: manual xla jaxlib mosaic
box: manual xla jaxlib mosaic
box-size: driver
box-bytes: manual xla jaxlib mosaic
box-packed: manual
element-strides: manual xla
interleave: manual xla
interleave-packed: manual
interleave-swizzle: manual xla
swizzle: manual xla jaxlib mosaic
swizzle-span: manual xla
swizzle-packed: manual
l2-promotion: manual
oob-fill: manual jaxlib
nan-fill: manual
innermost-stride: jaxlib mosaic
plain-swizzle: xla jaxlib mosaic
element-size: xla
stride-chain: xla
stride-covers-dim: xla
first-element-stride: xla
"""
CONDITIONS: Final[Mapping[str, Mapping[Consumer, str]]] = {
    name: dict(_COMPONENTS[component] for component in components.split())
    for name, _, components in (line.partition(": ") for line in _TABLE.split("\n") if line)
}
"""For each condition the components that check it, each with its source.

The driver's conditions, which come first, apply to every consumer."""


class TmaViolation(NamedTuple):
    """A field that violates a condition."""

    condition: str
    field: str
    """The field, such as `global_strides[1]`, numbered by dimension; the innermost is 0."""
    value: int
    bound: str
    degenerate: bool = False
    """True for a stride of a dimension of size 1: any valid stride is equivalent."""
    source: str = ""
    """The manual or source file of the condition; the consumer determines it."""

    def __str__(self) -> str:
        excuse = " (an arbitrary stride of a dimension of size 1)" if self.degenerate else ""
        return f"{self.field} is {self.value}, must be {self.bound}{excuse}"


def violations(
    descriptor: Descriptor, consumer: Consumer = Consumer.CUDA
) -> tuple[TmaViolation, ...]:
    """The conditions that a descriptor violates for this consumer.

    >>> from hlo_lint.kernels.tma.descriptor import tensor_map_type
    >>> q = Descriptor.from_row_major(tensor_map_type(9), (32, 1, 128), (128, 1, 1), (1, 128, 64))
    >>> print(*violations(q))
    global_strides[1] is 2, must be a multiple of 16 (an arbitrary stride of a dimension of size 1)
    """
    violated = []
    for check in (_tensor, _strides, _box, _modes, _launchers):
        for violation in check(descriptor):
            checked_by = CONDITIONS[violation.condition]
            source = checked_by.get(consumer, checked_by.get(Consumer.CUDA))
            if source is not None:
                violated.append(violation._replace(source=source))
    return tuple(violated)


def repair(descriptor: Descriptor) -> Descriptor | None:
    """The descriptor with valid strides for dimensions of size 1.

    None if a stride of a larger dimension is invalid: that needs a copy to padded memory. A
    dimension of size 1 gets the stride of dense memory, rounded up to the alignment. Valid strides
    and violations of other conditions are unchanged.
    """
    strides = list(descriptor.global_strides)
    below, count = descriptor.row_bytes, 1  # the stride and the size of the next inner dimension
    for dimension, stride in enumerate(strides, 1):
        if not 0 <= stride < STRIDE_LIMIT or stride % descriptor.alignment:
            if not descriptor.is_degenerate(dimension):
                return None
            dense = _round_up(below * count, descriptor.alignment)
            # Beyond the limit, use the stride of the next inner dimension.
            stride = dense if dense < STRIDE_LIMIT else _round_up(below, descriptor.alignment)
            if not descriptor.alignment <= stride < STRIDE_LIMIT:
                stride = descriptor.alignment
            strides[dimension - 1] = stride
        dims = descriptor.global_dims
        below, count = stride, dims[dimension] if dimension < len(dims) else 1
    return replace(descriptor, global_strides=tuple(strides))


# ---- conditions of the driver


def _tensor(descriptor: Descriptor) -> Iterator[TmaViolation]:
    element, rank, alignment = descriptor.element, descriptor.rank, descriptor.alignment
    number = element.number
    if number is not None and not 0 <= number < len(TENSOR_MAP_TYPES):
        yield TmaViolation("data-type", "data_type", number, "a CUtensorMapDataType, 0 to 15")
    if number == 13:
        yield TmaViolation(
            "jaxlib-data-type", "data_type", 13, "another: jaxlib has no 16U4_ALIGN8B"
        )
    if not 1 <= rank <= MAX_RANK:
        yield TmaViolation("rank", "rank", rank, f"1 to {MAX_RANK}")
    if descriptor.interleave and 1 <= rank < 3:
        bound = "at least 3 where the layout is interleaved"
        yield TmaViolation("rank-interleaved", "rank", rank, bound)
    for name, values, expected in (
        ("global_dims", descriptor.global_dims, rank),
        ("global_strides", descriptor.global_strides, rank - 1),
        ("box_dims", descriptor.box_dims, rank),
        ("element_strides", descriptor.element_strides, rank),
    ):
        # Logs print at most five entries.
        if len(values) != expected and 1 <= rank <= MAX_RANK:
            bound = f"{expected} for rank {rank}"
            yield TmaViolation("entries", f"len({name})", len(values), bound)
    place, address = descriptor.descriptor_address, descriptor.address
    if place is not None and place % 64:
        yield TmaViolation("descriptor-address", "descriptor_address", place, "a multiple of 64")
    if address is not None and address % alignment:
        yield TmaViolation("address", "address", address, f"a multiple of {alignment}")
    yield from _outside("dims", "global_dims", descriptor.global_dims, MAX_DIM)
    unit = 128 if element.is_packed_to_16_bytes else 2
    if number in (13, 14, 15) and descriptor.global_dims and descriptor.global_dims[0] % unit:
        bound = f"a multiple of {unit} for {element.name}"
        yield TmaViolation("dims-packed", "global_dims[0]", descriptor.global_dims[0], bound)


def _strides(descriptor: Descriptor) -> Iterator[TmaViolation]:
    bound = f"a multiple of {descriptor.alignment}"
    for dimension, stride in enumerate(descriptor.global_strides, 1):
        if stride % descriptor.alignment and descriptor.element.bits:
            yield _of_stride("stride-alignment", descriptor, dimension, bound)
    bound = "0 or more, and less than 2^40"
    for dimension, stride in enumerate(descriptor.global_strides, 1):
        if not 0 <= stride < STRIDE_LIMIT:
            yield _of_stride("stride-range", descriptor, dimension, bound)


def _box(descriptor: Descriptor) -> Iterator[TmaViolation]:
    element, box = descriptor.element, descriptor.box_dims
    yield from _outside("box", "box_dims", box, MAX_BOX)
    # Element strides reduce the box; dimension 0 has none unless the layout is interleaved.
    strides = [1, *descriptor.element_strides[1:]]
    taken = [-(-size // max(stride, 1)) for size, stride in zip(box, strides, strict=False)]
    size = prod(taken) * element.bits // 8
    if descriptor.rank <= MAX_RANK and size > MAX_BOX_BYTES:
        bound = f"at most {MAX_BOX_BYTES} bytes (228 KiB)"
        yield TmaViolation("box-size", "prod(box_dims)", size, bound)
    bits = _inner_box_bits(descriptor)
    if descriptor.interleave == 0 and bits % 128:
        printed = f"{bits // 8} bytes" if bits % 8 == 0 else f"{bits} bits"
        bound = f"a multiple of 16 bytes of {element.name}; this is {printed}"
        yield TmaViolation("box-bytes", "box_dims[0]", box[0], bound)
    if element.is_packed_to_16_bytes and box and box[0] != PACKED_BOX:
        bound = f"{PACKED_BOX} for {element.name}"
        yield TmaViolation("box-packed", "box_dims[0]", box[0], bound)
    # The driver ignores the element stride of dimension 0, unless the layout is interleaved.
    steps, first = descriptor.element_strides, 0 if descriptor.interleave else 1
    yield from _outside("element-strides", "element_strides", steps, MAX_ELEMENT_STRIDE, first)


def _modes(descriptor: Descriptor) -> Iterator[TmaViolation]:
    element, interleave, swizzle = descriptor.element, descriptor.interleave, descriptor.swizzle
    yield from _unknown("interleave", interleave, INTERLEAVES)
    if element.number == 15 and interleave:
        bound = "0 (NONE) for 16U6_ALIGN16B"
        yield TmaViolation("interleave-packed", "interleave", interleave, bound)
    if interleave == 2 and swizzle != 1:
        bound = "1 (32B) where interleave is 2 (32B)"
        yield TmaViolation("interleave-swizzle", "swizzle", swizzle, bound)
    yield from _unknown("swizzle", swizzle, SWIZZLES)
    span, bits = swizzle_span(swizzle), _inner_box_bits(descriptor)
    if span is not None and not interleave and bits > 8 * span:
        bound = (
            f"at most {8 * span // element.bits} elements of {element.name}: "
            f"swizzle {SWIZZLES[swizzle]} spans {span} bytes, not {-(-bits // 8)}"
        )
        yield TmaViolation("swizzle-span", "box_dims[0]", descriptor.box_dims[0], bound)
    allowed = {0, 3, 4, 6} if element.number == 15 else {0, 3, 4}
    is_known = 0 <= swizzle < len(SWIZZLES)
    if element.is_packed_to_16_bytes and swizzle not in allowed and is_known:
        names = ", ".join(f"{number} ({SWIZZLES[number]})" for number in sorted(allowed))
        bound = f"one of {names} for {element.name}"
        yield TmaViolation("swizzle-packed", "swizzle", swizzle, bound)
    yield from _unknown("l2_promotion", descriptor.l2_promotion, L2_PROMOTIONS)
    yield from _unknown("oob_fill", descriptor.oob_fill, OOB_FILLS)
    if descriptor.oob_fill == 1 and not element.floating:
        bound = f"0: NaN fills floating-point types only, not {element.name}"
        yield TmaViolation("nan-fill", "oob_fill", descriptor.oob_fill, bound)


# ---- conditions of other components, checked before the driver


def _launchers(descriptor: Descriptor) -> Iterator[TmaViolation]:
    innermost = descriptor.innermost_stride
    if innermost != 1:
        yield TmaViolation("innermost-stride", "global_strides[0]", innermost, "1 element")
    if 4 <= descriptor.swizzle < len(SWIZZLES):
        yield TmaViolation("plain-swizzle", "swizzle", descriptor.swizzle, _one_of(SWIZZLES[:4]))
    bits = descriptor.element.bits
    if bits not in (8, 16, 32, 64):
        yield TmaViolation("element-size", "element_size", bits, "8, 16, 32 or 64 bits")
    for dimension, (previous, stride) in enumerate(pairwise(descriptor.global_strides), 2):
        if previous and stride % previous:
            bound = f"a multiple of the previous stride, {previous}"
            violation = _of_stride("stride-chain", descriptor, dimension, bound)
            is_degenerate = violation.degenerate or descriptor.is_degenerate(dimension - 1)
            yield violation._replace(degenerate=is_degenerate)
    # XLA compares bytes with elements, and the stride of dimension i + 1 with the size of i.
    sized = zip(descriptor.global_strides, descriptor.global_dims, strict=False)
    for dimension, (stride, size) in enumerate(sized, 1):
        if 0 <= stride < size:
            bound = f"at least {size}, the size of dimension {dimension - 1}"
            yield _of_stride("stride-covers-dim", descriptor, dimension, bound)
    steps = descriptor.element_strides
    if steps and steps[0] != 1:
        yield TmaViolation("first-element-stride", "element_strides[0]", steps[0], "1")


# ---- helpers


def _outside(
    condition: str, field: str, values: Sequence[int], most: int, first: int = 0
) -> Iterator[TmaViolation]:
    """The values, from dimension `first` on, that are not 1 to `most`."""
    bound = f"1 to {'2^32' if most == MAX_DIM else most}"
    for dimension, value in enumerate(values[first:], first):
        if not 1 <= value <= most:
            yield TmaViolation(condition, f"{field}[{dimension}]", value, bound)


def _unknown(field: str, number: int, names: tuple[str, ...]) -> Iterator[TmaViolation]:
    if not 0 <= number < len(names):
        yield TmaViolation(field.replace("_", "-"), field, number, _one_of(names))


def _of_stride(condition: str, descriptor: Descriptor, dimension: int, bound: str) -> TmaViolation:
    stride = descriptor.global_strides[dimension - 1]
    is_degenerate = descriptor.is_degenerate(dimension)
    return TmaViolation(condition, f"global_strides[{dimension}]", stride, bound, is_degenerate)


def _inner_box_bits(descriptor: Descriptor) -> int:
    return descriptor.box_dims[0] * descriptor.element.bits if descriptor.box_dims else 0


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _one_of(names: tuple[str, ...]) -> str:
    return "one of " + ", ".join(f"{number} ({name})" for number, name in enumerate(names))
