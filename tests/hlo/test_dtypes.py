"""The table of element types against ml_dtypes and numpy."""

from __future__ import annotations

import math

import ml_dtypes
import pytest

from hlo_lint.hlo.dtypes import ELEMENT_TYPES, FLOATS
from hlo_lint.hlo.parser.literals import numpy_dtype


@pytest.mark.parametrize("name", sorted(FLOATS))
def test_floats_are_those_of_ml_dtypes(name: str) -> None:
    facts = ELEMENT_TYPES[name]
    limits = ml_dtypes.finfo(numpy_dtype(name))  # type: ignore[no-untyped-call]
    assert (facts.bits, facts.max_exponent) == (limits.bits, limits.maxexp)
    assert facts.significand_bits == limits.nmant + 1
    half_a_step = 1 + 2.0**-facts.significand_bits
    assert facts.overflow == math.inf or 1 < facts.overflow / float(limits.max) <= half_a_step


@pytest.mark.parametrize("name", sorted(ELEMENT_TYPES))
def test_each_type_is_as_wide_as_in_memory_or_packed(name: str) -> None:
    if ELEMENT_TYPES[name].bits == 1 and name != "pred":
        pytest.importorskip("ml_dtypes", minversion="0.6")  # the first that has them
    assert 8 * numpy_dtype(name).itemsize == max(ELEMENT_TYPES[name].bits, 8)
