"""Evidence that layout-assignment has run on a module, or has not.

Before it, printed layouts are those of shape inference (`shape_inference.cc`). A transpose permutes
the order of its operand, elementwise instructions keep it, and other results are descending; a
custom call may have the order that its kernel needs. Any other order was assigned, or written by
hand.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextlib import suppress
from enum import Enum

from hlo_lint.hlo.ir import Computation, HloFile, Module, cached_analysis
from hlo_lint.hlo.kinds import OPCODE, OPERAND_TYPES, TYPE, RowKind, reading_of, types_of
from hlo_lint.hlo.layouts import permute_dimensions
from hlo_lint.hlo.shape import ArrayShape, shape_or_none
from hlo_lint.text.patterns import late

_printed_orders = late(r"[\]>]\{([\d,]+)").findall
_assigned = late(r"[\]>]\{[\d,]*:(?!E\(|L\()").search
"""Tiles and memory spaces, which shape inference never adds. `E(4)` and `L(1)` belong to types."""


class Evidence(Enum):
    """The evidence for or against assigned layouts, from the strongest to the weakest."""

    ASSIGNED = "it has a schedule, or a bitcast outside of fusions"
    LATER_PASSES = "it has opcodes that other passes than XLA:TPU's add after layout-assignment"
    UNASSIGNED = "it has calls or shardings that XLA removes before layout-assignment"
    NOT_INFERRED = "a layout differs from those of shape inference"
    INFERRED = "shape inference gives every layout"

    @property
    def binds(self) -> bool | None:
        """True if layouts were certainly assigned, False without evidence; None if unclear."""
        if self is Evidence.ASSIGNED:
            return True
        return None if self in (Evidence.LATER_PASSES, Evidence.NOT_INFERRED) else False


ALREADY_ASSIGNED = frozenset({"fusion", "copy-start", "slice-start", "slice-done", "async-start"})
"""Opcodes of passes that run after layout-assignment."""

_sharding_target = late(r'custom_call_target="(?:Sharding|SPMD\w+|xla\.sdy\.\w+)"').search
"""Custom calls that the SPMD partitioner, Shardy's import or sharding-remover remove."""

_stays = late(r'inlineable="false"|xla_cpu_small_call|to_apply=%?parallel_').search
"""Calls that call-inliner keeps, and that XLA:CPU makes of small loops and of parallel tasks."""

MADE_ANEW = frozenset(
    {"constant", "convolution", "custom-call", "dot", "iota", "reduce", "reshape", "rng"}
)
"""Opcodes whose inferred layout is descending for any operands."""


def evidence_in(file: HloFile) -> Evidence:
    """The strongest evidence in the modules of a file, which are at the same stage of a run.

    A plain `bitcast` decides: layout-assignment refuses a module with a bitcast outside fusions
    (`layout_assignment.cc`, "Unexpected bitcast"). It never runs on a scheduled module.
    """
    shown = {_evidence_in_module(module) for module in file.modules}
    return next(evidence for evidence in Evidence if evidence in shown)


@cached_analysis
def _evidence_in_module(module: Module) -> Evidence:
    outside = module.nonfusion_computations
    if module.is_scheduled or any("bitcast" in computation.opcodes for computation in outside):
        return Evidence.ASSIGNED
    if any(not ALREADY_ASSIGNED.isdisjoint(body.opcodes) for body in module.computations):
        return Evidence.LATER_PASSES
    types = frozenset().union(*map(types_of, module.computations))
    # Tiles, memory spaces and sizes of elements are never inferred.
    if any(_assigned(text) for text in types if ":" in text):
        return Evidence.NOT_INFERRED
    if _has_removed_call(module):
        return Evidence.UNASSIGNED
    odd = {
        text
        for text in types
        for order in _printed_orders(text)
        if order != ",".join(map(str, range(order.count(","), -1, -1)))
    }
    # Usually there are none, and no instruction needs to be read.
    inferred = not odd or all(_is_inferred(computation, odd) for computation in module.computations)
    return Evidence.INFERRED if inferred else Evidence.NOT_INFERRED


def _has_removed_call(module: Module) -> bool:
    """True if a module has a call that passes before layout-assignment remove."""
    for computation in module.computations:
        if computation.opcodes.isdisjoint(("call", "custom-call")):
            continue
        for opcode, _, attributes, _ in reading_of(computation).kinds:
            if opcode == "call" and not _stays(attributes):
                return True
            if opcode == "custom-call" and _sharding_target(attributes):
                return True
    return False


_ASKED_WHOLE = frozenset({"transpose", "copy", "custom-call"})
"""Opcodes whose layout depends on more than their type."""


def _is_inferred(computation: Computation, odd: Set[str]) -> bool:
    """True if shape inference may have produced every layout of a computation."""
    if odd.isdisjoint(types_of(computation)):
        return True
    different: dict[object, RowKind] = {}
    for kind in reading_of(computation).kinds:
        is_odd_copy = kind[OPCODE] == "copy" and not odd.isdisjoint(kind[OPERAND_TYPES])
        if kind[TYPE] in odd or is_odd_copy:
            different.setdefault(kind if kind[OPCODE] in _ASKED_WHOLE else kind[:2], kind)
    return all(_has_inferred_order(kind, computation.is_entry) for kind in different.values())


def _has_inferred_order(kind: RowKind, in_entry: bool) -> bool:
    opcode, type_text, attributes, operands = kind
    if opcode == "copy":
        return operands == (type_text,)
    if opcode == "custom-call" and "operand_layout_constraints=" in attributes:
        return True
    shape = shape_or_none(type_text)
    if not isinstance(shape, ArrayShape) or shape.layout is None or shape.layout.is_descending:
        return True
    # Shape inference permutes the layout with the dimensions: no bytes move.
    if opcode == "transpose":
        return _permuted_order(attributes, operands) == shape.minor_to_major
    return not (opcode == "parameter" and in_entry) and opcode not in MADE_ANEW


def _permuted_order(attributes: str, operands: Sequence[str | None]) -> tuple[int, ...] | None:
    """The order that `ShapeUtil::PermuteDimensions` gives a transpose."""
    from hlo_lint.hlo.attributes.reading import read_attribute
    from hlo_lint.hlo.attributes.splitting import attribute_span

    with suppress(ValueError):  # unreadable dimensions, or not those of a single operand
        (operand,) = [shape_or_none(type_text or "") for type_text in operands]
        start, end = attribute_span(attributes, "dimensions") or (0, 0)
        permutation = read_attribute("dimensions", attributes[start:end])
        if isinstance(operand, ArrayShape) and isinstance(permutation, tuple):
            dimensions = [dimension for dimension in permutation if isinstance(dimension, int)]
            return permute_dimensions(dimensions, operand).minor_to_major
    return None
