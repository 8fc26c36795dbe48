"""The layout algebra against memory itself: every element's address, found with plain loops."""

from __future__ import annotations

from itertools import pairwise, permutations, product
from math import prod
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_lint.hlo import layouts
from hlo_lint.hlo.layouts import align_layouts, carry_layout_facts, packs_alike, reshape_is_bitcast
from hlo_lint.hlo.shape import UNBOUNDED, ArrayShape, Layout, Tile, parse_array
from tests.conftest import present

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Index = tuple[int, ...]
Address = tuple[int, int, int]
"""Memory space, first bit, width in bits."""
Pair = tuple[ArrayShape, ArrayShape]
Facts = tuple[str, Layout]
"""An element type, and layout fields that XLA's predicates do not look at."""

every_case = settings(max_examples=250)


# Memory, with plain loops


def indices(dims: Sequence[int]) -> list[Index]:
    """Every logical index, in row-major sequence."""
    return list(product(*(range(size) for size in dims)))


def offset(shape: ArrayShape, index: Index) -> int:
    """The place of an element among the elements, tiles not considered."""
    place, step = 0, 1
    for d in shape.minor_to_major:
        place += index[d] * step
        step *= shape.dims[d]
    return place


def offsets(shape: ArrayShape) -> list[int]:
    return [offset(shape, index) for index in indices(shape.dims)]


def tiled(sizes: list[int], at: list[int], tile: Tile) -> tuple[list[int], list[int]]:
    """Physical sizes and coordinates, major to minor, once the minor ones are cut into tiles."""
    lacking = len(tile) - len(sizes)
    sizes, at = [1] * lacking + sizes, [0] * lacking + at
    untouched = len(sizes) - len(tile)
    merged_sizes, merged_at, cuts = [], [], []
    size, coordinate = 1, 0
    for n, c, cut in zip(sizes[untouched:], at[untouched:], tile, strict=True):
        size, coordinate = size * n, coordinate * n + c
        if cut is not None:
            merged_sizes.append(size)
            merged_at.append(coordinate)
            cuts.append(cut)
            size, coordinate = 1, 0
    counts = [-(-n // cut) for n, cut in zip(merged_sizes, cuts, strict=True)]
    which = [c // cut for c, cut in zip(merged_at, cuts, strict=True)]
    within = [c % cut for c, cut in zip(merged_at, cuts, strict=True)]
    return sizes[:untouched] + counts + cuts, at[:untouched] + which + within


def address(shape: ArrayShape, index: Index) -> Address:
    """The offset of an element, tiles and their padding, packing and memory space included."""
    layout = present(shape.layout)
    bits = present(shape.element_bits)
    order = layout.minor_to_major[::-1]
    sizes, at = [shape.dims[d] for d in order], [index[d] for d in order]
    for tile in layout.tiles:
        sizes, at = tiled(sizes, at, tile)
    place = 0
    for size, coordinate in zip(sizes, at, strict=True):
        place = place * size + coordinate
    return layout.memory_space, place * bits, bits


def addresses(shape: ArrayShape) -> list[Address]:
    return [address(shape, index) for index in indices(shape.dims)]


def transposed_addresses(result: ArrayShape, dimensions: Sequence[int]) -> list[Address]:
    """The places to which a transpose moves its operand's elements, in row-major order."""
    places = {}
    for index in indices(result.dims):
        source = [0] * result.rank
        for i, d in enumerate(dimensions):
            source[d] = index[i]
        places[tuple(source)] = address(result, index)
    return [places[source] for source in sorted(places)]


# Arrays to try


@st.composite
def sizes_of(draw: st.DrawFn, elements: Sequence[int], max_rank: int = 5) -> tuple[int, ...]:
    """Sizes with one of these products."""
    rest = draw(st.sampled_from(elements))
    if rest == 0:
        dims = draw(st.lists(st.sampled_from([0, 1, 2, 3]), min_size=1, max_size=max_rank))
        dims[draw(st.integers(0, len(dims) - 1))] = 0
        return tuple(dims)
    dims = [1] * draw(st.integers(0 if rest == 1 else 1, max_rank))
    for prime in (2, 3, 5):
        while rest % prime == 0:
            dims[draw(st.integers(0, len(dims) - 1))] *= prime
            rest //= prime
    return tuple(dims)


@st.composite
def arrays(
    draw: st.DrawFn, elements: Sequence[int] = (0, 1, 2, 6, 8, 12, 24, 36), max_rank: int = 5
) -> ArrayShape:
    dims = draw(sizes_of(elements, max_rank))
    order = draw(st.permutations(range(len(dims))))
    return ArrayShape("f32", dims, Layout(tuple(order)))


@st.composite
def regrouped(draw: st.DrawFn, fine: ArrayShape) -> ArrayShape:
    """The same memory with neighbours merged and ones put in, wherever that moves nothing."""
    groups: list[list[int]] = []
    order = fine.minor_to_major
    for d in range(fine.rank):
        adjacent = d > 0 and order.index(d) + 1 == order.index(d - 1)
        if adjacent and draw(st.booleans()):
            groups[-1].append(d)
        else:
            groups.append([d])
    for _ in range(draw(st.integers(0, 2))):
        groups.insert(draw(st.integers(0, len(groups))), [])
    dims = tuple(prod(fine.dims[d] for d in group) for group in groups)
    new_order = [groups.index(group) for d in order for group in groups if group and group[0] == d]
    for g, group in enumerate(groups):
        if not group:
            new_order.insert(draw(st.integers(0, len(new_order))), g)
    return ArrayShape(fine.dtype, dims, Layout(tuple(new_order)))


@st.composite
def pairs(draw: st.DrawFn, elements: Sequence[int] = (0, 1, 2, 6, 8, 12, 24, 36)) -> Pair:
    """Two arrays of equal counts: regrouped without a move, renamed without a move, or neither."""
    fine = draw(arrays(elements))
    kind = draw(st.sampled_from(["regrouped", "renamed", "unrelated"]))
    if kind == "regrouped" and fine.elements:
        return draw(regrouped(fine)), draw(regrouped(fine))
    if kind == "renamed":
        names = draw(st.permutations(range(fine.rank)))
        order = tuple(names.index(d) for d in fine.minor_to_major)
        return fine, ArrayShape(fine.dtype, tuple(fine.dims[d] for d in names), Layout(order))
    return fine, draw(arrays([fine.elements]))


FACTS = [
    ("f32", Layout(())), ("f32", Layout((), memory_space=5)), ("s4", Layout(())),
    ("s4", Layout((), element_size_in_bits=4)), ("u2", Layout((), element_size_in_bits=2)),
    ("bf16", Layout((), tiles=((2,),))), ("bf16", Layout((), tiles=((4,),), memory_space=1)),
    ("bf16", Layout((), tiles=((2, 3),))), ("bf16", Layout((), tiles=((4, 4), (2, 1)))),
    ("s8", Layout((), tiles=((None, 4),))),
    ("s4", Layout((), tiles=((2, 2),), element_size_in_bits=4)),
]  # fmt: skip
"""Layout fields that XLA's predicates do not look at, to be put on an array by `dressed`."""


def dressed(shape: ArrayShape, fact: Facts, dynamic: int = 0) -> ArrayShape:
    """The array with such facts; the bits of `dynamic` say which dimensions are dynamic."""
    dtype, facts = fact
    flags = tuple(bool(dynamic >> d & 1) for d in range(shape.rank))
    layout = facts._replace(minor_to_major=shape.minor_to_major)
    return ArrayShape(dtype, shape.dims, layout, flags if any(flags) else ())


facts = st.sampled_from(FACTS)
flags = st.integers(0, 31)


# Permutations


@every_case
@given(st.permutations(range(5)), st.permutations(range(5)))
def test_permuting_twice_is_permuting_by_the_composition(p: list[int], q: list[int]) -> None:
    assert layouts.permute(layouts.permute("abcde", p), q) == layouts.permute(
        "abcde", layouts.compose(p, q)
    )
    assert layouts.permute(layouts.permute("abcde", p), layouts.inverse(p)) == tuple("abcde")


# Reshapes


@every_case
@given(arrays())
def test_strides_give_the_offset_of_each_element(shape: ArrayShape) -> None:
    steps = layouts.strides(shape)
    at = [sum(map(int.__mul__, index, steps)) for index in indices(shape.dims)]
    assert at == offsets(shape)


@pytest.mark.slow
@settings(every_case, max_examples=800)
@given(pairs())
def test_a_reshape_is_a_bitcast_if_no_element_moves(pair: Pair) -> None:
    a, b = pair
    assert reshape_is_bitcast(a, b) == (offsets(a) == offsets(b))


@every_case
@given(arrays(), arrays())
def test_a_reshape_and_the_way_back_are_free_together(a: ArrayShape, b: ArrayShape) -> None:
    assert reshape_is_bitcast(a, b) == reshape_is_bitcast(b, a)
    assert a.elements == b.elements or not reshape_is_bitcast(a, b)


@pytest.mark.slow
@every_case
@given(pairs(), facts, facts, flags)
def test_only_dimensions_order_and_type_decide_as_in_xla(
    pair: Pair, fact: Facts, other: Facts, dynamic: int
) -> None:
    a, b = pair
    free = reshape_is_bitcast(a, b)
    c, d = dressed(a, fact, dynamic), dressed(b, other)
    assert reshape_is_bitcast(c, d, ignore_element_type=True) == free
    assert reshape_is_bitcast(c, d) == (free and c.dtype == d.dtype)


@pytest.mark.slow
@settings(every_case, max_examples=800)
@given(pairs(), facts, st.none() | facts, flags)
def test_no_bit_moves_in_a_bitcast_that_packs_alike(
    pair: Pair, fact: Facts, other: Facts | None, dynamic: int
) -> None:
    a, b = dressed(pair[0], fact, dynamic), dressed(pair[1], other or fact)
    if packs_alike(a, b) and reshape_is_bitcast(a, b, ignore_element_type=True):
        assert addresses(a) == addresses(b)


TILED = Layout((2, 1, 0), tiles=((4, 4), (2, 1)))
ROWS = ArrayShape("bf16", (2, 4, 6), TILED)


@pytest.mark.parametrize(
    ("a", "b", "alike"),
    [
        (ROWS, ROWS._replace(dtype="s16"), True),
        (ROWS, ROWS._replace(dtype="s8"), False),
        (ROWS, ROWS.with_layout(Layout((2, 1, 0))), False),
        (ROWS, ROWS.with_layout(TILED._replace(tiles=((4, 2), (2, 1)))), False),
        (ROWS, ROWS.with_layout(TILED._replace(memory_space=5)), False),
        (ROWS, ROWS.with_layout(TILED._replace(rest=("L(4)",))), False),
        (ROWS, ArrayShape("bf16", (1, 2, 4, 6), TILED._replace(minor_to_major=(3, 2, 1, 0))), True),
        (ROWS, ArrayShape("bf16", (2, 24), TILED._replace(minor_to_major=(1, 0))), False),
    ],
)
def test_what_packs_alike_is_told_from_the_rest(a: ArrayShape, b: ArrayShape, alike: bool) -> None:
    assert reshape_is_bitcast(a, b, ignore_element_type=True)
    assert packs_alike(a, b) is packs_alike(b, a) is alike


def test_a_split_packs_alike_only_where_it_names_the_same_dimension() -> None:
    split, padded = Layout((1, 0), rest=("SC(0:1)",)), Layout((1, 0), rest=("L(4)",))
    assert packs_alike(ArrayShape("f32", (2, 6), split), ArrayShape("f32", (2, 6), split))
    assert not packs_alike(ArrayShape("f32", (2, 6), split), ArrayShape("f32", (6, 2), split))
    assert packs_alike(ArrayShape("f32", (2, 6), padded), ArrayShape("f32", (6, 2), padded))


def test_an_unknown_type_is_as_wide_as_itself_only() -> None:
    new = parse_array("f6e1m4[8]{0}")
    assert packs_alike(new, new)
    assert not packs_alike(new, parse_array("f32[8]{0}"))


# Transposes


@pytest.mark.slow
@every_case
@given(arrays(), facts, flags, st.data())
def test_a_permuted_shape_holds_each_bit_where_it_was(
    shape: ArrayShape, fact: Facts, dynamic: int, data: st.DataObject
) -> None:
    operand = dressed(shape, fact, dynamic)
    p = data.draw(st.permutations(range(operand.rank)))
    result = layouts.permute_dimensions(p, operand)
    assert packs_alike(operand, result)
    assert transposed_addresses(result, p) == addresses(operand)
    assert all(result.is_dynamic(i) == operand.is_dynamic(d) for i, d in enumerate(p))


@pytest.mark.slow
@every_case
@given(arrays(), facts, flags)
def test_a_normalized_array_spells_the_same_bits_in_reading_order(
    shape: ArrayShape, fact: Facts, dynamic: int
) -> None:
    a = dressed(shape, fact, dynamic)
    n = layouts.normalize(a)
    assert present(n.layout).is_descending
    major_to_minor = a.minor_to_major[::-1]
    assert transposed_addresses(n, major_to_minor) == addresses(a)
    assert [n.is_dynamic(i) for i in range(n.rank)] == [a.is_dynamic(d) for d in major_to_minor]
    assert layouts.normalize(n) == n


def test_normalizing_keeps_the_tail_padding_and_drops_what_names_dimensions() -> None:
    shape = ArrayShape("f32", (8, 3), Layout((0, 1), rest=("L(4)", "SC(0:4)")))
    assert str(layouts.normalize(shape)) == "f32[3,8]{1,0:L(4)}"


# Alignment


@pytest.mark.slow
@every_case
@given(pairs())
def test_common_factors_cut_shapes_into_equal_products(pair: Pair) -> None:
    a, b = pair[0].dims, pair[1].dims
    cuts = layouts.common_factors(a, b)
    assert cuts[0] == (0, 0)
    assert cuts[-1] == (len(a), len(b))
    for (i, j), (i_end, j_end) in pairwise(cuts):
        assert (i, j) <= (i_end, j_end) != (i, j)
        assert prod(a[i:i_end]) == prod(b[j:j_end])


@pytest.mark.slow
@every_case
@given(pairs([2, 6, 8, 12, 24, 36]))
def test_common_factors_cut_wherever_that_is_possible(pair: Pair) -> None:
    a, b = ([size for size in shape.dims if size != 1] for shape in pair)
    possible = [
        (i, j)
        for i, j in product(range(len(a) + 1), range(len(b) + 1))
        if prod(a[:i]) == prod(b[:j])
    ]
    assert list(layouts.common_factors(a, b)) == possible


def test_sizes_one_are_cut_off_from_the_left_until_both_sides_have_one() -> None:
    assert layouts.common_factors((2, 1), (1, 2, 1)) == ((0, 0), (0, 1), (1, 2), (2, 3))


def test_aligned_sizes_one_are_the_most_major_the_first_dimension_above_all() -> None:
    assert str(align_layouts(parse_array("f32[2,3]{0,1}"), (1, 2, 3, 1))) == "f32[1,2,3,1]{1,2,3,0}"


@pytest.mark.slow
@settings(every_case, max_examples=600)
@given(arrays([1, 2, 6, 8, 12, 24]), st.data())
def test_a_layout_is_found_if_and_only_if_there_is_one(a: ArrayShape, data: st.DataObject) -> None:
    dims = data.draw(sizes_of([a.elements], max_rank=4))
    here = offsets(a)
    exists = any(
        offsets(ArrayShape("f32", dims, Layout(order))) == here
        for order in permutations(range(len(dims)))
    )
    found = align_layouts(a, dims)
    assert (found is not None) == exists
    if found is not None:
        assert found.dims == dims
        assert offsets(found) == here


@pytest.mark.slow
@every_case
@given(pairs(), facts, flags)
def test_an_aligned_array_forgets_all_but_its_order(pair: Pair, fact: Facts, dynamic: int) -> None:
    found = align_layouts(dressed(pair[0], fact, dynamic), pair[1].dims)
    if found is not None:
        assert found.layout == Layout(found.minor_to_major)
        assert found.dynamic == ()


@pytest.mark.slow
@every_case
@given(pairs(), facts, flags)
def test_carried_facts_keep_the_bits_of_aligned_arrays(
    pair: Pair, fact: Facts, dynamic: int
) -> None:
    a = dressed(pair[0], fact, dynamic)
    found = align_layouts(a, pair[1].dims)
    if found is None:
        return
    carried = carry_layout_facts(a, found)
    assert carried.minor_to_major == found.minor_to_major
    if not fact[1].tiles:
        assert packs_alike(a, carried)
    if packs_alike(a, carried):
        assert addresses(carried) == addresses(a)


@every_case
@given(arrays(), facts, flags)
def test_equal_dimensions_take_over_all_facts(shape: ArrayShape, fact: Facts, dynamic: int) -> None:
    source = dressed(shape, fact, dynamic)
    bare = ArrayShape(source.dtype, source.dims, Layout(source.minor_to_major))
    assert carry_layout_facts(source, bare) == source


def test_an_element_size_is_not_carried_to_another_type() -> None:
    packed = ArrayShape("s4", (8,), Layout((0,), element_size_in_bits=4, memory_space=5))
    assert str(carry_layout_facts(packed, parse_array("f32[8]{0}"))) == "f32[8]{0:S(5)}"


def test_tiles_and_tail_padding_are_carried_to_equal_dimensions_only() -> None:
    source = ArrayShape("f32", (8, 6), Layout((1, 0), tiles=((2, 4),), rest=("L(4)", "SC(0:4)")))
    assert str(carry_layout_facts(source, parse_array("f32[8,6]"))) == "f32[8,6]{1,0:T(2,4)L(4)}"
    assert str(carry_layout_facts(source, parse_array("f32[48]{0}"))) == "f32[48]{0}"


def test_a_dynamic_flag_is_carried_along_dimensions_that_stay() -> None:
    source = ArrayShape("f32", (5, 4, 6), Layout((2, 1, 0)), (True, True, False))
    target = ArrayShape("f32", (5, 24), Layout((1, 0)))
    assert str(carry_layout_facts(source, target)) == "f32[<=5,24]{1,0}"


# What XLA would abort on

TWICE = ArrayShape("f32", (8, 3), Layout((1, 1)))
FINE = parse_array("f32[8,3]{1,0}")
ENDLESS = ArrayShape("f32", (UNBOUNDED, 3), Layout((1, 0)), (True, False))


@pytest.mark.parametrize(
    "ask",
    [
        layouts.strides,
        lambda bad: reshape_is_bitcast(FINE, bad),
        lambda bad: reshape_is_bitcast(bad, FINE),
        lambda bad: align_layouts(bad, (24,)),
        lambda bad: carry_layout_facts(bad, FINE),
    ],
)
@pytest.mark.parametrize(
    ("bad", "says"),
    [(TWICE, r"f32\[8,3\]\{1,1\} does not name each dimension once"), (ENDLESS, "has no bound")],
)
def test_a_question_about_an_impossible_array_is_an_error(
    ask: Callable[[ArrayShape], object], bad: ArrayShape, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        ask(bad)


@pytest.mark.parametrize(
    "ask",
    [
        layouts.normalize,
        lambda bad: layouts.permute_dimensions((0, 1), bad),
        lambda bad: packs_alike(FINE, bad),
        lambda bad: carry_layout_facts(FINE, bad),
    ],
)
def test_an_order_with_a_dimension_twice_is_an_error(ask: Callable[[ArrayShape], object]) -> None:
    with pytest.raises(ValueError, match="does not name each dimension once"):
        ask(TWICE)


def test_numbers_that_are_no_permutation_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"\[0, 0\] does not name each of 2 dimensions once"):
        layouts.inverse((0, 0))
    with pytest.raises(ValueError, match=r"\[0\] does not name each of 2 dimensions once"):
        layouts.permute((8, 3), (0,))


def test_sizes_without_a_common_product_are_an_error() -> None:
    with pytest.raises(ValueError, match="have different products"):
        align_layouts(FINE, (23,))
    with pytest.raises(ValueError, match=r"24 elements, .* has 23"):
        carry_layout_facts(FINE, parse_array("f32[23]{0}"))


def test_a_size_that_64_bits_do_not_hold_is_not_known() -> None:
    """Python prints no number of more than 4,300 digits."""
    for text, size in ((f"s8[{1 << 62}]", 1 << 62), (f"f32[{1 << 62},2]", None)):
        assert parse_array(text).byte_size == size
