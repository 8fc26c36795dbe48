"""Value numbering: equal values have equal numbers, and each level says which values are equal.

Three levels share this. `diff` numbers instructions as they are written, names aside
(`analysis/diff/structural_hash.py`); `fix --verify` numbers elements by where they come from
(`engine/proof/terms.py`); `validate` numbers the operations to which a module is lowered
(`engine/values/lowering/graph.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from typing import Final, Generic, Protocol, TypeVar

from hlo_lint.analysis.walks import operands_first
from hlo_lint.hlo.ir import Computation, Module

UNKNOWN: Final = -1
"""The number of what is not there, or calls itself."""

CalleeNames = Mapping[int, tuple[str, ...]]
"""The names of the computations that instructions call, by the positions of these."""


class ValueNumbering:
    """Gives out numbers, which mean nothing to another numbering.

    >>> numbering = ValueNumbering()
    >>> x = numbering.number(("parameter", 0))
    >>> numbering.number(("negate", x)), numbering.number(("negate", x))
    (1, 1)
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def number(self, key: Hashable) -> int:
        """The number of a value: its opcode, attributes and the numbers of its operands."""
        return self._numbers.setdefault(key, len(self._numbers))


class Numbered(Protocol):
    """A computation with a number."""

    @property
    def number(self) -> int:
        """Computations that compute the same have the same number."""


ComputationT = TypeVar("ComputationT", bound=Numbered)


class ModuleNumbering(ValueNumbering, ABC, Generic[ComputationT]):
    """Numbers the computations of modules, callees first; what modules share is done once."""

    def __init__(self) -> None:
        super().__init__()
        self._computations: dict[Computation, dict[Hashable, ComputationT]] = {}

    @abstractmethod
    def _callees(self, computation: Computation) -> CalleeNames:
        """The computations that each instruction calls."""

    @abstractmethod
    def _numbered(
        self, computation: Computation, callees: Mapping[int, tuple[int, ...]], module: Module
    ) -> ComputationT:
        """A computation, with the numbers of those that each instruction calls."""

    def _context(self, module: Module) -> Hashable:
        """The facts of a module, its computations aside, that bear on their numbers."""
        return None

    def computations(self, module: Module) -> dict[str, ComputationT]:
        """By name, in the order of the text; of a doubled name the first."""
        by_name: dict[str, Computation] = {}
        for computation in module.computations:
            by_name.setdefault(computation.name, computation)
        called = {name: self._callees(computation) for name, computation in by_name.items()}

        def callees_of(name: str) -> list[str]:
            return [to for names in called[name].values() for to in names if to in by_name]

        context = self._context(module)
        done: dict[str, ComputationT] = {}
        for name in operands_first(by_name, callees_of):
            callees = {
                at: tuple([done[to].number if to in done else UNKNOWN for to in names])
                for at, names in called[name].items()
            }
            # Numbered anew only if what it calls changed, or the module's facts.
            key = context, *(number for numbers in callees.values() for number in numbers)
            variants = self._computations.setdefault(by_name[name], {})
            numbered = variants.get(key)
            if numbered is None:
                numbered = variants[key] = self._numbered(by_name[name], callees, module)
            done[name] = numbered
        return {name: done[name] for name in by_name}
