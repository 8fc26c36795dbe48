"""One computation: names, roots, parameters, and what an instruction demands of its operands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from math import prod
from typing import Final

from hlo_lint.analysis.strict.instruction import (
    Anatomy,
    declared_shapes,
    parameter_number,
)
from hlo_lint.analysis.strict.shapes import compatible, has_element, tuple_of, unsound
from hlo_lint.hlo.attributes import (
    Alias,
    AttributeSyntaxError,
    read_attribute,
    split_attributes,
)
from hlo_lint.hlo.comments import without_comments
from hlo_lint.hlo.ir import Computation
from hlo_lint.hlo.opcodes import PASSES_STATE, wrapped_opcode
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_of,
    name_of,
    opcode_of,
    references_of,
    root_mark_of,
    type_of,
)
from hlo_lint.hlo.shape import (
    ArrayShape,
    BufferShape,
    OpaqueShape,
    Shape,
    TupleShape,
    shape_or_none,
    spelled_index,
)
from hlo_lint.text.source import ParseError

_PRINTER_LEFT: Final = "get-tuple-element"
"""What the printer leaves out, and may still name in `control-predecessors`."""


class Scope:
    """The instructions of one computation above a place in its text."""

    __slots__ = ("computation", "number", "rows", "shapes")

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self.number = 0
        """Which instruction is looked at."""
        self.rows: dict[str, InstructionRecord] = {}
        self.shapes: dict[str, Shape | None] = {}

    def define(self, row: InstructionRecord) -> None:
        """Add an instruction."""
        self.rows[name_of(row)] = row

    def row(self, reference: str) -> InstructionRecord | None:
        """The instruction that an operand names, elements taken off."""
        return self.rows.get(reference.partition("#")[0])

    def shape(self, reference: str) -> Shape | None:
        """The shape of an operand; None where the text does not say."""
        known = self.shapes.get(reference)
        if known is None and reference not in self.shapes:
            known = self.shapes[reference] = self._shape(reference)
        return known

    def _shape(self, reference: str) -> Shape | None:
        name, *path = reference.split("#")
        row = self.rows.get(name)
        shape = shape_or_none(type_of(row)) if row and type_of(row) else None
        for element in path:
            if not isinstance(shape, TupleShape) or len(element) > 9:
                return None
            if int(element) >= len(shape.elements):
                return None
            shape = shape.elements[int(element)]
        return shape


def computation_troubles(computation: Computation) -> Iterator[ParseError]:
    """What is wrong among the instructions of a computation, in characters of its text."""
    text, spans = computation.text, computation.spans
    if not computation.rows and not computation.parse_errors:
        yield ParseError(f"%{computation.name} has no instructions", len(text) - 1, len(text))
    scope = Scope(computation)
    root = None
    parameters: dict[int, int] = {}
    for number, row in enumerate(computation.rows):
        begin, end = spans[number]
        if name_of(row) in scope.rows:
            yield ParseError(f"%{name_of(row)} is defined twice", begin, end)
        if root_mark_of(row):
            if root is not None:
                yield ParseError("a computation has one ROOT", begin, end)
            root = row
        scope.number = number
        for said, at in _row_troubles(Anatomy(text[begin:end], row), scope):
            yield ParseError(said, begin + at, end)
        if opcode_of(row) == "parameter":
            yield from _parameter(row, parameters, begin, end)
        scope.define(row)
    yield from _gap(parameters, len(text))
    yield from _result(computation, scope, root or (computation.rows or (None,))[-1])


def _parameter(
    row: InstructionRecord, parameters: dict[int, int], begin: int, end: int
) -> Iterator[ParseError]:
    number = parameter_number(row)
    if number is None:
        return
    if number in parameters:
        yield ParseError(f"parameter {number} is there twice", begin, end)
    parameters[number] = begin


def _gap(parameters: dict[int, int], end: int) -> Iterator[ParseError]:
    last = max(parameters, default=-1)
    if last >= len(parameters):
        begin = parameters[last]
        missing = next(number for number in range(last) if number not in parameters)
        yield ParseError(f"parameter {last} is there, and parameter {missing} is not", begin, end)


def _result(
    computation: Computation, scope: Scope, root: InstructionRecord | None
) -> Iterator[ParseError]:
    signature = computation.signature
    arrow = signature.rfind("->")
    if not signature or arrow < 0 or root is None:
        return
    at = computation.text.find(signature)
    spelled = signature[arrow + 2 :].strip()
    result, shape = shape_or_none(spelled), scope.shape(name_of(root))
    if result is None:
        yield ParseError(f"{spelled} is no shape", at + arrow, at + len(signature))
    elif shape is not None and not compatible(result, shape):
        said = f"the signature says {result}, the root %{name_of(root)} is {shape}"
        yield ParseError(said, at + arrow, at + len(signature))
    parameters = signature_shapes(signature[:arrow])
    if parameters is None:
        yield ParseError("the signature's parameters are `name: shape`", at, at + arrow)
        return
    declared = {
        number: row for row in computation.rows if (number := parameter_number(row)) is not None
    }
    if len(declared) != len(parameters):
        said = f"the signature has {len(parameters)} parameters, the computation {len(declared)}"
        yield ParseError(said, at, at + arrow)
        return
    for each in (result, *dict.fromkeys(parameters)):
        for said in unsound(each) if each is not None else ():
            yield ParseError(f"the signature: {said}", at, at + len(signature))
    for number, row in declared.items():
        shape = shape_or_none(type_of(row))
        wanted = parameters[number] if number < len(parameters) else None
        if shape is not None and wanted is not None and not compatible(shape, wanted):
            said = f"the signature says {wanted} of parameter {number}, which is {shape}"
            yield ParseError(said, at, at + arrow)


def signature_shapes(text: str) -> tuple[Shape, ...] | None:
    """The shapes of `(a: f32[8], b: s32[])`; None where they cannot be read."""
    inside = without_comments(text).strip()
    if not (inside.startswith("(") and inside.endswith(")")):
        return None
    names, shapes = _parameter_names(inside[1:-1]), tuple_of(_remove_names("", inside[1:-1]))
    return shapes if shapes is not None and len(names) == len(shapes) else None


_PARAMETER = re.compile(r"(?:(?<=,)|^)\s*%?[A-Za-z_][\w.\-]*(?::\s*|\s+)(?=[a-z(])", re.A)
_parameter_names, _remove_names = _PARAMETER.findall, _PARAMETER.sub

# ---- operands

Said = tuple[str, int]
"""A message, and where it stands in the text of the instruction."""


def _row_troubles(anatomy: Anatomy, scope: Scope) -> Iterator[Said]:
    row = anatomy.row
    for reference in references_of(row):
        name, *path = reference.split("#")
        if name not in scope.rows:
            where = "is read before it is defined"
            if scope.computation.instruction(name) is None:
                where = f"is not defined in %{scope.computation.name}"
            yield f"%{name} {where}", anatomy.operands
        elif path and scope.shape(reference) is None and scope.shape(name) is not None:
            yield f"%{name} is {scope.shape(name)}: there is no #{'#'.join(path)}", anatomy.operands
    for number, at, spelled in declared_shapes(anatomy):
        declared, shape = shape_or_none(spelled), None
        if number < len(references_of(row)):
            shape = scope.shape(references_of(row)[number])
        if declared is None:
            yield f"{spelled} is no shape", at
        elif shape is not None and not compatible(declared, shape):
            yield f"{declared} is declared here of what is {shape}", at
    if "control-" in attributes_of(row):
        yield from _control(anatomy, scope)
    check = _CHECKS.get(
        _suffix(opcode_of(row)) if wrapped_opcode(opcode_of(row)) else opcode_of(row)
    )
    if check is not None:
        yield from check(anatomy, scope)


def _suffix(opcode: str) -> str:
    return f"async-{opcode.rpartition('-')[2]}"


def _control(anatomy: Anatomy, scope: Scope) -> Iterator[Said]:
    span = split_attributes(attributes_of(anatomy.row)).get("control-predecessors")
    if span is None:
        return
    at = anatomy.tail + span[0]
    try:
        names = read_attribute(
            "control-predecessors", attributes_of(anatomy.row)[span[0] : span[1]]
        )
    except AttributeSyntaxError:
        return
    for name in names if isinstance(names, tuple) else ():
        if isinstance(name, str) and name not in scope.rows:
            elided = name.startswith(_PRINTER_LEFT) and scope.computation.instruction(name) is None
            if not elided:
                yield f"control-predecessors: %{name} is not defined above", at


def _operand_shape(anatomy: Anatomy, scope: Scope, number: int) -> Shape | None:
    references = references_of(anatomy.row)
    return scope.shape(references[number]) if number < len(references) else None


def _elements(shape: Shape) -> int | None:
    return prod(shape.dims) if isinstance(shape, ArrayShape) else None


def _reshape(anatomy: Anatomy, scope: Scope) -> Iterator[Said]:
    shape, operand = shape_or_none(type_of(anatomy.row)), _operand_shape(anatomy, scope, 0)
    if shape is None or operand is None:
        return
    if _elements(shape) is None or _elements(shape) != _elements(operand):
        yield f"{shape} has not as many elements as {operand}", anatomy.type


def _broadcast(anatomy: Anatomy, scope: Scope) -> Iterator[Said]:
    operand = _operand_shape(anatomy, scope, 0)
    if (
        isinstance(operand, ArrayShape)
        and operand.rank
        and "dimensions=" not in attributes_of(anatomy.row)
    ):
        yield f"a broadcast of {operand} needs the attribute dimensions", anatomy.opcode


def _get_tuple_element(anatomy: Anatomy, scope: Scope) -> Iterator[Said]:
    operand = _operand_shape(anatomy, scope, 0)
    span = split_attributes(attributes_of(anatomy.row)).get("index")
    if operand is None or span is None:
        return
    at = anatomy.tail + span[0]
    spelled = attributes_of(anatomy.row)[span[0] : span[1]]
    if not spelled.isdigit():
        return
    if not isinstance(operand, TupleShape):
        yield f"its operand is {operand}: no tuple", anatomy.operands
    elif len(spelled) > 9 or int(spelled) >= len(operand.elements):
        yield f"the tuple has {len(operand.elements)} elements: no element {spelled}", at
    else:
        shape, element = shape_or_none(type_of(anatomy.row)), operand.elements[int(spelled)]
        if shape is not None and not compatible(shape, element):
            yield f"element {spelled} of the tuple is {element}, not {shape}", anatomy.type


def _tuple(anatomy: Anatomy, scope: Scope) -> Iterator[Said]:
    shape = shape_or_none(type_of(anatomy.row))
    if not isinstance(shape, TupleShape) or len(shape.elements) != len(references_of(anatomy.row)):
        return
    for number, element in enumerate(shape.elements):
        operand = _operand_shape(anatomy, scope, number)
        if operand is not None and not compatible(element, operand):
            yield f"element {number} is {element}, its operand {operand}", anatomy.type
            return


def _indices(first: int) -> Callable[[Anatomy, Scope], Iterator[Said]]:
    def check(anatomy: Anatomy, scope: Scope) -> Iterator[Said]:
        operand, count = _operand_shape(anatomy, scope, 0), len(references_of(anatomy.row))
        if not isinstance(operand, ArrayShape) or count < first:
            return
        index = _operand_shape(anatomy, scope, first)
        is_vector = isinstance(index, ArrayShape) and index.rank == 1 and count == first + 1
        if not is_vector and count != first + operand.rank:
            said = f"{operand} wants {operand.rank} indices, or one vector of them"
            yield f"{said}, not {count - first}", anatomy.operands

    return check


def _dynamic_reshape(anatomy: Anatomy, scope: Scope) -> Iterator[Said]:
    shape, count = shape_or_none(type_of(anatomy.row)), len(references_of(anatomy.row))
    if isinstance(shape, ArrayShape) and count - 1 != shape.rank:
        yield f"{shape} wants {shape.rank} sizes, not {count - 1}", anatomy.operands


def _conditional(anatomy: Anatomy, scope: Scope) -> Iterator[Said]:
    selector, count = _operand_shape(anatomy, scope, 0), len(references_of(anatomy.row))
    names = set(split_attributes(attributes_of(anatomy.row)))
    pair = {"true_computation", "false_computation"}
    if isinstance(selector, (TupleShape, BufferShape, OpaqueShape)) or (
        selector is not None and (selector.rank or selector.dtype not in ("pred", "s32"))
    ):
        yield f"it chooses by a pred[] or an s32[], not by {selector}", anatomy.operands
    elif selector is not None:
        wanted = pair if selector.dtype == "pred" else {"branch_computations"}
        for name in sorted(wanted - names):
            yield f"a conditional on {selector.dtype} needs {name}", anatomy.opcode
        for name in sorted(names & (pair | {"branch_computations"}) - wanted):
            yield f"a conditional on {selector.dtype} has no {name}", anatomy.opcode
    branches = 2
    if "branch_computations" in names:
        start, end = split_attributes(attributes_of(anatomy.row))["branch_computations"]
        spelled = attributes_of(anatomy.row)[start:end]
        if not (spelled.startswith("{") and spelled.endswith("}")):
            yield "branch_computations are names in braces", anatomy.tail + start
            return
        branches = len(scope.computation.inline.get(scope.number, ()))
        if "=" not in spelled:
            branches = len([name for name in spelled[1:-1].split(",") if name.strip()])
    if count != branches + 1 and names & (pair | {"branch_computations"}):
        yield f"{branches} branches want {branches + 1} operands, not {count}", anatomy.operands


def _infeed(anatomy: Anatomy, scope: Scope) -> Iterator[Said]:
    operand = _operand_shape(anatomy, scope, 0)
    if operand is not None and operand != OpaqueShape("token"):
        yield f"infeed reads a token, not {operand}", anatomy.operands


def _of_tuple(anatomy: Anatomy, scope: Scope) -> Iterator[Said]:
    operand = _operand_shape(anatomy, scope, 0)
    start = opcode_of(anatomy.row).replace("-done", "")
    if operand is not None and not isinstance(operand, TupleShape):
        yield f"its operand is {operand}: no {start}", anatomy.operands
    else:
        yield from _of_named_start(anatomy, scope)


def _channel(anatomy: Anatomy, scope: Scope) -> Iterator[Said]:
    """A `send-done` that names a channel names that of its `send`."""
    yield from _of_tuple(anatomy, scope)
    references = references_of(anatomy.row)
    row = scope.row(references[0]) if references and "#" not in references[0] else None
    if row is None or opcode_of(row) != opcode_of(anatomy.row).removesuffix("-done"):
        return
    mine, other = _channel_id(attributes_of(anatomy.row)), _channel_id(attributes_of(row))
    if (mine and mine[1]) != (other and other[1]):
        channel = f"channel {other[1]}" if other else "no channel"
        yield f"%{name_of(row)} is on {channel}: say the same here", anatomy.opcode


_channel_id = re.compile(r"\bchannel_id=(\d+)").search


def _of_named_start(anatomy: Anatomy, scope: Scope) -> Iterator[Said]:
    references = references_of(anatomy.row)
    row = scope.row(references[0]) if references and "#" not in references[0] else None
    wanted = opcode_of(anatomy.row).removesuffix("-done")
    if row is not None and opcode_of(row) not in (wanted, f"{wanted}-start", *_HANDS_ON):
        yield f"%{name_of(row)} starts nothing: it is {opcode_of(row)}", anatomy.operands


_HANDS_ON: Final = PASSES_STATE | {
    *("domain", "bitcast", "fusion", "custom-call", "async-done", "recv-done")
}
"""Opcodes through which the state of an asynchronous operation may come."""


def _of_start(anatomy: Anatomy, scope: Scope) -> Iterator[Said]:
    references = references_of(anatomy.row)
    row = scope.row(references[0]) if references else None
    if row is None:
        return
    opcode, mine = opcode_of(row), opcode_of(anatomy.row)
    if "#" not in references[0] and opcode.endswith(("-start", "-update")):
        ours, theirs = wrapped_opcode(mine), wrapped_opcode(opcode)
        if ours and theirs and ours != theirs:
            yield f"%{name_of(row)} starts {theirs}, not {ours}", anatomy.opcode
        return
    if opcode == "get-tuple-element" or "#" in references[0] or opcode == "parameter":
        return
    yield f"%{name_of(row)} starts nothing: it is {opcode}", anatomy.operands


def _constraints(anatomy: Anatomy, scope: Scope) -> Iterator[Said]:
    span = split_attributes(attributes_of(anatomy.row)).get("operand_layout_constraints")
    if span is None:
        return
    shapes = tuple_of(attributes_of(anatomy.row)[span[0] : span[1]].strip()[1:-1])
    if shapes is None or len(shapes) != len(references_of(anatomy.row)):
        return
    for number, constraint in enumerate(shapes):
        operand = _operand_shape(anatomy, scope, number)
        if operand is not None and not compatible(constraint, operand):
            said = f"operand_layout_constraints: operand {number} is {operand}, not {constraint}"
            yield said, anatomy.tail + span[0]


def _aliasing(anatomy: Anatomy, scope: Scope) -> Iterator[Said]:
    span = split_attributes(attributes_of(anatomy.row)).get("output_to_operand_aliasing")
    if span is None:
        return
    try:
        aliases = read_attribute(
            "output_to_operand_aliasing", attributes_of(anatomy.row)[span[0] : span[1]]
        )
    except AttributeSyntaxError:
        return
    at = anatomy.tail + span[0]
    count, shape = len(references_of(anatomy.row)), shape_or_none(type_of(anatomy.row))
    for alias in aliases if isinstance(aliases, tuple) else ():
        if not isinstance(alias, Alias):
            continue
        if alias.operand >= count:
            yield f"output_to_operand_aliasing: there is no operand {alias.operand}", at
        elif not has_element(_operand_shape(anatomy, scope, alias.operand), alias.operand_index):
            said = f"operand {alias.operand} has no {spelled_index(alias.operand_index)}"
            yield f"output_to_operand_aliasing: {said}", at
        if not has_element(shape, alias.output_index):
            said = f"the result has no {spelled_index(alias.output_index)}"
            yield f"output_to_operand_aliasing: {said}", at


def _call_like(anatomy: Anatomy, scope: Scope) -> Iterator[Said]:
    yield from _aliasing(anatomy, scope)
    if opcode_of(anatomy.row) == "custom-call":
        yield from _constraints(anatomy, scope)


_CHECKS: Final[dict[str, Callable[[Anatomy, Scope], Iterator[Said]]]] = {
    "reshape": _reshape,
    "broadcast": _broadcast,
    "get-tuple-element": _get_tuple_element,
    "tuple": _tuple,
    "dynamic-slice": _indices(1),
    "dynamic-update-slice": _indices(2),
    "dynamic-reshape": _dynamic_reshape,
    "conditional": _conditional,
    "infeed": _infeed,
    "recv-done": _channel,
    "send-done": _channel,
    "copy-done": _of_tuple,
    "collective-permute-done": _of_tuple,
    "all-gather-done": _of_tuple,
    "all-reduce-done": _of_named_start,
    "async-update": _of_start,
    "async-done": _of_start,
    "fusion": _call_like,
    "custom-call": _call_like,
}
