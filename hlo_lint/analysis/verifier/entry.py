"""The header beside the entry computation, and what values were before optimization."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from hlo_lint.analysis.shape_inference.types import apart, compatible
from hlo_lint.analysis.verifier.calls import order_apart
from hlo_lint.analysis.verifier.scope import (
    Checks,
    Demands,
    Header,
    RowChecks,
    Scope,
    Violation,
    header_span,
    parameter_number,
    text_of,
    value_or_none,
)
from hlo_lint.hlo.attributes import Origin as OriginValue
from hlo_lint.hlo.attributes import OriginalArray, ProgramShape
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.records import attributes_of, opcode_of, operands_of, type_of
from hlo_lint.hlo.shape import Shape, TupleShape, arrays

_count = re.compile(r", (replica_count|num_partitions)=(\d{1,9})\b").findall


def header_of(module: Module) -> Header:
    """The counts of a header; what it leaves out is 1."""
    counts = {name: int(text) for name, text in _count(module.header)} if module.header else {}
    return Header(
        counts.get("replica_count", 1), counts.get("num_partitions", 1), module.is_scheduled
    )


def _layout(
    module: Module, demands: Demands, by_name: Mapping[str, Computation]
) -> Iterator[Violation]:
    """`entry_computation_layout` says what the entry takes and gives."""
    entry = module.entry
    if entry is None or "entry_computation_layout=" not in module.header:
        return
    text = module.attributes.get("entry_computation_layout")
    layout = None if text is None else value_or_none("entry_computation_layout", text)
    if not isinstance(layout, ProgramShape):
        return
    at = header_span(module)
    for shape in (*layout.parameters, layout.result):
        for array in arrays(shape):
            if array.layout is not None and not array.has_valid_layout:
                yield Violation(
                    "M-05", at, f"the layout of {array} does not name each dimension once"
                )
                return
    parameters = entry.with_opcode("parameter")
    if len(parameters) != len(layout.parameters):
        message = (
            f"entry_computation_layout has {len(layout.parameters)} parameters, and the entry "
        )
        yield Violation("M-02", at, f"{message}{len(parameters)}")
        return
    for parameter in parameters:
        number = parameter_number(parameter)
        if number is not None and number < len(layout.parameters):
            what = f"parameter {number}"
            wanted = layout.parameters[number]
            yield from _differs("M-03", parameter, what, wanted, demands)
    if entry.root is not None:
        yield from _differs("M-01", entry.root, "the result", layout.result, demands)


def face_of(entry: Computation) -> tuple[str, ...]:
    """The numbers and types of its parameters and the type of its root: all a header speaks of."""
    known = entry.memo.get("face")
    if known is None:
        rows = [row for row in entry.rows if opcode_of(row) == "parameter"]
        if entry.root is not None:
            rows.append(entry.root.row)
        known = entry.memo["face"] = tuple(
            text for row in rows for text in (operands_of(row), type_of(row))
        )
    return known  # type: ignore[return-value]  # nobody else writes under this key


def _differs(
    row: str, at: Instruction, what: str, wanted: Shape, demands: Demands
) -> Iterator[Violation]:
    shape = at.shape_or_none
    if shape is None or shape == wanted:
        return
    if not compatible(shape, wanted):
        ours, theirs = apart(shape, wanted)
        yield Violation(row, at, f"{what} is {ours}, and entry_computation_layout says {theirs}")
    elif demands.layouts and (lies := order_apart(shape, wanted)):
        yield Violation(row, at, f"{what} lies apart from entry_computation_layout: {lies}")


def _origin(scope: Scope, number: int) -> Iterator[Violation]:
    """Where a value comes from is said for each of its arrays."""
    tail = attributes_of(scope.computation.rows[number])
    if "origin={" not in tail and "original_value={" not in tail:
        return
    instruction = scope.computation.at(number)
    shape = instruction.shape_or_none
    for name in ("origin", "original_value"):
        text = text_of(instruction, name)
        value = None if text is None else value_or_none(name, text)
        if not isinstance(value, OriginValue) or value.is_synthetic_call or shape is None:
            continue
        if not _same_tree(value.tree, shape):
            yield Violation("M-42", instruction, f"{name} does not have the tuples of {shape}")


def _same_tree(tree: object, shape: Shape) -> bool:
    if tree is None or isinstance(tree, OriginalArray):
        return not isinstance(shape, TupleShape)
    if not isinstance(tree, tuple) or not isinstance(shape, TupleShape):
        return False
    return len(tree) == len(shape.elements) and all(map(_same_tree, tree, shape.elements))


CHECKS: Checks = {}
OF_ROWS: RowChecks = {_origin: ("origin={", "original_value={")}
OF_COMPUTATIONS = ()
OF_MODULES = ()
OF_HEADERS = (_layout,)
