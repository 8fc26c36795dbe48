"""The stage of a file that no compiler named, as far as its text shows it: do its layouts bind?

Before layout-assignment, a module that is printed with layouts has those that shape inference gave
it (`shape_inference.cc`). A transpose permutes the order of its operand, elementwise instructions
pass it on, and what is made anew descends; a custom call may come with the order that its kernel
needs. Any other order was assigned, or written by hand.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
from hlo_lint.hlo.ir import Computation, HloFile, Module
from hlo_lint.hlo.kinds import RowKind, reading_of, types_of
from hlo_lint.hlo.layouts import inverse
from hlo_lint.hlo.shape import ArrayShape, shape_or_none
from hlo_lint.text.patterns import late

_printed_orders = late(r"[\]>]\{([\d,]+)").findall
_assigned = late(r"[\]>]\{[\d,]*:(?!E\(|L\()").search
"""Tiles and memory spaces: no shape inference gives them. `E(4)` and `L(1)` belong to the type."""

ALREADY_ASSIGNED = frozenset({"fusion", "copy-start", "slice-start", "slice-done", "async-start"})
"""Opcodes of passes that run after layout-assignment."""

MADE_ANEW = frozenset(
    {"constant", "convolution", "custom-call", "dot", "iota", "reduce", "reshape", "rng"}
)
"""Opcodes whose inferred shape descends, whatever the order of their operands."""


def layouts_bind(file: HloFile) -> bool | None:
    """True if the layouts were assigned for certain, False if they only follow from inference.

    None if the text allows both. A plain `bitcast` decides: layout-assignment refuses a module that
    has one outside a fusion (`layout_assignment.cc`, "Unexpected bitcast"). It never runs on a
    module that has a schedule.
    """
    cache = file.modules[0].analysis_cache
    if layouts_bind not in cache:
        answers = [_layouts_of_module(module) for module in file.modules]
        # One module with assigned layouts decides: all modules of a file are of one moment of a
        # run.
        decided = True if True in answers else None if None in answers else False
        cache[layouts_bind] = decided
    answer = cache[layouts_bind]
    return answer if isinstance(answer, bool) else None


def _layouts_of_module(module: Module) -> bool | None:
    outside = module.nonfusion_computations
    if module.is_scheduled or any("bitcast" in computation.opcodes for computation in outside):
        return True
    if any(
        not ALREADY_ASSIGNED.isdisjoint(computation.opcodes) for computation in module.computations
    ):
        return None
    types = frozenset().union(*map(types_of, module.computations))
    # Tiles, memory spaces and sizes of elements are never inferred.
    if any(_assigned(text) for text in types if ":" in text):
        return None
    odd = {text for text in types if not all(map(_descends, _printed_orders(text)))}
    # Without any, which is usual, it is decided without a look at any instruction.
    inferred = not odd or all(_is_inferred(computation, odd) for computation in module.computations)
    return False if inferred else None


_ASKED_WHOLE = frozenset({"transpose", "copy", "custom-call"})
"""Opcodes whose order depends on more than their type."""


def _is_inferred(computation: Computation, odd: Set[str]) -> bool:
    """True if shape inference may have given every layout of a computation."""
    if odd.isdisjoint(types_of(computation)):
        return True
    different: dict[object, RowKind] = {}
    for kind in reading_of(computation).kinds:
        if kind[1] in odd or (kind[0] == "copy" and not odd.isdisjoint(kind[3])):
            different.setdefault(kind if kind[0] in _ASKED_WHOLE else kind[:2], kind)
    return all(_has_inferred_order(kind, computation.is_entry) for kind in different.values())


def _descends(order: str) -> bool:
    return order == ",".join(map(str, range(order.count(","), -1, -1)))


def _has_inferred_order(kind: RowKind, in_entry: bool) -> bool:
    opcode, type_text, attributes, operands = kind
    if opcode == "copy":
        return operands == (type_text,)
    if opcode == "custom-call" and "operand_layout_constraints=" in attributes:
        return True
    shape = shape_or_none(type_text)
    if not isinstance(shape, ArrayShape) or shape.layout is None or shape.layout.is_descending:
        return True
    # Shape inference permutes the layout with the dimensions: the bytes stay where they are.
    if opcode == "transpose":
        return _permuted_order(attributes, operands) == shape.minor_to_major
    return not (opcode == "parameter" and in_entry) and opcode not in MADE_ANEW


def _permuted_order(attributes: str, operands: Sequence[str | None]) -> tuple[int, ...] | None:
    """The order that `ShapeUtil::PermuteDimensions` leaves to a transpose."""
    from hlo_lint.hlo.attributes.reading import read_attribute
    from hlo_lint.hlo.attributes.splitting import attribute_span

    try:
        (operand,) = [shape_or_none(type_text or "") for type_text in operands]
        start, end = attribute_span(attributes, "dimensions") or (0, 0)
        permutation = read_attribute("dimensions", attributes[start:end])
    except (AttributeSyntaxError, ValueError):
        return None
    if not isinstance(operand, ArrayShape) or not isinstance(permutation, tuple):
        return None
    dimensions = [dimension for dimension in permutation if isinstance(dimension, int)]
    whole = list(range(operand.rank))
    if sorted(dimensions) != whole or sorted(operand.minor_to_major) != whole:
        return None
    places = inverse(dimensions)
    return tuple(places[dimension] for dimension in operand.minor_to_major)
