"""The arguments of `cuTensorMapEncodeTiled`, independent of their source.

All fields are in CUDA's order: dimension 0 is the innermost. Field names are those of the manual in
snake case, numbered by dimension: `global_strides[1]` is the stride of dimension 1, which is at
index 0 of the driver's array and at index 1 in a CUTLASS log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from hlo_lint.text.source import Span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Consumer(Enum):
    """The component that reads the descriptor first, and may reject more than the driver."""

    CUDA = "the CUDA driver"
    XLA = "XLA"
    JAXLIB = "jaxlib's launcher of Triton kernels"
    MOSAIC = "Mosaic GPU's runtime"


class TensorMapType(NamedTuple):
    """A `CUtensorMapDataType`."""

    number: int | None
    """The value of the enum; None if only the size is known and no type has it."""
    name: str
    bits: int
    """0 if unknown."""
    floating: bool = False

    @property
    def is_packed_to_16_bytes(self) -> bool:
        """True if padding fills each chunk to 16 bytes: these types have special conditions."""
        return self.number in (14, 15)


TENSOR_MAP_TYPES = (
    TensorMapType(0, "UINT8", 8),
    TensorMapType(1, "UINT16", 16),
    TensorMapType(2, "UINT32", 32),
    TensorMapType(3, "INT32", 32),
    TensorMapType(4, "UINT64", 64),
    TensorMapType(5, "INT64", 64),
    TensorMapType(6, "FLOAT16", 16, floating=True),
    TensorMapType(7, "FLOAT32", 32, floating=True),
    TensorMapType(8, "FLOAT64", 64, floating=True),
    TensorMapType(9, "BFLOAT16", 16, floating=True),
    TensorMapType(10, "FLOAT32_FTZ", 32, floating=True),
    TensorMapType(11, "TFLOAT32", 32, floating=True),
    TensorMapType(12, "TFLOAT32_FTZ", 32, floating=True),
    TensorMapType(13, "16U4_ALIGN8B", 4),
    TensorMapType(14, "16U4_ALIGN16B", 4),
    TensorMapType(15, "16U6_ALIGN16B", 6),
)
"""The types by number, as in `cuda.h`."""

INTERLEAVES = ("NONE", "16B", "32B")
SWIZZLES = ("NONE", "32B", "64B", "128B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B")
L2_PROMOTIONS = ("NONE", "L2_64B", "L2_128B", "L2_256B")
OOB_FILLS = ("NONE", "NAN_REQUEST_ZERO_FMA")


def tensor_map_type(number: int) -> TensorMapType:
    """The type of that number; a placeholder without a size if `cuda.h` has none.

    >>> tensor_map_type(9).name, tensor_map_type(99).bits
    ('BFLOAT16', 0)
    """
    if 0 <= number < len(TENSOR_MAP_TYPES):
        return TENSOR_MAP_TYPES[number]
    return TensorMapType(number, f"type {number}", 0)


def element_type_of_size(size: int) -> TensorMapType:
    """The type that XLA passes for elements of `size` bytes, since it knows only their size."""
    unsigned = {1: 0, 2: 1, 4: 2, 8: 4}
    if size in unsigned:
        return TENSOR_MAP_TYPES[unsigned[size]]
    return TensorMapType(None, f"element of {size} bytes", 8 * max(size, 0))


def swizzle_span(swizzle: int) -> int | None:
    """The span in bytes within which a swizzle permutes; None without a permutation.

    >>> [swizzle_span(number) for number in range(7)]
    [None, 32, 64, 128, 128, 128, 128]
    """
    if not 1 <= swizzle < len(SWIZZLES):
        return None
    return min(16 << swizzle, 128)


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The arguments of a `cuTensorMapEncodeTiled` call.

    >>> q = Descriptor.from_row_major(tensor_map_type(9), (32, 1, 128), (128, 1, 1), (1, 128, 64))
    >>> q.global_dims, q.global_strides, q.box_dims
    ((128, 1, 32), (2, 256), (64, 128, 1))
    """

    element: TensorMapType
    rank: int
    global_dims: tuple[int, ...]
    global_strides: tuple[int, ...]
    """The strides of dimensions from 1 on, in bytes; the innermost has none."""
    box_dims: tuple[int, ...]
    element_strides: tuple[int, ...]
    innermost_stride: int = 1
    """The innermost stride in elements. The driver assumes 1; two launchers reject others."""
    interleave: int = 0
    swizzle: int = 0
    l2_promotion: int = 0
    oob_fill: int = 0
    address: int | None = None
    """The tensor's address, or its offset in an aligned allocation; None if unknown."""
    descriptor_address: int | None = None
    """The address of the descriptor itself; None if unknown."""

    @classmethod
    def from_row_major(
        cls,
        element: TensorMapType,
        shape: Sequence[int],
        strides: Sequence[int],
        block_shape: Sequence[int],
        *,
        swizzle: int = 0,
        oob_fill: int = 0,
    ) -> Descriptor:
        """Convert from the order of Triton and Mosaic GPU: innermost last, strides in elements.

        A stride of a fractional number of bytes becomes an odd number, so it stays misaligned.
        """
        outer_first = [_bytes(stride * element.bits) for stride in strides[:-1]]
        return cls(
            element,
            len(shape),
            tuple(reversed(shape)),
            tuple(reversed(outer_first)),
            tuple(reversed(block_shape)),
            (1,) * len(shape),
            innermost_stride=strides[-1] if strides else 1,
            swizzle=swizzle,
            oob_fill=oob_fill,
        )

    @property
    def alignment(self) -> int:
        """The required alignment of the address and of all strides, in bytes."""
        return 32 if self.interleave == 2 or self.element.is_packed_to_16_bytes else 16

    @property
    def row_bytes(self) -> int:
        """The size of the innermost dimension in bytes, rounded up."""
        return -(-self.global_dims[0] * self.element.bits // 8) if self.global_dims else 0

    def is_degenerate(self, dimension: int) -> bool:
        """True if the dimension has size 1, so its stride is never used."""
        return dimension < len(self.global_dims) and self.global_dims[dimension] == 1

    def row_major_strides(self) -> tuple[int, ...]:
        """The strides in elements, the innermost last: the inverse of `from_row_major`."""
        bits = max(self.element.bits, 1)
        outer_first = (stride * 8 // bits for stride in reversed(self.global_strides))
        return (*outer_first, self.innermost_stride)


@dataclass(frozen=True, slots=True)
class Located:
    """A descriptor in a text, with the spans of its fields."""

    descriptor: Descriptor
    consumer: Consumer
    span: Span
    fields: Mapping[str, Span] = field(default_factory=dict, hash=False)

    def place(self, name: str) -> Span:
        """The span of a field, by the name in a violation; else of the whole descriptor."""
        return self.fields.get(name, self.span)


def _bytes(bits: int) -> int:
    whole, remainder = divmod(bits, 8)
    # An odd number of bytes is not a multiple of 16, so the misalignment stays visible.
    return whole | 1 if remainder else whole
