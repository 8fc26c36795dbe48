"""Iotas that are longer than their element type can count."""

from __future__ import annotations

from typing import Final

from hlo_lint.analysis.kinds import judged
from hlo_lint.hlo.arrays import result_array
from hlo_lint.hlo.dtypes import integer_range, is_integer
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.rules.base import Bad, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity

_EXACT: Final = {"bf16": 8, "f16": 11, "f32": 24, "f64": 53}
"""The bits of the largest whole number up to which a floating-point type has every other one."""


class IotaOverflows(Rule):
    """An iota that has more elements than its type has whole numbers.

    ## Why
    An iota counts from 0 along a dimension. Past the largest integer of its type it begins anew at
    the smallest one: indices become negative, masks repeat. Past the last whole number that a
    floating-point type has (256 of bf16, 2048 of f16), neighbours are rounded to one value: all
    positions of an embedding from there on are wrong by a little, and nothing says so. Count in a
    wider type and convert what is computed from it.
    """

    severity = Severity.WARNING
    opcodes = frozenset({"iota"})
    examples = (
        Bad.entry("ROOT i = s8[300]{0} iota(), iota_dimension=0  // error"),
        Bad.entry("ROOT i = bf16[4,4096]{1,0} iota(), iota_dimension=1  // error"),
        Good.entry("ROOT i = s8[128,300]{1,0} iota(), iota_dimension=0"),
        Good.entry("ROOT i = bf16[4,256]{1,0} iota(), iota_dimension=1"),
    )

    def check(self, module: Module) -> Findings:
        """Each such iota, bodies of fusions included."""
        for iota, message in judged(module, "iota", _overflow):
            yield Finding(iota, message)


def _overflow(iota: Instruction) -> str | None:
    shape = result_array(iota)
    if shape is None or 0 in shape.dims:
        return None
    dimensions = iota.dimensions_attribute("iota_dimension", shape.rank)
    if not dimensions:
        return None
    last, dtype = shape.dims[dimensions[0]] - 1, shape.dtype
    if dtype in _EXACT and last > 1 << _EXACT[dtype]:
        none = (1 << _EXACT[dtype]) + 1
        return f"this iota counts to {last}, and {dtype} has no whole number {none}"
    if is_integer(dtype) and last not in integer_range(dtype):
        return f"this iota counts to {last}, and {dtype} ends at {integer_range(dtype)[-1]}"
    return None
