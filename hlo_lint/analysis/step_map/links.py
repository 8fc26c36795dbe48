"""A link from an instruction before a pass to its successor after it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from hlo_lint.hlo.ir import Instruction


class LinkKind(StrEnum):
    """The effect of a pass on an instruction."""

    KEPT = "kept"
    """The same computation and name."""
    RENAMED = "renamed"
    """The same value in the same computation, under a new name."""
    CLONED = "cloned"
    """One of several new instructions, or a copy beside the original."""
    MERGED = "merged"
    """One new instruction for several old ones: an equal value, or combined collectives."""
    MOVED = "moved"
    """In another computation: fused, outlined, inlined, unrolled."""
    CONVERTED = "converted"
    """To or from asynchronous form."""
    REPLACED = "replaced"
    """A different value, which all its readers read now."""


class Link(NamedTuple):
    """An instruction before a pass and its successor."""

    old: Instruction
    new: Instruction
    kind: LinkKind
    parts: tuple[Instruction, ...]
    """The instructions that together do what the old one did: `new` alone; a start, its done and
    the operation that it runs; all new instructions that compute a replacement."""
    is_equal: bool = False
    """True if both compute the same value from the same operands."""
