"""Conditions on TMA descriptors, the components that check them, and the repair of strides.

The driver returns CUDA_ERROR_INVALID_VALUE for any violation, without stating which. Its conditions
are in the manual of `cuTensorMapEncodeTiled`. They include dimensions of size 1, although the
stride of such a dimension is never used and may be any number that the framework left there. XLA,
jaxlib and Mosaic GPU check before they call the driver; their messages are from jaxlib 0.11.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

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

_MANUAL = "cuTensorMapEncodeTiled, CUDA driver API manual"
_DRIVER = "cuTensorMapEncodeTiled, as driver 580.159 answers: CUDA_ERROR_INVALID_VALUE"
_XLA = "xla/stream_executor/gpu/tma_metadata.cc"
_JAXLIB = "jaxlib/gpu/triton_kernels.cc"
_MOSAIC = "jaxlib/mosaic/gpu/runtime.cc"
_STRIDES = {
    "xla": "global_strides (%s) must be a multiple of 16 and < 2^40.",
    "jaxlib": "TMA byte stride at dimension %d must be divisible by 16 and less than 2^40, "
    "but got %llu (element stride %llu, element size %u).",
    "mosaic": "Byte strides must be divisible by 16 and less than 2**40, but got %ld (item "
    "stride = %ld, item size = %ld) at index %ld",
}
"""Messages about invalid strides."""


@dataclass(frozen=True, slots=True)
class ConditionViolation:
    """A field that violates a condition."""

    condition: str
    field: str
    """The field, such as `global_strides[1]`, numbered by dimension; the innermost is 0."""
    value: int
    bound: str
    degenerate: bool
    """True for a stride of a dimension of size 1: any valid stride is equivalent."""
    source: str
    """The manual or source file of the condition, with its message, if any."""

    def __str__(self) -> str:
        excuse = " (an arbitrary stride of a dimension of size 1)" if self.degenerate else ""
        return f"{self.field} is {self.value}, must be {self.bound}{excuse}"


@dataclass(frozen=True, slots=True)
class _Breach:
    field: str
    value: int
    bound: str
    degenerate: bool = False


_Breaches = Iterator[_Breach]
_Check = Callable[[Descriptor], _Breaches]


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on descriptors."""

    name: str
    breaches: _Check
    sources: Mapping[Consumer, str]
    """The components that check it. The driver's conditions apply to every consumer."""

    def source_for(self, consumer: Consumer) -> str | None:
        """The source of the check by this consumer, else by the driver; None without a check."""
        return self.sources.get(consumer, self.sources.get(Consumer.CUDA))


CONDITIONS: list[Condition] = []
"""All conditions, the driver's first."""


def _condition(
    cuda: str = _MANUAL, xla: str = "", jaxlib: str = "", mosaic: str = ""
) -> Callable[[_Check], _Check]:
    """Register a condition under the function's name, with the message of each component."""
    sources = {
        Consumer.CUDA: cuda,
        Consumer.XLA: xla and f'{_XLA}: "{xla}"',
        Consumer.JAXLIB: jaxlib and f'{_JAXLIB}: "{jaxlib}"',
        Consumer.MOSAIC: mosaic and f'{_MOSAIC}: "{mosaic}"',
    }

    def enter(check: _Check) -> _Check:
        name = check.__name__[1:].replace("_", "-")
        named = {consumer: source for consumer, source in sources.items() if source}
        CONDITIONS.append(Condition(name, check, named))
        return check

    return enter


def violations(
    descriptor: Descriptor, consumer: Consumer = Consumer.CUDA
) -> tuple[ConditionViolation, ...]:
    """The conditions that a descriptor violates for this consumer.

    >>> from hlo_lint.kernels.tma.descriptor import tensor_map_type
    >>> q = Descriptor.from_row_major(tensor_map_type(9), (32, 1, 128), (128, 1, 1), (1, 128, 64))
    >>> print(*violations(q))
    global_strides[1] is 2, must be a multiple of 16 (an arbitrary stride of a dimension of size 1)
    """
    return tuple(
        ConditionViolation(
            condition.name, breach.field, breach.value, breach.bound, breach.degenerate, source
        )
        for condition in CONDITIONS
        if (source := condition.source_for(consumer)) is not None
        for breach in condition.breaches(descriptor)
    )


def repair(descriptor: Descriptor) -> Descriptor | None:
    """The descriptor with valid strides for dimensions of size 1.

    None if a stride of a larger dimension is invalid: that needs a copy to padded memory. A
    dimension of size 1 gets the stride of dense memory, rounded up to the alignment. Valid strides
    and violations of other conditions are unchanged.
    """
    strides = list(descriptor.global_strides)
    row = descriptor.row_bytes
    below, count = row, 1  # the stride and the size of the next inner dimension
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


@_condition(jaxlib="Unsupported TMA data type: %d.")
def _data_type(descriptor: Descriptor) -> _Breaches:
    number = descriptor.element.number
    if number is not None and not 0 <= number < len(TENSOR_MAP_TYPES):
        yield _Breach("data_type", number, "a CUtensorMapDataType, 0 to 15")


@_condition(cuda="", jaxlib="Unsupported TMA data type: %d.")
def _jaxlib_data_type(descriptor: Descriptor) -> _Breaches:
    if descriptor.element.number == 13:
        yield _Breach("data_type", 13, "another: jaxlib has no 16U4_ALIGN8B")


@_condition(
    xla="unsupported rank for TMA: %d. Must be 1-5",
    jaxlib="TMA descriptor rank %d is out of range [1, 5].",
    mosaic="Rank must be in [1, 5], but got %ld",
)
def _rank(descriptor: Descriptor) -> _Breaches:
    if not 1 <= descriptor.rank <= MAX_RANK:
        yield _Breach("rank", descriptor.rank, f"1 to {MAX_RANK}")


@_condition(xla="If TmaInterleave is not kNone, then tensor rank must additionally be >= 3.")
def _rank_interleaved(descriptor: Descriptor) -> _Breaches:
    if descriptor.interleave and 1 <= descriptor.rank < 3:
        yield _Breach("rank", descriptor.rank, "at least 3 where the layout is interleaved")


@_condition(
    xla="global_dims, box_dims and element_strides must have the same rank",
    jaxlib="TMA descriptor rank mismatch: block_shape size %d, shape size %zu, strides size %zu.",
)
def _entries(descriptor: Descriptor) -> _Breaches:
    rank = descriptor.rank
    if not 1 <= rank <= MAX_RANK:
        return  # logs print at most five entries
    for name, values, expected in (
        ("global_dims", descriptor.global_dims, rank),
        ("global_strides", descriptor.global_strides, rank - 1),
        ("box_dims", descriptor.box_dims, rank),
        ("element_strides", descriptor.element_strides, rank),
    ):
        if len(values) != expected:
            yield _Breach(f"len({name})", len(values), f"{expected} for rank {rank}")


@_condition(
    jaxlib="TMA descriptor output address must be 64-byte aligned, but got %p.",
    mosaic="TMA descriptor address must be 64 byte aligned, but got: %p",
)
def _descriptor_address(descriptor: Descriptor) -> _Breaches:
    if descriptor.descriptor_address is not None and descriptor.descriptor_address % 64:
        yield _Breach("descriptor_address", descriptor.descriptor_address, "a multiple of 64")


@_condition(jaxlib="TMA global base address must be 16-byte aligned, but got %p.")
def _address(descriptor: Descriptor) -> _Breaches:
    if descriptor.address is not None and descriptor.address % descriptor.alignment:
        yield _Breach("address", descriptor.address, f"a multiple of {descriptor.alignment}")


@_condition(
    xla="global_dims (%s) must be non-zero and <= 2^32.",
    jaxlib="TMA shape at dimension %d must be in range [1, 2^32], but got %llu.",
    mosaic="TMA size must be less than 2**32, but got %ld at index %ld",
)
def _dims(descriptor: Descriptor) -> _Breaches:
    for dimension, size in enumerate(descriptor.global_dims):
        if not 1 <= size <= MAX_DIM:
            yield _Breach(f"global_dims[{dimension}]", size, "1 to 2^32")


@_condition()
def _dims_packed(descriptor: Descriptor) -> _Breaches:
    unit = 128 if descriptor.element.is_packed_to_16_bytes else 2
    if descriptor.element.number not in (13, 14, 15) or not descriptor.global_dims:
        return
    if descriptor.global_dims[0] % unit:
        bound = f"a multiple of {unit} for {descriptor.element.name}"
        yield _Breach("global_dims[0]", descriptor.global_dims[0], bound)


def _of_stride(descriptor: Descriptor, dimension: int, bound: str) -> _Breach:
    stride = descriptor.global_strides[dimension - 1]
    return _Breach(
        f"global_strides[{dimension}]", stride, bound, descriptor.is_degenerate(dimension)
    )


@_condition(**_STRIDES)
def _stride_alignment(descriptor: Descriptor) -> _Breaches:
    for dimension, stride in enumerate(descriptor.global_strides, 1):
        if stride % descriptor.alignment and descriptor.element.bits:
            yield _of_stride(descriptor, dimension, f"a multiple of {descriptor.alignment}")


@_condition(**_STRIDES)
def _stride_range(descriptor: Descriptor) -> _Breaches:
    for dimension, stride in enumerate(descriptor.global_strides, 1):
        if not 0 <= stride < STRIDE_LIMIT:
            yield _of_stride(descriptor, dimension, "0 or more, and less than 2^40")


@_condition(
    xla="box_dims [%s] must be non-zero and <= 256.",
    jaxlib="TMA block shape at dimension %d must be in range [1, 256], but got %u.",
    mosaic="Window shape must be in [0, 256], but got %d at index %ld",
)
def _box(descriptor: Descriptor) -> _Breaches:
    for dimension, size in enumerate(descriptor.box_dims):
        if not 1 <= size <= MAX_BOX:
            yield _Breach(f"box_dims[{dimension}]", size, f"1 to {MAX_BOX}")


@_condition(cuda=_DRIVER)
def _box_size(descriptor: Descriptor) -> _Breaches:
    # Element strides reduce the box; dimension 0 has none unless the layout is interleaved.
    strides = [1, *descriptor.element_strides[1:]]
    taken = [
        -(-size // max(stride, 1))
        for size, stride in zip(descriptor.box_dims, strides, strict=False)
    ]
    size = prod(taken) * descriptor.element.bits // 8
    if descriptor.rank <= MAX_RANK and size > MAX_BOX_BYTES:
        yield _Breach("prod(box_dims)", size, f"at most {MAX_BOX_BYTES} bytes (228 KiB)")


@_condition(
    xla="when interleave is kNone, box_dims[0] (%d) * element_byte_width (%d) must be a "
    "multiple of 16 bytes.",
    jaxlib="TMA innermost block shape in bytes must be divisible by 16, but got %u * %u "
    "= %u bytes.",
    mosaic="The last dimension of window shape must have a bytewidth divisible by 16, "
    "but got %d*%ld at index %ld",
)
def _box_bytes(descriptor: Descriptor) -> _Breaches:
    bits = _inner_box_bits(descriptor)
    if descriptor.interleave == 0 and bits % 128:
        size = f"{bits // 8} bytes" if bits % 8 == 0 else f"{bits} bits"
        bound = f"a multiple of 16 bytes of {descriptor.element.name}; this is {size}"
        yield _Breach("box_dims[0]", descriptor.box_dims[0], bound)


@_condition()
def _box_packed(descriptor: Descriptor) -> _Breaches:
    if not descriptor.element.is_packed_to_16_bytes or not descriptor.box_dims:
        return
    if descriptor.box_dims[0] != PACKED_BOX:
        bound = f"{PACKED_BOX} for {descriptor.element.name}"
        yield _Breach("box_dims[0]", descriptor.box_dims[0], bound)


@_condition(xla="element_strides (%s) must be non-zero and <= 8.")
def _element_strides(descriptor: Descriptor) -> _Breaches:
    for dimension, stride in enumerate(descriptor.element_strides):
        if dimension == 0 and descriptor.interleave == 0:
            continue  # the driver ignores the element stride of dimension 0
        if not 1 <= stride <= MAX_ELEMENT_STRIDE:
            yield _Breach(f"element_strides[{dimension}]", stride, f"1 to {MAX_ELEMENT_STRIDE}")


@_condition(xla="unsupported interleave: %d")
def _interleave(descriptor: Descriptor) -> _Breaches:
    if not 0 <= descriptor.interleave < len(INTERLEAVES):
        yield _Breach("interleave", descriptor.interleave, _one_of(INTERLEAVES))


@_condition()
def _interleave_packed(descriptor: Descriptor) -> _Breaches:
    if descriptor.element.number == 15 and descriptor.interleave:
        yield _Breach("interleave", descriptor.interleave, "0 (NONE) for 16U6_ALIGN16B")


@_condition(xla="when interleave is k32B, swizzle must be k32B.")
def _interleave_swizzle(descriptor: Descriptor) -> _Breaches:
    if descriptor.interleave == 2 and descriptor.swizzle != 1:
        yield _Breach("swizzle", descriptor.swizzle, "1 (32B) where interleave is 2 (32B)")


@_condition(
    xla="unsupported swizzle: %d",
    jaxlib="Unsupported TMA swizzle: %u.",
    mosaic="Unsupported swizzle: %ld",
)
def _swizzle(descriptor: Descriptor) -> _Breaches:
    if not 0 <= descriptor.swizzle < len(SWIZZLES):
        yield _Breach("swizzle", descriptor.swizzle, _one_of(SWIZZLES))


@_condition(
    xla="when interleave is kNone and swizzle is k..B, box_dims[0] * element_byte_width "
    "must be <= ..."
)
def _swizzle_span(descriptor: Descriptor) -> _Breaches:
    span = swizzle_span(descriptor.swizzle)
    if span is None or descriptor.interleave or not descriptor.box_dims:
        return
    bits = _inner_box_bits(descriptor)
    if bits > 8 * span:
        bound = (
            f"at most {8 * span // descriptor.element.bits} elements of {descriptor.element.name}:"
            f" swizzle {SWIZZLES[descriptor.swizzle]} spans {span} bytes, not {-(-bits // 8)}"
        )
        yield _Breach("box_dims[0]", descriptor.box_dims[0], bound)


@_condition()
def _swizzle_packed(descriptor: Descriptor) -> _Breaches:
    if not descriptor.element.is_packed_to_16_bytes:
        return
    allowed = {0, 3, 4}
    if descriptor.element.number == 15 and descriptor.store is not False:
        allowed.add(6)  # to store through
    # The load-only type allows the same three; `store_packed` checks for stores.
    if descriptor.swizzle not in allowed and 0 <= descriptor.swizzle < len(SWIZZLES):
        names = ", ".join(f"{number} ({SWIZZLES[number]})" for number in sorted(allowed))
        bound = f"one of {names} for {descriptor.element.name}"
        yield _Breach("swizzle", descriptor.swizzle, bound)


@_condition()
def _store_packed(descriptor: Descriptor) -> _Breaches:
    if descriptor.element.number == 14 and descriptor.store:
        yield _Breach("data_type", 14, "another to store through: 16U4_ALIGN16B can only be loaded")


@_condition()
def _l2_promotion(descriptor: Descriptor) -> _Breaches:
    if not 0 <= descriptor.l2_promotion < len(L2_PROMOTIONS):
        yield _Breach("l2_promotion", descriptor.l2_promotion, _one_of(L2_PROMOTIONS))


@_condition(jaxlib="Unsupported TMA OOB fill: %u.")
def _oob_fill(descriptor: Descriptor) -> _Breaches:
    if not 0 <= descriptor.oob_fill < len(OOB_FILLS):
        yield _Breach("oob_fill", descriptor.oob_fill, _one_of(OOB_FILLS))


@_condition()
def _nan_fill(descriptor: Descriptor) -> _Breaches:
    if descriptor.oob_fill == 1 and not descriptor.element.floating:
        bound = f"0: NaN fills floating-point types only, not {descriptor.element.name}"
        yield _Breach("oob_fill", descriptor.oob_fill, bound)


# ---- conditions of other components, checked before the driver


@_condition(
    cuda="",
    jaxlib="TMA innermost element stride must be 1, but got %llu.",
    mosaic="Minormost stride must be 1, but got %ld",
)
def _innermost_stride(descriptor: Descriptor) -> _Breaches:
    if descriptor.innermost_stride != 1:
        yield _Breach("global_strides[0]", descriptor.innermost_stride, "1 element")


@_condition(
    cuda="",
    xla="unsupported swizzle: %d",
    jaxlib="Unsupported TMA swizzle: %u.",
    mosaic="Unsupported swizzle: %ld",
)
def _plain_swizzle(descriptor: Descriptor) -> _Breaches:
    if 4 <= descriptor.swizzle < len(SWIZZLES):
        yield _Breach("swizzle", descriptor.swizzle, _one_of(SWIZZLES[:4]))


@_condition(cuda="", xla="unsupported element size: %d")
def _element_size(descriptor: Descriptor) -> _Breaches:
    if descriptor.element.bits not in (8, 16, 32, 64):
        yield _Breach("element_size", descriptor.element.bits, "8, 16, 32 or 64 bits")


@_condition(cuda="", xla="global_stride (%d) must be a multiple of the previous stride (%d).")
def _stride_chain(descriptor: Descriptor) -> _Breaches:
    strides = descriptor.global_strides
    for dimension in range(2, len(strides) + 1):
        stride, previous = strides[dimension - 1], strides[dimension - 2]
        if previous and stride % previous:
            yield _Breach(
                f"global_strides[{dimension}]",
                stride,
                f"a multiple of the previous stride, {previous}",
                descriptor.is_degenerate(dimension) or descriptor.is_degenerate(dimension - 1),
            )


@_condition(cuda="", xla="global_stride (%d) must be >= global_dim (%d).")
def _stride_covers_dim(descriptor: Descriptor) -> _Breaches:
    # XLA compares bytes with elements, and the stride of dimension i + 1 with the size of i.
    for dimension, stride in enumerate(descriptor.global_strides, 1):
        if dimension > len(descriptor.global_dims):
            return
        size = descriptor.global_dims[dimension - 1]
        if 0 <= stride < size:
            yield _of_stride(
                descriptor, dimension, f"at least {size}, the size of dimension {dimension - 1}"
            )


@_condition(cuda="", xla="element_strides[0] must be 1 for TMA. Got %d instead.")
def _first_element_stride(descriptor: Descriptor) -> _Breaches:
    if descriptor.element_strides and descriptor.element_strides[0] != 1:
        yield _Breach("element_strides[0]", descriptor.element_strides[0], "1")


# ---- helpers


def _inner_box_bits(descriptor: Descriptor) -> int:
    return descriptor.box_dims[0] * descriptor.element.bits if descriptor.box_dims else 0


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _one_of(names: tuple[str, ...]) -> str:
    return "one of " + ", ".join(f"{number} ({name})" for number, name in enumerate(names))
