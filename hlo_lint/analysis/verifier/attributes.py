"""Attributes that XLA's verifier reads on their own, and the values of constants."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import Final

from hlo_lint.analysis.shape_inference.types import is_complex, is_float, is_integer, is_signed
from hlo_lint.analysis.verifier.scope import (
    Checks,
    RowChecks,
    Scope,
    Violation,
    operand_shape,
    text_of,
    value_of,
)
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import BITS, ArrayShape

_ACCURATE: Final = frozenset(
    "cbrt cosine erf exponential exponential-minus-one log log-plus-one logistic rsqrt sine sqrt "
    "tan tanh".split()
)
"""What may be asked to be of an accuracy."""
_UNARY: Final = frozenset(
    "abs acos acosh asin asinh atanh ceil clz convert copy cosh count-leading-zeros floor imag "
    "is-finite negate not popcnt real reduce-precision round-nearest-afz round-nearest-even sign "
    "sinh bitcast-convert".split()
)
_MAX_ELEMENTS = 1 << 10
"""Values of longer constants are not counted."""


def _accuracy(scope: Scope, instruction: Instruction) -> Iterator[Violation]:
    if "result_accuracy=" in instruction.attributes_text and text_of(
        instruction, "result_accuracy"
    ):
        message = f"{instruction.opcode} cannot be asked for an accuracy of its result"
        yield Violation("I-13", instruction, message)


def _comparison(scope: Scope, compare: Instruction) -> Iterator[Violation]:
    if "type=" not in compare.attributes_text:
        return
    kind, shape = value_of(compare, "type"), operand_shape(compare, 0)
    if not isinstance(shape, ArrayShape) or not isinstance(kind, str):
        return
    wanted = _comparisons(shape.dtype)
    if wanted and kind not in wanted:
        message = f"{shape.dtype} is compared as {' or '.join(wanted)}, and not as {kind}"
        yield Violation("I-15", compare, message)


def _comparisons(dtype: str) -> tuple[str, ...]:
    if is_float(dtype):
        return ("FLOAT", "TOTALORDER")
    if is_complex(dtype):
        return ("FLOAT",)
    if is_integer(dtype):
        return ("SIGNED",) if is_signed(dtype) else ("UNSIGNED",)
    return ("UNSIGNED",) if dtype == "pred" else ()


def _scan(scope: Scope, scan: Instruction) -> Iterator[Violation]:
    associative = text_of(scan, "is_associative") == "true"
    if not scope.demands.scan and not associative:
        message = "behind layout-assignment a scan is associative: the others have become loops"
        yield Violation("S-52", scan, message)


_find_values = re.compile(r"\([^()]*\)|[^\s{},()]+(?:\([^()]*\))?").findall
_comment = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


def _constant(scope: Scope, constant: Instruction) -> Iterator[Violation]:
    text = constant.operands_text
    if constant.type_text.endswith("[]") and text.isalnum():
        return
    shape = constant.shape_or_none
    if not isinstance(shape, ArrayShape) or "..." in text:
        return
    if not text.strip():
        if prod(shape.dims):
            yield Violation("S-47", constant, f"this constant says no value of {shape}")
        return
    if shape.elements > _MAX_ELEMENTS or shape.dtype not in BITS:
        return
    values = len(_find_values(_comment.sub("", text)))
    if values != shape.elements:
        message = f"this constant of {shape} has {values} values, and not {shape.elements}"
        yield Violation("S-47", constant, message)


CHECKS: Checks = {
    **dict.fromkeys(_UNARY - _ACCURATE, (_accuracy,)),
    "compare": (_comparison,),
    "scan": (_scan,),
    "constant": (_constant,),
}
OF_ROWS: RowChecks = {}
OF_COMPUTATIONS = ()
OF_MODULES = ()
