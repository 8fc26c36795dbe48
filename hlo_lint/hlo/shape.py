"""Shapes with their layouts as frozen values, compared by content, cached by spelling.

Terms are XLA's (`xla/shape.h`, `xla/layout.h`). A layout lists dimensions from the fastest varying
to the slowest: `f32[8,3]{1,0}` is stored as a C array, `f32[8,3]{0,1}` as a Fortran array.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from math import prod
from typing import NamedTuple

from hlo_lint.hlo.dtypes import BITS
from hlo_lint.text.patterns import late
from hlo_lint.text.phrases import in_a_line

UNBOUNDED = -1
"""The size of a dimension that is printed as `?`."""
HOST_MEMORY = 5
"""The memory space of the host: `S(5)`."""

Tile = tuple[int | None, ...]
"""A tile, major to minor, in elements; None is `*`: combine with the next dimension."""

PRINT_ORDER = ("D", "T", "L", "#", "*", "E", "S", "SC", "P", "M")
"""The order in which `Layout::ToString` (`layout.cc`) prints the parts after the colon."""


class TextError(ValueError):
    """A text that is not a value of its kind; `offset` is the place, in characters."""

    def __init__(self, message: str, text: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.text = text
        self.offset = offset


class ShapeSyntaxError(TextError):
    """A text that is not a shape."""


def _shape_repr(shape: object) -> str:
    return in_a_line(f"{type(shape).__name__}({str(shape)!r})")


class Layout(NamedTuple):
    """The layout of an array: `{1,0:T(8,128)(2,1)E(4)S(5)}`.

    >>> parse_array("s4[8,6]{0,1:E(4)S(5)}").layout
    Layout('{0,1:E(4)S(5)}')
    """

    minor_to_major: tuple[int, ...]
    """Dimension numbers, fastest varying first."""
    tiles: tuple[Tile, ...] = ()
    """Tiles, outermost first, in elements."""
    element_size_in_bits: int = 0
    """Bits of an element in memory; 0 means the type's own width in whole bytes."""
    memory_space: int = 0
    """0 is the device's default memory, 5 the host's."""
    rest: tuple[str, ...] = ()
    """Any other part as spelled: `L(4)` tail padding, `#(u32)` index types, `SC(0:1)` splits …"""

    @property
    def is_descending(self) -> bool:
        """True if the last dimension varies fastest: XLA's default layout."""
        return self.minor_to_major == tuple(range(len(self.minor_to_major) - 1, -1, -1))

    def __str__(self) -> str:
        parts = list(self.rest)
        if self.tiles:
            tiles = (",".join("*" if n is None else str(n) for n in tile) for tile in self.tiles)
            parts.append("T" + "".join(f"({tile})" for tile in tiles))
        if self.element_size_in_bits:
            parts.append(f"E({self.element_size_in_bits})")
        if self.memory_space:
            parts.append(f"S({self.memory_space})")
        parts.sort(key=lambda part: PRINT_ORDER.index(part[: part.index("(")]))
        order = ",".join(map(str, self.minor_to_major))
        return "{" + order + (":" if parts else "") + "".join(parts) + "}"

    def __repr__(self) -> str:
        return _shape_repr(self)


class ArrayShape(NamedTuple):
    """An array: `bf16[<=8,3]{1,0}`.

    >>> shape = parse_array("f32[8,<=3]{0,1}")
    >>> shape.dims, shape.dynamic, shape.minor_to_major
    ((8, 3), (False, True), (0, 1))
    >>> str(shape)
    'f32[8,<=3]{0,1}'
    """

    dtype: str
    dims: tuple[int, ...]
    """Sizes in elements: the bound of a dynamic dimension, or `UNBOUNDED`."""
    layout: Layout | None = None
    """None if it is not printed; XLA then takes the descending layout."""
    dynamic: tuple[bool, ...] = ()
    """True for each dynamic dimension; empty if none is."""

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.dims)

    @property
    def minor_to_major(self) -> tuple[int, ...]:
        """The layout's order; descending if no layout is printed."""
        if self.layout is None:
            return tuple(range(len(self.dims) - 1, -1, -1))
        return self.layout.minor_to_major

    @property
    def memory_space(self) -> int:
        """The layout's memory space; 0 without a layout."""
        return 0 if self.layout is None else self.layout.memory_space

    @property
    def elements(self) -> int:
        """Number of elements, with dynamic dimensions at their bound."""
        return prod(self.dims)

    @property
    def has_valid_layout(self) -> bool:
        """True if the order is a permutation: XLA's parser also accepts other orders."""
        if self.layout is None:
            return True
        order = self.layout.minor_to_major
        return len(order) == len(self.dims) and is_permutation(order)

    @property
    def has_places(self) -> bool:
        """True if each element has a place in memory: no size is unknown, the order is valid."""
        return self.has_valid_layout and UNBOUNDED not in self.dims

    @property
    def is_tiled(self) -> bool:
        """True if the layout has tiles, or other parts that do not state order, size or memory."""
        return self.layout is not None and bool(self.layout.tiles or self.layout.rest)

    @property
    def element_bits(self) -> int | None:
        """Bits of an element in memory; None for an unknown type."""
        if self.layout is not None and self.layout.element_size_in_bits:
            return self.layout.element_size_in_bits
        bits = BITS.get(self.dtype)
        return None if bits is None else max(bits, 8)

    @property
    def byte_size(self) -> int | None:
        """Bytes of the elements, without tile padding; None for an unknown type or size, and for a
        size that does not fit XLA's 64-bit integers."""
        bits = self.element_bits
        if bits is None or UNBOUNDED in self.dims:
            return None
        size = (self.elements * bits + 7) // 8
        return size if size < 1 << 63 else None

    def is_dynamic(self, dimension: int) -> bool:
        """True if the size of a dimension is known only at run time."""
        return bool(self.dynamic) and self.dynamic[dimension]

    def with_layout(self, layout: Layout | None) -> ArrayShape:
        """The array with a different layout."""
        return self._replace(layout=layout)

    def __repr__(self) -> str:
        return _shape_repr(self)

    def __str__(self) -> str:
        sizes = [
            "?" if size == UNBOUNDED else f"<={size}" if self.is_dynamic(number) else str(size)
            for number, size in enumerate(self.dims)
        ]
        return f"{self.dtype}[{','.join(sizes)}]{'' if self.layout is None else self.layout}"


class TupleShape(NamedTuple):
    """A tuple of shapes: `(f32[8]{0}, s32[])`."""

    elements: tuple[Shape, ...]

    def __repr__(self) -> str:
        return _shape_repr(self)

    def __str__(self) -> str:
        return "(" + ", ".join(map(str, self.elements)) + ")"


class BufferShape(NamedTuple):
    """A mutable buffer that holds an array: `b(f32[2]{0})`."""

    element: ArrayShape

    def __repr__(self) -> str:
        return _shape_repr(self)

    def __str__(self) -> str:
        return f"b({self.element})"


class OpaqueShape(NamedTuple):
    """A value without elements: `token[]` or `opaque[]`."""

    kind: str

    def __repr__(self) -> str:
        return _shape_repr(self)

    def __str__(self) -> str:
        return f"{self.kind}[]"


Shape = ArrayShape | TupleShape | BufferShape | OpaqueShape

# The spelling of nearly every array. `grammars/shape.lark` specifies the whole language; a test
# compares both.
_match_plain = re.compile(r"([a-z][a-z0-9]*)\[([0-9,]*)\](?:\{([0-9,]*)\})?").fullmatch


@lru_cache(maxsize=1 << 16)
def parse_shape(text: str) -> Shape:
    """The shape that `text` spells, cached by spelling.

    >>> parse_shape("(f32[8]{0}, /*index=1*/token[])").elements
    (ArrayShape('f32[8]{0}'), OpaqueShape('token[]'))

    Raises:
        ShapeSyntaxError: if it is not a shape.
    """
    plain = _match_plain(text)
    if plain is not None and plain[1] not in ("token", "opaque") and plain[2].count(",") < 64:
        dtype, dims, order = plain.groups()
        with suppress(ValueError):  # a stray comma: the reader below finds the place
            sizes = read_index(dims)
            layout = None if order is None else Layout(read_index(order))
            ranks_agree = layout is None or len(layout.minor_to_major) == len(sizes)
            if ranks_agree and all(size < 1 << 63 for size in sizes):
                return ArrayShape(dtype, sizes, layout)
    from hlo_lint.hlo.parser.shapes import read_shape

    return read_shape(text)


@lru_cache(maxsize=1 << 12)
def is_permutation(order: tuple[int, ...]) -> bool:
    """True if an order of dimensions is a permutation."""
    return sorted(order) == list(range(len(order)))


def parse_array(text: str) -> ArrayShape:
    """The array that `text` spells.

    Raises:
        ShapeSyntaxError: if it is not a shape, or not an array.
    """
    shape = parse_shape(text)
    if not isinstance(shape, ArrayShape):
        raise ShapeSyntaxError("expected an array", text, 0)
    return shape


@lru_cache(maxsize=1 << 16)
def shape_or_none(text: str) -> Shape | None:
    """The shape that a text spells, or None."""
    try:
        return parse_shape(text)
    except ShapeSyntaxError:
        return None


def element_type(text: str, index: str) -> str:
    """The type of a tuple's element, given the tuple's type and an index like `1#0`; else ""."""
    for number in index.split("#"):
        elements = _element_types(text)
        if not number.isdecimal() or len(number) > 9 or int(number) >= len(elements):
            return ""
        text = elements[int(number)]
    return text


@lru_cache(maxsize=1 << 12)
def _element_types(text: str) -> tuple[str, ...]:
    """The types of the elements of a tuple; empty for another shape."""
    shape = shape_or_none(text)
    if not isinstance(shape, TupleShape):
        return ()
    spelled = tuple(_find_arrays(text))
    if len(spelled) == len(shape.elements) and not any(
        isinstance(element, TupleShape | BufferShape) for element in shape.elements
    ):
        return spelled
    return tuple(map(str, shape.elements))


_find_arrays = late(r"[a-z][a-z0-9]*\[[^\]/]*\](?:\{[^{}/]*\})?").findall

Index = tuple[int, ...]
"""An index in nested tuples: `(1, 0)` for `{1,0}`, empty for the whole."""


def leaves(shape: Shape, index: Index = ()) -> Iterator[tuple[Index, Shape]]:
    """The leaves of a shape, which are not tuples, with their indices.

    >>> [index for index, _ in leaves(parse_shape("(s32[], (f32[8], token[]))"))]
    [(0,), (1, 0), (1, 1)]
    """
    if not isinstance(shape, TupleShape):
        yield index, shape
        return
    for number, element in enumerate(shape.elements):
        if isinstance(element, TupleShape):
            yield from leaves(element, (*index, number))
        else:
            yield (*index, number), element


def arrays(shape: Shape | None) -> Iterator[ArrayShape]:
    """The arrays in a shape; empty for None."""
    for _, leaf in leaves(shape) if shape is not None else ():
        if isinstance(leaf, ArrayShape):
            yield leaf


def byte_sizes(shape: Shape | None) -> Iterator[int | None]:
    """The bytes of each array in a shape, also in buffers; None for an unknown size."""
    for _, leaf in leaves(shape) if shape is not None else ():
        array = leaf.element if isinstance(leaf, BufferShape) else leaf
        if isinstance(array, ArrayShape):
            yield array.byte_size


def array_indices(shape: Shape | None) -> Iterator[Index]:
    """The indices of the arrays in a shape; empty for None."""
    for index, leaf in leaves(shape) if shape is not None else ():
        if isinstance(leaf, ArrayShape):
            yield index


def part(shape: Shape | None, index: Index) -> Shape | None:
    """An element of nested tuples, or None."""
    for number in index:
        if not isinstance(shape, TupleShape) or not 0 <= number < len(shape.elements):
            return None
        shape = shape.elements[number]
    return shape


def read_index(text: str) -> Index:
    """The index spelled as numbers with commas, as inside the braces of `{1,0}`.

    >>> read_index("1,0"), read_index("")
    ((1, 0), ())
    """
    return tuple(map(int, text.split(","))) if text else ()


def spelled_index(index: Iterable[int]) -> str:
    """The index of an element as HLO spells it.

    >>> spelled_index((1, 0))
    '{1,0}'
    """
    return "{" + ",".join(map(str, index)) + "}"


def spelled_part(name: str, index: Index) -> str:
    """The name of a leaf of a tuple: the tuple's name with the leaf's index.

    >>> spelled_part("parameter 0", (1, 0)), spelled_part("parameter 0", ())
    ('parameter 0, part {1,0}', 'parameter 0')
    """
    return f"{name}, part {spelled_index(index)}" if index else name
