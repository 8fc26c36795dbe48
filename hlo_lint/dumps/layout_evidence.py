"""The stage of a file that no compiler named, as far as its text shows it: do its layouts bind?

Before layout-assignment, a module that is printed with layouts has those that shape inference gave
it (`shape_inference.cc`). A transpose permutes the order of its operand, elementwise instructions
pass it on, and what is made anew descends. Any other order was assigned, or written by hand.
"""

from __future__ import annotations

from collections.abc import Set

from hlo_lint.hlo.attributes import AttributeSyntaxError
from hlo_lint.hlo.ir import Computation, HloFile, Instruction, Module
from hlo_lint.hlo.layouts import inverse
from hlo_lint.hlo.records import (
    attributes_before_metadata,
    attributes_of,
    opcode_of,
    references_of,
    type_of,
)
from hlo_lint.hlo.shape import ArrayShape, ShapeSyntaxError
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
    types: set[str] = set()
    for computation in module.computations:
        types.update(map(type_of, computation.rows))
    # Tiles, memory spaces and sizes of elements are never inferred.
    if any(_assigned(text) for text in types if ":" in text):
        return None
    odd = {text for text in types if not all(map(_descends, _printed_orders(text)))}
    # Without any, which is usual, it is decided without a look at any instruction.
    inferred = not odd or all(_is_inferred(computation, odd) for computation in module.computations)
    return False if inferred else None


def _is_inferred(computation: Computation, odd: Set[str]) -> bool:
    """True if shape inference may have given every layout of a computation."""
    if odd.isdisjoint(map(type_of, computation.rows)):
        return True
    different: dict[tuple[str, ...], int] = {}
    for number, row in enumerate(computation.rows):
        if type_of(row) in odd:
            different.setdefault(_key(computation, number), number)
    return all(_has_inferred_order(computation.at(number)) for number in different.values())


def _key(computation: Computation, number: int) -> tuple[str, ...]:
    """Equal for instructions of which shape inference gives all or none their orders."""
    row = computation.rows[number]
    if opcode_of(row) != "transpose":
        return opcode_of(row), type_of(row)
    operands = map(computation.index.get, references_of(row))
    types = [type_of(computation.rows[at]) if at is not None else "" for at in operands]
    return type_of(row), attributes_before_metadata(attributes_of(row)), *types


def _descends(order: str) -> bool:
    return order == ",".join(map(str, range(order.count(","), -1, -1)))


def _has_inferred_order(instruction: Instruction) -> bool:
    shape = instruction.shape_or_none
    if not isinstance(shape, ArrayShape) or shape.layout is None or shape.layout.is_descending:
        return True
    # Shape inference permutes the layout with the dimensions: the bytes stay where they are.
    if instruction.opcode == "transpose":
        return _permuted_order(instruction) == shape.minor_to_major
    is_input = instruction.opcode == "parameter" and instruction.computation.is_entry
    return not is_input and instruction.opcode not in MADE_ANEW


def _permuted_order(transpose: Instruction) -> tuple[int, ...] | None:
    """The order that `ShapeUtil::PermuteDimensions` leaves to a transpose."""
    try:
        (operand,) = [argument.shape for argument in transpose.operands]
        permutation = transpose.attribute("dimensions")
    except (AttributeSyntaxError, ShapeSyntaxError, ValueError):
        return None
    if not isinstance(operand, ArrayShape) or not isinstance(permutation, tuple):
        return None
    dimensions = [dimension for dimension in permutation if isinstance(dimension, int)]
    whole = list(range(operand.rank))
    if sorted(dimensions) != whole or sorted(operand.minor_to_major) != whole:
        return None
    places = inverse(dimensions)
    return tuple(places[dimension] for dimension in operand.minor_to_major)
