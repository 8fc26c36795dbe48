"""Differences of results: bits, bounds, NaNs, the element that differs most."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_lint.engine.values import compare
from hlo_lint.engine.values.compare import EXACT, PART, Bound, largest_error, result_difference
from tests.conftest import present


def difference(
    before: Any, after: Any, dtype: str = "f4", bound: Bound = EXACT
) -> compare.LargestDifference | None:
    """The difference of two results of one array."""
    return result_difference([np.array(before, dtype)], [np.array(after, dtype)], bound)


def test_equal_results_have_no_difference_and_a_nan_equals_a_nan() -> None:
    one = [np.array([1, np.nan, np.inf], np.float32)]
    other = [np.array([0x3F800000, 0xFFC00001, 0x7F800000], np.uint32).view(np.float32)]
    assert result_difference(one, one) is None
    assert result_difference(one, other) is None


def test_the_element_that_differs_most_is_named() -> None:
    found = present(difference([[1, 2], [3, 4]], [[1, 2.5], [3, 9]]))
    assert (found.index, found.before, found.after, found.error) == ((1, 1), 4.0, 9.0, 5.0)
    assert (found.count, found.elements) == (2, 4)
    assert str(found) == ("result 0[1,1] is 9 and was 4; 2 of 4 elements differ, all in [0:2,1]")


NEAR = Bound(relative=1e-3)
WIDE = Bound(relative=0.5, of_largest=0.5)
TINY = Bound(relative=1e-9)


@pytest.mark.parametrize(
    ("before", "after", "dtype", "bound", "is_forgiven"),
    [
        ([1000], [1000.5], "f4", NEAR, True), ([1000], [1002], "f4", NEAR, False),
        ([1000], [1001], "i4", NEAR, False),
        # A share of the largest element forgives cancellation.
        ([1e6, 1e-6], [1e6, 3e-6], "f8", TINY, False),
        ([1e6, 1e-6], [1e6, 3e-6], "f8", Bound(relative=1e-9, of_largest=1e-11), True),
        # A lost sign of zero is a difference bit for bit alone.
        ([0.0], [-0.0], "f4", EXACT, False), ([0.0], [-0.0], "f4", TINY, True),
        # A NaN on one side and another shape are infinite differences.
        ([1], [np.nan], "f4", WIDE, False), ([1], [1, 2], "f4", WIDE, False),
        # Wide integers are compared exactly.
        ([2**62], [2**62 + 1], "i8", EXACT, False), ([2**63], [2**63], "u8", EXACT, True),
    ],
)  # fmt: skip
def test_a_bound_forgives_rounding_of_floats_only(
    before: Any, after: Any, dtype: str, bound: Bound, is_forgiven: bool
) -> None:
    assert (difference(before, after, dtype, bound) is None) is is_forgiven


def test_a_result_without_its_array_differs() -> None:
    assert result_difference([np.array([1], np.float32)], [], WIDE) is not None


def test_error_is_a_share_of_the_largest_element() -> None:
    assert largest_error([np.array([1, 101], np.float32)], [np.array([1, 100], np.float64)]) == 0.01
    assert largest_error([np.array([np.nan, 2], np.float32)], [np.array([0, 2], np.float64)]) == 0


def test_scalars_differ_without_a_place() -> None:
    assert str(difference(1, 2, "i4")) == "result 0 is 2 and was 1; 1 of 1 elements differ"


def test_a_box_holds_the_elements_that_differ() -> None:
    before = np.zeros((2, 16, 64), np.float32)
    after = before.copy()
    after[1, 4, 60:] = 1
    assert present(difference(before, after)).box == "[1,4,60:64]"


@pytest.mark.parametrize(
    ("before", "after", "dtype", "digits"),
    [
        (np.zeros((2, 3)), [[0, 100, 9], [1e-9, 0, np.inf]], "f8", (".98", "1.9")),
        (np.zeros((99, 999)), np.ones((99, 999)), "i1", ("9" * 64,) * 32),
        ([0.0], [-0.0], "f4", ("9",)),
        (0, 1, "i4", ()),
    ],
    ids=["digits", "large", "sign", "scalar"],
)
def test_a_map_of_errors_has_a_digit_for_each_factor_of_ten(
    before: Any, after: Any, dtype: str, digits: tuple[str, ...]
) -> None:
    assert present(difference(before, after, dtype)).error_map == digits


def test_large_arrays_are_compared_part_by_part() -> None:
    before = np.zeros((3, PART), np.float32)
    before[0, 0] = 1e6
    after = before.copy()
    after[1, 7] = -0.0
    sign = present(compare.array_difference(before, after, EXACT))
    assert (sign.index, sign.error, sign.count) == ((1, 7), 0, 1)
    after[2, 5:8] = 1e-3
    after[2, 6] = 2e-3
    assert (
        compare.array_difference(before, after, Bound(of_largest=1e-6)) is None
    )  # of the first part
    found = present(compare.array_difference(before, after, EXACT))
    assert (found.index, found.count, found.region) == ((2, 6), 3, ((2, 2), (5, 7)))
    after[0, 0] = np.inf
    assert largest_error([after], [before]) == np.float32(2e-3)


def test_numbers_that_overflow_on_both_sides_are_not_compared_in_f64() -> None:
    inf, nan = np.inf, np.nan
    native = [[np.array([1, inf, nan, inf, nan], "f4")], [np.array([1, inf, nan, -inf, 2], "f4")]]
    wide = [[np.array([1, 2e93, 3e93, 4e93, 5.0])], [np.array([9, 8e93, 7e93, 6e93, 2.0])]]
    (theirs,) = compare.where_finite(native, wide)
    assert theirs.tolist() == [9, 2e93, 3e93, 6e93, 2]
