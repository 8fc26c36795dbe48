"""Iotas that exceed the range of their element type."""

from __future__ import annotations

from typing import Final

from hlo_lint.analysis.kinds import judged
from hlo_lint.hlo.arrays import result_array
from hlo_lint.hlo.dtypes import integer_range, is_integer
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import WrongValues

_EXACT: Final = {"bf16": 8, "f16": 11, "f32": 24, "f64": 53}
"""The number of bits up to which a floating-point type represents every integer."""


class IotaOverflows(Rule):
    """An iota with more elements than its element type can count.

    ## Why
    An iota counts from 0 along a dimension. Past the largest integer of its type it wraps around to
    the smallest: indices become negative, masks repeat. A floating-point type represents integers
    exactly only up to a limit (256 for bf16, 2048 for f16); beyond it, neighbours round to the same
    value, and all later positions of an embedding are silently off. Count in a wider type and
    convert the results.
    """

    severity = Severity.WARNING
    opcodes = frozenset({"iota"})
    evidence = (WrongValues(),)
    reports = "openxla/xla@90693a5034"
    examples = (
        Bad.entry("ROOT i = s8[300]{0} iota(), iota_dimension=0  // error"),
        Bad.entry("ROOT i = bf16[4,4096]{1,0} iota(), iota_dimension=1  // error"),
        Good.entry("ROOT i = s8[128,300]{1,0} iota(), iota_dimension=0"),
        Good.entry("ROOT i = bf16[4,256]{1,0} iota(), iota_dimension=1"),
    )

    def check(self, module: Module) -> Findings:
        """Iotas that exceed their type, including fusion bodies."""
        for iota, message in judged(module, "iota", _overflow):
            yield Finding(iota, message)


def _overflow(iota: Instruction) -> str | None:
    shape = result_array(iota)
    # An empty iota would count to -1, which no unsigned type holds.
    if shape is None or 0 in shape.dims:
        return None
    dimensions = iota.dimensions_attribute("iota_dimension", shape.rank)
    if not dimensions:
        return None
    last, dtype = shape.dims[dimensions[0]] - 1, shape.dtype
    if dtype in _EXACT and last > 1 << _EXACT[dtype]:
        rounded = (1 << _EXACT[dtype]) + 1
        return f"this iota counts to {last}, but {dtype} cannot represent {rounded}"
    if is_integer(dtype) and last not in integer_range(dtype):
        largest = integer_range(dtype)[-1]
        return f"this iota counts to {last}, but the largest {dtype} is {largest}"
    return None
