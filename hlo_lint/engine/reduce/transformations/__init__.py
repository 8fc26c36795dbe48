"""The transformations, in the order in which a reduction tries them."""

from __future__ import annotations

from typing import Final

from hlo_lint.engine.reduce.transformations import (
    attributes,
    instructions,
    parameters,
    shapes,
    slices,
)
from hlo_lint.engine.reduce.transformations.base import Transformation

COARSE: Final[tuple[Transformation, ...]] = (
    slices.KeepSlice(),
    attributes.DropHeader(),
    slices.DropComputations(),
    parameters.DropOutputs(),
    slices.MoveRoot(),
    slices.PromoteComputation(),
    parameters.CutOperands(),
    instructions.DropUnread(),
)
"""Transformations that make a large module small."""
FINE: Final[tuple[Transformation, ...]] = (
    instructions.ForwardOperand(),
    instructions.MergeValues(),
    instructions.InlineCallee(),
    instructions.ForwardElement(),
    instructions.ZeroOut(),
    parameters.DropCalleeParameters(),
    parameters.DropLoopState(),
    shapes.ShortenLiterals(),
    shapes.LowerConstants(),
    attributes.DropAttributes(),
    *(shapes.ShrinkDimensions(size) for size in (1, 2, 3, 4, 8, 16, 32, 64, 128, 256)),
    shapes.PlainElementTypes(),
)
"""Transformations of single instructions, attributes and dimensions."""
LAST: Final[tuple[Transformation, ...]] = (attributes.Rename(),)
"""Transformations that are tried once, when no other makes the module smaller."""
