"""The shape check of an instruction from its text alone: a pure function, cached by text."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from importlib import import_module
from typing import Final, NamedTuple

from hlo_lint.analysis.shape_inference.operation import (
    Impossible,
    ImpossibleMix,
    Inference,
    Operation,
    Signature,
    Table,
    Unknowable,
)
from hlo_lint.analysis.shape_inference.types import (
    compatible,
    describe_mismatch,
    layout_mismatch,
    without_memory_space,
    wrong_result,
)
from hlo_lint.hlo.opcodes import BINARY, UNARY
from hlo_lint.hlo.shape import ArrayShape, Shape, shape_or_none

_FAMILIES: Final = {
    "arrangement": (
        "bitcast broadcast concatenate copy dynamic-reshape dynamic-slice dynamic-update-slice "
        "gather get-dimension-size iota pad reshape reverse scatter set-dimension-size shuffle "
        "slice transpose"
    ),
    "asynchronous": (
        "all-gather-done all-reduce-done async-done async-start async-update "
        "collective-permute-done copy-done copy-start recv recv-done send send-done"
    ),
    "collectives": (
        "all-gather all-gather-start all-reduce all-reduce-start all-to-all collective-broadcast "
        "collective-permute collective-permute-start partition-id ragged-all-to-all "
        "reduce-scatter replica-id"
    ),
    "control": (
        "add-dependency after-all call conditional constant custom-call domain fusion "
        "get-tuple-element infeed opt-barrier outfeed parameter tuple while"
    ),
    "elementwise": (
        "clamp map select rng rng-bit-generator rng-get-and-update-state "
        + " ".join((*UNARY, *BINARY))
    ),
    "linear_algebra": (
        "batch-norm-grad batch-norm-inference batch-norm-training cholesky dot fft ragged-dot "
        "scaled-dot triangular-solve"
    ),
    "reduction": "convolution reduce reduce-window scan select-and-scatter sort topk",
}
"""The opcodes of each module of inferences. Modules are imported on demand: imports are slow, and
a small text needs few."""
FAMILY_OF: Final = {
    opcode: family for family, opcodes in _FAMILIES.items() for opcode in opcodes.split()
}
IGNORES_TYPE: Final = frozenset("add-dependency after-all outfeed recv-done send send-done".split())
"""Opcodes whose type XLA's parser derives from their operands; it ignores the printed type."""


class Refusal(NamedTuple):
    """XLA would infer no shape."""

    message: str
    """The error, with its operand or attribute."""


class Open(Enum):
    """The reason for inferring no shape of an instruction without errors."""

    FREE = "free"
    """The opcode leaves its shape to the printed type."""
    UNKNOWN = "unknown"
    """The text lacks a fact that the inference needs, or the opcode is unknown."""


Inferred = Shape | Refusal | Open


class ShapeCheck(NamedTuple):
    """The inferred shape of an instruction, and the errors of the printed shape."""

    inferred: Inferred
    errors: tuple[str, ...] = ()
    """Errors at any stage."""
    layout_error: str = ""
    """The error if only the layouts of the inferred and the printed shape differ: once layouts are
    assigned, of opcodes that keep their operand's layout."""
    precision_error: str = ""
    """The error unless floating-point types may mix."""
    exact_error: str = ""
    """The error if only tiles, element sizes, memory spaces, dynamic dimensions or layouts that are
    left out differ: where layouts are known to be assigned, `ShapesSame` compares these, too."""


@lru_cache(maxsize=1 << 10)
def inference_of(opcode: str) -> Inference | None:
    """The inference of an opcode; None if unknown.

    `all-gather-start` is an opcode of its own; `fusion-start` is how an async-start is printed that
    calls a computation of one fusion.
    """
    family = FAMILY_OF.get(opcode)
    if family is not None:
        table: Table = import_module(f"hlo_lint.analysis.shape_inference.{family}").OPCODES
        return table[opcode]
    wrapped, _, part = opcode.rpartition("-")
    if wrapped not in FAMILY_OF or part not in ("start", "update", "done"):
        return None
    from hlo_lint.analysis.shape_inference.asynchronous import sugar

    carried = inference_of(wrapped)
    assert carried is not None
    return sugar(wrapped, part, carried)


_EXACT: Final = frozenset(
    "call conditional copy-done dynamic-update-slice fusion get-tuple-element opt-barrier tuple "
    "while".split()
)
"""Opcodes whose shape `ShapeVerifier` compares in full in layout-sensitive mode."""


@lru_cache(maxsize=1 << 15)
def check_shape(
    opcode: str,
    printed: str,
    operands: tuple[str, ...],
    tail: str,
    callees: tuple[Signature | None, ...],
) -> ShapeCheck:
    """Check the printed type of an instruction, with all types as text.

    Empty texts stand for types that are left out or unknown.
    """
    inference = inference_of(opcode)
    if inference is None:
        return ShapeCheck(Open.UNKNOWN)
    shape = shape_or_none(printed) if printed else None
    shapes = tuple([shape_or_none(text) if text else None for text in operands])
    operation = Operation(opcode, shapes, tail, callees, is_typed=bool(printed))
    inferred = _infer(inference, operation)
    if isinstance(inferred, Refusal):
        return ShapeCheck(inferred, (inferred.message,))
    if not isinstance(inferred, Open) and (opcode in IGNORES_TYPE or not printed):
        return ShapeCheck(inferred, _errors(inference, operation, inferred, inferred)[0])
    if shape is None:
        return ShapeCheck(inferred)
    if inference.free_type and isinstance(inferred, ArrayShape) and isinstance(shape, ArrayShape):
        inferred = inferred._replace(dtype=shape.dtype)
    if inferred == shape and inference.check is None:
        return ShapeCheck(inferred)
    errors, precision_error = _errors(inference, operation, inferred, shape)
    layout_error = exact_error = ""
    if inference.keeps_layout and not errors and not isinstance(inferred, Refusal | Open):
        message = wrong_result(opcode)
        layout_error = layout_mismatch(inferred, shape, message)
        if opcode == "dynamic-update-slice":
            # In a fusion CheckShape compares without tiles and memory spaces.
            inferred = without_memory_space(inferred, tiles=False)
            shape = without_memory_space(shape, tiles=False)
        if not layout_error:
            is_exact = opcode in _EXACT
            exact_error = layout_mismatch(inferred, shape, message, exact=is_exact, filled=True)
    return ShapeCheck(inferred, errors, layout_error, precision_error, exact_error)


def _infer(inference: Inference, operation: Operation) -> Inferred:
    try:
        inference.demand_arity(operation)
        return Open.FREE if inference.infer is None else inference.infer(operation)
    except Impossible as refusal:
        return Refusal(str(refusal))
    except Unknowable:
        return Open.UNKNOWN


def _errors(
    inference: Inference, operation: Operation, inferred: Inferred, printed: Shape
) -> tuple[tuple[str, ...], str]:
    """The errors at any stage, and the error unless floating-point types may mix."""
    precision_error = ""
    if not isinstance(inferred, Refusal | Open) and not compatible(inferred, printed):
        ours, theirs = describe_mismatch(inferred, printed)
        message = wrong_result(operation.opcode).format(ours, theirs)
        if not compatible(inferred, printed, any_precision=not inference.keeps_layout):
            return (message,), ""
        precision_error = message
    if inference.check is not None:
        try:
            inference.check(operation, printed)
        except ImpossibleMix as refusal:
            precision_error = str(refusal)
        except Impossible as refusal:
            return (str(refusal),), ""
        except Unknowable:
            pass
    return (), precision_error
