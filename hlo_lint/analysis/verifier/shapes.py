"""Shapes of single instructions: inferred shapes, floating-point precision, layouts of a type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from functools import lru_cache
from typing import Final

from hlo_lint.analysis.layout_mismatches import operand_array, result_array
from hlo_lint.analysis.shape_inference import Refusal, ShapeInference
from hlo_lint.analysis.shape_inference.operation import Signature
from hlo_lint.analysis.shape_inference.shape_check import OPCODES, ShapeCheck, inference_of
from hlo_lint.analysis.verifier.checks import Checks
from hlo_lint.analysis.verifier.scope import Scope, Violation, operand_shape, parameter_types
from hlo_lint.hlo.dtypes import BITS, SUBBYTE, is_float
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.hlo.opcodes import KEEPS_TYPE, MIXED_PRECISION
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_of,
    opcode_of,
    operands_of,
    references_of,
    root_mark_of,
    type_of,
)
from hlo_lint.hlo.shape import UNBOUNDED, ArrayShape, ShapeSyntaxError, arrays, parse_shape

_UNCHECKED: Final = frozenset(
    opcode
    for opcode, inference in OPCODES.items()
    if inference.infer is None and inference.check is None and inference.arity is None
)


_SAME_TYPE: Final = frozenset(("broadcast", "reshape", "dynamic-reshape"))
"""Opcodes whose result has the operand's type (`ShapeVerifier::SameElementType`)."""


def keys(scope: Scope, stage: int, local: Set[str], good: Set[object]) -> Callable[[int], object]:
    """Make keys of the instructions of one computation: equal keys have equal shape violations.

    Most lines of a dump are like many others, so that the key of one that passed answers for the
    next before anything is read. A key holds all that the shape depends on; it is None if that is
    more than a few texts. A closure, because it runs for every instruction of every dump.
    """
    rows, index = scope.computation.rows, scope.computation.index
    types = list(map(type_of, rows))

    def key(number: int) -> object:
        row, printed = rows[number], types[number]
        opcode = opcode_of(row)
        attributes, calls = _READS.get(opcode, _UNKNOWN)
        if attributes is None:
            return (stage, printed) if opcode in _UNCHECKED else None
        if not printed:
            return None
        try:
            operands = [types[index[name]] for name in references_of(row)]
        except KeyError:
            return None
        if "" in operands:
            return None  # inferred from further operands
        if (
            opcode in KEEPS_TYPE
            and operands.count(printed) == len(operands)
            and (stage, printed) in good
        ):
            # Of shapes that are the same only the element type counts.
            return stage, opcode, len(operands), printed[: printed.find("[")]
        text = _facts(attributes_of(row)) if attributes or opcode in local else ""
        if not calls:
            return (stage, opcode, printed, text, *operands)
        return _key_of_caller(scope, number, (stage, opcode, printed, text, *operands), operands)

    return key


def _key_of_caller(
    scope: Scope, number: int, key: tuple[object, ...], operands: list[str]
) -> object:
    instruction = scope.computation.at(number)
    opcode, called = instruction.opcode, instruction.called_computations
    if opcode in ("call", "fusion") and len(called) == 1:
        body = scope.callees.get(called[0])
        if body is not None and _passes_on(body, operands, instruction.type_text):
            return key[0], instruction.type_text
    signatures = []
    for name in called:
        callee = scope.callees.get(name)
        signature = None if callee is None else callee.analysis_cache.get(Signature)
        if signature is None:
            return None
        signatures.append(signature)
    return (*key, *signatures)


def _passes_on(body: Computation, operands: list[str], result: str) -> bool:
    """True if a body has the types of its caller, letter by letter."""
    rows = body.rows
    return (
        bool(rows and root_mark_of(rows[-1]))
        and type_of(rows[-1]) == result
        and parameter_types(body) == tuple(operands)
    )


def _facts(attributes: str) -> str:
    """The attributes before metadata, if nothing that counts follows it."""
    head, _, after = attributes.partition(", metadata={")
    end = after.find("}, ")
    return head if end < 0 or after.startswith("backend_config=", end + 3) else attributes


_UNKNOWN: Final = (None, False)
_READS: Final[dict[str, tuple[bool | None, bool]]] = {
    opcode: _UNKNOWN if opcode in _UNCHECKED else (row.attributes, row.calls)
    for opcode, row in OPCODES.items()
}
"""True if inference reads attributes, and if it reads the signatures of callees, by opcode."""


def shape_violations(
    scope: Scope, inference: Callable[[], ShapeInference], number: int, checks: Checks
) -> Iterator[Violation]:
    """The violations of one instruction's shape and of its operands' shapes."""
    computation = scope.computation
    row = computation.rows[number]
    opcode = opcode_of(row)
    for check, message in _of_type(type_of(row)):
        if check == "element-size" and not scope.stage.packed:
            continue
        if check == "unbounded-dimension" and opcode in scope.stage.unbounded_dynamic_opcodes:
            continue
        yield Violation(check, computation.at(number), message)
    if opcode in _UNCHECKED or inference_of(opcode) is None:
        return
    checked = inference().check_shape(computation, number)
    if opcode == "bitcast" and not scope.stage.layouts:
        return  # HandleBitcast compares sizes in layout-sensitive mode alone
    messages = [*checked.errors]
    if scope.stage.layouts and checked.layout_error:
        messages.append(f"XLA infers another layout: {checked.layout_error}")
    elif scope.stage.exact_layouts and checked.exact_error:
        messages.append(f"XLA infers another layout: {checked.exact_error}")
    if checked.precision_error and not scope.stage.mixed_precision:
        messages.append(checked.precision_error)
    for message in messages:
        yield Violation(_check_of(row, checked, checks), computation.at(number), message)
    if not scope.stage.mixed_precision and opcode not in MIXED_PRECISION:
        yield from _precisions(scope, number)


def _check_of(row: InstructionRecord, checked: ShapeCheck, checks: Checks) -> str:
    """The name of the check that a wrong shape violates."""
    opcode = opcode_of(row)
    inference = inference_of(opcode)
    arity = None if inference is None else inference.arity
    if arity is not None and len(references_of(row)) != arity:
        return checks.counts.get(opcode, "operand-count")
    specific = checks.shapes.get(opcode)
    if specific is not None:
        return specific
    if isinstance(checked.inferred, Refusal):
        return "operand-shapes"
    is_error = checked.errors and not checked.errors[0].startswith("XLA infers")
    return "implicit-broadcast" if is_error else "result-shape"


def _precisions(scope: Scope, number: int) -> Iterator[Violation]:
    rows, index = scope.computation.rows, scope.computation.index
    references = references_of(rows[number])
    if opcode_of(rows[number]) in _SAME_TYPE:
        yield from _changed_precision(scope.computation.at(number))
    if len(references) < 2:
        return
    texts = {type_of(rows[index[name]]).partition("[")[0] for name in references if name in index}
    if len(texts) < 2 and "#" not in operands_of(rows[number]):
        return
    instruction = scope.computation.at(number)
    floats = {
        array.dtype: place
        for place in reversed(range(len(references)))
        for array in arrays(operand_shape(instruction, place))
        if is_float(array.dtype)
    }
    if len(floats) < 2:
        return
    (first, _), (second, place), *_ = sorted(floats.items(), key=lambda item: item[1])
    message = f"{instruction.opcode} has operands of two floating-point types: {first} and {second}"
    yield Violation("operand-precision", instruction, message, place)


def _changed_precision(instruction: Instruction) -> Iterator[Violation]:
    operand, result = operand_array(instruction, 0), result_array(instruction)
    if operand is None or result is None or operand.dtype == result.dtype:
        return
    if is_float(operand.dtype) and is_float(result.dtype):
        message = f"{instruction.opcode} cannot convert {operand.dtype} to {result.dtype}"
        yield Violation("operand-precision", instruction, message, 0)


@lru_cache(maxsize=1 << 14)
def _of_type(text: str) -> tuple[tuple[str, str], ...]:
    """The errors of a type on its own: names of checks, and messages."""
    if not text:
        return ()
    try:
        shape = parse_shape(text)
    except ShapeSyntaxError as error:
        return (("layout-rank", f"invalid type {text}: {error.message}"),) if "{" in text else ()
    errors: dict[str, str] = {}
    for array in arrays(shape):
        if UNBOUNDED in array.dims:
            errors["unbounded-dimension"] = (
                f"{array} has an unbounded dimension, which XLA:GPU and XLA:CPU refuse"
            )
        if array.layout is not None and not array.has_valid_layout:
            errors["layout-rank"] = f"the layout of {array} does not name each dimension once"
        elif array.layout is not None and any(not t or 0 in t for t in array.layout.tiles):
            errors["layout-rank"] = f"the layout of {array} has a tile without a size"
        if message := _element_size_error(array):
            errors["element-size"] = message
    return tuple(errors.items())


def _element_size_error(array: ArrayShape) -> str:
    bits = 0 if array.layout is None else array.layout.element_size_in_bits
    if not bits or array.dtype in SUBBYTE or array.dtype == "pred" or array.dtype not in BITS:
        return ""
    return f"{array} has the element size E({bits}), which only types of less than 8 bits may have"
