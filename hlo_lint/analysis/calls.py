"""The opcodes that a module runs, and the computations that its instructions call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis, called_names
from hlo_lint.hlo.opcodes import CALLERS, OPCODES
from hlo_lint.hlo.records import attributes_before_metadata, attributes_of
from hlo_lint.text.patterns import late

_CALLS_NOTHING: Final = frozenset(
    opcode for opcode in OPCODES.keys() - CALLERS if not opcode.endswith("-start")
)


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
    if computation.opcodes <= _CALLS_NOTHING:
        return {}
    callers = [
        opcode
        for opcode in computation.opcodes - _CALLS_NOTHING
        if opcode in CALLERS or opcode.endswith("-start")
    ]
    inline, rows = computation.inline, computation.rows
    numbers = chain.from_iterable(map(computation.positions, callers))
    calls: dict[int, tuple[str, ...]] = {}
    for number in sorted(numbers):
        attributes = attributes_before_metadata(attributes_of(rows[number]))
        if number in inline:
            calls[number] = computation.at(number).called_computations
        elif (alone := _match_one_callee(attributes)) is not None:
            calls[number] = (alone[1],)
        else:
            calls[number] = called_names(attributes)
    return calls


_match_one_callee = late(
    r"(?:, (?:kind=k\w+|dimensions=\{[\d,]*\}))?, (?:calls|to_apply)=%?([\w.\-]+)"
).fullmatch
"""The attributes of nearly all fusions, reductions and calls."""
