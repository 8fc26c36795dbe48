"""The memo of the verifier: results of a run, which repeat in most of its modules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from hlo_lint.analysis.shape_inference import Signature
from hlo_lint.analysis.stage import Stage
from hlo_lint.analysis.verifier.scope import Header, Violation
from hlo_lint.hlo.ir import Computation

MAX_HELD: Final = 1 << 15
"""The size at which a set of results is emptied."""

Callees: TypeAlias = tuple[Computation | None, ...]
"""The callees of a computation, in the order of their names in its text."""
JudgedKind: TypeAlias = tuple[str, tuple[Signature | None, ...], str, tuple[str | None, ...]]
"""Attributes, signatures of the callees, type, and types of the operands."""
JudgedHeader: TypeAlias = tuple[str, Stage, tuple[str, ...], str | None]
"""Header, stage, and the types of the entry computation's parameters and root."""


@dataclass(eq=False, repr=False)
class BoundMemo:
    """The results under a stage and the counts of a header."""

    kinds: dict[str, set[JudgedKind]] = field(default_factory=dict)
    """The instructions of each opcode that passed, without their names."""
    attributes: dict[str, set[tuple[str, str, str]]] = field(default_factory=dict)
    """Opcode, type and attributes of instructions that passed the checks of a word."""
    outcomes: dict[Computation, dict[Callees, tuple[Violation, ...]]] = field(default_factory=dict)
    """The violations of each computation, by its callees."""


@dataclass(eq=False, repr=False)
class VerifierMemo:
    """The results in all modules of a run."""

    bound: dict[tuple[Stage, Header], BoundMemo] = field(default_factory=dict)
    headers: set[JudgedHeader] = field(default_factory=set)
    """Entry computations that fit their headers."""

    def of(self, stage: Stage, header: Header) -> BoundMemo:
        """The results under a stage and a header."""
        return self.bound.setdefault((stage, header), BoundMemo())

    def keep(self, computations: Iterable[Computation]) -> None:
        """Forget all other computations."""
        kept = set(computations)
        for memo in self.bound.values():
            memo.outcomes = {
                computation: outcomes
                for computation, outcomes in memo.outcomes.items()
                if computation in kept
            }
