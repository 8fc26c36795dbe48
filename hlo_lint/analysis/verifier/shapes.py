"""Shapes of single instructions: inferred shapes, floating-point precision, layouts of a type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from hlo_lint.analysis.shape_inference import Refusal, ShapeInference
from hlo_lint.analysis.shape_inference.operation import Inference
from hlo_lint.analysis.shape_inference.shape_check import ShapeCheck, inference_of
from hlo_lint.analysis.verifier.checks import Checks
from hlo_lint.analysis.verifier.scope import Scope, Violation
from hlo_lint.hlo.arrays import operand_array, result_array
from hlo_lint.hlo.dtypes import BITS, SUBBYTE, is_float
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.opcodes import MIXED_PRECISION
from hlo_lint.hlo.records import InstructionRecord, opcode_of, operands_of, references_of, type_of
from hlo_lint.hlo.shape import (
    UNBOUNDED,
    ArrayShape,
    BufferShape,
    ShapeSyntaxError,
    arrays,
    leaves,
    parse_shape,
)
from hlo_lint.text.patterns import late

_called = late(r"=%?([^,=]*+),").findall
_SAME_TYPE: Final = frozenset(("broadcast", "reshape", "dynamic-reshape"))
"""Opcodes whose result has the operand's type (`ShapeVerifier::SameElementType`)."""


def has_shape_checks(opcode: str) -> bool:
    """True if XLA infers the shape of an opcode, or demands something of it."""
    return inference_of(opcode) not in (None, Inference())


def without_callees(attributes: str, callees: Sequence[str]) -> str:
    """The attributes without the names of callees, which are compared by signature."""
    attributes += ","
    for name in set(_called(attributes)).intersection(callees):
        attributes = attributes.replace(f"=%{name},", "=,").replace(f"={name},", "=,")
    return attributes


def type_violations(scope: Scope, number: int) -> Iterator[Violation]:
    """The violations of the type that an instruction prints."""
    row, stage = scope.computation.rows[number], scope.stage
    for check, message in type_errors(type_of(row)):
        # On TPU, any type may have an element size.
        if check == "element-size" and not stage.packed:
            continue
        if check == "unbounded-dimension" and opcode_of(row) in stage.unbounded_dynamic_opcodes:
            continue
        yield Violation(check, scope.computation.at(number), message)


def shape_violations(
    scope: Scope, inference: ShapeInference, number: int, checks: Checks
) -> Iterator[Violation]:
    """The violations of an instruction's shape and of its operands' shapes."""
    computation, stage = scope.computation, scope.stage
    row = computation.rows[number]
    opcode = opcode_of(row)
    if not has_shape_checks(opcode):
        return
    # The shape of a bitcast with its one operand is judged by its size alone.
    is_unary = len(references_of(row)) == 1
    if opcode == "bitcast" and is_unary and not _bitcast_sizes_count(scope, number):
        return
    checked = inference.check_shape(computation, number)
    messages = [*checked.errors]
    if stage.layouts and checked.layout_error:
        messages.append(checked.layout_error)
    elif stage.exact_layouts and checked.exact_error:
        messages.append(checked.exact_error)
    if checked.precision_error and not stage.mixed_precision:
        messages.append(checked.precision_error)
    for message in messages:
        yield Violation(_check_of(row, checked, checks), computation.at(number), message)
    if not stage.mixed_precision and opcode not in MIXED_PRECISION:
        yield from _precisions(scope, number)


def _bitcast_sizes_count(scope: Scope, number: int) -> bool:
    """True if `HandleBitcast` compares sizes: only in layout-sensitive mode.

    XLA:GPU and XLA:CPU count no padding. Elsewhere tiles may pad: the size in bytes is unknown.
    """
    stage = scope.stage
    if not (stage.layouts and stage.bitcast_sizes):
        return False
    # A stage that is not assumed is packed on GPU or CPU.
    if stage.exact_layouts and stage.packed:
        return True
    bitcast = scope.computation.at(number)
    shapes = (bitcast.operand_shape(0), bitcast.shape_or_none)
    return not any(
        array.layout and array.layout.tiles for shape in shapes for array in arrays(shape)
    )


def _check_of(row: InstructionRecord, checked: ShapeCheck, checks: Checks) -> str:
    """The name of the check that the violations of a shape belong to."""
    opcode = opcode_of(row)
    inference = inference_of(opcode)
    arity = None if inference is None else inference.arity
    if arity is not None and len(references_of(row)) != arity:
        return checks.counts.get(opcode, "operand-count")
    if opcode in checks.shapes:
        return checks.shapes[opcode]
    if isinstance(checked.inferred, Refusal):
        return "operand-shapes"
    # A wrong result is an error of the form "expected SHAPE"; the others are about broadcasts.
    is_result = not checked.errors or checked.errors[0].startswith("expected ")
    return "result-shape" if is_result else "implicit-broadcast"


def _precisions(scope: Scope, number: int) -> Iterator[Violation]:
    """Check that operands have a single floating-point type, and the result that of the operand."""
    rows, index = scope.computation.rows, scope.computation.index
    references = references_of(rows[number])
    if opcode_of(rows[number]) in _SAME_TYPE:
        yield from _changed_precision(scope.computation.at(number))
    if len(references) < 2:
        return
    # Spelled types are compared first: to read the shapes of all operands takes longer.
    dtypes = {type_of(rows[index[name]]).partition("[")[0] for name in references if name in index}
    if len(dtypes) < 2 and "#" not in operands_of(rows[number]):
        return
    instruction = scope.computation.at(number)
    # The first operand of each type.
    floats = {
        array.dtype: place
        for place in reversed(range(len(references)))
        for array in arrays(instruction.operand_shape(place))
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
def type_errors(text: str) -> tuple[tuple[str, str], ...]:
    """The errors of a type on its own: pairs of a check's name and a message."""
    if not text:
        return ()
    try:
        shape = parse_shape(text)
    except ShapeSyntaxError as error:
        # Without a layout, a rule of the family `form` reports it.
        return (("layout-rank", f"invalid type {text}: {error.message}"),) if "{" in text else ()
    errors: dict[str, str] = {}  # one for each check
    for _, leaf in leaves(shape):
        array = leaf.element if isinstance(leaf, BufferShape) else leaf
        if not isinstance(array, ArrayShape):
            continue
        if UNBOUNDED in array.dims:
            errors["unbounded-dimension"] = (
                f"{array} has an unbounded dimension, which XLA:GPU and XLA:CPU refuse"
            )
        if array.layout is not None and not array.has_valid_layout:
            errors["layout-rank"] = f"the layout of {array} does not name each dimension once"
        elif array.layout is not None and any(not t or 0 in t for t in array.layout.tiles):
            errors["layout-rank"] = f"the layout of {array} has a tile without a size"
        bits = 0 if array.layout is None else array.layout.element_size_in_bits
        if bits and array.dtype in BITS and array.dtype not in SUBBYTE:
            errors["element-size"] = (
                f"{array} has the element size E({bits}), which only types of less than 8 bits may "
                "have"
            )
    return tuple(errors.items())
