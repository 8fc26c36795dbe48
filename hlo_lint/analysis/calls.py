"""The computations that instructions call, by their names."""

from __future__ import annotations

from collections.abc import Mapping

from hlo_lint.hlo.ir import Computation, cached_analysis
from hlo_lint.hlo.opcodes import CALLERS
from hlo_lint.hlo.records import opcode_of


@cached_analysis
def calls_of(computation: Computation) -> Mapping[int, tuple[str, ...]]:
    """The names of the computations that each instruction calls, by its position.

    Instructions of unknown opcodes are left out: nothing says that they run what they name.
    """
    callers = {each for each in computation.opcodes if each in CALLERS or each.endswith("-start")}
    if not callers:
        return {}
    return {
        number: computation.at(number).called_computations
        for number, row in enumerate(computation.rows)
        if opcode_of(row) in callers
    }
