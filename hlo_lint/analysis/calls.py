"""The opcodes that a module runs, and the computations that its instructions call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain

from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis, called_names
from hlo_lint.hlo.opcodes import CALLERS
from hlo_lint.hlo.records import attributes_of, without_metadata


@cached_analysis
def opcodes_of(module: Module) -> frozenset[str]:
    """The opcodes of all its computations: where one is missing, many questions are answered."""
    return frozenset().union(*[computation.opcodes for computation in module.computations])


@cached_analysis
def holders(module: Module) -> Mapping[str, Sequence[Computation]]:
    """The computations that hold each opcode."""
    holders: dict[str, list[Computation]] = {}
    for computation in module.computations:
        for opcode in computation.opcodes:
            holders.setdefault(opcode, []).append(computation)
    return holders


def instructions_of(module: Module, opcode: str) -> Iterator[Instruction]:
    """The instructions of one opcode in a module; computations without any are not looked at."""
    for computation in holders(module).get(opcode, ()):
        yield from computation.with_opcode(opcode)


@cached_analysis
def calls_of(computation: Computation) -> Mapping[int, tuple[str, ...]]:
    """The names of the computations that each instruction calls, by its position.

    Instructions of unknown opcodes are left out: nothing says that they run what they name.
    """
    opcodes = computation.opcodes
    callers = opcodes & CALLERS
    if any(map(_is_start, opcodes)):
        callers |= set(filter(_is_start, opcodes))
    if not callers:
        return {}
    inline, rows = computation.inline, computation.rows
    numbers = chain.from_iterable(map(computation.positions, callers))
    return {
        number: computation.at(number).called_computations
        if number in inline
        else called_names(without_metadata(attributes_of(rows[number])))
        for number in sorted(numbers)
    }


@lru_cache(maxsize=1 << 10)
def _is_start(opcode: str) -> bool:
    return opcode.endswith("-start")
