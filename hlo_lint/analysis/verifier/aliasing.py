"""Which parts of results lie where operands and parameters lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from hlo_lint.analysis.shape_inference.types import compatible
from hlo_lint.analysis.verifier.calls import order_apart
from hlo_lint.analysis.verifier.scope import (
    Checks,
    Demands,
    RowChecks,
    Scope,
    Violation,
    header_span,
    operand_shape,
    text_of,
    value_of,
    value_or_none,
)
from hlo_lint.hlo.attributes import Alias, Donor, ProgramShape
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.shape import ArrayShape, BufferShape, Shape, part, spelled_index

_ROWS: Final = {
    "fusion": "S-80",
    "custom-call": "S-83",
    "async-start": "S-91",
    "async-update": "S-92",
}


def _of_operands(scope: Scope, instruction: Instruction) -> Iterator[Violation]:
    """`output_to_operand_aliasing` names parts that are there, and that are alike."""
    if "output_to_operand_aliasing=" not in instruction.attributes_text:
        return
    row = _ROWS[instruction.opcode]
    if row == "S-83" and "xla_skip_custom_call_alias_shape_check" in instruction.attributes_text:
        return
    aliases, result = value_of(instruction, "output_to_operand_aliasing"), instruction.shape_or_none
    if not isinstance(aliases, tuple) or result is None:
        return
    for alias in aliases:
        if not isinstance(alias, Alias):
            return
        if trouble := _trouble(scope, instruction, alias, result):
            yield Violation(row, instruction, trouble)


def _trouble(scope: Scope, instruction: Instruction, alias: Alias, result: Shape) -> str:
    count = len(instruction.operand_names)
    if instruction.opcode == "async-update" and alias.operand != 0:
        return f"the aliasing of async-update names operand {alias.operand}, and may only name 0"
    if instruction.opcode == "async-start" and not alias.output_index:
        return "the aliasing of async-start names the whole result, and has to name a part"
    if not 0 <= alias.operand < count:
        return f"the aliasing names operand {alias.operand}, and there are {count}"
    given = operand_shape(instruction, alias.operand)
    if given is None:
        return ""
    theirs = part(given, alias.operand_index)
    if theirs is None:
        return f"operand {alias.operand} has no part {spelled_index(alias.operand_index)}"
    ours = part(result, alias.output_index)
    if ours is None:
        return f"the result has no part {spelled_index(alias.output_index)}"
    if text_of(instruction, "custom_call_target") in ('"Pin"', '"Unpin"'):
        ours, theirs = _held(ours), _held(theirs)
    if not compatible(ours, theirs):
        return f"{ours} is to lie where operand {alias.operand} lies, which is {theirs}"
    if scope.demands.layouts and (apart := order_apart(ours, theirs)):
        return f"the result and operand {alias.operand} share memory and lie apart: {apart}"
    return ""


def _held(shape: Shape) -> Shape:
    """What a buffer holds."""
    return shape.element if isinstance(shape, BufferShape) else shape


def _of_parameters(
    module: Module, demands: Demands, by_name: Mapping[str, Computation]
) -> Iterator[Violation]:
    """`input_output_alias` and `buffer_donor` of the header."""
    if "input_output_alias=" not in module.header and "buffer_donor=" not in module.header:
        return
    attributes = module.attributes
    layout = value_or_none(
        "entry_computation_layout", attributes.get("entry_computation_layout", "")
    )
    shapes = _entry_shapes(module)
    if shapes is None:
        return
    parameters, result = shapes
    at = header_span(module)
    aliases = value_or_none("input_output_alias", attributes.get("input_output_alias", "{}"))
    taken: set[tuple[int, tuple[int, ...]]] = set()
    given: set[tuple[int, ...]] = set()
    for alias in aliases if isinstance(aliases, tuple) else ():
        if not isinstance(alias, Alias):
            return
        place = (alias.operand, alias.operand_index)
        where = f"part {spelled_index(alias.operand_index)} of parameter {alias.operand}"
        ours = part(result, alias.output_index)
        theirs = parameters.get(alias.operand)
        theirs = None if theirs is None else part(theirs, alias.operand_index)
        if theirs is None:
            yield Violation("M-61", at, f"input_output_alias names {where}, which is not there")
        elif ours is None:
            message = (
                f"input_output_alias names part {spelled_index(alias.output_index)} of the result"
            )
            yield Violation("M-61", at, f"{message}, which is not there")
        elif not isinstance(ours, ArrayShape) or not isinstance(theirs, ArrayShape):
            yield Violation("M-61", at, f"input_output_alias names {where}, which is no array")
        elif place in taken or alias.output_index in given:
            yield Violation("M-61", at, f"input_output_alias names {where} or its result twice")
        elif ours.byte_size != theirs.byte_size:
            message = f"{where} has {theirs.byte_size} bytes, and the result that is to lie there "
            yield Violation("3.5-6", at, f"{message}{ours.byte_size}: {theirs} and {ours}")
        elif alias.kind == "must-alias" and isinstance(layout, ProgramShape):
            yield from _equal(module, layout, alias)
        taken.add(place)
        given.add(alias.output_index)
    donors = value_or_none("buffer_donor", attributes.get("buffer_donor", "{}"))
    for donor in donors if isinstance(donors, tuple) else ():
        if not isinstance(donor, Donor):
            return
        where = f"part {spelled_index(donor.shape_index)} of parameter {donor.parameter}"
        theirs = parameters.get(donor.parameter)
        theirs = None if theirs is None else part(theirs, donor.shape_index)
        if not isinstance(theirs, ArrayShape):
            yield Violation(
                "M-62", at, f"buffer_donor names {where}, which is no array of the entry"
            )
        elif (donor.parameter, donor.shape_index) in taken:
            yield Violation(
                "M-62", at, f"{where} is a buffer donor, and in input_output_alias as well"
            )


def _equal(module: Module, layout: ProgramShape, alias: Alias) -> Iterator[Violation]:
    if alias.operand >= len(layout.parameters):
        return
    ours = part(layout.result, alias.output_index)
    theirs = part(layout.parameters[alias.operand], alias.operand_index)
    if isinstance(ours, ArrayShape) and isinstance(theirs, ArrayShape):
        ordered = ours.layout is None or theirs.layout is None or ours.layout == theirs.layout
        if ours.dtype != theirs.dtype or ours.dims != theirs.dims or not ordered:
            message = (
                f"the result {spelled_index(alias.output_index)}, {ours}, has to lie in parameter "
            )
            yield Violation(
                "M-04", header_span(module), f"{message}{alias.operand}, which is {theirs}"
            )


def _entry_shapes(module: Module) -> tuple[dict[int, Shape], Shape] | None:
    entry = module.entry
    if entry is None or entry.root is None:
        return None
    result = entry.root.shape_or_none
    parameters = {}
    for parameter in entry.with_opcode("parameter"):
        text, shape = parameter.operands_text.strip(), parameter.shape_or_none
        if shape is None or not text.isdecimal():
            return None
        parameters[int(text)] = shape
    if result is None:
        return None
    return parameters, result


CHECKS: Checks = dict.fromkeys(_ROWS, (_of_operands,))
OF_ROWS: RowChecks = {}
OF_COMPUTATIONS = ()
OF_MODULES = ()
OF_HEADERS = (_of_parameters,)
