"""Differences of results: bits, bounds, NaNs, the element that differs most."""

from __future__ import annotations

import numpy as np

from hlo_lint.engine.values.compare import (
    EXACT,
    PART,
    Bound,
    array_difference,
    largest_error,
    result_difference,
    where_finite,
)
from tests.conftest import present


def test_equal_results_have_no_difference_and_a_nan_equals_a_nan() -> None:
    one = [np.array([1, np.nan, np.inf], np.float32)]
    other = [np.array([0x3F800000, 0xFFC00001, 0x7F800000], np.uint32).view(np.float32)]
    assert result_difference(one, one) is None
    assert result_difference(one, other) is None


def test_the_element_that_differs_most_is_named() -> None:
    found = present(
        result_difference(
            [np.array([[1, 2], [3, 4]], np.float32)], [np.array([[1, 2.5], [3, 9]], np.float32)]
        )
    )
    assert (found.index, found.before, found.after, found.error) == ((1, 1), 4.0, 9.0, 5.0)
    assert (found.count, found.elements) == (2, 4)
    assert str(found) == ("result 0[1,1] is 9 and was 4; 2 of 4 elements differ, all in [0:2,1]")


def test_a_bound_forgives_rounding_of_floats_only() -> None:
    bound = Bound(relative=1e-3)
    assert (
        result_difference([np.array([1000], np.float32)], [np.array([1000.5], np.float32)], bound)
        is None
    )
    assert (
        result_difference([np.array([1000], np.float32)], [np.array([1002], np.float32)], bound)
        is not None
    )
    assert (
        result_difference([np.array([1000], np.int32)], [np.array([1001], np.int32)], bound)
        is not None
    )


def test_a_share_of_the_largest_element_forgives_cancellation() -> None:
    before, after = [np.array([1e6, 1e-6], np.float64)], [np.array([1e6, 3e-6], np.float64)]
    assert result_difference(before, after, Bound(relative=1e-9)) is not None
    assert result_difference(before, after, Bound(relative=1e-9, of_largest=1e-11)) is None


def test_a_lost_sign_of_zero_is_a_difference_bit_for_bit_alone() -> None:
    before, after = [np.array([0.0], np.float32)], [np.array([-0.0], np.float32)]
    assert result_difference(before, after) is not None
    assert result_difference(before, after, Bound(relative=1e-9)) is None


def test_a_nan_on_one_side_and_another_shape_are_infinite_differences() -> None:
    wide = Bound(relative=0.5, of_largest=0.5)
    assert (
        result_difference([np.array([1], np.float32)], [np.array([np.nan], np.float32)], wide)
        is not None
    )
    assert (
        result_difference([np.array([1], np.float32)], [np.array([1, 2], np.float32)], wide)
        is not None
    )
    assert result_difference([np.array([1], np.float32)], [], wide) is not None


def test_wide_integers_are_compared_exactly() -> None:
    assert (
        result_difference([np.array([2**62], np.int64)], [np.array([2**62 + 1], np.int64)])
        is not None
    )
    assert result_difference([np.array([2**63], np.uint64)], [np.array([2**63], np.uint64)]) is None


def test_error_is_a_share_of_the_largest_element() -> None:
    assert largest_error([np.array([1, 101], np.float32)], [np.array([1, 100], np.float64)]) == 0.01
    assert largest_error([np.array([np.nan, 2], np.float32)], [np.array([0, 2], np.float64)]) == 0


def test_scalars_differ_without_a_place() -> None:
    found = result_difference([np.array(1, np.int32)], [np.array(2, np.int32)])
    assert str(found) == "result 0 is 2 and was 1; 1 of 1 elements differ"


def test_a_box_holds_the_elements_that_differ() -> None:
    before = np.zeros((2, 16, 64), np.float32)
    after = before.copy()
    after[1, 4, 60:] = 1
    assert present(result_difference([before], [after])).box == "[1,4,60:64]"


def test_a_map_of_errors_has_a_digit_for_each_factor_of_ten() -> None:
    found = present(
        result_difference(
            [np.zeros((2, 3), np.float64)], [np.array([[0, 100, 9], [1e-9, 0, np.inf]], np.float64)]
        )
    )
    assert found.error_map == (".98", "1.9")
    large = present(
        result_difference([np.zeros((99, 999), np.int8)], [np.ones((99, 999), np.int8)])
    )
    assert large.error_map == ("9" * 64,) * 32
    sign = present(result_difference([np.array([0.0], np.float32)], [np.array([-0.0], np.float32)]))
    assert sign.error_map == ("9",)
    scalar = present(result_difference([np.array(0, np.int32)], [np.array(1, np.int32)]))
    assert scalar.error_map == ()


def test_large_arrays_are_compared_part_by_part() -> None:
    before = np.zeros((3, PART), np.float32)
    before[0, 0] = 1e6
    after = before.copy()
    after[1, 7] = -0.0
    sign = present(array_difference(before, after, EXACT))
    assert (sign.index, sign.error, sign.count) == ((1, 7), 0, 1)
    after[2, 5:8] = 1e-3
    after[2, 6] = 2e-3
    assert array_difference(before, after, Bound(of_largest=1e-6)) is None  # of the first part
    difference = present(array_difference(before, after, EXACT))
    assert (difference.index, difference.count, difference.region) == ((2, 6), 3, ((2, 2), (5, 7)))
    after[0, 0] = np.inf
    assert largest_error([after], [before]) == np.float32(2e-3)


def test_numbers_that_overflow_on_both_sides_are_not_compared_in_f64() -> None:
    inf, nan = np.inf, np.nan
    native = [[np.array([1, inf, nan, inf, nan], "f4")], [np.array([1, inf, nan, -inf, 2], "f4")]]
    wide = [[np.array([1, 2e93, 3e93, 4e93, 5.0])], [np.array([9, 8e93, 7e93, 6e93, 2.0])]]
    (theirs,) = where_finite(native, wide)
    assert theirs.tolist() == [9, 2e93, 3e93, 6e93, 2]
