"""A fix moves the same elements to the same bytes, and breaking it in any one step shows."""

from __future__ import annotations

import ast
import itertools
import math
import random
import subprocess
import sys
from dataclasses import FrozenInstanceError
from typing import TYPE_CHECKING

import numpy as np
import pytest

import hlo_lint
from hlo_lint.engine.proof import physical_memory
from hlo_lint.engine.proof.physical_memory import (
    InstructionComparison,
    Memory,
    NotCovered,
    ValueChanged,
    addresses,
    compare,
    execute,
    slots,
)
from hlo_lint.hlo.shape import ArrayShape, Layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlo_lint.hlo.ir import Module


def module(body: str) -> Module:
    lines = "\n".join("  " + line.strip() for line in body.strip().splitlines())
    return hlo_lint.parse(f"HloModule m\n\nENTRY e {{\n{lines}\n}}\n")


def compared(before: str, after: str, seed: int = 0) -> tuple[InstructionComparison, ...]:
    return compare(module(before), module(after), seed=seed)


def equal(before: str, after: str) -> bool:
    """True if something was compared and all of it is equal."""
    comparisons = compared(before, after)
    assert comparisons
    return all(comparison.equal for comparison in comparisons)


# Fixes, right and broken -------------------------------------------------------------------------

COPY_BITCAST = (
    """
    p = f32[4,6,3]{2,1,0} parameter(0)
    q = f32[4,6,3]{2,1,0} parameter(1)
    ROOT r = f32[2,2,6,3]{2,3,1,0} reshape(p)
    """,
    """
    p = f32[4,6,3]{2,1,0} parameter(0)
    q = f32[4,6,3]{2,1,0} parameter(1)
    r.copy = f32[4,6,3]{1,2,0} copy(p)
    ROOT r = f32[2,2,6,3]{2,3,1,0} bitcast(r.copy)
    """,
    {
        "the copy's layout": ("[4,6,3]{1,2,0} copy", "[4,6,3]{2,1,0} copy"),
        "the copy's layout, major dimension": ("[4,6,3]{1,2,0} copy", "[4,6,3]{1,0,2} copy"),
        "the copy's operand": ("copy(p)", "copy(q)"),
        "the bitcast's layout": ("{2,3,1,0} bitcast", "{3,2,1,0} bitcast"),
        "the bitcast's operand": ("bitcast(r.copy)", "bitcast(p)"),
        "the bitcast's dimensions": ("[2,2,6,3]{2,3,1,0} bitcast", "[2,2,3,6]{2,3,1,0} bitcast"),
        "the bitcast's type": ("f32[2,2,6,3]{2,3,1,0} b", "s32[2,2,6,3]{2,3,1,0} b"),
        "the bitcast's size": ("f32[2,2,6,3]{2,3,1,0} b", "f16[2,2,6,3]{2,3,1,0} b"),
    },
)
BITCAST_COPY = (
    """
    p = bf16[8,3]{1,0} parameter(0)
    q = bf16[8,3]{1,0} parameter(1)
    ROOT r = bf16[4,2,3]{0,1,2} reshape(p)
    """,
    """
    p = bf16[8,3]{1,0} parameter(0)
    q = bf16[8,3]{1,0} parameter(1)
    r.bitcast = bf16[4,2,3]{2,1,0} bitcast(p)
    ROOT r = bf16[4,2,3]{0,1,2} copy(r.bitcast)
    """,
    {
        "the bitcast's layout": ("{2,1,0} bitcast", "{1,2,0} bitcast"),
        "the bitcast's operand": ("bitcast(p)", "bitcast(q)"),
        "the bitcast's size": ("[4,2,3]{2,1,0} bitcast", "[4,2,4]{2,1,0} bitcast"),
        "the copy's layout": ("{0,1,2} copy", "{0,2,1} copy"),
        "the copy's dimensions": ("[4,2,3]{0,1,2} copy", "[4,3,2]{0,1,2} copy"),
        "the copy's operand": ("copy(r.bitcast)", "copy(q)"),
    },
)
COPY_BITCAST_COPY = (
    """
    p = f32[4,2,3,8]{0,2,1,3} parameter(0)
    ROOT r = f32[8,3,2,4]{0,2,1,3} reshape(p)
    """,
    """
    p = f32[4,2,3,8]{0,2,1,3} parameter(0)
    r.copy = f32[4,2,3,8]{3,2,1,0} copy(p)
    r.bitcast = f32[8,3,2,4]{3,2,1,0} bitcast(r.copy)
    ROOT r = f32[8,3,2,4]{0,2,1,3} copy(r.bitcast)
    """,
    {
        "the first copy's layout": ("[4,2,3,8]{3,2,1,0} copy", "[4,2,3,8]{3,1,2,0} copy"),
        "the bitcast's layout": ("{3,2,1,0} bitcast", "{2,3,1,0} bitcast"),
        "the bitcast's operand": ("bitcast(r.copy)", "bitcast(p)"),
        "the last copy's layout": ("{0,2,1,3} copy", "{3,2,1,0} copy"),
    },
)
BITCAST_TRANSPOSE_BITCAST = (
    """
    p = f32[8,3]{1,0} parameter(0)
    ROOT r = f32[4,2,3]{0,1,2} reshape(p)
    """,
    """
    p = f32[8,3]{1,0} parameter(0)
    r.bitcast = f32[4,2,3]{2,1,0} bitcast(p)
    r.transpose = f32[3,2,4]{2,1,0} transpose(r.bitcast), dimensions={2,1,0}
    ROOT r = f32[4,2,3]{0,1,2} bitcast(r.transpose)
    """,
    {
        "the first bitcast's layout": ("[4,2,3]{2,1,0} bitcast", "[4,2,3]{0,1,2} bitcast"),
        "the transpose's dimensions": ("dimensions={2,1,0}", "dimensions={2,0,1}"),
        "the transpose's layout": ("[3,2,4]{2,1,0} transpose", "[3,2,4]{0,1,2} transpose"),
        "the last bitcast's layout": ("[4,2,3]{0,1,2} bitcast", "[4,2,3]{2,1,0} bitcast"),
        "the last bitcast's operand": ("bitcast(r.transpose)", "bitcast(r.bitcast)"),
    },
)
SQUARE_TRANSPOSE = (  # every permutation of the dimensions has the same shape
    """
    p = f32[3,3,3]{2,1,0} parameter(0)
    ROOT r = f32[27]{0} reshape(p)
    """,
    """
    p = f32[3,3,3]{2,1,0} parameter(0)
    r.copy = f32[3,3,3]{0,2,1} copy(p)
    r.transpose = f32[3,3,3]{2,0,1} transpose(r.copy), dimensions={1,2,0}
    r.transpose1 = f32[3,3,3]{2,1,0} transpose(r.transpose), dimensions={2,0,1}
    ROOT r = f32[27]{0} bitcast(r.transpose1)
    """,
    {
        "the first transpose's dimensions": ("dimensions={1,2,0}", "dimensions={2,0,1}"),
        "the first transpose, identity": ("dimensions={1,2,0}", "dimensions={0,1,2}"),
        "the last transpose's dimensions": ("dimensions={2,0,1}", "dimensions={2,1,0}"),
        "the last transpose's layout": ("{2,1,0} transpose", "{1,2,0} transpose"),
    },
)
TUPLE_ELEMENT = (
    """
    p = f32[8,3]{1,0} parameter(0)
    cc = (f32[8,3]{1,0}, f32[8,3]{1,0}) custom-call(p), custom_call_target="f"
    r = f32[3,8]{0,1} reshape(cc#0)
    ROOT n = f32[3,8]{0,1} negate(r)
    """,
    """
    p = f32[8,3]{1,0} parameter(0)
    cc = (f32[8,3]{1,0}, f32[8,3]{1,0}) custom-call(p), custom_call_target="f"
    r.bitcast = f32[3,8]{1,0} bitcast(cc#0)
    r = f32[3,8]{0,1} copy(r.bitcast)
    ROOT n = f32[3,8]{0,1} negate(r)
    """,
    {
        "which element": ("cc#0", "cc#1"),
        "an element for what made it": ("cc#0", "p"),
        "the bitcast's layout": ("{1,0} bitcast", "{0,1} bitcast"),
    },
)
PACKED = (
    """
    p = s4[6,3]{1,0:E(4)} parameter(0)
    ROOT r = s4[3,6]{0,1:E(4)} reshape(p)
    """,
    """
    p = s4[6,3]{1,0:E(4)} parameter(0)
    r.bitcast = s4[3,6]{1,0:E(4)} bitcast(p)
    ROOT r = s4[3,6]{0,1:E(4)} copy(r.bitcast)
    """,
    {
        "packing lost on the way": ("{1,0:E(4)} bitcast", "{1,0} bitcast"),
        "packing lost at the end": ("{0,1:E(4)} copy", "{0,1} copy"),
        "the bitcast's layout": ("{1,0:E(4)} bitcast", "{0,1:E(4)} bitcast"),
    },
)
UNPACKED_THEN_PACKED = (  # the bits beside an s4 in its byte are not part of its value
    """
    p = s4[6,3]{1,0} parameter(0)
    ROOT r = s4[3,6]{0,1} reshape(p)
    """,
    """
    p = s4[6,3]{1,0} parameter(0)
    r.copy = s4[6,3]{1,0:E(4)} copy(p)
    r.bitcast = s4[3,6]{1,0:E(4)} bitcast(r.copy)
    ROOT r = s4[3,6]{0,1} copy(r.bitcast)
    """,
    {
        "the copy's layout": ("{1,0:E(4)} copy", "{0,1:E(4)} copy"),
        "the bitcast's layout": ("{1,0:E(4)} bitcast", "{0,1:E(4)} bitcast"),
    },
)
PRED_THEN_PACKED = (
    """
    p = pred[6,3]{1,0} parameter(0)
    ROOT r = pred[3,6]{0,1} reshape(p)
    """,
    """
    p = pred[6,3]{1,0} parameter(0)
    r.copy = pred[6,3]{1,0:E(1)} copy(p)
    r.bitcast = pred[3,6]{1,0:E(1)} bitcast(r.copy)
    ROOT r = pred[3,6]{0,1} copy(r.bitcast)
    """,
    {"the bitcast's layout": ("{1,0:E(1)} bitcast", "{0,1:E(1)} bitcast")},
)
HALF_OF_EACH_BYTE = (
    """
    p = u8[6]{0} parameter(0)
    ROOT r = s4[2,3]{1,0} bitcast(p)
    """,
    """
    p = u8[6]{0} parameter(0)
    r.bitcast = s4[6]{0} bitcast(p)
    r.copy = s4[6]{0:E(4)} copy(r.bitcast)
    r.bitcast1 = s4[2,3]{1,0:E(4)} bitcast(r.copy)
    ROOT r = s4[2,3]{1,0} copy(r.bitcast1)
    """,
    {
        "the whole byte": ("s4[6]{0} bitcast(p)", "s4[12]{0:E(4)} bitcast(p)"),
        "the last bitcast's layout": ("{1,0:E(4)} bitcast", "{0,1:E(4)} bitcast"),
    },
)
ONE_BIT = (  # one fill cannot tell 24 elements apart
    """
    p = pred[2,12]{1,0} parameter(0)
    ROOT r = pred[12,2]{0,1} reshape(p)
    """,
    """
    p = pred[2,12]{1,0} parameter(0)
    r.bitcast = pred[12,2]{1,0} bitcast(p)
    ROOT r = pred[12,2]{0,1} copy(r.bitcast)
    """,
    {"the bitcast's layout": ("{1,0} bitcast", "{0,1} bitcast")},
)
WIDE = (
    """
    p = c128[2,3]{1,0} parameter(0)
    ROOT r = c128[3,2]{0,1} reshape(p)
    """,
    """
    p = c128[2,3]{1,0} parameter(0)
    r.bitcast = c128[3,2]{1,0} bitcast(p)
    ROOT r = c128[3,2]{0,1} copy(r.bitcast)
    """,
    {"the bitcast's layout": ("{1,0} bitcast", "{0,1} bitcast")},
)
OTHER_TYPE_ON_THE_WAY = (
    """
    p = f32[4,2]{1,0} parameter(0)
    ROOT r = u8[8,4]{1,0} bitcast(p)
    """,
    """
    p = f32[4,2]{1,0} parameter(0)
    r.bitcast = u16[4,2,2]{2,1,0} bitcast(p)
    r.copy = u16[4,2,2]{1,0,2} copy(r.bitcast)
    r.copy1 = u16[4,2,2]{2,1,0} copy(r.copy)
    ROOT r = u8[8,4]{1,0} bitcast(r.copy1)
    """,
    {
        "halves swapped": ("{2,1,0} copy", "{1,2,0} copy"),
        "halves never joined": ("bitcast(r.copy1)", "bitcast(r.copy)"),
    },
)
TILED = (
    """
    p = f32[6,5]{1,0:T(2,4)} parameter(0)
    ROOT r = f32[5,6]{0,1:T(4,2)} reshape(p)
    """,
    """
    p = f32[6,5]{1,0:T(2,4)} parameter(0)
    r.copy = f32[6,5]{1,0} copy(p)
    r.bitcast = f32[5,6]{1,0} bitcast(r.copy)
    ROOT r = f32[5,6]{0,1:T(4,2)} copy(r.bitcast)
    """,
    {
        "tiles kept on the way": ("[6,5]{1,0} copy", "[6,5]{1,0:T(2,4)} copy"),
        "the copy's layout": ("[6,5]{1,0} copy", "[6,5]{0,1} copy"),
        "the bitcast's layout": ("[5,6]{1,0} bitcast", "[5,6]{0,1} bitcast"),
        "other tiles at the end": ("T(4,2)", "T(2,4)"),
    },
)
DYNAMIC = (
    """
    p = f32[<=8,3]{1,0} parameter(0)
    ROOT r = f32[<=4,2,3]{0,1,2} reshape(p)
    """,
    """
    p = f32[<=8,3]{1,0} parameter(0)
    r.bitcast = f32[<=4,2,3]{2,1,0} bitcast(p)
    ROOT r = f32[<=4,2,3]{0,1,2} copy(r.bitcast)
    """,
    {
        "the bitcast's layout": ("{2,1,0} bitcast", "{1,2,0} bitcast"),
        "the flag lost on the way": ("[<=4,2,3]{2,1,0} bitcast", "[4,2,3]{2,1,0} bitcast"),
        "the flag lost at the end": ("[<=4,2,3]{0,1,2} copy", "[4,2,3]{0,1,2} copy"),
    },
)
SIZE_ONE = (
    """
    p = f32[4,1,6]{0,2,1} parameter(0)
    ROOT r = f32[4,6]{1,0} reshape(p)
    """,
    """
    p = f32[4,1,6]{0,2,1} parameter(0)
    r.bitcast = f32[4,6]{0,1} bitcast(p)
    ROOT r = f32[4,6]{1,0} copy(r.bitcast)
    """,
    {"the bitcast's layout": ("{0,1} bitcast", "{1,0} bitcast")},
)
IN_HOST_MEMORY = (
    """
    p = f32[4,6]{1,0:S(5)} parameter(0)
    ROOT r = f32[6,4]{0,1:S(5)} reshape(p)
    """,
    """
    p = f32[4,6]{1,0:S(5)} parameter(0)
    r.bitcast = f32[6,4]{1,0:S(5)} bitcast(p)
    ROOT r = f32[6,4]{0,1:S(5)} copy(r.bitcast)
    """,
    {
        "the space lost on the way": ("{1,0:S(5)} bitcast", "{1,0} bitcast"),
        "the space lost at the end": ("{0,1:S(5)} copy", "{0,1} copy"),
    },
)
TWO_IN_A_CHAIN = (
    """
    p = f32[8,3]{1,0} parameter(0)
    r = f32[4,6]{0,1} reshape(p)
    s = f32[3,8]{0,1} reshape(r)
    ROOT n = f32[3,8]{0,1} negate(s)
    """,
    """
    p = f32[8,3]{1,0} parameter(0)
    r.bitcast = f32[4,6]{1,0} bitcast(p)
    r = f32[4,6]{0,1} copy(r.bitcast)
    s.copy = f32[4,6]{1,0} copy(r)
    s.bitcast = f32[3,8]{1,0} bitcast(s.copy)
    s = f32[3,8]{0,1} copy(s.bitcast)
    ROOT n = f32[3,8]{0,1} negate(s)
    """,
    {
        "the first": ("[4,6]{1,0} bitcast", "[4,6]{0,1} bitcast"),
        "the second": ("bitcast(s.copy)", "bitcast(r)"),
    },
)

FIXES = {
    "copy, bitcast": COPY_BITCAST,
    "bitcast, copy": BITCAST_COPY,
    "copy, bitcast, copy": COPY_BITCAST_COPY,
    "bitcast, transpose, bitcast": BITCAST_TRANSPOSE_BITCAST,
    "transposes of a cube": SQUARE_TRANSPOSE,
    "an element of a tuple": TUPLE_ELEMENT,
    "packed": PACKED,
    "unpacked, then packed": UNPACKED_THEN_PACKED,
    "one bit to a byte, then packed": PRED_THEN_PACKED,
    "half of each byte": HALF_OF_EACH_BYTE,
    "one bit": ONE_BIT,
    "wide": WIDE,
    "another type on the way": OTHER_TYPE_ON_THE_WAY,
    "tiled": TILED,
    "dynamic": DYNAMIC,
    "size one": SIZE_ONE,
    "in host memory": IN_HOST_MEMORY,
    "two in a chain": TWO_IN_A_CHAIN,
}


@pytest.mark.parametrize("fix", FIXES)
def test_a_right_fix_keeps_every_element(fix: str) -> None:
    before, after, _ = FIXES[fix]
    assert equal(before, after)


@pytest.mark.parametrize(
    ("fix", "step"), [(fix, step) for fix, (_, _, steps) in FIXES.items() for step in steps]
)
def test_breaking_a_fix_in_any_one_step_shows(fix: str, step: str) -> None:
    before, after, steps = FIXES[fix]
    right, wrong = steps[step]
    assert after.count(right) == 1
    assert not equal(before, after.replace(right, wrong))


@pytest.mark.parametrize("seed", range(5))
def test_the_seed_changes_no_verdict(seed: int) -> None:
    before, after, steps = ONE_BIT
    (right, wrong), *_ = steps.values()
    assert compared(before, after, seed) == compared(before, after)
    broken = after.replace(right, wrong)
    assert compared(before, broken, seed) == compared(before, broken)


@pytest.mark.parametrize("seed", range(20))
def test_two_bits_that_changed_places_show_under_every_seed(seed: int) -> None:
    p = "p = pred[2,2,2]{2,1,0} parameter(0)"
    (comparison,) = compared(
        f"{p}\nROOT r = pred[2,2,2]{{2,1,0}} copy(p)",
        f"{p}\nROOT r = pred[2,2,2]{{2,1,0}} transpose(p), dimensions={{1,0,2}}",
        seed,
    )
    assert comparison.detail == "4 of 8 elements differ, the first at [0, 1, 0]"


@pytest.mark.parametrize("seed", range(10))
def test_every_byte_of_a_wide_element_is_told_from_the_others(seed: int) -> None:
    (comparison,) = compared(
        "p = f32[64]{0} parameter(0)\nROOT r = u8[64,2,2]{2,1,0} bitcast(p)",
        """p = f32[64]{0} parameter(0)
           b = u8[32,2,2,2]{3,2,1,0} bitcast(p)
           t = u8[32,2,2,2]{3,2,0,1} copy(b)
           ROOT r = u8[64,2,2]{2,1,0} bitcast(t)""",
        seed,
    )
    assert comparison.detail == "248 of 256 elements differ, the first at [1, 0, 0]"


@pytest.mark.parametrize(
    ("operand", "bitcast", "result"),
    [
        ("f32[]", "f32[1,1]{0,1}", "f32[1,1]{1,0}"),
        ("f32[1,1]{0,1}", "f32[]", "f32[]"),
        ("f32[0,4]{0,1}", "f32[4,0]{1,0}", "f32[4,0]{0,1}"),
        ("s4[0,3]{1,0:E(4)}", "s4[3,0]{1,0:E(4)}", "s4[3,0]{0,1:E(4)}"),
        ("f32[1,8,1]{0,1,2}", "f32[8]{0}", "f32[8]{0}"),
        ("s4[1]{0:E(4)}", "s4[1,1]{1,0:E(4)}", "s4[1,1]{0,1:E(4)}"),
    ],
)
def test_degenerate_arrays_are_executed(operand: str, bitcast: str, result: str) -> None:
    (comparison,) = compared(
        f"p = {operand} parameter(0)\nROOT r = {result} reshape(p)",
        f"p = {operand} parameter(0)\nb = {bitcast} bitcast(p)\nROOT r = {result} copy(b)",
    )
    assert comparison.equal
    assert comparison.elements == elements_of(result)


def elements_of(shape: str) -> int:
    dims = shape[shape.index("[") + 1 : shape.index("]")]
    return math.prod(int(size) for size in dims.split(",") if size)


def test_what_was_compared_is_said() -> None:
    before, after, _ = BITCAST_COPY
    assert compared(before, after) == (
        InstructionComparison("e", "r", 24, True, "all 24 elements are the same"),
    )
    broken = after.replace("{2,1,0} bitcast", "{1,2,0} bitcast")
    assert compared(before, broken) == (
        # (0,0,0) and (0,1,2) lie where they did, and so in each of the four blocks
        InstructionComparison(
            "e", "r", 24, False, "16 of 24 elements differ, the first at [0, 0, 1]"
        ),
    )


def test_nothing_can_be_changed_in_a_comparison() -> None:
    with pytest.raises(FrozenInstanceError):
        compared(*COPY_BITCAST[:2])[0].equal = False  # type: ignore[misc]


# Any layouts at all ------------------------------------------------------------------------------


def slot_by_hand(
    dims: tuple[int, ...], index: tuple[int, ...], tiles: tuple[tuple[int, ...], ...]
) -> int:
    """The tiled address as https://openxla.org/xla/tiled_layout says it, one index at a time."""
    if not tiles:
        slot = 0
        for size, coordinate in zip(dims, index, strict=True):
            slot = slot * size + coordinate
        return slot
    tile, *rest = tiles
    lead = (1,) * (len(tile) - len(dims))
    dims, index = lead + dims, (0,) * len(lead) + index
    cut = len(dims) - len(tile)
    ceilings = tuple(-(-size // t) for size, t in zip(dims[cut:], tile, strict=True))
    which = tuple(i // t for i, t in zip(index[cut:], tile, strict=True))
    where = tuple(i % t for i, t in zip(index[cut:], tile, strict=True))
    return slot_by_hand(dims[:cut] + ceilings + tile, index[:cut] + which + where, tuple(rest))


def addresses_by_hand(shape: ArrayShape) -> list[int]:
    order = tuple(reversed(shape.minor_to_major))
    tiles = tuple(
        tuple(size for size in tile if size is not None)
        for tile in (shape.layout.tiles if shape.layout else ())
    )
    return [
        slot_by_hand(tuple(shape.dims[n] for n in order), tuple(index[n] for n in order), tiles)
        for index in itertools.product(*map(range, shape.dims))
    ]


def small_shapes() -> Iterator[ArrayShape]:
    tilings: tuple[tuple[tuple[int, ...], ...], ...] = (
        (),
        ((4,),),
        ((2, 3),),
        ((1, 1),),
        ((8, 128),),
        ((4, 4), (2, 1)),
        ((4, 4), (2, 1), (1, 2)),
        ((2, 2, 2),),
        ((3,), (2,)),
    )
    for dims in ((), (1,), (7,), (0, 3), (3, 5), (4, 1, 2), (2, 3, 4), (2, 1, 3, 2)):
        for order in itertools.permutations(range(len(dims))):
            for tiles in tilings:
                yield ArrayShape("f32", dims, Layout(order, tiles=tiles))


def test_addresses_are_those_of_a_walk_over_all_indices() -> None:
    for shape in small_shapes():
        assert addresses(shape).tolist() == addresses_by_hand(shape), str(shape)


def test_no_two_elements_share_a_slot_and_all_fit() -> None:
    for shape in small_shapes():
        found = addresses(shape).tolist()
        assert len(set(found)) == shape.elements, str(shape)
        assert max(found, default=-1) < max(slots(shape), 1), str(shape)


def test_the_worked_example_of_the_tiling_page() -> None:
    shape = ArrayShape("f32", (3, 5), Layout((1, 0), tiles=((2, 2),)))
    assert addresses(shape)[2 * 5 + 3] == 17
    assert slots(shape) == 24


def test_without_a_layout_the_last_dimension_varies_fastest() -> None:
    assert addresses(ArrayShape("f32", (2, 3))).tolist() == [0, 1, 2, 3, 4, 5]


def test_a_million_addresses_are_a_permutation() -> None:
    shape = ArrayShape("f32", (16, 64, 8, 128), Layout((2, 0, 3, 1)))
    assert np.array_equal(np.sort(addresses(shape)), np.arange(1 << 20))


def test_the_verdict_on_any_intermediate_layouts_is_that_of_a_walk() -> None:
    chance = random.Random(20)
    verdicts = []
    for _ in range(120):
        sizes = [chance.choice((1, 2, 2, 3)) for _ in range(4)]
        operand = tuple(sizes)
        result = (sizes[0] * sizes[1], sizes[2] * sizes[3])
        shapes = [
            ArrayShape("u8", dims, Layout(tuple(chance.sample(range(len(dims)), len(dims)))))
            for dims in (operand, operand, result, result)
        ]
        comparisons = compared(
            f"p = {shapes[0]} parameter(0)\nROOT r = {shapes[3]} reshape(p)",
            f"""p = {shapes[0]} parameter(0)
                c = {shapes[1]} copy(p)
                b = {shapes[2]} bitcast(c)
                ROOT r = {shapes[3]} copy(b)""",
        )
        right = addresses_by_hand(shapes[1]) == addresses_by_hand(shapes[2])
        assert [comparison.equal for comparison in comparisons] == [right], shapes
        verdicts.append(right)
    assert set(verdicts) == {True, False}


# One instruction at a time -----------------------------------------------------------------------


def run(line: str, operand: Memory) -> Memory:
    found = module(f"p = {operand.shape} parameter(0)\nROOT r = {line}").computations[0].root
    assert found is not None
    return execute(found, [operand])


def counted(shape: ArrayShape) -> Memory:
    return Memory.holding(shape, np.arange(shape.elements, dtype=np.uint8).reshape(-1, 1))


TWO_BY_THREE = ArrayShape("u8", (2, 3), Layout((1, 0)))


@pytest.mark.parametrize(
    ("line", "data"),
    [
        ("u8[2,3]{0,1} copy(p)", [0, 3, 1, 4, 2, 5]),
        ("u8[3,2]{1,0} reshape(p)", [0, 1, 2, 3, 4, 5]),
        ("u8[3,2]{0,1} reshape(p)", [0, 2, 4, 1, 3, 5]),
        ("u8[3,2]{1,0} transpose(p), dimensions={1,0}", [0, 3, 1, 4, 2, 5]),
        ("u8[3,2]{0,1} transpose(p), dimensions={1,0}", [0, 1, 2, 3, 4, 5]),
        ("u8[3,2]{0,1} bitcast(p)", [0, 1, 2, 3, 4, 5]),
        ("u8[2,3]{1,0:T(2,2)} copy(p)", [0, 1, 3, 4, 2, 0, 5, 0]),
    ],
)
def test_bytes_lie_where_the_layout_says(line: str, data: list[int]) -> None:
    assert run(line, counted(TWO_BY_THREE)).data.tolist() == data


def test_a_transpose_reads_at_the_permuted_index() -> None:
    shape = ArrayShape("u8", (2, 3, 4), Layout((1, 0, 2)))
    result = run("u8[4,2,3]{0,2,1} transpose(p), dimensions={2,0,1}", counted(shape))
    elements = result.elements().reshape(4, 2, 3)
    for i, j, k in itertools.product(range(4), range(2), range(3)):
        assert elements[i, j, k] == (j * 3 + k) * 4 + i  # in[j, k, i]


def test_the_first_of_two_packed_elements_takes_the_low_bits() -> None:
    shape = ArrayShape("s4", (3,), Layout((0,), element_size_in_bits=4))
    memory = Memory.holding(shape, np.array([[1], [2], [3]], np.uint8), padding=0xFF)
    assert memory.data.tolist() == [0x21, 0xF3]
    assert memory.elements().ravel().tolist() == [1, 2, 3]


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_packing_and_unpacking_are_inverse(bits: int) -> None:
    shape = ArrayShape(f"u{bits}", (3, 5), Layout((0, 1), element_size_in_bits=bits))
    values = np.arange(15, dtype=np.uint8).reshape(-1, 1) % (1 << bits)
    memory = Memory.holding(shape, values)
    assert len(memory.data) == (15 * bits + 7) // 8
    assert np.array_equal(memory.elements(), values)


@pytest.mark.parametrize(
    "line",
    [
        "u8[7]{0} bitcast(p)",
        "u16[2,3]{1,0} bitcast(p)",
        "u8[2,3]{1,0:S(5)} bitcast(p)",
        "u8[7]{0} reshape(p)",
        "s8[6]{0} reshape(p)",
        "u8[3,2]{1,0} copy(p)",
        "s8[2,3]{1,0} copy(p)",
        "u8[2,3]{1,0} transpose(p), dimensions={1,0}",
        "u8[3,2]{1,0} transpose(p), dimensions={1,1}",
        "u8[3,2]{1,0} transpose(p), dimensions={1}",
        "u8[6]{0} reshape(p, p)",
    ],
)
def test_what_contradicts_its_own_shapes_is_no_value(line: str) -> None:
    found = module(f"p = u8[2,3]{{1,0}} parameter(0)\nROOT r = {line}").computations[0].root
    assert found is not None
    with pytest.raises(ValueChanged):
        execute(found, [counted(TWO_BY_THREE) for _ in found.operands])


@pytest.mark.parametrize(
    "line",
    ["u8[2,3]{1,0} negate(p)", "u8[2,3]{1,0} parameter(1)", "u8[2,3]{1,0} copy-start(p)"],
)
def test_other_opcodes_are_not_executed(line: str) -> None:
    with pytest.raises(NotCovered, match=r"%r: (negate|parameter|copy-start)"):
        run(line, counted(TWO_BY_THREE))


def test_bytes_of_another_length_are_no_memory() -> None:
    with pytest.raises(ValueChanged, match="takes 6 bytes, there are 5"):
        Memory(TWO_BY_THREE, np.zeros(5, np.uint8))


# What is never called equal ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ("f32[8,4]{1,0:T(*,4)}", "combines dimensions"),
        ("f32[8,4]{1,0:T(0)}", "tile of size 0"),
        ("f32[8,4]{1,0:L(8)}", r"L\(8\)"),
        ("f32[?,4]{1,0}", "unbounded"),
        ("f32[8,4]{0,0}", "each dimension once"),
        ("f32[8,4]{1}", "not an array"),
        ("f77[8,4]{1,0}", "f77 is not known"),
        ("f32[8,4]{1,0:E(8)}", "elements of 8 bits"),
        ("f32[65536,65536]{1,0}", "too large"),
        ("f32[8,4]{1,0:T(65536,65536)}", "too large"),
        ("f32[0,1000000000000]{1,0}", "too large"),
        ("f32[8,4", "not an array|cannot be read"),
        ("(f32[8,4]{1,0}, f32[])", "not an array"),
    ],
)
def test_shapes_that_are_not_understood_are_refused(shape: str, says: str) -> None:
    before = f"p = {shape} parameter(0)\nROOT r = f32[32]{{0}} reshape(p)"
    with pytest.raises(NotCovered, match=says) as caught:
        compared(before, before.replace("reshape", "bitcast"))
    assert caught.value.instruction in ("p", "r")


UNTOUCHED = """
    p = f32[8,3]{1,0} parameter(0)
    q = f32[8,3]{1,0} parameter(1)
    r = f32[3,8]{1,0} bitcast(p)
    s = f32[3,8]{1,0} bitcast(q)
    ROOT a = f32[3,8]{1,0} add(r, s)
"""


def test_of_what_nobody_touched_nothing_is_said() -> None:
    assert compared(UNTOUCHED, UNTOUCHED) == ()


@pytest.mark.parametrize(
    ("right", "wrong", "opcode"),
    [
        ("add(r, s)", "add(s, r)", "add"),
        ("add(r, s)", "add(r, r)", "add"),
        ("add(r, s)", "subtract(r, s)", "add|subtract"),
        ("parameter(0)", "parameter(2)", "parameter"),
        ("add(r, s)", 'add(r, s), metadata={op_name="x"}', "add"),
        ("bitcast(p)", "negate(p)", "negate"),
        ("r = f32", "d = f32[] custom-call(), custom_call_target='x'\n  r = f32", "custom-call"),
    ],
)
def test_a_touched_instruction_that_computes_is_refused(
    right: str, wrong: str, opcode: str
) -> None:
    assert UNTOUCHED.count(right) == 1
    with pytest.raises(NotCovered, match=f": ({opcode})$"):
        compared(UNTOUCHED, UNTOUCHED.replace(right, wrong.replace("'", '"')))


def test_a_fix_that_is_wrong_already_before_is_refused() -> None:
    before = "p = f32[8]{0} parameter(0)\nROOT r = f32[9]{0} reshape(p)"
    with pytest.raises(NotCovered, match="%r: wrong before the fix"):
        compared(before, before.replace("reshape", "bitcast"))


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (
            "p = f32[8]{0} parameter(0)\nc = f32[8]{0} copy(p)\nROOT r = f32[8]{0} copy(c)",
            "p = f32[8]{0} parameter(0)\nROOT r = f32[8]{0} copy(p)",
            "is gone",
        ),
        (
            "p = f32[8]{0} parameter(0)\nc = f32[8]{0} negate(p)\nROOT r = f32[8]{0} copy(p)",
            "p = f32[8]{0} parameter(0)\nROOT r = f32[8]{0} copy(p)",
            "is gone",
        ),
        (
            "p = f32[8]{0} parameter(0)\nb = f32[8]{0} copy(p)\nROOT r = f32[8]{0} copy(p)",
            "p = f32[8]{0} parameter(0)\nROOT b = f32[8]{0} copy(p)\nr = f32[8]{0} copy(p)",
            "the root was %r and is %b",
        ),
        (
            "p = f32[8]{0} parameter(0)\nb = f32[8]{0} copy(p)\nROOT r = f32[8]{0} copy(p)",
            "p = f32[8]{0} parameter(0)\nROOT r = f32[8]{0} copy(p)\nb = f32[8]{0} copy(p)",
            "the instructions stand in another order",
        ),
        (
            "p = f32[8]{0} parameter(0)\nROOT r = f32[8]{0} copy(p), control-predecessors={p}",
            "p = f32[8]{0} parameter(0)\nROOT r = f32[8]{0} copy(p)",
            "its control predecessors differ",
        ),
        (
            "p = f32[8]{0} parameter(0)\nROOT r = f32[2,4]{1,0} reshape(p)",
            "p = f32[8]{0} parameter(0)\nROOT r = f32[2,4]{1,0} bitcast(b)\nb = f32[8]{0} copy(p)",
            "reads %b, which is not defined before it",
        ),
        (
            "p = f32[8]{0} parameter(0)\nROOT r = f32[2,4]{1,0} reshape(p)",
            "p = f32[8]{0} parameter(0)\nROOT r = f32[2,4]{1,0} bitcast(nowhere)",
            "reads %nowhere, which is not defined before it",
        ),
        (
            "p = f32[8]{0} parameter(0)\nROOT r = f32[2,4]{1,0} reshape(p)",
            "p = f32[8]{0} parameter(0)\nb = f32[9]{0} bitcast(p)\n"
            "ROOT r = f32[2,4]{1,0} reshape(b)",
            "reads %b, which is wrong",
        ),
        (
            "p = f32[8]{0} parameter(0)\nROOT r = f32[2,4]{1,0} reshape(p)",
            "p = f32[8]{0} parameter(0)\nb = f32[8]{0} copy(p)\n"
            "ROOT r = f32[2,4]{1,0} reshape(b#0)",
            "an element of %b, which is not a tuple",
        ),
    ],
)
def test_other_changes_are_told(before: str, after: str, says: str) -> None:
    assert any(
        says in comparison.detail and not comparison.equal for comparison in compared(before, after)
    )


def test_a_value_made_of_padding_is_never_the_same() -> None:
    before = """
        p = u8[3,5]{1,0} parameter(0)
        t = u8[3,5]{1,0:T(2,4)} copy(p)
        ROOT r = u8[32]{0} bitcast(t)
    """
    after = before.replace("copy(p)", 'copy(p), metadata={op_name="x"}')
    assert equal(before, after)  # padding itself is not compared
    after = after.replace("bitcast(t)", 'bitcast(t), metadata={op_name="x"}')
    assert {c.instruction: (c.elements, c.equal) for c in compared(before, after)} == {
        "t": (15, True),
        "r": (32, False),
    }


def test_a_new_instruction_that_nothing_reads_changes_no_value() -> None:
    after = UNTOUCHED.replace("ROOT", "n = f32[8,3]{0,1} copy(q)\n ROOT")
    assert compared(UNTOUCHED, after) == (
        InstructionComparison("e", "n", 0, True, "is new, and nothing reads it"),
    )


CALLING = """HloModule m

f {
  x = f32[8]{0} parameter(0)
  ROOT n = f32[8]{0} negate(x)
}

g {
  x = f32[8]{0} parameter(0)
  ROOT n = f32[8]{0} abs(x)
}

ENTRY e {
  p = f32[8]{0} parameter(0)
  ROOT c = f32[8]{0} call(p), to_apply=f
}
"""
F, G = CALLING.split("\n\n")[1:3]


@pytest.mark.parametrize(
    ("after", "where", "says"),
    [
        (CALLING.replace(f"{G}\n\n", ""), "g", "is gone"),
        (CALLING.replace(G, f"{G}\n\n{G.replace('g {', 'h {')}"), "h", "is new"),
        (CALLING.replace(f"{F}\n\n{G}", f"{G}\n\n{F}"), "", "stand in another order"),
        (CALLING.replace("ENTRY e", "e").replace("g {", "ENTRY g {"), "e", "on one side only"),
        (CALLING.replace("g {", "g (x: f32[8]) -> f32[8] {"), "g", "its head"),
    ],
)
def test_changed_computations_are_told(after: str, where: str, says: str) -> None:
    comparisons = compare(hlo_lint.parse(CALLING), hlo_lint.parse(after))
    assert any(c.computation == where and says in c.detail and not c.equal for c in comparisons)


def test_computations_are_compared_by_name() -> None:
    before = CALLING.replace("abs(x)", "copy(x)")
    (comparison,) = compare(
        hlo_lint.parse(before), hlo_lint.parse(before.replace("copy(x)", "bitcast(x)"))
    )
    assert (comparison.computation, comparison.instruction) == ("g", "n")
    assert comparison.equal


def test_two_of_one_name_are_refused() -> None:
    twice = hlo_lint.parse(CALLING.replace("g {", "f {"))
    with pytest.raises(NotCovered, match="two computations of one name"):
        compare(twice, twice)
    with pytest.raises(NotCovered, match="two instructions of one name"):
        compared(UNTOUCHED, UNTOUCHED.replace("q =", "p ="))


def test_text_that_could_not_be_read_is_refused() -> None:
    with pytest.raises(NotCovered, match="could not be read"):
        compared(UNTOUCHED, UNTOUCHED.replace("add(r, s)", "add(r, s"))


# Imports -----------------------------------------------------------------------------------------


def test_the_package_loads_no_numpy() -> None:
    subprocess.run(
        [sys.executable, "-c", "import hlo_lint, sys; assert 'numpy' not in sys.modules"],
        check=True,
    )


def test_addresses_owe_nothing_to_the_layout_algebra() -> None:
    with open(physical_memory.__file__, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    imported = {
        name
        for node in ast.walk(tree)
        for name in (
            [node.module]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }
    assert {name for name in imported if name and name.startswith("hlo_lint")} == {
        "hlo_lint.text.errors",
        "hlo_lint.hlo.dtypes",
        "hlo_lint.hlo.ir",
        "hlo_lint.hlo.shape",
    }
