"""The call graph of a module, with the opcodes that its computations hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from itertools import chain, compress, count, repeat
from operator import contains
from typing import Final

from hlo_lint.analysis.grouping import by_key
from hlo_lint.hlo.ir import (
    CALLING_ATTRIBUTES,
    Computation,
    Instruction,
    Module,
    cached_analysis,
    called_names,
)
from hlo_lint.hlo.opcodes import CALLERS, OPCODES
from hlo_lint.hlo.records import attributes_before_metadata, attributes_of, opcode_of
from hlo_lint.text.patterns import late

MARKS: Final = frozenset(
    "AssumeGatherIndicesInBound GatherScatterIndicesBitpacked LayoutConstraint MoveToDevice "
    "MoveToHost PinToDevice PinToHost ShardBarrierFrom ShardBarrierTo Sharding "
    "annotate_device_placement xla.sdy.FuncResultSharding".split()
)
"""Targets of custom calls that mark their operand and return it."""


def may_call(opcode: str) -> bool:
    """True for an opcode whose attributes name computations that it runs."""
    return opcode in CALLERS or opcode.endswith("-start")


_CALLS_NOTHING: Final = frozenset([opcode for opcode in OPCODES if not may_call(opcode)])
_NAMES_NOTHING: Final = frozenset(
    [opcode for opcode, facts in OPCODES.items() if facts.allowed.isdisjoint(CALLING_ATTRIBUTES)]
)


@cached_analysis
def opcodes_of(module: Module) -> frozenset[str]:
    """The opcodes of all computations of a module."""
    return frozenset().union(*[computation.opcodes for computation in module.computations])


@cached_analysis
def holders(module: Module) -> Mapping[str, Sequence[Computation]]:
    """The computations that hold each opcode."""
    return by_key(
        (opcode, computation)
        for computation in module.computations
        for opcode in computation.opcodes
    )


def instructions_of(module: Module, opcode: str) -> Iterator[Instruction]:
    """The instructions of an opcode in a module; other computations are not visited."""
    for computation in holders(module).get(opcode, ()):
        yield from computation.with_opcode(opcode)


def positions_of(computation: Computation, opcodes: Iterable[str]) -> Sequence[int]:
    """The positions of the instructions of some opcodes, in the order of the text."""
    held = computation.opcodes.intersection(opcodes)
    return sorted(chain.from_iterable(map(computation.positions, held)))


def positions_with(computation: Computation, word: str) -> Iterator[int]:
    """The positions of the instructions whose attributes contain a word, searched without a loop
    in Python."""
    texts = map(attributes_of, computation.rows)
    return compress(count(), map(contains, texts, repeat(word)))


def with_opcodes(computation: Computation, opcodes: Iterable[str]) -> Iterator[Instruction]:
    """The instructions of some opcodes in a computation, in the order of the text."""
    return map(computation.at, positions_of(computation, opcodes))


def fusions_of(module: Module, bodies: Set[str]) -> Iterator[tuple[Instruction, Computation]]:
    """The fusions whose body is among `bodies`, outside of other fusions, each with its body."""
    if not bodies:  # most modules
        return
    for computation in module.nonfusion_computations:
        if bodies.isdisjoint(computation.fusion_computations):
            continue
        for number, names in calls_of(computation).items():
            body = module.computation(names[0]) if names and names[0] in bodies else None
            if body is not None and opcode_of(computation.rows[number]) == "fusion":
                yield computation.at(number), body


@cached_analysis
def calls_of(computation: Computation) -> Mapping[int, tuple[str, ...]]:
    """The names of the computations that each instruction calls, by its position.

    Instructions of unknown opcodes are left out: they may not run the computations they name.
    """
    if computation.opcodes <= _CALLS_NOTHING:
        return {}
    callers = filter(may_call, computation.opcodes - _CALLS_NOTHING)
    return {
        number: _called_at(computation, number) for number in positions_of(computation, callers)
    }


@cached_analysis
def named_computations(computation: Computation) -> Mapping[int, tuple[str, ...]]:
    """The names of computations in each instruction's attributes, even of an unknown opcode."""
    return {
        number: names
        for number in positions_of(computation, computation.opcodes - _NAMES_NOTHING)
        if (names := _called_at(computation, number))
    }


def names_called_in(computation: Computation) -> Iterator[str]:
    """The names of computations in all attributes, once for each time."""
    return chain.from_iterable(named_computations(computation).values())


def callees_of(
    module: Module, computation: Computation, opcodes: Set[str] | None = None
) -> Iterator[Computation]:
    """The computations that a computation calls, by instructions of some opcodes or of any."""
    rows = computation.rows
    for number, names in calls_of(computation).items():
        if opcodes is None or opcode_of(rows[number]) in opcodes:
            yield from filter(None, map(module.computation, names))


def _called_at(computation: Computation, number: int) -> tuple[str, ...]:
    if number in computation.inline:
        return computation.at(number).called_computations
    return _called_by(attributes_of(computation.rows[number]))


@lru_cache(maxsize=1 << 13)
def _called_by(attributes: str) -> tuple[str, ...]:
    """The names of the computations that a line calls, cached: dumps share most lines."""
    return callees_in(attributes_before_metadata(attributes))


@cached_analysis
def inline_computations(module: Module) -> frozenset[Computation]:
    """The computations written inside attributes."""
    calls = (several for computation in module for several in computation.inline.values())
    return frozenset(inline.computation for several in calls for inline in several)


@cached_analysis
def uncalled_computations(module: Module) -> Sequence[Computation]:
    """The computations, except the entry, that no instruction names, even of an unknown opcode.

    Empty for a module without an entry.
    """
    if module.entry is None or len(module.computations) == 1:
        return ()
    called = {module.entry.name, *chain.from_iterable(map(names_called_in, module.computations))}
    return [computation for computation in module.computations if computation.name not in called]


def callee_name(instruction: Instruction, attribute: str) -> str | None:
    """The name of the computation in an attribute; None unless it is a single name."""
    value = instruction.attribute_or_none(attribute)
    if isinstance(value, tuple) and len(value) == 1:
        (value,) = value
    return value if isinstance(value, str) and "=" not in value else None


def callees_in(attributes: str) -> tuple[str, ...]:
    """The names of the computations that attributes call, without inline computations."""
    alone = _ONE_CALLEE.match(attributes)
    return called_names(attributes) if alone is None else (alone[1],)


_ONE_CALLEE: Final = late(
    r"(?:, (?:kind=k\w+|dimensions=\{[\d,]*\}))?, (?:calls|to_apply)=%?([\w.\-]+)"
    r"(?=\Z|, (?:frontend_attributes|control-predecessors|backend_config)=)"
)
"""The attributes of nearly all fusions, reductions and calls: XLA prints these three last."""
