"""Callers that run a computation instruction by instruction: loops, calls, branches, starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from hlo_lint.analysis.buffers import ResultPart, operand_position
from hlo_lint.analysis.calls import callee_name, with_opcodes
from hlo_lint.analysis.grouping import by_key
from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis
from hlo_lint.hlo.opcodes import CONTROL_FLOW


@cached_analysis
def parameters_of(computation: Computation) -> Mapping[int | None, Sequence[int]]:
    """The positions of a computation's parameters, by number; None for an unreadable number."""
    parameters = computation.with_opcode("parameter")
    return by_key((parameter.parameter_number, parameter.number) for parameter in parameters)


class Calls:
    """The callers and callees of a module that run instruction by instruction."""

    def __init__(self, module: Module) -> None:
        self._module = module
        fused = module.fusion_computations
        self.computations = tuple(c for c in module.computations if c.name not in fused)
        self._callees: dict[Instruction, tuple[Computation, ...]] = {}

    @cached_property
    def _callers(self) -> Mapping[str, Sequence[Instruction]]:
        # Reducers and comparators run once for each element: they have no schedule of their own.
        return by_key(
            (callee.name, caller)
            for computation in self.computations
            for caller in with_opcodes(computation, filter(_runs, computation.opcodes))
            for callee in self.callees(caller)
        )

    def callees(self, caller: Instruction) -> tuple[Computation, ...]:
        """The computations that a caller runs; for a loop, the body first."""
        callees = self._callees.get(caller)
        if callees is None:
            callees = tuple(filter(None, map(self._module.computation, self._names(caller))))
            self._callees[caller] = callees
        return callees

    def _names(self, caller: Instruction) -> Sequence[str]:
        if caller.opcode == "while":
            return [callee_name(caller, name) or "" for name in ("body", "condition")]
        if caller.opcode in ("call", "conditional"):
            return caller.called_computations
        if caller.opcode.endswith("-start"):
            return (callee_name(caller, "calls") or "",)  # not `to_apply`, which works on elements
        return ()

    def callers(self, computation: Computation) -> tuple[Instruction, ...]:
        """The instructions that run a computation."""
        return tuple(self._callers.get(computation.name, ()))

    def parameters(self, caller: Instruction, operand: int) -> Iterator[Instruction]:
        """The parameters that an operand is passed to."""
        callees = self.callees(caller)
        if caller.opcode == "conditional":  # which selects by operand 0
            callees, operand = callees[operand - 1 : operand] if operand else (), 0
        for callee in callees:
            for parameter in parameters_of(callee).get(operand, ()):
                yield callee.at(parameter)

    def argument(self, caller: Instruction, parameter: Instruction) -> ResultPart | None:
        """The argument that a caller passes for a parameter."""
        number = parameter.parameter_number
        if caller.opcode == "conditional":
            callees = [callee.name for callee in self.callees(caller)]
            number = callees.index(parameter.computation.name) + 1
        return None if number is None else operand_position(caller, number, ())


def _runs(opcode: str) -> bool:
    return opcode in CONTROL_FLOW or opcode.endswith("-start")


sequential_calls = cached_analysis(Calls)
"""The callers and callees of a module, read once for all rules."""
