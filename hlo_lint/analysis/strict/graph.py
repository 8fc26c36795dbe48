"""Errors among the instructions of a computation, as XLA's parser finds them.

XLA's parser looks up operands, and of the shapes it checks those only that it infers itself or that
`CreateInstruction` compares. What else is wrong with a graph is for the verifier's rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from hlo_lint.analysis.shape_inference import Refusal, ShapeInference
from hlo_lint.analysis.shape_inference.types import compatible
from hlo_lint.analysis.strict.shapes import array_of, shape_errors, tuple_of
from hlo_lint.analysis.strict.tokens import NAME, Unmade, attribute_text
from hlo_lint.analysis.verifier.structure import (
    doubled_names,
    doubled_roots,
    misnumbered_parameters,
)
from hlo_lint.hlo.attributes import AttributeSyntaxError, read_attribute
from hlo_lint.hlo.comments import without_comments
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.hlo.opcodes import LITERAL_OPERANDS, OPCODES, wrapped_opcode
from hlo_lint.hlo.parser.tokens import InstructionSpans, split_at_commas
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_of,
    name_of,
    opcode_of,
    references_of,
    type_of,
)
from hlo_lint.hlo.shape import (
    UNBOUNDED,
    ArrayShape,
    OpaqueShape,
    Shape,
    TupleShape,
    part,
    shape_or_none,
)
from hlo_lint.text.source import ParseError

_ELIDED: Final = "get-tuple-element"
"""An opcode that the printer leaves out, and may still name in `control-predecessors`."""


class PrecedingInstructions:
    """The instructions of one computation above a place in its text."""

    __slots__ = ("computation", "inference", "number", "rows", "shapes")

    def __init__(self, computation: Computation, inference: ShapeInference) -> None:
        self.computation = computation
        self.inference = inference
        self.number = 0
        """The position of the instruction that is checked."""
        self.rows: dict[str, int] = {}
        """The positions of the instructions above it, by name."""
        self.shapes: dict[str, Shape | None] = {}

    def record(self, reference: str) -> InstructionRecord | None:
        """The instruction that an operand names, elements taken off."""
        number = self.rows.get(reference.partition("#")[0])
        return None if number is None else self.computation.rows[number]

    def shape(self, reference: str) -> Shape | None:
        """The shape of an operand; None where it is not known."""
        if reference not in self.shapes:
            name, *path = reference.split("#")
            number = self.rows.get(name)
            shape = None
            if number is not None and all(len(element) < 10 for element in path):
                shape = self.inference.shape(Instruction(self.computation, number))
                shape = part(shape, tuple(map(int, path)))
            self.shapes[reference] = shape
        return self.shapes[reference]


def computation_errors(computation: Computation, inference: ShapeInference) -> Iterator[ParseError]:
    """Errors among the instructions of a computation, in characters of its text."""
    text, spans = computation.text, computation.spans
    if not computation.rows and not computation.parse_errors:
        yield ParseError(f"%{computation.name} has no instructions", len(text) - 1, len(text))
    scope = PrecedingInstructions(computation, inference)
    for find in (doubled_names, doubled_roots, misnumbered_parameters):
        for number, message in find(computation):
            yield Unmade(message, *spans[number])
    for number, record in enumerate(computation.rows):
        begin, end = spans[number]
        scope.number = number
        instruction = InstructionSpans(text[begin:end], record)
        for message, at in _operand_errors(instruction, scope):
            yield ParseError(message, begin + at, end)
        for message, at in _making_errors(instruction, scope):
            yield Unmade(message, begin + at, end)
        scope.rows[name_of(record)] = number
    yield from _result(computation, scope)


def _result(computation: Computation, scope: PrecedingInstructions) -> Iterator[ParseError]:
    """Errors in a signature: XLA compares its result with the root, and no parameters."""
    signature, root = computation.signature, computation.root
    arrow = signature.rfind("->")
    if not signature or arrow < 0 or root is None:
        return
    at = computation.text.find(signature)
    spelled = signature[arrow + 2 :].strip()
    result, shape = shape_or_none(spelled), scope.shape(root.name)
    if result is None:
        yield ParseError(f"{spelled} is not a shape", at + arrow, at + len(signature))
    elif shape is not None and not compatible(result, shape):
        message = f"the signature's result is {result}, but the root %{root.name} is {shape}"
        yield ParseError(message, at + arrow, at + len(signature))
    parameters = _signature_shapes(signature[:arrow])
    if parameters is None:
        yield ParseError("expected `name: shape` in the signature", at, at + arrow)
        return
    for shown_shape in (result, *dict.fromkeys(parameters)):
        for message in shape_errors(shown_shape) if shown_shape is not None else ():
            yield ParseError(f"the signature: {message}", at, at + len(signature))


def _signature_shapes(text: str) -> tuple[Shape, ...] | None:
    """The shapes of `(a: f32[8], b: s32[])`; None where they cannot be read."""
    inside = without_comments(text).strip()[1:-1]
    names, shapes = _parameter_names(inside), tuple_of(_remove_names("", inside))
    return shapes if shapes is not None and len(names) == len(shapes) else None


_PARAMETER = re.compile(rf"(?:(?<=,)|^)\s*{NAME}(?::\s*|\s+)(?=[a-z(])", re.A)
_parameter_names, _remove_names = _PARAMETER.findall, _PARAMETER.sub

# ---- operands

_Error = tuple[str, int]
"""A message, and where it stands in the text of the instruction."""


def _operand_errors(spans: InstructionSpans, scope: PrecedingInstructions) -> Iterator[_Error]:
    record, operands = spans.record, spans.operands.start
    for reference in references_of(record):
        name, *path = reference.split("#")
        if name not in scope.rows:
            problem = "is read before it is defined"
            if scope.computation.instruction(name) is None:
                problem = f"is not defined in %{scope.computation.name}"
            yield f"%{name} {problem}", operands
        elif path and scope.shape(reference) is None and scope.shape(name) is not None:
            yield f"%{name} is {scope.shape(name)}: there is no #{'#'.join(path)}", operands
    yield from _written_operands(spans, scope)
    if "control-" in attributes_of(record):
        yield from _control(spans, scope)


def _making_errors(spans: InstructionSpans, scope: PrecedingInstructions) -> Iterator[_Error]:
    record = spans.record
    opcode = opcode_of(record)
    check = None if wrapped_opcode(opcode) else _CHECKS.get(opcode)
    if check is not None:
        yield from check(spans, scope)
    if not type_of(record) and opcode == "opt-barrier":
        yield "XLA infers no shape for opcode opt-barrier: print it", 0
    elif not type_of(record) and opcode not in _NEVER_REFUSED:
        inferred = scope.inference.infer(Instruction(scope.computation, scope.number))
        if isinstance(inferred, Refusal):
            yield f"failed to infer shape for opcode {opcode}: {inferred.message}", 0


_NEVER_REFUSED: Final = frozenset(("after-all", "add-dependency", "copy", "domain", "topk"))
"""Opcodes whose shape XLA takes from their operands without looking at them."""


def _written_operands(spans: InstructionSpans, scope: PrecedingInstructions) -> Iterator[_Error]:
    """Errors in how operands are written: a shape before a name fits what the operand is."""
    if opcode_of(spans.record) not in LITERAL_OPERANDS:
        yield from _unnamed_operands(spans)
    references = references_of(spans.record)
    for reference, operand in zip(references, spans.operand_spans, strict=False):
        if operand is None:
            continue
        if spans.text[operand.start] == "%" and spans.text[operand.end] == ":":
            yield f"unexpected `:` after %{reference}", operand.end
        if operand.shape_start == operand.start:
            continue
        spelled = without_comments(spans.text[operand.shape_start : operand.start])
        declared, shape = tuple_of(spelled), scope.shape(reference)
        if not declared or len(declared) != 1:
            yield f"{spelled.strip()} is not a shape", operand.shape_start
            continue
        for message in shape_errors(declared[0]):
            yield message, operand.shape_start
        if shape is not None and not compatible(declared[0], shape):
            message = f"the declared shape {declared[0]} of an operand is not compatible with"
            yield f"{message} {shape} of %{reference}", operand.shape_start


def _unnamed_operands(spans: InstructionSpans) -> Iterator[_Error]:
    """Errors where XLA does not drop what stands in the place of an operand."""
    text, (begin, end) = spans.text, spans.operands
    if "%" in text and _percent_alone(without_comments(text[begin:end])):
        yield "expected a name after `%`", begin
    if not _may_be_unnamed(text[begin:end]):
        return
    for start, stop in split_at_commas(text[begin:end]):
        operand = without_comments(text[begin + start : begin + stop])
        if _is_shape(operand):
            shapes = tuple_of(operand) or ()
            if not shapes or any(any(shape_errors(shape)) for shape in shapes):
                yield f"{operand} is not a shape", begin + start


def _is_shape(text: str) -> bool:
    """True of a shape without a name: a tuple in parentheses, or one array."""
    if not text.startswith("("):
        return _is_array(text) is not None
    depth = 0
    for number, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if not depth:
            return number == len(text) - 1
    return False


_is_array = re.compile(r"[a-z]\w*\s*\[[^\]]*\]\s*(?:\{[^{}]*\})?").fullmatch
_percent_alone = re.compile(r"%(?![A-Za-z_])").search
_may_be_unnamed = re.compile(r"[\])}]\s*(?:,|$)").search


def _control(spans: InstructionSpans, scope: PrecedingInstructions) -> Iterator[_Error]:
    span = spans.attributes.get("control-predecessors")
    if span is None:
        return
    try:
        names = read_attribute("control-predecessors", spans.text[span.start : span.end])
    except AttributeSyntaxError:
        return
    for name in names if isinstance(names, tuple) else ():
        if isinstance(name, str) and name not in scope.rows:
            is_elided = name.startswith(_ELIDED) and scope.computation.instruction(name) is None
            if not is_elided:
                yield f"control-predecessors: %{name} is not defined above", span.start


def _operand_shape(
    spans: InstructionSpans, scope: PrecedingInstructions, number: int
) -> Shape | None:
    """The shape of an operand, a buffer being the array that it holds."""
    references = references_of(spans.record)
    return array_of(scope.shape(references[number])) if number < len(references) else None


def _reshape(spans: InstructionSpans, scope: PrecedingInstructions) -> Iterator[_Error]:
    operand = _operand_shape(spans, scope, 0)
    shape = array_of(shape_or_none(type_of(spans.record)))
    if shape is None or operand is None:
        return
    is_counted = not (isinstance(operand, ArrayShape) and UNBOUNDED in operand.dims)
    if not is_counted and isinstance(shape, ArrayShape):
        return  # XLA does not count what has no bound
    match shape, operand:
        case ArrayShape(), ArrayShape() if shape.elements == operand.elements:
            pass
        case _:
            message = f"expected the same number of elements in {shape} and the operand {operand}"
            yield message, spans.shape.start


def _broadcast(spans: InstructionSpans, scope: PrecedingInstructions) -> Iterator[_Error]:
    operand = _operand_shape(spans, scope, 0)
    is_scalar = operand is None or (isinstance(operand, ArrayShape) and not operand.rank)
    if not is_scalar and "dimensions=" not in attributes_of(spans.record):
        yield f"broadcast of {operand} needs the attribute dimensions", spans.opcode.start


def _indices(first: int) -> Callable[[InstructionSpans, PrecedingInstructions], Iterator[_Error]]:
    def check(spans: InstructionSpans, scope: PrecedingInstructions) -> Iterator[_Error]:
        operand, count = _operand_shape(spans, scope, 0), len(references_of(spans.record))
        if not isinstance(operand, ArrayShape):
            if operand is not None:
                message = f"operand 0 of {opcode_of(spans.record)} is not an array: {operand}"
                yield message, spans.operands.start
            return
        index = _operand_shape(spans, scope, first)
        if index is not None and not isinstance(index, ArrayShape) and count == first + 1:
            yield f"the indices are not a vector: {index}", spans.operands.start
        is_vector = isinstance(index, ArrayShape) and index.rank == 1 and count == first + 1
        if not is_vector and count != first + operand.rank:
            message = f"{operand} takes {operand.rank} indices, or one vector of them"
            yield f"{message}, not {count - first}", spans.operands.start

    return check


def _compare(spans: InstructionSpans, scope: PrecedingInstructions) -> Iterator[_Error]:
    """XLA's process ends where operand 0 has no element type, from which follows how to compare."""
    operand = _operand_shape(spans, scope, 0)
    if isinstance(operand, TupleShape | OpaqueShape):
        yield f"operand 0 of compare is not an array: {operand}", spans.operands.start


def _dynamic_reshape(spans: InstructionSpans, scope: PrecedingInstructions) -> Iterator[_Error]:
    shape, count = shape_or_none(type_of(spans.record)), len(references_of(spans.record))
    yield from _reshape(spans, scope)
    if isinstance(shape, ArrayShape) and count - 1 != shape.rank:
        yield f"{shape} takes {shape.rank} sizes, not {count - 1}", spans.operands.start


def _conditional(spans: InstructionSpans, scope: PrecedingInstructions) -> Iterator[_Error]:
    selector, count = _operand_shape(spans, scope, 0), len(references_of(spans.record))
    names = spans.attributes.keys()
    pair = {"true_computation", "false_computation"}
    dtype = selector.dtype if isinstance(selector, ArrayShape) and not selector.rank else ""
    if selector is not None and dtype not in ("pred", "s32"):
        message = f"the first operand must be a scalar of pred or s32, not {selector}"
        yield message, spans.operands.start
    elif dtype:
        required = pair if dtype == "pred" else {"branch_computations"}
        for name in sorted(required - names):
            yield f"conditional on {dtype} needs {name}", spans.opcode.start
        for name in sorted(names & (pair | {"branch_computations"}) - required):
            yield f"conditional on {dtype} has no {name}", spans.opcode.start
    branches = 2
    if "branch_computations" in names:
        start, end = spans.attributes["branch_computations"]
        spelled = spans.text[start:end]
        if not (spelled.startswith("{") and spelled.endswith("}")):
            yield "expected names in braces: branch_computations", start
            return
        branches = len(scope.computation.inline.get(scope.number, ()))
        if "=" not in spelled:
            branches = len(split_at_commas(spelled[1:-1]))
        if not branches:
            yield "conditional has no branch", start
    if count != branches + 1 and names & (pair | {"branch_computations"}):
        message = f"{branches} branches take {branches + 1} operands, not {count}"
        yield message, spans.operands.start


def _get_tuple_element(spans: InstructionSpans, scope: PrecedingInstructions) -> Iterator[_Error]:
    """XLA's process ends at an element of a `tuple` that is not there: it looks for async states.

    It compares no types, and takes any element of what is not the opcode `tuple`.
    """
    references, span = references_of(spans.record), spans.attributes.get("index")
    made = scope.record(references[0]) if references and "#" not in references[0] else None
    if span is None or made is None or opcode_of(made) != "tuple":
        return
    index, count = spans.text[span.start : span.end], len(references_of(made))
    if not (index.isdigit() and int(index[:9]) < count):
        yield f"a tuple of {count} elements has no element {index}", span.start


def _recv_done(spans: InstructionSpans, scope: PrecedingInstructions) -> Iterator[_Error]:
    operand = _operand_shape(spans, scope, 0)
    if operand is not None and not isinstance(operand, TupleShape):
        yield f"the operand of recv-done is not a tuple: {operand}", spans.operands.start
    elif operand is not None and not operand.elements:
        yield "the operand of recv-done has no elements", spans.operands.start
    yield from _channel(spans, scope)


def _channel(spans: InstructionSpans, scope: PrecedingInstructions) -> Iterator[_Error]:
    """A `send-done` has the channel of its operand, whatever instruction of a channel that is."""
    references = references_of(spans.record)
    start = scope.record(references[0]) if references and "#" not in references[0] else None
    if start is None or opcode_of(start) not in _WITH_CHANNEL:
        return
    own, other = (attribute_text(record, "channel_id") for record in (spans.record, start))
    if own != other:
        channel = f"channel {other}" if other else "no channel"
        yield f"%{name_of(start)} is on {channel}: print the same here", spans.opcode.start


_WITH_CHANNEL: Final = frozenset(
    opcode for opcode, demands in OPCODES.items() if "channel_id" in demands.allowed
)


def _custom_call(spans: InstructionSpans, scope: PrecedingInstructions) -> Iterator[_Error]:
    span = spans.attributes.get("operand_layout_constraints")
    if span is None:
        return
    shapes = tuple_of(spans.text[span.start : span.end].strip()[1:-1])
    if shapes is None or len(shapes) != len(references_of(spans.record)):
        return
    for number, constraint in enumerate(shapes):
        operand = scope.shape(references_of(spans.record)[number])
        if operand is not None and not compatible(constraint, operand):
            message = f"operand_layout_constraints: {constraint} is not compatible with operand"
            yield f"{message} {number}, {operand}", span.start


_CHECKS: Final[dict[str, Callable[[InstructionSpans, PrecedingInstructions], Iterator[_Error]]]] = {
    "reshape": _reshape,
    "broadcast": _broadcast,
    "dynamic-slice": _indices(1),
    "dynamic-update-slice": _indices(2),
    "compare": _compare,
    "dynamic-reshape": _dynamic_reshape,
    "conditional": _conditional,
    "get-tuple-element": _get_tuple_element,
    "recv-done": _recv_done,
    "send-done": _channel,
    "custom-call": _custom_call,
}
