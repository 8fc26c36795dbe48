"""Shapes: what inference says of them, precision of floats, layouts that name each dimension."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from hlo_lint.analysis.shape_inference import Refusal, ShapeInference
from hlo_lint.analysis.shape_inference.operation import Signature
from hlo_lint.analysis.shape_inference.types import is_float
from hlo_lint.analysis.shape_inference.verdict import OPCODES, Verdict, inference_of
from hlo_lint.analysis.verifier.scope import (
    Checks,
    RowChecks,
    Scope,
    Violation,
    operand_shape,
    parameter_types,
)
from hlo_lint.hlo.ir import Computation
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_of,
    opcode_of,
    operands_of,
    references_of,
    root_mark_of,
    type_of,
)
from hlo_lint.hlo.shape import BITS, UNBOUNDED, ArrayShape, ShapeSyntaxError, arrays, parse_shape


def _each(rows: dict[str, str]) -> dict[str, str]:
    return {opcode: row for row, opcodes in rows.items() for opcode in opcodes.split()}


_ROWS: Final = _each(
    {
        "S-11": "ragged-dot",
        "S-12": "scaled-dot",
        "S-17": "convolution fft triangular-solve cholesky opt-barrier",
        "S-28": "all-gather all-gather-start",
        "S-30": "all-gather-done all-reduce all-reduce-start all-reduce-done",
        "S-31": "reduce-scatter",
        "S-32": "all-to-all",
        "S-33": "ragged-all-to-all",
        "S-34": "partition-id replica-id",
        "S-35": "collective-broadcast",
        "S-36": "collective-permute collective-permute-start",
        "S-39": "collective-permute-done reduce-precision reverse topk",
        "S-40": "add-dependency after-all",
        "S-41": "infeed",
        "S-42": "outfeed",
        "S-43": "rng",
        "S-44": "rng-bit-generator",
        "S-45": "rng-get-and-update-state",
        "S-46": "sort",
        "S-48": "iota",
        "S-49": "get-tuple-element",
        "S-50": "reduce reduce-window map",
        "S-53": "scan",
        "S-71": "bitcast",
        "S-73": "broadcast",
        "S-74": "dynamic-reshape",
        "S-75": "reshape",
        "S-76": "transpose",
        "S-78": "fusion",
        "S-81": "call",
        "S-84": "slice dynamic-slice dynamic-update-slice tuple select-and-scatter pad",
        "S-85": "while",
        "S-86": "conditional",
        "S-94": "async-start",
        "S-95": "async-update",
        "S-98": "async-done",
        "S-100": "copy-start",
        "S-101": "copy-done",
        "S-102": "send recv send-done recv-done",
        "S-103": "batch-norm-training batch-norm-inference batch-norm-grad gather scatter "
        "get-dimension-size set-dimension-size",
    }
)
"""The row of an opcode that has one of its own."""
_ARITIES: Final = _each(
    {
        "M-21": "all-reduce-done all-gather-done collective-permute-done copy-done send-done "
        "recv-done",
        "M-23": "async-done",
    }
)
"""The row of a wrong number of operands, where an opcode has one of its own."""
_UNCHECKED: Final = frozenset(
    opcode
    for opcode, inference in OPCODES.items()
    if inference.infer is None and inference.check is None and inference.arity is None
)
_ANY_PRECISION: Final = frozenset(
    "call conditional constant convolution dot ragged-dot scaled-dot all-reduce all-reduce-start "
    "all-reduce-done all-gather all-gather-start all-gather-done async-start async-update "
    "async-done collective-permute collective-permute-start collective-permute-done copy-start "
    "copy-done custom-call domain fusion get-tuple-element opt-barrier infeed outfeed parameter "
    "recv recv-done send send-done reduce-precision reduce-window sort tuple while".split()
)
"""What may read floats of different precision everywhere."""
_NARROW: Final = frozenset(dtype for dtype, bits in BITS.items() if bits < 8)


def complaints(
    scope: Scope, inference: Callable[[], ShapeInference], places: Iterable[int]
) -> Iterator[tuple[int, Violation]]:
    """What is wrong with the shapes of some instructions, by their positions.

    Most lines of a dump are like many others: what a judgement depends on is made a key, and looked
    up before anything is read.
    """
    rows, index, strictness = scope.computation.rows, scope.computation.index, scope.strictness
    for number in places:
        row = rows[number]
        key: object
        if opcode_of(row) in _UNCHECKED:
            key = strictness, type_of(row)
        else:
            key = _key(scope, number, rows, index)
        if key in _FINE:
            continue
        found = _complaints(scope, inference(), number)
        if found:
            for each in found:
                yield number, each
        elif key is not None:
            if len(_FINE) >= _MAX_REMEMBERED:
                _FINE.clear()
            _FINE.add(key)
            _FINE.add((strictness, type_of(row)))


def _key(
    scope: Scope, number: int, rows: Sequence[InstructionRecord], index: Mapping[str, int]
) -> tuple[object, ...] | None:
    """All that the judgement of a shape depends on; None where that is more than a few texts."""
    row = rows[number]
    opcode, printed = opcode_of(row), type_of(row)
    strictness = scope.strictness
    reads = _READS.get(opcode)
    if reads is None or not printed:
        return None
    try:
        types = [type_of(rows[index[name]]) for name in references_of(row)]
    except KeyError:
        return None
    if "" in types:
        return None  # inferred from what lies further up
    if opcode in _SAME and types.count(printed) == len(types) and (strictness, printed) in _FINE:
        # Of shapes that are the same only the element type counts.
        return strictness, opcode, len(types), printed[: printed.find("[")]
    attributes, calls = reads
    tail = _facts(attributes_of(row)) if attributes else ""
    if not calls:
        return (strictness, opcode, printed, tail, *types)
    called = scope.computation.at(number).called_computations
    if opcode in ("call", "fusion") and len(called) == 1:
        body = scope.callees.get(called[0])
        if body is not None and _hands_on(body, types, printed):
            return strictness, printed
    signatures = []
    for name in called:
        callee = scope.callees.get(name)
        signature = None if callee is None else callee.memo.get(Signature)
        if signature is None:
            return None
        signatures.append(signature)
    return (strictness, opcode, printed, tail, *types, *signatures)


def _hands_on(body: Computation, operands: list[str], result: str) -> bool:
    """Whether a body takes and gives what its caller does, letter by letter."""
    rows = body.rows
    return (
        bool(rows and root_mark_of(rows[-1]))
        and type_of(rows[-1]) == result
        and parameter_types(body) == tuple(operands)
    )


def _facts(tail: str) -> str:
    """The attributes before metadata, where nothing that counts stands behind it."""
    head, _, rest = tail.partition(", metadata={")
    end = rest.find("}, ")
    return head if end < 0 or rest.startswith("backend_config=", end + 3) else tail


_SAME: Final = frozenset(
    "abs add and ceil cosine divide erf exponential exponential-minus-one floor log log-plus-one "
    "logistic maximum minimum multiply negate not or popcnt power remainder rsqrt shift-left "
    "shift-right-arithmetic shift-right-logical sign sine sqrt subtract tan tanh xor".split()
)
"""Opcodes that give what they read, of the element types that they take."""
_READS: Final = {opcode: (each.attributes, each.calls) for opcode, each in OPCODES.items()}
"""Whether a judgement reads attributes, and the signatures of what is called, by opcode."""
_FINE: Final[set[object]] = set()
"""What was judged and found right: most lines of a dump are like many others."""
_MAX_REMEMBERED = 1 << 15


def _complaints(scope: Scope, inference: ShapeInference, number: int) -> Sequence[Violation]:
    computation = scope.computation
    row = computation.rows[number]
    found = [
        Violation(which, computation.at(number), message)
        for which, message in _of_type(type_of(row))
        if which != "S-06e" or scope.demands.packed
    ]
    opcode = opcode_of(row)
    if opcode in _UNCHECKED:
        return found
    if inference_of(opcode) is None:
        return found
    verdict = inference.verdict(computation, number)
    troubles_of_shape = [*verdict.complaints]
    if verdict.misplaced and scope.demands.layouts:
        troubles_of_shape.append(verdict.misplaced)
    if troubles_of_shape:
        which = _row(row, verdict)
        found += [Violation(which, computation.at(number), each) for each in troubles_of_shape]
    if not scope.demands.mixed_precision and opcode not in _ANY_PRECISION:
        found += _precisions(scope, number)
    return found


def _row(row: InstructionRecord, verdict: Verdict) -> str:
    opcode = opcode_of(row)
    inference = inference_of(opcode)
    arity = None if inference is None else inference.arity
    if arity is not None and len(references_of(row)) != arity:
        return _ARITIES.get(opcode, "S-04")
    specific = _ROWS.get(opcode)
    if specific is not None:
        return specific
    if isinstance(verdict.inferred, Refusal):
        return "S-10"
    said_first = (*verdict.complaints, verdict.misplaced)[0]
    return "S-01" if said_first.startswith("XLA infers") else "I-14"


def _precisions(scope: Scope, number: int) -> Sequence[Violation]:
    rows, index = scope.computation.rows, scope.computation.index
    references = references_of(rows[number])
    if len(references) < 2:
        return ()
    texts = {type_of(rows[index[name]]).partition("[")[0] for name in references if name in index}
    if len(texts) < 2 and "#" not in operands_of(rows[number]):
        return ()
    instruction = scope.computation.at(number)
    floats = {
        array.dtype: place
        for place in reversed(range(len(instruction.operand_names)))
        for array in arrays(operand_shape(instruction, place))
        if is_float(array.dtype)
    }
    if len(floats) < 2:
        return ()
    (first, _), (second, place), *_ = sorted(floats.items(), key=lambda each: each[1])
    message = f"{instruction.opcode} reads floats of two precisions: {first} and {second}"
    return (Violation("S-02", instruction, message, operand=place),)


@lru_cache(maxsize=1 << 14)
def _of_type(text: str) -> tuple[tuple[str, str], ...]:
    """What is wrong with a type on its own: rows and messages."""
    if not text:
        return ()
    try:
        shape = parse_shape(text)
    except ShapeSyntaxError as error:
        return (("S-06", f"{text} is no type: {error.message}"),) if "{" in text else ()
    found: dict[str, str] = {}
    for array in arrays(shape):
        if UNBOUNDED in array.dims:
            found["S-05"] = f"{array} has a dimension without a bound, which XLA:GPU and CPU refuse"
        if array.layout is not None and not array.has_valid_layout:
            found["S-06"] = f"the layout of {array} does not name each dimension once"
        if trouble := _element_size(array):
            found["S-06e"] = trouble
    return tuple(found.items())


def _element_size(array: ArrayShape) -> str:
    bits = 0 if array.layout is None else array.layout.element_size_in_bits
    if not bits or array.dtype in _NARROW or array.dtype == "pred" or array.dtype not in BITS:
        return ""
    return f"{array} says E({bits}), which only types of less than 8 bits may"


CHECKS: Checks = {}
OF_ROWS: RowChecks = {}
OF_COMPUTATIONS = ()
OF_MODULES = ()
