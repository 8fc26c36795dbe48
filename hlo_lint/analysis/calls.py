"""The opcodes that a module runs, and the computations that its instructions call."""

from __future__ import annotations

from collections.abc import Mapping

from hlo_lint.hlo.ir import Computation, Module, cached_analysis, called_names
from hlo_lint.hlo.opcodes import CALLERS
from hlo_lint.hlo.records import attributes_of, opcode_of


@cached_analysis
def opcodes_of(module: Module) -> frozenset[str]:
    """The opcodes of all its computations: where one is missing, many questions are answered."""
    return frozenset().union(*[computation.opcodes for computation in module.computations])


@cached_analysis
def calls_of(computation: Computation) -> Mapping[int, tuple[str, ...]]:
    """The names of the computations that each instruction calls, by its position.

    Instructions of unknown opcodes are left out: nothing says that they run what they name.
    """
    callers = {
        opcode for opcode in computation.opcodes if opcode in CALLERS or opcode.endswith("-start")
    }
    if not callers:
        return {}
    inline = computation.inline
    return {
        number: computation.at(number).called_computations
        if number in inline
        else called_names(_without_metadata(attributes_of(row)))
        for number, row in enumerate(computation.rows)
        if opcode_of(row) in callers
    }


def _without_metadata(attributes: str) -> str:
    """The attributes but for metadata at their end, which is most of the text and calls nothing."""
    at = attributes.find(", metadata={")
    return (
        attributes[:at]
        if at >= 0 and attributes.find("}", at) == len(attributes) - 1
        else attributes
    )
