"""The base classes of transformations: they list targets in a draft, then change them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from hlo_lint.engine.reduce.draft import Draft, DraftComputation, DraftInstruction

ReductionTarget = tuple[Any, ...]
"""A place to change: hashable names, numbers and indices, as the transformation needs."""
Anchor = tuple[str, str]
"""The computation and the instruction at which a problem shows."""


class Transformation(ABC):
    """A way to change a draft."""

    name: ClassVar[str]
    """A phrase that begins with a verb, for the progress bar."""
    alternatives: ClassVar[bool] = False
    """True if only a single target can be changed at a time, instead of many."""
    sweeps: ClassVar[bool] = True
    """True if parts that the change leaves unused are dropped."""

    @abstractmethod
    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[ReductionTarget]:
        """The places, most promising first."""

    @abstractmethod
    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        """The draft with some of its targets changed; None if that is impossible.

        Unused parts may be left in it.
        """


class InstructionTransformation(Transformation):
    """A transformation whose targets are instructions."""

    @abstractmethod
    def is_target(self, body: DraftComputation, row: DraftInstruction) -> bool:
        """True for an instruction that can be changed."""

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[ReductionTarget]:
        places = draft.places()
        return [(body.name, row.name) for body, row in places if self.is_target(body, row)]


class InstructionReplacement(InstructionTransformation):
    """A transformation that replaces each target by another instruction."""

    @abstractmethod
    def changed(self, row: DraftInstruction) -> DraftInstruction:
        """The replacement of an instruction."""

    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        places = set(chosen)
        return draft.with_rows(
            lambda body, row: self.changed(row) if (body.name, row.name) in places else row
        )
