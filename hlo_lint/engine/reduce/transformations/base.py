"""A transformation: the places where it may make a draft smaller, and how."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from hlo_lint.engine.reduce.draft import Draft

Target = tuple[str, ...]
"""A place: names of computations, instructions, attributes … as the transformation needs."""
Anchor = tuple[str, str]
"""The computation and the instruction at which a problem shows."""


class Transformation(ABC):
    """One kind of change."""

    name: ClassVar[str]
    """A verb first, as the progress bar shows it."""
    alternatives: ClassVar[bool] = False
    """True if at most one target is changed at a time; else many may be, and are at first."""

    sweeps: bool = True
    """True if what the change leaves unused goes with it."""

    @abstractmethod
    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[Target]:
        """The places, most promising first."""

    @abstractmethod
    def apply(self, draft: Draft, chosen: Sequence[Target]) -> Draft | None:
        """The changed draft; None if nothing is left to change. Unused parts may be left in it."""
