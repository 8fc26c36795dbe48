"""Value numbering: equal values have equal numbers; each level defines equality.

Three levels share this. `diff` numbers instructions as written, without names
(`analysis/diff/structural_hash.py`); `fix --verify` numbers elements by their origin
(`engine/proof/terms.py`); `validate` numbers the operations that a module is lowered to
(`engine/values/lowering/graph.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from typing import Final, Generic, Protocol, TypeVar

from hlo_lint.analysis.calls import named_computations
from hlo_lint.analysis.walks import operands_first
from hlo_lint.hlo.ir import Computation, Module

UNKNOWN: Final = -1
"""The number of an undefined value, or of a recursive call."""


class ValueNumbering:
    """Assigns numbers; numbers of different numberings are not comparable.

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
        """Computations with equal values have equal numbers."""


ComputationT = TypeVar("ComputationT", bound=Numbered)


class ModuleNumbering(ValueNumbering, ABC, Generic[ComputationT]):
    """Numbers the computations of modules, callees first; shared computations only once."""

    def __init__(self) -> None:
        super().__init__()
        self._computations: dict[Computation, dict[tuple[int, ...], ComputationT]] = {}

    @abstractmethod
    def _numbered(
        self, computation: Computation, callees: Mapping[int, tuple[int, ...]], module: Module
    ) -> ComputationT:
        """Number a computation, given the numbers of each instruction's callees."""

    def computations(self, module: Module) -> dict[str, ComputationT]:
        """The numbered computations by name, in the order of the text; the first of each name."""
        by_name: dict[str, Computation] = {}
        for computation in module.computations:
            by_name.setdefault(computation.name, computation)
        called = {name: named_computations(body) for name, body in by_name.items()}

        def callees_of(name: str) -> list[str]:
            return [to for names in called[name].values() for to in names if to in by_name]

        done: dict[str, ComputationT] = {}
        for name in operands_first(by_name, callees_of):
            callees = {
                number: tuple([done[to].number if to in done else UNKNOWN for to in names])
                for number, names in called[name].items()
            }
            # Renumbered only if its callees changed.
            key = tuple([number for numbers in callees.values() for number in numbers])
            variants = self._computations.setdefault(by_name[name], {})
            numbered = variants.get(key)
            if numbered is None:
                numbered = variants[key] = self._numbered(by_name[name], callees, module)
            done[name] = numbered
        return {name: done[name] for name in by_name}
