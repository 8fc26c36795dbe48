"""Layout algebra: tests whether a reshape or transpose is a bitcast, layouts that make it one.

Everything here mirrors XLA's predicates, including their blind spots: XLA compares dimensions and
order, but not tiles, packing or memory space; `packs_alike` compares these. Where XLA aborts the
process, these functions raise ValueError. An array without a printed layout has the descending
layout. Cited lines are from openxla/xla at 183fa00cb5d8 (August 2026).
"""

from __future__ import annotations

from itertools import pairwise
from math import inf, prod
from typing import TYPE_CHECKING, TypeVar

from hlo_lint.hlo.shape import UNBOUNDED, ArrayShape, Layout

if TYPE_CHECKING:
    from collections.abc import Sequence

_T = TypeVar("_T")


# Permutations


def permute(values: Sequence[_T], permutation: Sequence[int]) -> tuple[_T, ...]:
    """The values in the order that the permutation reads them: `result[i] = values[p[i]]`.

    This is what `transpose` does with the dimensions of its operand (`permutation_util.h:30-100`).

    >>> permute("abc", (2, 0, 1))
    ('c', 'a', 'b')
    """
    _require_permutation(permutation, len(values))
    return tuple(values[i] for i in permutation)


def compose(outer: Sequence[int], inner: Sequence[int]) -> tuple[int, ...]:
    """The permutation that permutes by `outer` first: `result[i] = outer[inner[i]]`.

    Source: `permutation_util.h:30-100`.

    >>> compose((2, 0, 1), (1, 0, 2))
    (0, 2, 1)
    >>> permute(permute("abc", (2, 0, 1)), (1, 0, 2)) == permute("abc", (0, 2, 1))
    True
    """
    _require_permutation(outer, len(outer))
    return permute(outer, inner)


def inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    """The inverse permutation: `result[p[i]] = i` (`permutation_util.h:30-100`).

    >>> inverse((2, 0, 1))
    (1, 2, 0)
    """
    _require_permutation(permutation, len(permutation))
    result = [0] * len(permutation)
    for i, number in enumerate(permutation):
        result[number] = i
    return tuple(result)


# Offsets


def strides(shape: ArrayShape) -> tuple[int, ...]:
    """The stride of each dimension in elements; tiles are ignored.

    Source: the running product of `index_util.h:62-105`.

    >>> from hlo_lint.hlo.shape import parse_array
    >>> strides(parse_array("f32[2,8,128,32]{2,3,1,0}"))
    (32768, 4096, 1, 128)
    """
    _require_sizes_and_order(shape)
    return _strides(shape.dims, shape.minor_to_major)


def reshape_is_bitcast(a: ArrayShape, b: ArrayShape, *, ignore_element_type: bool = False) -> bool:
    """True if elements, in row-major order, have the same offsets in both arrays.

    Symmetric, and exact for type, dimensions (dynamic dimensions at their bound) and order. Tiles,
    element size, memory space and dynamic flags are ignored, as in XLA's `ReshapeIsBitcast`
    (`shape_util.cc:1569-1731`); `packs_alike` compares those.

    >>> from hlo_lint.hlo.shape import parse_array
    >>> def free(a: str, b: str) -> bool:
    ...     return reshape_is_bitcast(parse_array(a), parse_array(b))
    >>> free("f32[8]{0}", "f32[4,2]{1,0}")
    True
    >>> free("f32[2,3]{0,1}", "f32[6]{0}")
    False
    >>> free("f32[2,1,3]{1,2,0}", "f32[2,3]{1,0}")  # a dimension of size 1 may be anywhere
    True
    >>> free("f32[0,4]{0,1}", "f32[4,0]{1,0}")  # no element, no move
    True
    >>> free("f32[]", "f32[1,1]{0,1}")
    True
    >>> free("f32[16,128,32]{2,1,0}", "f32[2,8,128,32]{2,3,1,0}")
    False
    >>> free("f32[16,128,32]{1,2,0}", "f32[2,8,128,32]{2,3,1,0}")
    True
    """
    _require_sizes_and_order(a)
    _require_sizes_and_order(b)
    if not ignore_element_type and a.dtype != b.dtype:
        return False
    if a.elements != b.elements:
        return False
    if a.elements == 0:
        return True
    return _unit_steps_agree(a, b) and _unit_steps_agree(b, a)


def packs_alike(a: ArrayShape, b: ArrayShape) -> bool:
    """True if equal offsets mean equal bytes: `reshape_is_bitcast` ignores this.

    Compares element width, memory space, tail padding and tiles; XLA compares byte size and host
    memory, and only for `bitcast` (`hlo_verifier.cc:1482-1537`). Tiles also have to cut the same
    sizes, because they pad: False may be wrong if two different cuts happen to agree, but True is
    always right. In a dynamic array it compares the elements, not the backend's storage of sizes.

    >>> packed = ArrayShape("s4", (8, 6), Layout((1, 0), element_size_in_bits=4))
    >>> loose = ArrayShape("s4", (48,), Layout((0,)))
    >>> reshape_is_bitcast(packed, loose), packs_alike(packed, loose)
    (True, False)

    Rows of three padded to four are not a row of six padded to eight:

    >>> rows = ArrayShape("f32", (2, 3), Layout((1, 0), tiles=((4,),)))
    >>> row = ArrayShape("f32", (6,), Layout((0,), tiles=((4,),)))
    >>> reshape_is_bitcast(rows, row), packs_alike(rows, row)
    (True, False)
    """
    _require_order(a)
    _require_order(b)
    left, right = _layout(a), _layout(b)
    if _width(a) != _width(b) or left.memory_space != right.memory_space:
        return False
    if left.tiles != right.tiles or left.rest != right.rest:
        return False
    # Tail padding depends only on the count; splits and similar parts name dimensions.
    if any(not part.startswith("L(") for part in left.rest):
        return (a.dims, left.minor_to_major) == (b.dims, right.minor_to_major)
    return _tiled_sizes(a) == _tiled_sizes(b)


# Transposes that are bitcasts


def permute_dimensions(dimensions: Sequence[int], shape: ArrayShape) -> ArrayShape:
    """The result shape that makes `transpose(shape), dimensions=dimensions` a bitcast.

    XLA infers this shape for every transpose it makes, so these rarely have the descending layout
    (`PermuteDimensions`, `shape_util.cc:1358-1404`).

    >>> from hlo_lint.hlo.shape import parse_array
    >>> str(permute_dimensions((2, 0, 1), parse_array("f32[16,128,32]{2,1,0}")))
    'f32[32,16,128]{0,2,1}'
    """
    _require_order(shape)
    order = compose(inverse(dimensions), shape.minor_to_major)
    return shape._replace(
        dims=permute(shape.dims, dimensions),
        dynamic=permute(shape.dynamic, dimensions) if shape.dynamic else (),
        layout=_layout(shape)._replace(minor_to_major=order),
    )


def normalize(shape: ArrayShape) -> ArrayShape:
    """The array of the same bytes with the default layout: dimensions in physical order.

    Tiles, element size, tail padding and memory space are kept, other parts are dropped, as in
    `MakeShapeWithDescendingLayoutAndSamePhysicalLayout` (`shape_util.cc:446-487`).

    >>> from hlo_lint.hlo.shape import parse_array
    >>> str(normalize(parse_array("f32[2,8,128,32]{2,3,1,0}")))
    'f32[2,8,32,128]{3,2,1,0}'
    >>> str(normalize(ArrayShape("f32", (4, 3), Layout((0, 1), memory_space=5), (True, False))))
    'f32[3,<=4]{1,0:S(5)}'
    """
    _require_order(shape)
    physical = permute_dimensions(shape.minor_to_major[::-1], shape)
    layout = _layout(physical)
    kept = tuple(part for part in layout.rest if part.startswith("L("))
    return physical.with_layout(layout._replace(rest=kept))


# Layouts that make a reshape free


def common_factors(a: Sequence[int], b: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """The common cuts of two lists of sizes: products between successive cuts agree.

    As many cuts as possible, each a pair of positions; sizes 1 and 0 are placed as in
    `CommonFactors` (`util.cc:318-385`).

    >>> common_factors((16, 128, 32), (2, 8, 128, 32))
    ((0, 0), (1, 2), (2, 3), (3, 4))
    >>> common_factors((4, 6), (6, 4))
    ((0, 0), (2, 2))
    >>> common_factors((2, 3), (2, 1, 3))
    ((0, 0), (1, 1), (1, 2), (2, 3))

    Raises:
        ValueError: if a size is unbounded or the products of all sizes differ.
    """
    a, b = tuple(a), tuple(b)
    if UNBOUNDED in a or UNBOUNDED in b or prod(a) != prod(b):
        raise ValueError(f"the sizes {list(a)} and {list(b)} have different products")
    if a == b:
        return tuple((i, i) for i in range(len(a) + 1))
    cuts: list[tuple[int, int]] = []
    i = j = 0
    while i < len(a) and j < len(b) and a[i] == b[j]:
        cuts.append((i, j))
        i, j = i + 1, j + 1
    if prod(a[i:]) != prod(b[j:]):  # a size 0 in the equal part hides a difference in the rest
        return ((0, 0), (len(a), len(b)))
    if prod(a[i:]) == 0:
        return (*cuts, (i, j), (len(a), len(b)))
    end_a, end_b = (*a, inf), (*b, inf)
    product_a = product_b = 1
    while True:
        level = product_a == product_b
        if level and cuts[-1:] != [(i, j)]:
            cuts.append((i, j))
        if (i, j) == (len(a), len(b)):
            return tuple(cuts)
        # The smaller product catches up; at equal products the smaller size goes first.
        step_a = product_a < product_b or (level and end_a[i] <= end_b[j])
        step_b = product_b < product_a or (level and end_b[j] <= end_a[i])
        if step_a:
            product_a, i = product_a * a[i], i + 1
        if step_b:
            product_b, j = product_b * b[j], j + 1


def align_layouts(shape: ArrayShape, dims: Sequence[int]) -> ArrayShape | None:
    """The array of sizes `dims` that is a bitcast of `shape`, or None.

    The result has only an order: as in XLA, it lacks tiles, element size, memory space and dynamic
    flags (`AlignLayouts`, `shape_util.cc:1842-1928`). `carry_layout_facts` restores them.

    >>> from hlo_lint.hlo.shape import parse_array
    >>> str(align_layouts(parse_array("f32[2,8,128,32]{2,3,1,0}"), (16, 128, 32)))
    'f32[16,128,32]{1,2,0}'

    `ReshapeDecomposer` (`reshape_decomposer.cc:32-77`) aligns the operand first, then the result. A
    reshape that is a bitcast gives its own result:

    >>> str(align_layouts(parse_array("f32[4,2]{1,0}"), (8,)))
    'f32[8]{0}'

    `f32[4,2,3]{0,1,2} -> f32[8,3]{1,0}` gets a copy of its operand:

    >>> str(align_layouts(parse_array("f32[8,3]{1,0}"), (4, 2, 3)))
    'f32[4,2,3]{2,1,0}'

    `f32[8,3]{1,0} -> f32[4,2,3]{0,1,2}` fails there and gets a copy of its result:

    >>> align_layouts(parse_array("f32[4,2,3]{0,1,2}"), (8, 3)) is None
    True

    `f32[4,2,3,8]{0,2,1,3} -> f32[8,3,2,4]{0,2,1,3}` fails on both sides, so both are copied:

    >>> align_layouts(parse_array("f32[8,3,2,4]{0,2,1,3}"), (4, 2, 3, 8)) is None
    True
    >>> align_layouts(parse_array("f32[4,2,3,8]{0,2,1,3}"), (8, 3, 2, 4)) is None
    True

    Raises:
        ValueError: for invalid layouts, and if the counts of elements differ.
    """
    dims = tuple(dims)
    _require_sizes_and_order(shape)
    old = [d for d, size in enumerate(shape.dims) if size != 1]
    new = [d for d, size in enumerate(dims) if size != 1]
    cuts = common_factors([shape.dims[d] for d in old], [dims[d] for d in new])
    groups = {
        old[i_end - 1]: (old[i:i_end][::-1], new[j:j_end][::-1])
        for (i, j), (i_end, j_end) in pairwise(cuts)
    }
    # From minor to major: each group of the old array has to be a row-major block, which the group
    # of new dimensions replaces.
    remaining = [d for d in shape.minor_to_major if shape.dims[d] != 1]
    order: list[int] = []
    while remaining:
        block, instead = groups.get(remaining[0], ([], []))
        if not block or remaining[: len(block)] != block:
            return None
        del remaining[: len(block)]
        order += instead
    order += [d for d in reversed(range(len(dims))) if dims[d] == 1]
    return ArrayShape(shape.dtype, dims, Layout(tuple(order)))


def carry_layout_facts(source: ArrayShape, target: ArrayShape) -> ArrayShape:
    """The target in its own order, with the facts from `source` that `align_layouts` drops.

    Copies the memory space; the element size if the types are equal; dynamic flags of the
    dimensions that the reshape keeps, added to the target's; tiles and tail padding only if the
    dimensions are equal, because a tile pads sizes. (XLA's `ReshapeDecomposer`,
    `reshape_decomposer.cc:32-77`, loses all of this on the intermediate shapes.)

    >>> result = ArrayShape("s4", (4, 2, 3), Layout((2, 1, 0), element_size_in_bits=4))
    >>> aligned = align_layouts(result, (8, 3))
    >>> str(aligned), str(carry_layout_facts(result, aligned))
    ('s4[8,3]{1,0}', 's4[8,3]{1,0:E(4)}')
    >>> source = ArrayShape("f32", (4, 6), Layout((1, 0), memory_space=5), (True, False))
    >>> str(carry_layout_facts(source, ArrayShape("f32", (4, 2, 3), Layout((2, 1, 0)))))
    'f32[<=4,2,3]{2,1,0:S(5)}'

    Raises:
        ValueError: for invalid layouts, and if the counts of elements differ.
    """
    for shape in (source, target):
        _require_sizes_and_order(shape)
    if source.elements != target.elements:
        counts = f"{source} has {source.elements} elements, {target} has {target.elements}"
        raise ValueError(counts)
    facts, layout = _layout(source), _layout(target)
    layout = layout._replace(memory_space=facts.memory_space)
    if source.dtype == target.dtype:
        layout = layout._replace(element_size_in_bits=facts.element_size_in_bits)
    if source.dims == target.dims:
        padding = tuple(part for part in facts.rest if part.startswith("L("))
        layout = layout._replace(tiles=facts.tiles, rest=padding)
    flags = [target.is_dynamic(d) for d in range(target.rank)]
    for (i, j), ends in pairwise(common_factors(source.dims, target.dims)):
        if ends == (i + 1, j + 1):
            flags[j] |= source.is_dynamic(i)
    return target._replace(layout=layout, dynamic=tuple(flags) if any(flags) else ())


def _strides(dims: Sequence[int], minor_to_major: Sequence[int]) -> tuple[int, ...]:
    result = [0] * len(dims)
    step = 1
    for d in minor_to_major:
        result[d] = step
        step *= dims[d]
    return tuple(result)


def _unit_steps_agree(a: ArrayShape, b: ArrayShape) -> bool:
    """True if the first step along each dimension of `a` leads to the same offset in `b`.

    In both directions this decides for all elements, without a walk over them (proof in the comment
    in `shape_util.cc:1569-1731`).
    """
    numbers = _strides(a.dims, range(a.rank - 1, -1, -1))
    offsets = _strides(a.dims, a.minor_to_major)
    steps = _strides(b.dims, b.minor_to_major)
    for size, number, offset in zip(a.dims, numbers, offsets, strict=True):
        if size == 1:
            continue
        there = 0
        for d in range(b.rank - 1, -1, -1):
            number, coordinate = divmod(number, b.dims[d])
            there += coordinate * steps[d]
        if there != offset:
            return False
    return True


def _layout(shape: ArrayShape) -> Layout:
    return Layout(shape.minor_to_major) if shape.layout is None else shape.layout


def _width(shape: ArrayShape) -> int | str:
    bits = shape.element_bits
    return shape.dtype if bits is None else bits  # an unknown type is as wide as itself


def _tiled_sizes(shape: ArrayShape) -> tuple[int, ...]:
    """The physical sizes, major to minor, that a tile can reach, above them only the product."""
    reach = max((len(tile) for tile in _layout(shape).tiles), default=0)
    physical = permute(shape.dims, shape.minor_to_major[::-1])
    return ((1,) * reach + physical)[len(physical) :]


def _require_permutation(permutation: Sequence[int], size: int) -> None:
    if sorted(permutation) != list(range(size)):
        raise ValueError(f"{list(permutation)} does not name each of {size} dimensions once")


def _require_order(shape: ArrayShape) -> None:
    if not shape.has_valid_layout:
        raise ValueError(f"the layout of {shape} does not name each dimension once")


def _require_sizes_and_order(shape: ArrayShape) -> None:
    _require_order(shape)
    if UNBOUNDED in shape.dims:
        raise ValueError(f"a dimension of {shape} has no bound")
