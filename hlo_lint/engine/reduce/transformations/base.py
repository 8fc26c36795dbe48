"""A transformation: the places where it may make a draft smaller, and how."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from hlo_lint.engine.reduce.draft import Draft, DraftComputation, DraftInstruction

ReductionTarget = tuple[Any, ...]
"""A place: names, numbers and indices, as the transformation needs; it can be hashed."""
Anchor = tuple[str, str]
"""The computation and the instruction at which a problem shows."""


class Transformation(ABC):
    """A way to change a draft."""

    name: ClassVar[str]
    """A verb first, as the progress bar shows it."""
    alternatives: ClassVar[bool] = False
    """True if at most one target is changed at a time; else many may be, and are at first."""

    sweeps: bool = True
    """True if what the change leaves unused goes with it."""

    @abstractmethod
    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[ReductionTarget]:
        """The places, most promising first."""

    @abstractmethod
    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        """The draft with some of its targets changed; None where that cannot be.

        Unused parts may be left in it.
        """


class InstructionTransformation(Transformation):
    """A change with an instruction as each target."""

    @abstractmethod
    def is_target(self, body: DraftComputation, row: DraftInstruction) -> bool:
        """True of an instruction that can be changed."""

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[ReductionTarget]:
        places = draft.places()
        return [(body.name, row.name) for body, row in places if self.is_target(body, row)]


class InstructionReplacement(InstructionTransformation):
    """A change that puts another instruction in the place of each target."""

    @abstractmethod
    def changed(self, row: DraftInstruction) -> DraftInstruction:
        """The instruction that takes its place."""

    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        places = set(chosen)
        return draft.with_rows(
            lambda body, row: self.changed(row) if (body.name, row.name) in places else row
        )
