"""The transformations, in the order in which a reduction tries them."""

from __future__ import annotations

from typing import Final

from hlo_lint.engine.reduce.transformations.attributes import (
    DropAttributes,
    DropHeader,
    DropMetadata,
)
from hlo_lint.engine.reduce.transformations.base import Transformation
from hlo_lint.engine.reduce.transformations.instructions import (
    DropControlDependencies,
    DropUnread,
    ForwardElement,
    ForwardOperand,
    InlineCallee,
    MergeValues,
    ZeroOut,
)
from hlo_lint.engine.reduce.transformations.names import Rename
from hlo_lint.engine.reduce.transformations.parameters import (
    CutOperands,
    DropCalleeParameters,
    DropLoopState,
    DropOutputs,
)
from hlo_lint.engine.reduce.transformations.shapes import (
    LowerConstants,
    PlainElementTypes,
    ShortenLiterals,
    ShrinkDimensions,
)
from hlo_lint.engine.reduce.transformations.slices import (
    DropComputations,
    KeepSlice,
    MoveRoot,
    PromoteComputation,
)

COARSE: Final[tuple[Transformation, ...]] = (
    KeepSlice(),
    DropMetadata(),
    DropHeader(),
    DropComputations(),
    DropOutputs(),
    MoveRoot(),
    PromoteComputation(),
    CutOperands(),
    DropUnread(sweeps=True),
    DropUnread(sweeps=False),
)
"""Those that make a large module small."""
FINE: Final[tuple[Transformation, ...]] = (
    ForwardOperand(),
    MergeValues(),
    InlineCallee(),
    ForwardElement(),
    ZeroOut(sweeps=True),
    ZeroOut(sweeps=False),
    DropCalleeParameters(),
    DropLoopState(),
    DropControlDependencies(),
    ShortenLiterals(),
    LowerConstants(),
    DropAttributes(),
    *(ShrinkDimensions(size) for size in (1, 2, 3, 4, 8, 16, 32, 64, 128, 256)),
    PlainElementTypes(),
    MergeValues(),
)
"""Those that look at single instructions, attributes and dimensions."""
LAST: Final[tuple[Transformation, ...]] = (Rename(),)
"""Those that are tried once, when nothing else makes the module smaller."""
