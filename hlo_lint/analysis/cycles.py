"""Cycles of a module, of operands or of calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from hlo_lint.analysis.calls import calls_of
from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis
from hlo_lint.text.errors import HloSyntaxError


class Cycles(NamedTuple):
    """The cycles of a module, of either kind."""

    operands: tuple[Instruction, ...]
    """Instructions whose record lost a reference that closes a cycle (`without_cycles`)."""
    calls: tuple[Instruction, ...]
    """Instructions whose callee calls, directly or not, their own computation."""


@cached_analysis
def cycles_of(module: Module) -> Cycles | None:
    """The cycles of a module; None for every module that XLA accepts.

    Check this before any walk over callees, which might not end; walks over operands or users
    always end.
    """
    operands = tuple(
        computation.at(number)
        for computation in module.computations
        for number in computation.cyclic
    )
    calls = tuple(_recursive_calls(module))
    return Cycles(operands, calls) if operands or calls else None


def refuse_cycles(module: Module) -> None:
    """Raise for a module with a cycle.

    Raises:
        HloSyntaxError: at the first instruction on a cycle.
    """
    cycles = cycles_of(module)
    if cycles is not None:
        instruction = (*cycles.operands, *cycles.calls)[0]
        lines = module.file.lines
        position = lines.position(module.span(instruction).start)
        message = f"%{instruction.name} is on a cycle of operands or calls"
        raise HloSyntaxError(message, position, path=module.path, text=lines.text)


def _callees(computation: Computation) -> Iterable[str]:
    return chain.from_iterable(calls_of(computation).values())


def _recursive_calls(module: Module) -> Iterator[Instruction]:
    above: set[str] = set()
    for computation in module.computations:
        if not above.issuperset(_callees(computation)):
            break  # a name that is defined below, or not at all
        above.add(computation.name)
    else:
        return
    callees: dict[str, frozenset[str]] = {}
    for computation in module.computations:
        name = computation.name
        callees[name] = callees.get(name, frozenset()).union(_callees(computation))
    import networkx  # only for modules that call computations defined below

    groups = networkx.strongly_connected_components(networkx.DiGraph(callees))
    group = {name: number for number, names in enumerate(groups) for name in names}
    for computation in module.computations:
        for number, names in calls_of(computation).items():
            if any(group[name] == group[computation.name] for name in names):
                yield computation.at(number)
