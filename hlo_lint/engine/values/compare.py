"""The largest difference between two results, if it exceeds a bound.

Passes may change how a float is rounded. So results are first compared in the module's own types,
bit for bit; where they differ, runs of both sides in f64 tell rounding from error, because there a
legal difference is many orders of magnitude smaller than any error worth reporting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hlo_lint.hlo.parser.literals import AnyArray


@dataclass(frozen=True, slots=True)
class Bound:
    """The difference that two results may have."""

    relative: float = 0.0
    """A share of the larger of two elements."""
    of_largest: float = 0.0
    """A share of the largest finite element of the whole array: sums cancel."""

    @property
    def is_exact(self) -> bool:
        """True if every bit has to be the same."""
        return not self.relative and not self.of_largest

    def __str__(self) -> str:
        if self.is_exact:
            return "bit for bit"
        return f"{self.relative:.2g} of an element plus {self.of_largest:.2g} of the largest one"


MAPPED: Final = (32, 64)
"""Rows and columns of the map of an HTML report."""

EXACT: Final = Bound()
"""Every bit is equal, except that any NaN equals any other."""
OWN_BOUND: Final = Bound(relative=2.0**-4, of_largest=2.0**-4)
"""The difference of floats in their own types that no rounding makes."""


@dataclass(frozen=True, slots=True)
class LargestDifference:
    """The largest difference between two results."""

    output: int
    """The number of the result, counted over the leaves of the root."""
    index: tuple[int, ...]
    """The element that differs most."""
    before: float | int | bool | complex
    after: float | int | bool | complex
    error: float
    """The absolute difference; infinite where a single side is NaN, or the shapes differ."""
    count: int
    """The number of elements that differ by more than the bound."""
    region: tuple[tuple[int, int], ...]
    """The smallest box that holds them: the first and last index in each dimension."""
    elements: int
    """The number of elements of the result."""
    bound: Bound
    error_map: tuple[str, ...] = ()
    """The last two dimensions from above, row by row: `.` where elements are equal, else a digit:
    `9` is within a factor of 3 of the largest error, `8` of a tenth of it, and so on."""

    @property
    def place(self) -> str:
        """The index of the element: `[0,3]`; empty for a scalar."""
        return f"[{','.join(map(str, self.index))}]" if self.index else ""

    @property
    def box(self) -> str:
        """The box as slices: `[0:4,3]`."""
        sides = [f"{low}:{high + 1}" if low < high else f"{low}" for low, high in self.region]
        return f"[{','.join(sides)}]"

    def __str__(self) -> str:
        values = [f"{value:.9g}" for value in (self.before, self.after)]
        where = f", all in {self.box}" if self.region and self.count > 1 else ""
        return (
            f"result {self.output}{self.place} is {values[1]} and was {values[0]}; "
            f"{self.count} of {self.elements} elements differ{where}"
        )


def result_difference(
    before: Sequence[AnyArray], after: Sequence[AnyArray], bound: Bound = EXACT
) -> LargestDifference | None:
    """The largest difference of the first result that exceeds the bound; None if all keep it.

    A NaN equals a NaN. Integers and predicates are compared exactly, whatever the bound.
    """
    for number, (left, right) in enumerate(zip(before, after, strict=False)):
        divergence = array_difference(left, right, bound, number)
        if divergence is not None:
            return divergence
    if len(before) != len(after):
        number = min(len(before), len(after))
        return LargestDifference(number, (), len(before), len(after), float("inf"), 1, (), 1, bound)
    return None


def array_difference(
    before: AnyArray, after: AnyArray, bound: Bound = EXACT, output: int = 0
) -> LargestDifference | None:
    """The largest difference of two arrays, or None where they keep the bound."""
    import numpy as np

    if before.shape != after.shape:
        sizes = float(before.size), float(after.size)
        return LargestDifference(output, (), *sizes, float("inf"), 1, (), 1, bound)
    errors, wrong = np.full(before.size, -1.0), np.zeros(before.size, bool)
    for span, distance, exceeds in _distances(before, after, bound):
        errors[span], wrong[span] = np.where(exceeds, distance, -1.0), exceeds
    if not wrong.any():
        return None
    position = int(np.argmax(errors))
    index = tuple(map(int, np.unravel_index(position, before.shape)))
    error = float(errors[position])
    np.maximum(errors, TINY, out=errors, where=wrong)
    np.maximum(errors, 0.0, out=errors)
    placed = wrong.reshape(before.shape)
    return LargestDifference(
        output,
        index,
        _number(before, index),
        _number(after, index),
        error,
        int(wrong.sum()),
        tuple(_ends(placed, axis) for axis in range(placed.ndim)),
        before.size,
        bound,
        error_map(errors.reshape(before.shape)),
    )


def _number(array: AnyArray, index: tuple[int, ...]) -> float | int | bool | complex:
    """An element as a Python number."""
    element = array[index]
    return element.item() if array.dtype.kind in "biufc" else float(element)


def _ends(wrong: AnyArray, axis: int) -> tuple[int, int]:
    """The first and the last index along an axis with a wrong element."""
    import numpy as np

    others = tuple(number for number in range(wrong.ndim) if number != axis)
    places: AnyArray = np.flatnonzero(wrong.any(axis=others))
    return int(places[0]), int(places[-1])


def keep_bound(before: Sequence[AnyArray], after: Sequence[AnyArray], bound: Bound = EXACT) -> bool:
    """True if `result_difference` would return None; cheaper, as no difference is described."""
    return len(before) == len(after) and all(
        left.shape == right.shape
        and not any(wrong.any() for _, _, wrong in _distances(left, right, bound))
        for left, right in zip(before, after, strict=True)
    )


def where_finite(
    native: Sequence[Sequence[AnyArray]], wide: Sequence[Sequence[AnyArray]]
) -> list[AnyArray]:
    """The second results in f64, but the first where both are equal and not finite in `native`.

    f64 goes on where the programs' own types overflow, and shows how sums of such numbers cancel.
    """
    import numpy as np

    return [
        np.where(~np.isfinite(ours) & _are_equal(ours, theirs), before, after)
        if is_rounded(ours)
        else after
        for ours, theirs, before, after in zip(*native, *wide, strict=True)
    ]


def _are_equal(left: AnyArray, right: AnyArray) -> AnyArray:
    """A mask of the elements that are equal numbers, or NaNs on both sides."""
    import numpy as np

    return np.asarray((left == right) | (np.isnan(left) & np.isnan(right)))


PART: Final = 1 << 18
"""Elements that are compared at a time: with intermediate arrays, each takes 100 bytes."""


def _distances(
    before: AnyArray, after: AnyArray, bound: Bound
) -> Iterator[tuple[slice, AnyArray, AnyArray]]:
    """Each part of two arrays of equal shape, with the distances of its elements and a mask.

    The mask is true where the bound is exceeded. Parts come in the order of memory; parts of equal
    bits are left out.
    """
    import numpy as np

    ours, theirs = before.reshape(-1), after.reshape(-1)
    differing = [
        part
        for part in _parts(before)
        if before.dtype != after.dtype or ours[part].tobytes() != theirs[part].tobytes()
    ]
    largest, are_equal = 0.0, True
    if not is_rounded(before):
        bound = EXACT
    if differing and bound.of_largest:
        largest = max(_largest(wide(ours[part]), wide(theirs[part])) for part in _parts(before))
    for part in differing:
        distance, wrong = _outside(wide(ours[part]), wide(theirs[part]), bound, largest)
        are_equal = are_equal and not wrong.any()
        yield part, distance, wrong
    for part in differing if are_equal and bound.is_exact else ():
        # -0.0 and 0.0 are equal numbers with different bits: a pass must keep the sign.
        left, right = wide(ours[part]), wide(theirs[part])
        differs = np.signbit(left.real) != np.signbit(right.real)
        yield part, np.zeros(left.shape), differs & ~np.isnan(left)


def _largest(left: AnyArray, right: AnyArray) -> float:
    """The largest finite size of an element of either array."""
    import numpy as np

    sizes = np.maximum(np.abs(left), np.abs(right))
    return float(sizes.max(initial=0.0, where=np.isfinite(sizes)))


def _outside(
    left: AnyArray, right: AnyArray, bound: Bound, largest: float
) -> tuple[AnyArray, AnyArray]:
    """The distances of elements, and a mask of those beyond the bound.

    `largest` is the largest size of an element of the whole array.
    """
    import numpy as np

    with np.errstate(all="ignore"):
        distance = np.abs(left - right)
        distance[np.isnan(distance)] = np.inf
        distance[_are_equal(left, right)] = 0.0
        allowed: AnyArray | float = 0.0
        if not bound.is_exact:
            size = np.maximum(np.abs(left), np.abs(right))
            allowed = np.where(np.isfinite(size), bound.relative * size, 0.0)
            allowed = allowed + bound.of_largest * largest
        return distance, distance > allowed


TINY: Final = 1e-300
"""The error of zeros that differ in sign."""


def error_map(errors: AnyArray) -> tuple[str, ...]:
    """A map of errors by their decimal exponent, at most `MAPPED` signs; empty for a scalar."""
    import numpy as np

    if not errors.ndim:
        return ()
    plane = _from_above(errors)
    finite = plane[np.isfinite(plane)]
    largest = max(float(finite.max()) if finite.size else 0.0, TINY)
    with np.errstate(divide="ignore"):
        levels = np.rint(9 + np.log10(plane / largest)).clip(1, 9)
    return tuple(
        "".join(str(int(level)) if error else "." for level, error in zip(*rows, strict=True))
        for rows in zip(levels, plane, strict=True)
    )


def _from_above(array: AnyArray) -> AnyArray:
    """Maxima of neighbours in the last two dimensions, at most `MAPPED` rows and columns."""
    import numpy as np

    plane = array.reshape(-1, *array.shape[-2:]) if array.ndim > 1 else array.reshape(1, 1, -1)
    plane = plane.max(axis=0)
    for axis, most in enumerate(MAPPED):
        size = plane.shape[axis]
        starts = np.unique(np.arange(min(size, most)) * size // min(size, most))
        plane = np.maximum.reduceat(plane, starts, axis=axis)
    return plane


def is_rounded(array: AnyArray) -> bool:
    """True for an array of floats or complex numbers, those of ml_dtypes included.

    Types of ml_dtypes have no numpy kind.
    """
    return array.dtype.kind in "fc" or "float" in array.dtype.name


def wide(array: AnyArray) -> AnyArray:
    """The array in the widest type of its kind that supports arithmetic.

    64-bit integers keep their value. Their difference may be inexact, but is 0 only if they are
    equal.
    """
    import numpy as np

    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    is_exact = array.dtype.kind == "b" or is_rounded(array)
    return array.astype(np.float64 if is_exact else np.longdouble)


def largest_error(results: Sequence[AnyArray], truth: Sequence[AnyArray]) -> float:
    """The largest error of results, as a share of the largest element of its array.

    Elements that are not finite on both sides are left out: they do not show rounding.
    """
    import numpy as np

    worst = 0.0
    for result, exact in zip(results, truth, strict=False):
        if not is_rounded(result) or result.shape != exact.shape:
            continue
        scale = error = 0.0
        for part in _parts(result):
            left, right = wide(result.reshape(-1)[part]), wide(exact.reshape(-1)[part])
            finite = np.isfinite(left) & np.isfinite(right)
            scale = max(scale, np.abs(right).max(initial=0.0, where=finite))
            with np.errstate(invalid="ignore"):
                error = max(error, np.abs(left - right).max(initial=0.0, where=finite))
        worst = max(worst, float(error / scale) if scale else float(error))
    return worst


def _parts(array: AnyArray) -> list[slice]:
    """The elements of an array in the order of memory, `PART` at a time."""
    return [slice(start, start + PART) for start in range(0, array.size, PART)]
