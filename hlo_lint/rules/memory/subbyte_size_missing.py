"""Unpacked arrays of sub-byte elements in a final module."""

from __future__ import annotations

from functools import lru_cache

from hlo_lint.analysis.kinds import types_in
from hlo_lint.hlo.dtypes import SUBBYTE
from hlo_lint.hlo.ir import Computation, Module
from hlo_lint.hlo.kinds import types_of
from hlo_lint.hlo.records import type_of
from hlo_lint.hlo.shape import ArrayShape, Shape, ShapeSyntaxError, TupleShape, parse_shape
from hlo_lint.rules.base import Bad, Findings, Good, Rule, Stage
from hlo_lint.rules.findings import Finding

_FINAL = {".ir-no-opt.ll": ""}


class SubbyteSizeMissing(Rule):
    """An array of sub-byte elements without the element size that packs them.

    ## Why
    SubByteSizeSetter gives every array of s4, u4, s2 … its `E(4)` or `E(2)` after layout
    assignment. XLA:GPU runs it again after normalization, because layouts that passes build from a
    dimension order lack it. An array without it takes a byte per element, but its users read packed
    elements: half of the data is wrong, or the sizes of a bitcast differ. XLA rejects a superfluous
    `E`, but not a missing `E`.
    """

    examples = (
        Bad.entry(
            """
            p = s4[8,4]{1,0:E(4)} parameter(0)
            ROOT c = s4[8,4]{0,1} copy(p)  // error
            """,
            artefacts=_FINAL,
        ),
        Good.entry(
            """
            p = s4[8,4]{1,0:E(4)} parameter(0)
            ROOT c = s4[8,4]{0,1:E(4)} copy(p)
            """,
            artefacts=_FINAL,
        ),
    )

    mentions = tuple(f"{dtype}[" for dtype in SUBBYTE)

    def check(self, module: Module, stage: Stage) -> Findings:
        """Instructions of a final module with an unpacked sub-byte array in their type."""
        if not stage.final or stage.backend is None:
            return
        # Releases before sub-byte-size-setter print no E and pack no array.
        if stage.release is not None or any("E(" in type_text for type_text in types_in(module)):
            for computation in module.computations:
                yield from _unpacked_arrays(computation)


def _unpacked_arrays(computation: Computation) -> Findings:
    wrong = {type_text for type_text in types_of(computation) if _unpacked(type_text) is not None}
    if wrong:
        for number, row in enumerate(computation.rows):
            array = _unpacked(type_of(row)) if type_of(row) in wrong else None
            if array is not None:
                bits = SUBBYTE[array.dtype]
                yield Finding(
                    computation.at(number),
                    f"{array} lacks E({bits}): its elements of {bits} bits take a byte each",
                )


@lru_cache(maxsize=1 << 14)
def _unpacked(text: str) -> ArrayShape | None:
    """The first unpacked sub-byte array of a type; scalars need no packing."""
    if not any(dtype in text for dtype in SUBBYTE):
        return None
    try:
        return _first(parse_shape(text))
    except ShapeSyntaxError:
        return None


def _first(shape: Shape) -> ArrayShape | None:
    if isinstance(shape, TupleShape):
        return next((array for element in shape.elements if (array := _first(element))), None)
    if not isinstance(shape, ArrayShape) or shape.dtype not in SUBBYTE or not shape.rank:
        return None
    packed = shape.layout is not None and shape.layout.element_size_in_bits
    return None if packed else shape
